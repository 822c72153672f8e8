/* choose_device_cuda.c: for a build with the CUDA backend; see choose_device.h. */
#include "trainer/backend/cuda/core/cuda.h"
#include "trainer/app/choose_device.h"

const fm_kernels *fm_device_cuda(fm_element act, const char **ret_why) {
    *ret_why = fm_kernels_cuda_refusal();
    return fm_kernels_cuda(act);
}
