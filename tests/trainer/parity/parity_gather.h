/* parity_gather.h: puts an array together that is split over ranks that are processes. */
#ifndef FM_TESTS_TRAINER_PARITY_GATHER_H
#define FM_TESTS_TRAINER_PARITY_GATHER_H

#include "tests/trainer/parity/parity.h"

#include "trainer/dist/meeting.h"

enum { GATHER_S = 120 };

/* Whole outputs on the device. */
typedef struct gathered {
    float *whole[256];
    int n;
} gathered;

static inline void gathered_release(const fm_kernels *kernels, gathered *outputs) {
    while (outputs->n)
        kernels->release(outputs->whole[--outputs->n]);
}

/* Gathers the parts of a split output from the ranks that are processes; returns the whole on the
 * device, which `outputs` owns. */
static inline const float *gather_parts(const fm_kernels *kernels, fm_meeting *meeting,
                                        const fm_tensor *t, const void *data, gathered *outputs) {
    size_t count = (size_t)fm_tensor_local_count(t), n = (size_t)t->shard_count;
    float *own = calloc(count, sizeof *own), *all = calloc(count * n, sizeof *all);
    float *whole = calloc(count * n, sizeof *whole);
    float *device = kernels->alloc(count * n * sizeof *device);
    assert(own && all && whole && device);
    assert((size_t)outputs->n < sizeof outputs->whole / sizeof outputs->whole[0]);
    outputs->whole[outputs->n++] = device;
    kernels->download(NULL, own, data, count * sizeof *own);
    kernels->synchronize(NULL);
    fm_status status = fm_meeting_gather(meeting, own, count * sizeof *own, all, GATHER_S, NULL);
    assert(!status);
    (void)status;
    for (size_t r = 0; r < n; r++) {
        fm_tensor part = *t;
        part.shard_rank = (int32_t)r;
        put_part(&part, all + r * count, whole);
    }
    kernels->upload(NULL, device, whole, count * n * sizeof *whole);
    kernels->synchronize(NULL);
    free(own);
    free(all);
    free(whole);
    return device;
}

#endif
