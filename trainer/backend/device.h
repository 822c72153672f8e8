/* device.h: what a backend offers beside kernels: streams, events, page-locked memory, and work
 * captured once and replayed as a graph.
 *
 * On the CPU streams and events are NULL, everything is finished when it returns, and nothing can
 * be captured: callers run the work itself then (trainer/step/pass.h). On a GPU these are CUDA's
 * things; a failing call is our own fault (assert) but where a result says otherwise. */
#ifndef FM_BACKEND_DEVICE_H
#define FM_BACKEND_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fm_stream fm_stream;
typedef struct fm_event fm_event;
typedef struct fm_graph fm_graph;

/* Nodes of a captured graph. */
typedef struct fm_graph_size {
    int64_t n_kernel, n_copy, n_other; /* copies: memcpy and memset */
} fm_graph_size;

typedef struct fm_device {
    /* Whether work is queued and runs beside the host. */
    bool is_asynchronous;

    /* False when refused. Streams wait for the default stream, and it for them. */
    bool (*stream_create)(fm_stream **ret_stream);
    void (*stream_destroy)(fm_stream *stream); /* NULL is fine, as in all _destroy */

    /* An event that was never recorded counts as passed. */
    bool (*event_create)(fm_event **ret_event);
    void (*event_destroy)(fm_event *event);
    void (*event_record)(fm_event *event, fm_stream *stream);
    void (*event_wait)(fm_event *event);                      /* the host waits */
    void (*stream_wait)(fm_stream *stream, fm_event *event);  /* what is queued from now on waits */
    double (*event_elapsed_ms)(fm_event *from, fm_event *to); /* both passed; 0 on the CPU */

    /* Host memory that copies read and write at full rate and kernels may write to; 64-byte
     * aligned, zeroed; NULL when refused. */
    void *(*host_alloc)(size_t bytes);
    void (*host_release)(void *memory);

    /* What is queued on the stream between the two is recorded, not run. begin: false where nothing
     * can be captured. end: NULL when the work could not be made a graph. Kernels must have run
     * once before (their code is loaded, their algorithms chosen). */
    bool (*capture_begin)(fm_stream *stream);
    fm_graph *(*capture_end)(fm_stream *stream);
    void (*graph_launch)(fm_graph *graph, fm_stream *stream);
    void (*graph_destroy)(fm_graph *graph);
    fm_graph_size (*graph_measure)(const fm_graph *graph);

    /* *ns = the device's clock when the stream gets there. ns is device memory. */
    void (*stamp)(fm_stream *stream, uint64_t *ns);
    /* Bytes of the device's memory in use by all; 0 on the CPU. */
    size_t (*used_bytes)(void);
    /* Bytes that could still be taken of it; 0 on the CPU: unknown. */
    size_t (*free_bytes)(void);
} fm_device;

#endif
