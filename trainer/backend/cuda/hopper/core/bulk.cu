/* bulk.cu: makes descriptions of strided tensors for the copy engine. The driver has a function
 * that encodes them; it is looked up by name, so that the program does not link to the driver. */
#include "trainer/backend/cuda/hopper/core/bulk.cuh"

#include <cudaTypedefs.h>

namespace fm_cuda {

static PFN_cuTensorMapEncodeTiled_v12000 encoder(void) {
    void *found = NULL;
    cudaDriverEntryPointQueryResult answer;
    FM_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                             cudaEnableDefault, &answer));
    if (answer != cudaDriverEntryPointSuccess) {
        call_failed("cuTensorMapEncodeTiled", "the driver does not have it", __FILE__, __LINE__);
    }
    return (PFN_cuTensorMapEncodeTiled_v12000)found;
}

box_map make_boxes(const void *base, const int64_t extent[5], const int64_t stride[4], int c,
                   int rows) {
    const int box[5] = {c, rows, 1, 1, 1};
    return make_long_boxes(base, extent, stride, box);
}

box_map make_long_boxes(const void *base, const int64_t extent[5], const int64_t stride[4],
                        const int box[5]) {
    box_map boxes;
    int c = box[0];
    cuuint64_t size[5], distance[4];
    cuuint32_t width[5], step[5] = {1, 1, 1, 1, 1};
    for (int i = 0; i < 5; i++)
        size[i] = (cuuint64_t)extent[i], width[i] = (cuuint32_t)box[i];
    for (int i = 0; i < 4;
         i++) /* the stride of an axis of one element is never used, but must be valid */
        distance[i] = extent[i + 1] > 1 ? (cuuint64_t)stride[i] * sizeof(bf16) : 16;
    CUtensorMapSwizzle swizzle = c == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                                 : c == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                 : c == 16 ? CU_TENSOR_MAP_SWIZZLE_32B
                                           : CU_TENSOR_MAP_SWIZZLE_NONE;
    CUresult status =
        encoder()(&boxes.map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5, (void *)base, size, distance,
                  width, step, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (status != CUDA_SUCCESS) {
        call_failed("cuTensorMapEncodeTiled", "the driver refused a tensor", __FILE__, __LINE__);
    }
    return boxes;
}

} // namespace fm_cuda
