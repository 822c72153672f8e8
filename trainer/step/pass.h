/* pass.h: work that a step queues again and again. The first run queues it directly, so that code
 * is loaded and algorithms are chosen; the second captures it; from then on its graph is replayed.
 * Where nothing can be captured (the CPU) it is always queued directly, with the same results.
 *
 * What `queue` passes to kernels must be the same each time: all that varies is in device memory.
 */
#ifndef FM_TRAINER_STEP_PASS_H
#define FM_TRAINER_STEP_PASS_H

#include "trainer/backend/kernels.h"

typedef struct fm_pass {
    void (*queue)(void *context, fm_stream *stream);
    void *context;
    const fm_device *device;
    bool direct;                 /* never captured */
    bool is_warm;                /* has run once */
    fm_graph *graph;             /* NULL: not captured yet */
    uint64_t n_launch, n_direct; /* runs by a graph, and without */
} fm_pass;

void fm_pass_run(fm_pass *pass, fm_stream *stream);

/* Gives up the graph: the next run captures anew. The stream's work must have passed. */
void fm_pass_forget(fm_pass *pass);

#endif
