/* kbench_case.cu: the registry, operands of a case, its comparison with the oracle, and its times.
 *
 * A time is taken between two event nodes of one graph. Warm: as many calls in sequence as make a
 * replay last about a third of a millisecond, divided by their number. A part with a reset has one
 * timed call, after another call that is not timed. Cold: one call after a kernel that reads four
 * times the L2 cache. Both are medians over replays, of which there are fewer when a call takes
 * longer than 2 ms. */
#include "tests/kbench/kbench.cuh"
#include "tests/kbench/kbench.h"
#include "tests/kbench/kbench_energy.cuh"
extern "C" {
#include "tests/testing/watchdog.h"
}
#include "trainer/backend/cuda/core/common.cuh"

#include <algorithm>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace kbench {

static std::vector<test_case> cases;
static std::vector<int> chosen;
static kbench_options settings;

const fm_kernels *f32_table(void) {
    return fm_kernels_cuda(FM_ELEMENT_F32);
}

/* -- the registry */

void add(const char *name, peer other, options how, const make &body,
         const std::vector<path> &paths) {
    cases.push_back({name, "", NULL, other, how, body});
    for (const path &p : paths)
        cases.push_back(
            {std::string(name) + " [" + p.name + "]", p.name, p.patch, other, how, body});
}

static bool is_chosen(const kbench_options *o, const std::string &name) {
    bool found = o->n_select == 0 && name.rfind("self test", 0) != 0;
    for (int i = 0; i < o->n_select; i++) {
        bool asks = strncmp(o->select[i], "self test", 9) == 0;
        if (name.rfind("self test", 0) == 0 && !asks) continue;
        found |= name.find(o->select[i]) != std::string::npos;
    }
    return found;
}

/* -- operands */

bench::bench(const fm_kernels *table, const char *path_name, void (*patch)(fm_kernels *),
             bool oracle)
    : k(table), is_oracle(oracle), path(path_name), patched(*table) {
    if (patch && !oracle) {
        patch(&patched);
        k = &patched;
    }
}

bench::~bench() {
    for (output &o : outputs)
        if (!o.is_borrowed) k->release(o.memory);
    for (const std::function<void()> &end : ends)
        end();
    for (void *p : others)
        k->release(p);
}

bool bench::is(const char *name) const {
    return strcmp(path, name) == 0;
}

static bool is_host(const fm_kernels *k) {
    return !k->device->is_asynchronous;
}

void *bench::memory(size_t bytes) {
    void *p = k->alloc(bytes > 0 ? bytes : 64);
    if (!p) {
        fprintf(stderr, "kbench: no memory for %.1f MB\n", (double)bytes * 1e-6);
        abort();
    }
    return p;
}

static void round_all(int64_t n, float *x) {
    fm_cuda::each(
        NULL, n, [=] __device__(int64_t i) { x[i] = __bfloat162float(__float2bfloat16_rn(x[i])); });
}

/* Uniform bf16 numbers as f32, in device memory of the f32 table. */
void *bench::drawn_f32(int64_t n, double size) {
    const fm_kernels *f32 = f32_table();
    fm_draw draw = {20260101, NULL, drawn++, 99};
    float *x = (float *)f32->alloc((size_t)n * 4);
    if (!x) abort();
    f32->init(NULL, FM_INIT_UNIFORM, n, 0, size, &draw, x);
    round_all(n, x);
    return x;
}

/* Converts device f32 memory, which is freed, to the place and type of the table. */
void bench::move(void *to, fm_element element, int64_t n, void *f32) {
    const fm_kernels *from = f32_table();
    if (is_host(k)) {
        from->download(NULL, to, f32, (size_t)n * 4);
    } else if (element == FM_ELEMENT_F32) {
        from->copy(NULL, n, f32, to);
    } else {
        fm_kernels_cuda(FM_ELEMENT_BF16)->cast(NULL, n, FM_ELEMENT_F32, f32, to);
    }
    from->synchronize(NULL);
    from->release(f32);
}

