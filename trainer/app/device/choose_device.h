/* choose_device.h: finds the kernel table that a run computes with, by the names on the command
 * line. */
#ifndef FM_TRAINER_CHOOSE_DEVICE_H
#define FM_TRAINER_CHOOSE_DEVICE_H

#include "proto/base/status.h"
#include "trainer/backend/kernels.h"

/* device: "cpu" or "cuda". dtype: "fp32" or, with cuda only, "bf16". FM_ERR_USAGE for other words.
 * FM_ERR_UNSUPPORTED if this build has no such backend or this machine has no such device. */
FM_MUST_USE fm_status fm_device_find(const char *device, const char *dtype,
                                     const fm_kernels **ret_kernels, fm_error *reterr);

/* Returns the CUDA backend's table, or NULL with the reason in *ret_why. Defined in
 * choose_device_cuda.c or, in a build without CUDA, in choose_device_no_cuda.c. */
const fm_kernels *fm_device_cuda(fm_element act, const char **ret_why);

/* Writes the PCI address of the device that the table computes on; false for the CPU. */
bool fm_device_address(const fm_kernels *kernels, char *out, size_t out_bytes);

/* Measures the matrix products that this process has done on the CUDA device and writes the table
 * of the fastest algorithms to `path`. For bench_step --tune.
 * FM_ERR_UNSUPPORTED without CUDA, FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_device_tune(const char *path, fm_error *reterr);

#endif
