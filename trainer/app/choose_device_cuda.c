/* choose_device_cuda.c: a build with the CUDA backend; see device.h. */
#include "trainer/backend/cuda/core/cuda.h"
#include "trainer/app/choose_device.h"

const fm_kernels *fm_device_cuda(fm_element act, const char **ret_why) {
    *ret_why = fm_kernels_cuda_refusal();
    return fm_kernels_cuda(act);
}
