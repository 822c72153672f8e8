/* device.c: the CPU as a device: calls do not queue, so there is nothing to wait for or capture. */
#include "trainer/backend/cpu/blas.h"
#include "trainer/backend/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool stream_create(fm_stream **ret_stream) {
    *ret_stream = NULL;
    return true;
}

static void stream_destroy(fm_stream *stream) {
    (void)stream;
}

static bool event_create(fm_event **ret_event) {
    *ret_event = NULL;
    return true;
}

static void event_destroy(fm_event *event) {
    (void)event;
}

static void event_record(fm_event *event, fm_stream *stream) {
    (void)event, (void)stream;
}

static void event_wait(fm_event *event) {
    (void)event;
}

static void stream_wait(fm_stream *stream, fm_event *event) {
    (void)stream, (void)event;
}

static double event_elapsed_ms(fm_event *from, fm_event *to) {
    (void)from, (void)to;
    return 0;
}

static void *host_alloc(size_t bytes) {
    void *memory = fm_cpu_alloc(bytes);
    return memory ? memset(memory, 0, bytes) : NULL;
}

static bool capture_begin(fm_stream *stream) {
    (void)stream;
    return false;
}

static fm_graph *capture_end(fm_stream *stream) {
    (void)stream;
    return NULL;
}

static void graph_launch(fm_graph *graph, fm_stream *stream) {
    (void)graph, (void)stream;
}

static void graph_destroy(fm_graph *graph) {
    (void)graph;
}

static fm_graph_size graph_measure(const fm_graph *graph) {
    (void)graph;
    return (fm_graph_size){0};
}

static void stamp(fm_stream *stream, uint64_t *ns) {
    (void)stream;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static size_t no_bytes(void) {
    return 0;
}

const fm_device fm_cpu_device = {
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .stream_wait = stream_wait,
    .event_elapsed_ms = event_elapsed_ms,
    .host_alloc = host_alloc,
    .host_release = free,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
    .graph_measure = graph_measure,
    .stamp = stamp,
    .used_bytes = no_bytes,
    .free_bytes = no_bytes,
    .processor = fm_blas_processor,
    .library = fm_blas_version,
};
