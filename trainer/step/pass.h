/* pass.h: work that a step queues again and again. The first run queues it directly, so that code
 * is loaded and algorithms are chosen; the second run captures it; every later run replays the
 * graph. Where nothing can be captured (the CPU), it is always queued directly, with the same
 * results.
 *
 * `queue` must pass the same arguments to kernels each time: everything that varies is in device
 * memory. */
#ifndef FM_TRAINER_STEP_PASS_H
#define FM_TRAINER_STEP_PASS_H

#include "trainer/backend/kernels.h"

typedef struct fm_pass {
    void (*queue)(void *context, fm_stream *stream);
    /* Whether every rank that runs the pass has captured it, or NULL for a rank that works alone.
     * Either all of them replay graphs or none does. */
    bool (*agree)(void *context, bool captured);
    void *context, *agree_context;
    const fm_device *device;
    bool direct;                 /* never captured */
    bool is_warm;                /* has run once */
    fm_graph *graph;             /* NULL: not captured yet */
    uint64_t n_launch, n_direct; /* runs that replayed a graph, and runs without */
} fm_pass;

void fm_pass_run(fm_pass *pass, fm_stream *stream);

/* Discards the graph; the next run captures again. The work on the stream must have ended. */
void fm_pass_forget(fm_pass *pass);

#endif
