/* buckets.h: sums the gradient of a sample over its ranks while backward still runs.
 *
 * The flat buffer of gradients is cut into buckets of equal size. A bucket is complete after the
 * last step of backward that writes a parameter in it, and its sum begins there: a reduce-scatter
 * into scratch memory, and when the next bucket is complete an all-gather back. Both run beside the
 * steps in between. Every element is summed in f32 (of f64 in f64) and in rank order, so the bits
 * do not depend on the buckets. */
#ifndef FM_TRAINER_BUCKETS_H
#define FM_TRAINER_BUCKETS_H

#include "trainer/autograd/tape.h"
#include "trainer/dist/comm.h"

enum {
    FM_MOST_BUCKETS = 32,
    FM_BUCKET_PARTS = 3, /* of scratch memory: of one bucket's scatter and of two gathers */
};

typedef struct fm_bucket {
    int64_t first; /* element */
    int32_t ready; /* the step of the tape after which nothing writes to it */
} fm_bucket;

typedef struct fm_buckets {
    fm_bucket bucket[FM_MOST_BUCKETS]; /* in the order in which they become ready */
    int32_t n;
    int64_t part; /* elements of a bucket that each rank sums */
    int64_t rest; /* the element behind the buckets */
} fm_buckets;

/* Plans the buckets of a planned tape. scratch_count: elements of the scratch memory. alike: all
 * ranks of the communicator record the same nodes. Otherwise they could not agree on the steps, and
 * all buckets are ready after the last one. */
fm_buckets fm_buckets_plan(const fm_tape *tape, const fm_comm *comm, int64_t scratch_count,
                           bool alike);

/* Runs backward and replaces the gradient by its sum over the ranks. */
void fm_buckets_backward(const fm_buckets *buckets, fm_tape *tape, fm_comm *comm, void *scratch,
                         int64_t scratch_count, fm_stream *stream);

#endif
