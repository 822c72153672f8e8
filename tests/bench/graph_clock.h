/* graph_clock.h: how long a device takes to replay a captured graph.
 *
 *     options.kernels = graph_clock_open(kernels)    tables that record an event on both sides
 *     graph_clock_begin()                            forgets earlier launches
 *     graph_clock_least_s()                          the shortest launch since then
 *
 * The clock is one for the whole process, because a launch is not told its caller. When a graph is
 * launched while the device still works, the time is that of the graph alone. On an idle device the
 * time also has what the host needs to launch it. */
#ifndef FM_TESTS_BENCH_GRAPH_CLOCK_H
#define FM_TESTS_BENCH_GRAPH_CLOCK_H

#include "trainer/backend/kernels.h"

#include <math.h>

enum { GRAPH_CLOCK_LAUNCHES = 16 }; /* that are timed; later ones are not */

typedef struct graph_clock {
    const fm_device *of; /* NULL: not opened */
    fm_device device;
    fm_kernels kernels;
    fm_event *from[GRAPH_CLOCK_LAUNCHES], *to[GRAPH_CLOCK_LAUNCHES];
    int n_launch;
} graph_clock;

static graph_clock the_graph_clock;

static void graph_clock_launch(fm_graph *graph, fm_stream *stream) {
    graph_clock *c = &the_graph_clock;
    const bool is_timed = c->n_launch < GRAPH_CLOCK_LAUNCHES;
    if (is_timed) c->of->event_record(c->from[c->n_launch], stream);
    c->of->graph_launch(graph, stream);
    if (is_timed) c->of->event_record(c->to[c->n_launch++], stream);
}

/* Returns tables that do the same and time graphs, or NULL when the device refuses events. They
 * last as long as the process. */
static inline const fm_kernels *graph_clock_open(const fm_kernels *kernels) {
    graph_clock *c = &the_graph_clock;
    if (c->of) return &c->kernels;
    for (int i = 0; i < GRAPH_CLOCK_LAUNCHES; i++) {
        if (!kernels->device->event_create(&c->from[i])) return NULL;
        if (!kernels->device->event_create(&c->to[i])) return NULL;
    }
    c->of = kernels->device;
    c->device = *kernels->device;
    c->device.graph_launch = graph_clock_launch;
    c->kernels = *kernels;
    c->kernels.device = &c->device;
    return &c->kernels;
}

static inline void graph_clock_begin(void) {
    the_graph_clock.n_launch = 0;
}

/* INFINITY when there was no launch. The device must have finished its work. */
static inline double graph_clock_least_s(void) {
    const graph_clock *c = &the_graph_clock;
    double least = INFINITY;
    for (int i = 0; i < c->n_launch; i++)
        least = fmin(least, 1e-3 * c->of->event_elapsed_ms(c->from[i], c->to[i]));
    return least;
}

#endif
