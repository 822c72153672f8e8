/* choose_device_no_cuda.c: for a build without the CUDA backend; see choose_device.h. */
#include "trainer/app/device/choose_device.h"

const fm_kernels *fm_device_cuda(fm_element act, const char **ret_why) {
    (void)act;
    *ret_why = "this program is built without CUDA; ./run build cuda builds it with CUDA";
    return NULL;
}

bool fm_device_address(const fm_kernels *kernels, char *out, size_t out_bytes) {
    (void)kernels, (void)out, (void)out_bytes;
    return false;
}

fm_status fm_device_tune(const char *path, fm_error *reterr) {
    (void)path;
    return fm_fail(reterr, FM_ERR_UNSUPPORTED, "this program was built without CUDA");
}
