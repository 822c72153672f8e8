/* device_groups_cuda.c: for a build with the CUDA backend; see device_groups.h. */
#include "trainer/app/device/device_groups.h"
#include "trainer/dist/cuda/gpu_groups.h"

#include <string.h>

enum { MEETING_S = 300 }; /* for a rank that is slow to start or to plan */

fm_status fm_device_groups_create(const fm_layout *layout, const fm_kernels *kernels,
                                  fm_meeting *meeting, const char *backend, double wait_s,
                                  const fm_run_end *run, fm_device_groups *ret_groups,
                                  fm_error *reterr) {
    bool peer = strcmp(backend, "peer") == 0;
    if (!peer && strcmp(backend, "nccl") != 0) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "a way to communicate: found '%.32s', expected peer or nccl", backend);
    }
    const fm_gpu_link_options options = {.kind = peer ? FM_LINK_PEER : FM_LINK_NCCL,
                                         .meeting = meeting,
                                         .seconds = MEETING_S,
                                         .wait_s = wait_s,
                                         .run = run ? *run : (fm_run_end){NULL, NULL, NULL}};
    fm_gpu_groups *groups = NULL;
    fm_status status = fm_gpu_groups_create(layout, kernels, &options, &groups, reterr);
    if (!status) *ret_groups = (fm_device_groups){groups, fm_gpu_groups_get(groups)};
    return status;
}

void fm_device_groups_destroy(fm_device_groups *groups) {
    fm_gpu_groups_destroy(groups->context);
    *groups = (fm_device_groups){0};
}
