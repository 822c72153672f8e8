/* device.h: the services of a backend beside kernels: streams, events, page-locked memory, and
 * graphs of work that is captured once and replayed.
 *
 * On the CPU, streams and events are NULL, every call is finished when it returns, and nothing can
 * be captured. Callers then run the work directly each time (trainer/step/pass.h). On a GPU,
 * streams, events and graphs are those of CUDA. A failing call ends the process with a message,
 * except where the result reports a refusal. */
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
    /* Whether calls only queue work, which then runs beside the host. */
    bool is_asynchronous;

    /* False when the device refuses. A stream waits for work of the default stream, and the default
     * stream for its work. */
    bool (*stream_create)(fm_stream **ret_stream);
    void (*stream_destroy)(fm_stream *stream); /* accepts NULL, as all _destroy do */

    /* An event that was never recorded counts as reached. */
    bool (*event_create)(fm_event **ret_event);
    void (*event_destroy)(fm_event *event);
    void (*event_record)(fm_event *event, fm_stream *stream);
    void (*event_wait)(fm_event *event);                      /* the host waits */
    void (*stream_wait)(fm_stream *stream, fm_event *event);  /* later work of the stream waits */
    double (*event_elapsed_ms)(fm_event *from, fm_event *to); /* both reached; 0 on the CPU */

    /* Page-locked host memory, which copies read and write at full rate and kernels may write to.
     * 64-byte aligned and zeroed; NULL when there is not enough. */
    void *(*host_alloc)(size_t bytes);
    void (*host_release)(void *memory);

    /* Work that this thread queues on the stream between begin and end is recorded and not run. The
     * call of begin returns false when the device cannot capture; end returns NULL when the work
     * cannot become a graph. The kernels must have run once before, so that their code is loaded
     * and their algorithms are chosen. */
    bool (*capture_begin)(fm_stream *stream);
    fm_graph *(*capture_end)(fm_stream *stream);
    void (*graph_launch)(fm_graph *graph, fm_stream *stream);
    void (*graph_destroy)(fm_graph *graph);
    fm_graph_size (*graph_measure)(const fm_graph *graph);

    /* Queues: *ns = the device's clock, in nanoseconds. ns is device memory. */
    void (*stamp)(fm_stream *stream, uint64_t *ns);
    /* Bytes of the device's memory that all processes use; 0 on the CPU. */
    size_t (*used_bytes)(void);
    /* Bytes of the device's memory that are free; 0 on the CPU, which does not know. */
    size_t (*free_bytes)(void);

    /* What the bits of results depend on beside the program. The processor: of a CPU the one whose
     * kernels OpenBLAS chose, such as "Haswell"; of a GPU its name. The library of matrix products
     * with its version, such as "OpenBLAS 0.3.21". The strings last as long as the thread. */
    const char *(*processor)(void);
    const char *(*library)(void);
} fm_device;

#endif
