/* kbench_energy.cu: see kbench_energy.cuh. */
#include "tests/kbench/kbench_energy.cuh"

#include <chrono>
#include <dlfcn.h>
#include <math.h>

namespace kbench {

/* The functions of NVML that are used, as its documentation declares them; 0 is success. */
typedef void *nvml_device;
enum { NVML_CLOCK_SM = 1, BUS_ID_BYTES = 32 };

struct nvml {
    nvml_device device;
    int (*energy)(nvml_device device, unsigned long long *millijoules);
    int (*clock)(nvml_device device, int type, unsigned *mhz);
};

template <typename function>
static bool find(void *library, const char *name, function *ret_function) {
    *ret_function = (function)dlsym(library, name);
    return *ret_function != NULL;
}

static bool open(nvml *ret_nvml) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*init)(void), (*find_device)(const char *bus_id, nvml_device *device), current = 0;
    char bus_id[BUS_ID_BYTES];
    return library && find(library, "nvmlInit_v2", &init) &&
           find(library, "nvmlDeviceGetHandleByPciBusId_v2", &find_device) &&
           find(library, "nvmlDeviceGetTotalEnergyConsumption", &ret_nvml->energy) &&
           find(library, "nvmlDeviceGetClockInfo", &ret_nvml->clock) &&
           cudaGetDevice(&current) == cudaSuccess &&
           cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, current) == cudaSuccess && init() == 0 &&
           find_device(bus_id, &ret_nvml->device) == 0;
}

static const nvml *the_nvml(void) {
    static nvml found;
    static const bool is_open = open(&found);
    return is_open ? &found : NULL;
}

static double now(void) {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

/* Replays that run while the host reads the counter. */
struct load {
    cudaGraphExec_t graph;
    cudaStream_t stream;
    cudaEvent_t done[2];
    int in_batch;
    long batches;
};

/* Queues a batch and waits for the one before it, so that the device always has work. */
static void go_on(load *l) {
    for (int i = 0; i < l->in_batch; i++)
        cudaGraphLaunch(l->graph, l->stream);
    cudaEventRecord(l->done[l->batches % 2], l->stream);
    l->batches++;
    cudaEventSynchronize(l->done[l->batches % 2]);
}

/* The driver renews its counter every 20 to 100 ms. A state is taken when it has just done so. */
struct state {
    double time, joules;
    long batches;
};

/* The state at the first new count after `seconds` from now; adds up clocks, as many as counted. */
static bool run_until(load *l, const nvml *n, double seconds, state *ret_state, double *ret_mhz) {
    const double begin = now(), most = seconds + 1; /* the counter must move within a second */
    unsigned long long before = 0, after = 0;
    double sum = 0;
    long count = 0;
    bool is_late = false;
    for (;;) {
        unsigned mhz = 0;
        go_on(l);
        if (n->energy(n->device, &after) || n->clock(n->device, NVML_CLOCK_SM, &mhz)) return false;
        sum += mhz, count++;
        const double spent = now() - begin;
        if (is_late && after != before) break;
        if (spent > most) return false;
        is_late = spent >= seconds;
        before = after;
    }
    *ret_state = {now(), 1e-3 * (double)after, l->batches};
    *ret_mhz = sum / (double)count;
    return true;
}

static double ms_of_replay(cudaGraphExec_t graph, cudaStream_t stream) {
    cudaStreamSynchronize(stream);
    const double begin = now();
    cudaGraphLaunch(graph, stream);
    cudaStreamSynchronize(stream);
    return 1e3 * (now() - begin);
}

bool measure_draw(cudaGraphExec_t graph, cudaStream_t stream, double seconds, draw *ret_draw) {
    static const double BATCH_MS = 5, LEAD_IN_S = 0.5;
    const nvml *n = the_nvml();
    if (!n) return false;
    load l = {graph, stream, {}, 0, 0};
    l.in_batch = (int)fmax(1, ceil(BATCH_MS / fmax(ms_of_replay(graph, stream), 1e-2)));
    cudaEventCreateWithFlags(&l.done[0], cudaEventDisableTiming);
    cudaEventCreateWithFlags(&l.done[1], cudaEventDisableTiming);
    state from, to;
    double unused;
    bool is_read = run_until(&l, n, LEAD_IN_S, &from, &unused) &&
                   run_until(&l, n, seconds, &to, &ret_draw->mhz);
    cudaStreamSynchronize(stream);
    cudaEventDestroy(l.done[0]);
    cudaEventDestroy(l.done[1]);
    if (!is_read) return false;
    const double replays = (double)(to.batches - from.batches) * l.in_batch;
    ret_draw->ms = 1e3 * (to.time - from.time) / replays;
    ret_draw->joules = (to.joules - from.joules) / replays;
    return true;
}

} // namespace kbench