void *bench::place(fm_element element, int64_t n, void *f32) {
    if (!is_host(k) && element == FM_ELEMENT_F32) return f32;
    void *p = memory((size_t)n * fm_element_bytes(element));
    move(p, element, n, f32);
    return p;
}

/* 0/1, every period-th 0. */
static void *mask_f32(int64_t n, int64_t period) {
    float *x = (float *)f32_table()->alloc((size_t)n * 4);
    if (!x) abort();
    fm_cuda::each(NULL, n,
                  [=] __device__(int64_t i) { x[i] = i % period == period / 2 ? 0.0f : 1.0f; });
    return x;
}

void bench::fill(void *p, fm_element element, int64_t n, double range) {
    move(p, element, n, range == 0 ? mask_f32(n, 37) : drawn_f32(n, range));
}

void bench::borrow(const char *name, fm_element element, int64_t n, void *p) {
    outputs.push_back({name, element, n, p, true, false});
}

void *bench::act(int64_t n, double range) {
    others.push_back(place(k->act, n, drawn_f32(n, range)));
    return others.back();
}

void *bench::acc(int64_t n, double range) {
    others.push_back(place(k->acc, n, drawn_f32(n, range)));
    return others.back();
}

float *bench::floats(int64_t n, double range) {
    others.push_back(place(FM_ELEMENT_F32, n, drawn_f32(n, range)));
    return (float *)others.back();
}

void *bench::ones(int64_t n) {
    void *p = scratch((size_t)n * fm_element_bytes(k->act));
    k->fill(NULL, n, 1, p);
    return p;
}

float *bench::float_ones(int64_t n) {
    std::vector<float> x((size_t)n, 1.0f);
    void *p = scratch(x.size() * 4);
    k->upload(NULL, p, x.data(), x.size() * 4);
    k->synchronize(NULL);
    return (float *)p;
}

void *bench::mask(int64_t n, int64_t period) {
    others.push_back(place(k->act, n, mask_f32(n, period)));
    return others.back();
}

uint8_t *bench::bytes(int64_t n, int modulus) {
    std::vector<uint8_t> x((size_t)n);
    for (size_t i = 0; i < x.size(); i++)
        x[i] = (uint8_t)(i * 7 % (size_t)modulus);
    void *p = scratch(x.size());
    k->upload(NULL, p, x.data(), x.size());
    k->synchronize(NULL);
    return (uint8_t *)p;
}

int32_t *bench::indices(int64_t n) {
    std::vector<int32_t> x((size_t)n);
    for (size_t i = 0; i < x.size(); i++)
        x[i] = (int32_t)i;
    void *p = scratch(x.size() * 4);
    k->upload(NULL, p, x.data(), x.size() * 4);
    k->synchronize(NULL);
    return (int32_t *)p;
}

void *bench::keep(const char *name, fm_element element, int64_t n, void *from) {
    void *p = from;
    if (!p) {
        size_t size = (size_t)n * fm_element_bytes(element);
        p = memory(size);
        if (is_host(k)) {
            memset(p, 0xff, size);
        } else {
            cudaMemset(p, 0xff, size);
        }
    }
    outputs.push_back({name, element, n, p, false, from != NULL});
    return p;
}

void *bench::out(const char *name, int64_t n) {
    return keep(name, k->act, n, NULL);
}

void *bench::out_acc(const char *name, int64_t n) {
    return keep(name, k->acc, n, NULL);
}

fm_out bench::grad(const char *name, int64_t n, bool is_acc) {
    return {keep(name, is_acc ? k->acc : k->act, n, NULL), FM_WRITE};
}

void *bench::updated(const char *name, int64_t n, double range, bool is_positive) {
    float *x = (float *)drawn_f32(n, range);
    if (is_positive) fm_cuda::each(NULL, n, [=] __device__(int64_t i) { x[i] = fabsf(x[i]); });
    return keep(name, k->acc, n, place(k->acc, n, x));
}

