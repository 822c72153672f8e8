/* device.cu: the device table of device.h on CUDA: streams, events, page-locked memory, captured
 * graphs. */
#include "trainer/backend/cuda/core/clock.cuh"
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/core/kernel_set.cuh"

#include <cublasLt.h>
#include <stdio.h>
#include <string.h>

namespace fm_cuda {

static cudaEvent_t event_of(fm_event *event) {
    return (cudaEvent_t)event;
}

static bool stream_create(fm_stream **ret_stream) {
    return cudaStreamCreate((cudaStream_t *)ret_stream) == cudaSuccess;
}

static void stream_destroy(fm_stream *stream) {
    if (stream) FM_CUDA(cudaStreamDestroy(queue(stream)));
}

static bool event_create(fm_event **ret_event) {
    return cudaEventCreate((cudaEvent_t *)ret_event) == cudaSuccess;
}

static void event_destroy(fm_event *event) {
    if (event) FM_CUDA(cudaEventDestroy(event_of(event)));
}

static void event_record(fm_event *event, fm_stream *stream) {
    FM_CUDA(cudaEventRecord(event_of(event), queue(stream)));
}

static void event_wait(fm_event *event) {
    FM_CUDA(cudaEventSynchronize(event_of(event)));
}

static void stream_wait(fm_stream *stream, fm_event *event) {
    FM_CUDA(cudaStreamWaitEvent(queue(stream), event_of(event), 0));
}

static double event_elapsed_ms(fm_event *from, fm_event *to) {
    float ms = 0;
    FM_CUDA(cudaEventElapsedTime(&ms, event_of(from), event_of(to)));
    return (double)ms;
}

static void *host_alloc(size_t bytes) {
    void *memory = NULL;
    if (cudaHostAlloc(&memory, bytes, cudaHostAllocPortable) == cudaSuccess) {
        return memset(memory, 0, bytes);
    }
    (void)cudaGetLastError();
    return NULL;
}

static void host_release(void *memory) {
    if (memory) FM_CUDA(cudaFreeHost(memory));
}

/* Thread-local mode watches only the calls of this thread; other threads may use the device. */
static bool capture_begin(fm_stream *stream) {
    return cudaStreamBeginCapture(queue(stream), cudaStreamCaptureModeThreadLocal) == cudaSuccess;
}

/* The graph is kept beside its executable form, because only the graph can be measured. */
struct captured {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
};

static void graph_destroy(fm_graph *graph) {
    captured *g = (captured *)graph;
    if (!g) return;
    if (g->exec) FM_CUDA(cudaGraphExecDestroy(g->exec));
    if (g->graph) FM_CUDA(cudaGraphDestroy(g->graph));
    free(g);
}

static fm_graph *capture_end(fm_stream *stream) {
    captured *g = (captured *)calloc(1, sizeof *g);
    cudaGraph_t graph = NULL;
    cudaError_t error = cudaStreamEndCapture(queue(stream), &graph);
    if (g && error == cudaSuccess && graph) {
        g->graph = graph;
        if (cudaGraphInstantiate(&g->exec, graph, 0) == cudaSuccess) return (fm_graph *)g;
    }
    (void)cudaGetLastError();
    graph_destroy((fm_graph *)g);
    return NULL;
}

static void graph_launch(fm_graph *graph, fm_stream *stream) {
    FM_CUDA(cudaGraphLaunch(((captured *)graph)->exec, queue(stream)));
}

static fm_graph_size graph_measure(const fm_graph *graph) {
    fm_graph_size size = {0, 0, 0};
    cudaGraph_t g = ((const captured *)graph)->graph;
    size_t count = 0;
    FM_CUDA(cudaGraphGetNodes(g, NULL, &count));
    cudaGraphNode_t *nodes = (cudaGraphNode_t *)calloc(count + 1, sizeof *nodes);
    assert(nodes);
    FM_CUDA(cudaGraphGetNodes(g, nodes, &count));
    for (size_t i = 0; i < count; i++) {
        cudaGraphNodeType type;
        FM_CUDA(cudaGraphNodeGetType(nodes[i], &type));
        if (type == cudaGraphNodeTypeKernel) {
            size.n_kernel++;
        } else if (type == cudaGraphNodeTypeMemcpy || type == cudaGraphNodeTypeMemset) {
            size.n_copy++;
        } else {
            size.n_other++;
        }
    }
    free(nodes);
    return size;
}

__global__ void stamp_kernel(uint64_t *ns) {
    *ns = device_clock_ns();
}

static void stamp(fm_stream *stream, uint64_t *ns) {
    stamp_kernel<<<1, 1, 0, queue(stream)>>>(ns);
    FM_LAUNCHED();
}

static size_t used_bytes(void) {
    size_t available = 0, total = 0;
    FM_CUDA(cudaMemGetInfo(&available, &total));
    return total - available;
}

static size_t free_bytes(void) {
    size_t available = 0, total = 0;
    FM_CUDA(cudaMemGetInfo(&available, &total));
    return available;
}

struct processor_name {
    char text[320];
};

/* The device and, since they make other bits, which kernels it runs. Those of hopper/ are what runs
 * have always had on an H100 or H200, so their runs keep the device's plain name. */
static processor_name name_processor(void) {
    int device = 0;
    cudaDeviceProp properties;
    processor_name name;
    FM_CUDA(cudaGetDevice(&device));
    FM_CUDA(cudaGetDeviceProperties(&properties, device));
    snprintf(name.text, sizeof name.text, "%s%s", properties.name,
             uses_hopper() ? "" : ", portable kernels");
    return name;
}

static const char *processor(void) {
    static const processor_name name = name_processor();
    return name.text;
}

struct library_name {
    char text[32];
};

static library_name name_library(void) {
    library_name name;
    size_t version = cublasLtGetVersion();
    snprintf(name.text, sizeof name.text, "cuBLASLt %zu.%zu.%zu", version / 10000,
             version / 100 % 100, version % 100);
    return name;
}

static const char *library(void) {
    static const library_name name = name_library();
    return name.text;
}

static fm_device make_device(void) {
    fm_device d = {};
    d.is_asynchronous = true;
    d.stream_create = stream_create, d.stream_destroy = stream_destroy;
    d.event_create = event_create, d.event_destroy = event_destroy;
    d.event_record = event_record, d.event_wait = event_wait;
    d.stream_wait = stream_wait, d.event_elapsed_ms = event_elapsed_ms;
    d.host_alloc = host_alloc, d.host_release = host_release;
    d.capture_begin = capture_begin, d.capture_end = capture_end;
    d.graph_launch = graph_launch, d.graph_destroy = graph_destroy;
    d.graph_measure = graph_measure;
    d.stamp = stamp;
    d.used_bytes = used_bytes, d.free_bytes = free_bytes;
    d.processor = processor, d.library = library;
    return d;
}

const fm_device *device_table(void) {
    static const fm_device device = make_device();
    return &device;
}

} // namespace fm_cuda

bool fm_cuda_address(char *out, size_t out_bytes) {
    int device = 0;
    bool known = cudaGetDevice(&device) == cudaSuccess &&
                 cudaDeviceGetPCIBusId(out, (int)out_bytes, device) == cudaSuccess;
    if (!known) (void)cudaGetLastError();
    return known;
}
