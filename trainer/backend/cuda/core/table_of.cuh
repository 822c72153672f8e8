/* table_of.cuh: the table of an act type, or of tf32's products, for entries that are composed of
 * others of the same table. */
#ifndef FM_BACKEND_CUDA_TABLE_OF_CUH
#define FM_BACKEND_CUDA_TABLE_OF_CUH

#include "trainer/backend/cuda/core/common.cuh"

namespace fm_cuda {

template <typename T> const fm_kernels *table_of(void);
template <> inline const fm_kernels *table_of<float>(void) {
    return fm_kernels_cuda(FM_ELEMENT_F32);
}
template <> inline const fm_kernels *table_of<tf32>(void) {
    return fm_kernels_cuda(FM_ELEMENT_F32)->tf32;
}
template <> inline const fm_kernels *table_of<bf16>(void) {
    return fm_kernels_cuda(FM_ELEMENT_BF16);
}

} // namespace fm_cuda

#endif
