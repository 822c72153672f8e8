/* choose_device.c: see choose_device.h. */
#include "trainer/app/device/choose_device.h"

#include <string.h>

fm_status fm_device_find(const char *device, const char *dtype, const fm_kernels **ret_kernels,
                         fm_error *reterr) {
    bool bf16 = strcmp(dtype, "bf16") == 0, cuda = strcmp(device, "cuda") == 0;
    if (!bf16 && strcmp(dtype, "fp32") != 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "--dtype: found '%.32s', expected fp32 or bf16",
                       dtype);
    }
    if (!cuda && strcmp(device, "cpu") != 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "--device: found '%.32s', expected cpu or cuda",
                       device);
    }
    if (bf16 && !cuda) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--dtype: found bf16, but the CPU computes in fp32 only; leave it out, or "
                       "give --device cuda");
    }
    const char *why = NULL;
    const fm_element act = bf16 ? FM_ELEMENT_BF16 : FM_ELEMENT_F32;
    const fm_kernels *kernels = cuda ? fm_device_cuda(act, &why) : fm_kernels_cpu(act);
    if (!kernels) {
        return fm_fail(reterr, FM_ERR_UNSUPPORTED, "--device %s --dtype %s: %s", device, dtype,
                       why);
    }
    *ret_kernels = kernels;
    return FM_OK;
}
