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

/* The entries that are composed of others of the same table. */
#define FM_COMPOSED_ENTRIES(ENTRY)                                                                 \
    ENTRY(linear_update_workspace)                                                                 \
    ENTRY(linear_update)                                                                           \
    ENTRY(transition_workspace)                                                                    \
    ENTRY(transition)                                                                              \
    ENTRY(transition_keeps)                                                                        \
    ENTRY(transition_grad_workspace)                                                               \
    ENTRY(transition_grad)                                                                         \
    ENTRY(norm_linear_workspace)                                                                   \
    ENTRY(norm_linear)                                                                             \
    ENTRY(few_grad_workspace)                                                                      \
    ENTRY(few_grad)                                                                                \
    ENTRY(swiglu_transition_kept)                                                                  \
    ENTRY(swiglu_transition_workspace)                                                             \
    ENTRY(swiglu_transition)                                                                       \
    ENTRY(swiglu_transition_grad_workspace)                                                        \
    ENTRY(swiglu_transition_grad)

/* device.cu: streams, events and graphs (device.h). */
const fm_device *device_table(void);

} // namespace fm_cuda

#endif