void *bench::scratch(size_t size) {
    others.push_back(memory(size));
    return others.back();
}

void *bench::at(void *p, int64_t n) const {
    return (char *)p + n * (int64_t)fm_element_bytes(k->act);
}

const void *bench::at(const void *p, int64_t n) const {
    return (const char *)p + n * (int64_t)fm_element_bytes(k->act);
}

double bench::size(double n) const {
    return n * (double)fm_element_bytes(k->act);
}

void bench::part(const char *name, double flops, double ideal_bytes, work run, work reset) {
    parts.push_back({name, flops, ideal_bytes, run, reset});
}

/* All parts once. */
static void run_parts(const bench &b) {
    for (const timed &p : b.parts) {
        if (p.reset) p.reset(NULL);
        p.run(NULL);
    }
    b.k->synchronize(NULL);
}

/* -- comparison */

__device__ static float value_of(const void *p, bool is_bf16, int64_t i) {
    return is_bf16 ? __bfloat162float(((const __nv_bfloat16 *)p)[i]) : ((const float *)p)[i];
}

/* Sums over a block's elements of (x - y)^2, y^2 and (rounded y - y)^2, and whether an element is
 * NaN on one side only. */
enum { SUM_BLOCKS = 512, SUMS = 4 };
__global__ static void __launch_bounds__(256)
    compare_kernel(int64_t n, const void *x, bool is_bf16, const float *y, double *sums) {
    __shared__ double space[32];
    double total[SUMS] = {0, 0, 0, 0};
    for (int64_t i = blockIdx.x * (int64_t)256 + threadIdx.x; i < n;
         i += (int64_t)SUM_BLOCKS * 256) {
        float a = value_of(x, is_bf16, i), b = y[i];
        if (isnan(a) || isnan(b)) {
            total[3] += isnan(a) != isnan(b);
            continue;
        }
        if (a == b && isinf(a)) continue;
        double d = (double)a - (double)b;
        double r = (double)__bfloat162float(__float2bfloat16_rn(b)) - (double)b;
        total[0] += d * d, total[1] += (double)b * b, total[2] += r * r;
    }
    for (int i = 0; i < SUMS; i++) {
        double sum = fm_cuda::block_sum(total[i], space);
        if (threadIdx.x == 0) sums[blockIdx.x * SUMS + i] = sum;
    }
}

struct difference {
    double error = -1, tolerance = 0, ratio = -1;
    std::string name;
};

/* Tolerance: f32 1e-4, with products of tf32 1e-3 (run_case). bf16: twice a plain bf16
 * composition's error, sqrt(stages) * u, u the distance of the oracle's result from itself rounded
 * to bf16, at least 1.6e-3 (cuda_check). */
static difference compare(const output &found, const output &expected, int stages, bool is_f32,
                          bool on_host) {
    difference d;
    d.name = found.name;
    const float *y = (const float *)expected.memory;
    void *copy = NULL;
    if (on_host) {
        copy = f32_table()->alloc((size_t)expected.n * 4);
        f32_table()->upload(NULL, copy, expected.memory, (size_t)expected.n * 4);
        y = (const float *)copy;
    }
    double *device = (double *)f32_table()->alloc(SUM_BLOCKS * SUMS * sizeof(double));
    std::vector<double> sums(SUM_BLOCKS * SUMS);
    compare_kernel<<<SUM_BLOCKS, 256>>>(found.n, found.memory, found.element == FM_ELEMENT_BF16, y,
                                        device);
    f32_table()->download(NULL, sums.data(), device, sums.size() * sizeof(double));
    f32_table()->synchronize(NULL);
    f32_table()->release(device);
    f32_table()->release(copy);
    double total[SUMS] = {0, 1e-24, 0, 0};
    for (size_t i = 0; i < sums.size(); i++)
        total[i % SUMS] += sums[i];
    double u = sqrt(total[2] / total[1]);
    d.error = total[3] > 0 ? NAN : sqrt(total[0] / total[1]);
    d.tolerance = is_f32 ? 1e-4 : 2 * fmax(u, 1.6e-3) * sqrt((double)stages);
    d.ratio = isnan(d.error) ? INFINITY : d.error / d.tolerance;
    return d;
}

