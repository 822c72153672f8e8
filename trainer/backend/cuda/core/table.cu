/* table.cu: the tables of the families' functions, and the device behind them. */
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/gemm/gemm.cuh"

namespace fm_cuda {

template <typename T>
static fm_kernels make_table(const char *name, fm_element act, const fm_kernels *wide) {
    fm_kernels k = {};
    k.name = name, k.act = act, k.acc = FM_ELEMENT_F32, k.wide = wide;
    k.device = device_table();
#define FM_ENTRY_HOST(name) k.name = name;
#define FM_ENTRY_ANY(name) k.name = name;
#define FM_ENTRY_ACT(name) k.name = name<T>;
#define FM_KERNEL(kind, result, name, ...) FM_ENTRY_##kind(name)
#include "trainer/backend/kernel_entries.h"
    return k;
}

} // namespace fm_cuda

const fm_kernels *fm_kernels_cuda(fm_element act) {
    static const fm_kernels f32 = fm_cuda::make_table<float>("cuda-f32", FM_ELEMENT_F32, NULL);
    static const fm_kernels half =
        fm_cuda::make_table<fm_cuda::bf16>("cuda-bf16", FM_ELEMENT_BF16, &f32);
    int devices = 0;
    if (act != FM_ELEMENT_F32 && act != FM_ELEMENT_BF16) return NULL;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        (void)cudaGetLastError(); /* no driver, or no device: said by NULL */
        return NULL;
    }
    if (!fm_cuda::gemm_prepare()) return NULL;
    return act == FM_ELEMENT_F32 ? &f32 : &half;
}
