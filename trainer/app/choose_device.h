/* choose_device.h: the kernel table that a run computes with, by the names a person gives. */
#ifndef FM_TRAINER_DEVICE_H
#define FM_TRAINER_DEVICE_H

#include "proto/base/status.h"
#include "trainer/backend/kernels.h"

/* device: "cpu" or "cuda"; dtype: "fp32" or "bf16" (cuda alone). FM_ERR_USAGE for other words;
 * FM_ERR_UNSUPPORTED when this build has no such backend or this machine no such device. */
FM_MUST_USE fm_status fm_device_find(const char *device, const char *dtype,
                                     const fm_kernels **ret_kernels, fm_error *reterr);

/* The CUDA backend's table: device_cuda.c or, in a build without CUDA, device_no_cuda.c. NULL when
 * there is none; *ret_why says why, in words. */
const fm_kernels *fm_device_cuda(fm_element act, const char **ret_why);

#endif