/* -- the same bits */

__global__ static void __launch_bounds__(256)
    count_kernel(int64_t n, const uint16_t *x, const uint16_t *y, unsigned long long *count) {
    for (int64_t i = blockIdx.x * (int64_t)256 + threadIdx.x; i < n; i += (int64_t)gridDim.x * 256)
        if (x[i] != y[i]) atomicAdd(count, 1ull);
}

/* Runs the parts `times` more times, unless they change what they read. Returns the name of the
 * first output whose bits differ from the first run, or "". */
static std::string repeat(const bench &b, int times) {
    for (const output &o : b.outputs)
        if (o.is_updated) return "";
    std::vector<void *> first;
    std::string other;
    unsigned long long *count = NULL;
    cudaMallocManaged((void **)&count, sizeof *count);
    *count = 0;
    for (const output &o : b.outputs) {
        size_t bytes = (size_t)o.n * fm_element_bytes(o.element);
        void *copy = NULL;
        if (cudaMalloc(&copy, bytes) == cudaSuccess) {
            cudaMemcpy(copy, o.memory, bytes, cudaMemcpyDeviceToDevice);
        }
        first.push_back(copy);
    }
    for (int i = 0; i < times && other.empty(); i++) {
        run_parts(b);
        for (size_t at = 0; at < first.size() && other.empty(); at++) {
            const output &o = b.outputs[at];
            if (!first[at]) continue;
            count_kernel<<<SUM_BLOCKS, 256>>>(o.n * (int64_t)fm_element_bytes(o.element) / 2,
                                              (const uint16_t *)first[at],
                                              (const uint16_t *)o.memory, count);
            cudaDeviceSynchronize();
            if (*count > 0) {
                other = o.name + ", " + std::to_string(*count) + " halves of words in run " +
                        std::to_string(i + 2);
            }
        }
    }
    for (void *copy : first)
        cudaFree(copy);
    cudaFree(count);
    return other;
}

/* -- times */

enum { FLUSH_BYTES = 256 << 20 };

__global__ static void __launch_bounds__(256) read_kernel(const uint4 *x, uint4 *never) {
    uint4 sum = {0, 0, 0, 0};
    for (int64_t i = blockIdx.x * (int64_t)256 + threadIdx.x; i < FLUSH_BYTES / 16;
         i += (int64_t)gridDim.x * 256) {
        uint4 v = x[i];
        sum.x ^= v.x, sum.y ^= v.y, sum.z ^= v.z, sum.w ^= v.w;
    }
    if (sum.x == 1 && sum.y == 2 && sum.z == 3 && sum.w == 5) *never = sum;
}

struct clock_pair {
    cudaEvent_t begin, end;
};

/* What a graph holds: the part's reset, its call to warm the caches or a flush, then the calls
 * between the events. */
struct scene {
    const timed *part;
    const void *flush; /* NULL: warm */
    int calls;
};

static cudaGraphExec_t capture(cudaStream_t stream, clock_pair clocks, const scene &s) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    fm_stream *queue = (fm_stream *)stream;
    const work &run = s.part->run, &reset = s.part->reset;
    if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) != cudaSuccess) return NULL;
    if (reset) reset(queue);
    if (!s.flush) run(queue);
    if (!s.flush && reset) reset(queue);
    unsigned blocks = (unsigned)(fm_cuda::n_multiprocessor() * 8);
    if (s.flush) read_kernel<<<blocks, 256, 0, stream>>>((const uint4 *)s.flush, (uint4 *)s.flush);
    cudaEventRecordWithFlags(clocks.begin, stream, cudaEventRecordExternal);
    for (int i = 0; i < s.calls; i++)
        run(queue);
    cudaEventRecordWithFlags(clocks.end, stream, cudaEventRecordExternal);
    if (cudaStreamEndCapture(stream, &graph) != cudaSuccess) return NULL;
    cudaError_t made = cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    return made == cudaSuccess ? exec : NULL;
}

