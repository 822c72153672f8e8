/* choose_device_cuda.c: for a build with the CUDA backend; see choose_device.h. */
#include "trainer/app/device/choose_device.h"
#include "trainer/backend/cuda/core/cuda.h"

const fm_kernels *fm_device_cuda(fm_element act, const char **ret_why) {
    *ret_why = fm_kernels_cuda_refusal();
    return fm_kernels_cuda(act);
}

bool fm_device_address(const fm_kernels *kernels, char *out, size_t out_bytes) {
    return kernels->device->is_asynchronous && fm_cuda_address(out, out_bytes);
}

fm_status fm_device_tune(const char *path, fm_error *reterr) {
    FILE *file = fopen(path, "w");
    if (!file) return fm_fail_in(reterr, FM_ERR_IO, path, "cannot be written");
    bool measured = fm_cuda_tune(file);
    bool written = !ferror(file);
    written = fclose(file) == 0 && written;
    if (!measured) return fm_fail(reterr, FM_ERR_NOMEM, "the device has too little memory to tune");
    return written ? FM_OK : fm_fail_in(reterr, FM_ERR_IO, path, "cannot be written");
}
