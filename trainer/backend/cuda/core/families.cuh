/* families.cuh: declares the functions behind the CUDA tables, made of the list of entries.
 *
 * kernel_entries.h says what each entry does. An ACT entry is a template over T, the act type
 * (float or bf16). The .cu file of its family defines it and instantiates both. An ANY or HOST
 * entry is a plain function. Functions that families share but that are no entries are declared in
 * the header of the family that defines them (core/sums.cuh, gemm/gemm.cuh, ...). */
#ifndef FM_BACKEND_CUDA_FAMILIES_CUH
#define FM_BACKEND_CUDA_FAMILIES_CUH

#include "trainer/backend/cuda/core/common.cuh"

namespace fm_cuda {

#define FM_DECLARE_HOST(result, name, ...) result name(__VA_ARGS__);
#define FM_DECLARE_ANY(result, name, ...) result name(__VA_ARGS__);
#define FM_DECLARE_ACT(result, name, ...) template <typename T> result name(__VA_ARGS__);
#define FM_KERNEL(kind, ...) FM_DECLARE_##kind(__VA_ARGS__)
#include "trainer/backend/kernel_entries.h"

/* device.cu: streams, events and graphs (device.h). */
const fm_device *device_table(void);

} // namespace fm_cuda

#endif