/* The median of `samples` replays after one, in ms; NaN where the graph cannot be made. */
static double replay(cudaStream_t stream, clock_pair clocks, const scene &s, int samples) {
    cudaGraphExec_t exec = capture(stream, clocks, s);
    if (!exec) return NAN;
    std::vector<double> ms;
    for (int i = 0; i <= samples; i++) {
        float elapsed = 0;
        cudaGraphLaunch(exec, stream);
        cudaStreamSynchronize(stream);
        if (cudaEventElapsedTime(&elapsed, clocks.begin, clocks.end) != cudaSuccess) elapsed = NAN;
        if (i > 0) ms.push_back((double)elapsed / s.calls);
    }
    cudaGraphExecDestroy(exec);
    std::sort(ms.begin(), ms.end());
    return ms[ms.size() / 2];
}

/* Says what the part draws when its calls go on for seconds, each behind the one before. */
static void measure_energy(int fd, const scene &s, clock_pair clocks, cudaStream_t stream) {
    cudaGraphExec_t exec = capture(stream, clocks, s);
    draw found;
    const int calls = s.calls + 1; /* one comes before the clocks */
    if (exec && measure_draw(exec, stream, settings.energy_seconds, &found)) {
        fm_watchdog_say(fd, "energy\t%.9g\t%.9g\t%.9g", found.ms / calls, found.joules / calls,
                        found.mhz);
    } else {
        fm_watchdog_say(fd, "failed\t%s: the device's energy cannot be read", s.part->name);
    }
    if (exec) cudaGraphExecDestroy(exec);
}

static void time_part(int fd, const timed &p, double other, cudaStream_t stream,
                      const void *flush) {
    clock_pair clocks;
    cudaEventCreate(&clocks.begin);
    cudaEventCreate(&clocks.end);
    double once = replay(stream, clocks, {&p, flush, 1}, 1);
    int samples = (int)fmin(settings.samples, fmax(5, 40 / fmax(once, 1e-3)));
    double cold = replay(stream, clocks, {&p, flush, 1}, samples);
    int calls = p.reset ? 1 : (int)fmin(64, fmax(1, ceil(0.3 / fmax(cold, 1e-3))));
    double warm = replay(stream, clocks, {&p, NULL, calls}, samples);
    if (settings.energy_seconds > 0 && !p.reset) {
        measure_energy(fd, {&p, NULL, calls}, clocks, stream);
    }
    cudaEventDestroy(clocks.begin);
    cudaEventDestroy(clocks.end);
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess || isnan(cold) || isnan(warm)) {
        fm_watchdog_say(fd, "failed\t%s: %s", p.name, cudaGetErrorString(error));
    }
    fm_watchdog_say(fd, "part\t%s\t%.9g\t%.9g\t%.9g\t%.9g\t%.9g", p.name, warm, cold, p.flops,
                    p.bytes, other);
}

static void time_all(int fd, const bench &b, const peer &other) {
    static cudaStream_t stream;
    static void *flush;
    if (!flush) {
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        cudaMalloc(&flush, FLUSH_BYTES);
        cudaMemset(flush, 1, FLUSH_BYTES);
        cudaDeviceSynchronize();
    }
    timed all = {"all", 0, 0, NULL, NULL};
    for (const timed &p : b.parts) {
        bool is_whole = b.parts.size() == 1;
        time_part(fd, p,
                  is_whole                     ? other.all
                  : strcmp(p.name, "fwd") == 0 ? other.fwd
                                               : 0,
                  stream, flush);
        all.flops += p.flops, all.bytes += p.bytes;
        if (p.reset) all.reset = p.reset; /* there is one at most */
    }
    if (b.parts.size() < 2) return;
    all.run = [&b](fm_stream *s) {
        for (const timed &p : b.parts)
            p.run(s);
    };
    time_part(fd, all, other.all, stream, flush);
}

