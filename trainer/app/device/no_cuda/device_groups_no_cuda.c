/* device_groups_no_cuda.c: for a build without the CUDA backend; see device_groups.h. */
#include "trainer/app/device/device_groups.h"

fm_status fm_device_groups_create(const fm_layout *layout, const fm_kernels *kernels,
                                  fm_meeting *meeting, const char *backend, double wait_s,
                                  const fm_run_end *run, fm_device_groups *ret_groups,
                                  fm_error *reterr) {
    (void)layout, (void)kernels, (void)meeting, (void)wait_s, (void)run, (void)ret_groups;
    return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                   "ranks with a GPU each (%.32s): this program was built without CUDA", backend);
}

void fm_device_groups_destroy(fm_device_groups *groups) {
    (void)groups;
}