/* -- one case */

/* Only the oracle's results are kept. */
static void run_oracle(bench &oracle, const test_case &c) {
    c.body(oracle);
    run_parts(oracle);
    for (void *p : oracle.others)
        oracle.k->release(p);
    oracle.others.clear();
    oracle.parts.clear();
}

/* The tolerance of each output. */
static std::vector<double> allow(const test_case &c, const bench &oracle, bool is_f32) {
    std::vector<double> allowed(oracle.outputs.size(), 0);
    if (!c.how.is_measured || is_f32) return allowed;
    bench naive(oracle.k, c.path, NULL, true);
    oracle_rounds(true);
    run_oracle(naive, c);
    oracle_rounds(false);
    for (size_t i = 0; i < allowed.size(); i++)
        allowed[i] = 2 * compare(naive.outputs[i], oracle.outputs[i], 1, true, false).error;
    return allowed;
}

static void run_case(const test_case &c, int fd) {
    bool is_f32 = c.how.is_f32 || settings.f32;
    const char *names[] = {"naive kernels on the device", "the CPU's table", "none"};
    oracle_kind kind = settings.no_oracle ? ORACLE_NONE : c.how.oracle;
    const fm_kernels *judge = kind == ORACLE_CPU ? fm_kernels_cpu(FM_ELEMENT_F32) : oracle_table();
    bench oracle(judge, c.path, NULL, true);
    std::vector<double> allowed;
    if (kind != ORACLE_NONE) {
        run_oracle(oracle, c);
        allowed = allow(c, oracle, is_f32);
    }
    bench b(fm_kernels_cuda(is_f32 ? FM_ELEMENT_F32 : FM_ELEMENT_BF16), c.path, c.patch, false);
    c.body(b);
    run_parts(b);
    difference worst;
    for (size_t i = 0; i < b.outputs.size() && kind != ORACLE_NONE; i++) {
        difference d =
            compare(b.outputs[i], oracle.outputs[i], c.how.stages, is_f32, kind == ORACLE_CPU);
        if (b.k->name == std::string("cuda-tf32")) d.tolerance = 1e-3;
        if (allowed[i] > d.tolerance) d.tolerance = allowed[i];
        d.ratio = isnan(d.error) ? INFINITY : d.error / d.tolerance;
        if (d.ratio > worst.ratio) worst = d;
    }
    std::string other = repeat(b, settings.repeats);
    if (!other.empty()) fm_watchdog_say(fd, "failed\tother bits in %s", other.c_str());
    if (cudaGetLastError() != cudaSuccess) fm_watchdog_say(fd, "failed\ta CUDA call failed");
    fm_watchdog_say(fd, "error\t%.9g\t%.9g\t%s\t%s", worst.error, worst.tolerance,
                    worst.name.c_str(), names[kind]);
    time_all(fd, b, c.other);
}

} // namespace kbench

using namespace kbench;

int kbench_select(const kbench_options *options) {
    settings = *options;
    add_attention_cases();
    add_pair_cases();
    add_row_cases();
    add_element_cases();
    add_gemm_cases();
    add_optimiser_cases();
    add_structure_cases();
    add_module_cases();
    add_self_tests();
    for (size_t i = 0; i < cases.size(); i++)
        if (is_chosen(options, cases[i].name)) chosen.push_back((int)i);
    return (int)chosen.size();
}

const char *kbench_name(int i) {
    return cases[(size_t)chosen[(size_t)i]].name.c_str();
}

int kbench_prepare(int fd) {
    cudaDeviceProp properties;
    if (!f32_table() || cudaGetDeviceProperties(&properties, 0) != cudaSuccess) return 77;
    fm_watchdog_say(fd, "device\t%s\t%d\t%.0f", properties.name, properties.multiProcessorCount,
                    (double)properties.totalGlobalMem);
    return 0;
}

void kbench_run(int i, int fd) {
    run_case(cases[(size_t)chosen[(size_t)i]], fd);
}
