/* cuda_check: compares every entry of the CUDA tables on the GPU with the CPU's f64 table.
 *
 *     cuda_check [--device cpu] [--share I/N] [f32|tf32|bf16 [NAME...]]
 *
 * Without an argument all cases of all tables run. With names only those run whose name contains
 * one of them. Most of the time goes into the CPU's f64 runs, whose products and attentions take
 * all cores. --share runs every N-th case, from the I-th on, with that part of the cores: N
 * processes beside each other check everything. --device cpu takes the CPU's f32 and tf32 tables in
 * place of the GPU's, which checks the cases themselves and this harness.
 *
 * Exit status 77 when there is no device that the backend can use, 2 for a wrong argument. Cases
 * that need no device run before that is known.
 *
 * A case is one function that makes its operands through a `work_bench` and calls the table. It
 * runs on the CPU (f64) and twice on the GPU, with the same inputs, which are drawn as bf16 numbers
 * so that every table sees the same values. Outputs start as NaN (beta 0) or as 1/2 (beta 1). A
 * line per case shows the largest relative error ||a - b|| / ||b|| of any output, and its
 * tolerance. Gaps must stay untouched, the two runs must have the same bits, and masks must be 0 or
 * 1.
 *
 * The tolerance is 1e-5 for f32. The tf32 table draws inputs of f32, and its tolerance is twice the
 * error of the CPU's tf32 table, and 1e-5. Only the entries that multiply are checked there; the
 * others are those of f32. In cases of tensor core shapes, an output for which the CPU's tf32 table
 * has an error of 1e-4 or more must have a sixteenth of that error, or else it was made in f32.
 *
 * For bf16 the tolerance is twice the error of a plain bf16 composition, which is taken as
 * sqrt(stages) * u. Here u is the distance of the f64 result from itself rounded to bf16, at least
 * 1.6e-3, the value for uniform mantissas. `stages` is the number of tensors that the composed path
 * rounds on the way to that output. */
#include "tests/trainer/cuda/cuda_check.cuh"

extern "C" {
#include "trainer/backend/cpu_threads.h"
}
#include "trainer/backend/cuda/core/kernel_set.cuh"

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace cuda_check {

/* gpu: the table that is checked. oracle: the CPU's, with products of tf32, else NULL. */
static const fm_kernels *gpu, *cpu, *oracle;

/* A number that all tables that are compared can hold. */
static double input_of(double x) {
    return (double)(oracle ? (float)x : __bfloat162float(__float2bfloat16((float)x)));
}

void *work_bench::upload(const void *host, size_t bytes) {
    void *memory = k->alloc(bytes);
    if (!memory) abort();
    k->upload(NULL, memory, host, bytes);
    k->synchronize(NULL);
    return memory;
}

void *work_bench::make(fm_element element, const std::vector<double> &x) {
    size_t bytes = fm_element_bytes(element);
    std::vector<char> host(x.size() * bytes);
    for (size_t i = 0; i < x.size(); i++) {
        float single = (float)x[i];
        __nv_bfloat16 half = __float2bfloat16(single);
        const void *from = element == FM_ELEMENT_F64   ? (const void *)&x[i]
                           : element == FM_ELEMENT_F32 ? (const void *)&single
                                                       : (const void *)&half;
        memcpy(&host[i * bytes], from, bytes);
    }
    return upload(host.data(), host.size());
}

void *work_bench::input(const std::vector<double> &x, fm_element element) {
    std::vector<double> rounded = x;
    for (double &v : rounded)
        v = input_of(v);
    void *memory = make(element, rounded);
    others.push_back(memory);
    return memory;
}

std::vector<double> work_bench::draw(int64_t n, double size) {
    fm_draw draw = {20260101, NULL, drawn++, 99};
    std::vector<double> x((size_t)n);
    fm_philox_counter words = {};
    for (size_t i = 0; i < x.size(); i++) {
        if (i % 4 == 0) words = fm_draw_block(&draw, i);
        double value = (double)words.word[i % 4] / 2147483648.0 - 1;
        x[i] = input_of(size * value);
    }
    return x;
}

void *work_bench::act(int64_t n, double size) {
    return input(draw(n, size), k->act);
}

void *work_bench::acc(int64_t n, double size) {
    return input(draw(n, size), k->acc);
}

void *work_bench::mask(int64_t n, int64_t period) {
    std::vector<double> x((size_t)n);
    for (int64_t i = 0; i < n; i++)
        x[(size_t)i] = i % period != 2;
    return input(x, k->act);
}

void *work_bench::space(size_t bytes) {
    if (bytes == 0) return NULL;
    void *memory = upload(std::vector<char>(bytes, (char)0xff).data(), bytes);
    others.push_back(memory);
    return memory;
}

void *work_bench::keep(kind what, fm_element element, int64_t n, double value) {
    std::vector<double> x((size_t)n, value);
    void *memory;
    if (what == INTEGERS) {
        std::vector<char> bytes((size_t)n * fm_element_bytes(element), 0x77);
        memory = upload(bytes.data(), bytes.size());
    } else {
        memory = make(element, x);
    }
    tensors.push_back({what, element, n, memory});
    return memory;
}

void *work_bench::out(int64_t n) {
    return keep(OUTPUT, k->act, n, NAN);
}

void *work_bench::out_acc(int64_t n) {
    return keep(OUTPUT, k->acc, n, NAN);
}

fm_out work_bench::grad(int64_t n, fm_beta beta, bool is_acc) {
    double value = beta == FM_ADD ? 0.5 : NAN;
    return {keep(OUTPUT, is_acc ? k->acc : k->act, n, value), beta};
}

void *work_bench::updated(int64_t n, double size, bool is_positive) {
    std::vector<double> x = draw(n, size);
    for (double &v : x)
        v = is_positive ? fabs(v) : v;
    void *memory = make(k->acc, x);
    tensors.push_back({OUTPUT, k->acc, n, memory});
    return memory;
}

std::vector<double> work_bench::read(const tensor &t) {
    size_t bytes = fm_element_bytes(t.element);
    std::vector<char> host((size_t)t.n * bytes);
    k->download(NULL, host.data(), t.memory, host.size());
    k->synchronize(NULL);
    std::vector<double> x((size_t)t.n);
    for (size_t i = 0; i < x.size(); i++) {
        const char *at = &host[i * bytes];
        switch (t.element) {
        case FM_ELEMENT_F32: x[i] = *(const float *)at; break;
        case FM_ELEMENT_F64: x[i] = *(const double *)at; break;
        case FM_ELEMENT_BF16: x[i] = __bfloat162float(*(const __nv_bfloat16 *)at); break;
        case FM_ELEMENT_I32: x[i] = *(const int32_t *)at; break;
        case FM_ELEMENT_U8: x[i] = *(const uint8_t *)at; break;
        default: x[i] = *(const uint32_t *)at; break;
        }
    }
    return x;
}

work_bench::~work_bench() {
    for (tensor &t : tensors)
        k->release(t.memory);
    for (void *memory : others)
        k->release(memory);
}

static char *const *only; /* names, NULL at the end */
static int n_case, share, shares = 1;
static int passed, failed;

/* Whether this process runs the case. */
static bool is_chosen(const char *name) {
    bool is_named = !*only;
    for (char *const *part = only; *part && !is_named; part++)
        is_named = strstr(name, *part) != NULL;
    return is_named && n_case++ % shares == share;
}

static std::vector<std::vector<double>> run(const fm_kernels *k, const work &f) {
    work_bench bench;
    bench.k = k;
    f(bench);
    k->synchronize(NULL);
    std::vector<std::vector<double>> results;
    for (tensor &t : bench.tensors)
        results.push_back(bench.read(t));
    return results;
}

/* The distance of x from y relative to y. A NaN in one must be a NaN in the other. */
static double distance(const std::vector<double> &x, const std::vector<double> &y) {
    double difference = 0, size = 1e-12;
    for (size_t i = 0; i < y.size(); i++) {
        if (isnan(x[i]) && isnan(y[i])) continue;
        if (x[i] == y[i]) { /* covers infinities */
            size += isfinite(y[i]) ? y[i] * y[i] : 0;
            continue;
        }
        difference += (x[i] - y[i]) * (x[i] - y[i]);
        size += y[i] * y[i];
    }
    return sqrt(difference / size);
}

static double tolerance_of(const std::vector<double> &y, int stages) {
    if (gpu->act == FM_ELEMENT_F32) return 1e-5;
    std::vector<double> rounded = y;
    for (double &v : rounded)
        v = (double)__bfloat162float(__float2bfloat16((float)v));
    double u = distance(rounded, y);
    return 2 * (u > 1.6e-3 ? u : 1.6e-3) * sqrt((double)stages);
}

static bool same_bits(const std::vector<std::vector<double>> &a,
                      const std::vector<std::vector<double>> &b) {
    for (size_t i = 0; i < a.size(); i++)
        if (memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(double)) != 0) return false;
    return true;
}

/* What a case has found. */
struct verdict {
    double error = 0, tolerance = 0; /* of the output that is worst */
    size_t where = 0;
    double ratio = -1;   /* of the two */
    bool is_f32 = false; /* tf32: an output does not have the error of rounded operands */
};

static verdict compare(const std::vector<std::vector<double>> &found,
                       const std::vector<std::vector<double>> &expected,
                       const std::vector<std::vector<double>> &plain, int stages) {
    verdict v;
    for (size_t i = 0; i < expected.size(); i++) {
        double e = distance(found[i], expected[i]), t = tolerance_of(expected[i], stages);
        if (oracle) {
            double rounding = distance(plain[i], expected[i]);
            t += 2 * rounding;
            v.is_f32 = v.is_f32 || (rounding > 1e-4 && e < rounding / 16);
        }
        double ratio = isnan(e) ? INFINITY : e / t;
        if (ratio <= v.ratio) continue;
        v.ratio = ratio, v.error = e, v.tolerance = t, v.where = i;
    }
    return v;
}

void check(const char *name, int stages, const work &f, bool is_rounded) {
    if (!is_chosen(name)) return;
    std::vector<std::vector<double>> expected = run(cpu, f), found = run(gpu, f),
                                     again = run(gpu, f), plain;
    if (oracle) plain = run(oracle, f);
    verdict v = compare(found, expected, plain, stages);
    bool is_same = same_bits(found, again);
    bool is_f32 = is_rounded && v.is_f32;
    bool is_ok = v.ratio <= 1 && is_same && !is_f32;
    printf("%-9s %-34s %9.2e of %8.1e (output %zu of %zu) %s%s%s\n", gpu->name, name, v.error,
           v.tolerance, v.where, expected.size(), is_ok ? "ok" : "FAIL",
           is_same ? "" : " bits differ", is_f32 ? " runs in f32" : "");
    fflush(stdout);
    (is_ok ? passed : failed)++;
}

void expect(const char *name, bool is_ok) {
    if (!is_chosen(name)) return;
    printf("%-9s %-34s %s\n", "host", name, is_ok ? "ok" : "FAIL");
    fflush(stdout);
    (is_ok ? passed : failed)++;
}

static const fm_kernels *table_of(fm_element act, bool is_cpu) {
    return is_cpu ? fm_kernels_cpu(act) : fm_kernels_cuda(act);
}

/* Runs the cases of a table; `table` is f32, tf32 or bf16. */
static void run_table(const char *table, bool is_cpu) {
    bool is_tf32 = !strcmp(table, "tf32");
    gpu = table_of(strcmp(table, "bf16") ? FM_ELEMENT_F32 : FM_ELEMENT_BF16, is_cpu);
    if (!gpu) return; /* the CPU has no bf16 */
    oracle = is_tf32 ? fm_kernels_cpu(FM_ELEMENT_F32)->tf32 : NULL;
    if (is_tf32) gpu = gpu->tf32;
    check_gemms();
    check_transitions();
    check_attentions();
    if (is_tf32) return;
    check_kernels();
    check_structure();
    check_atoms();
    check_parts();
    if (gpu->act != FM_ELEMENT_BF16) return;
    check_product_paths();
#ifdef FM_CUDA_HOPPER
    if (fm_cuda::uses_hopper()) check_wgmma();
#endif
}

static int run_tables(const char *table, bool is_cpu) {
    int threads = (int)sysconf(_SC_NPROCESSORS_ONLN) / shares;
    fm_cpu_use_threads(threads > 1 ? threads : 1);
    cpu = fm_kernels_cpu(FM_ELEMENT_F64);
    check_paths();
    bool is_there = is_cpu || fm_kernels_cuda(FM_ELEMENT_F32);
    for (const char *name : {"f32", "tf32", "bf16"}) {
        if (is_there && (!table || !strcmp(table, name))) run_table(name, is_cpu);
    }
    printf("cuda_check: %d ok, %d failed, %s kernels\n", passed, failed, fm_cuda_kernel_set());
    if (failed > 0) return 1;
    if (!is_there) printf("cuda_check: skipped: %s\n", fm_kernels_cuda_refusal());
    return is_there ? 0 : 77;
}

static bool is_table(const char *text) {
    return !strcmp(text, "f32") || !strcmp(text, "tf32") || !strcmp(text, "bf16");
}

static int misused(void) {
    fprintf(stderr, "usage: cuda_check [--device cpu] [--share I/N] [f32|tf32|bf16 [NAME...]]\n");
    return 2;
}

static int run_command(int argc, char **argv) {
    bool is_cpu = false;
    int at = 1;
    for (; at + 1 < argc && !strncmp(argv[at], "--", 2); at += 2) {
        if (!strcmp(argv[at], "--device") && !strcmp(argv[at + 1], "cpu")) {
            is_cpu = true;
        } else if (!strcmp(argv[at], "--share") &&
                   sscanf(argv[at + 1], "%d/%d", &share, &shares) == 2 && share >= 1 &&
                   share <= shares) {
            share--;
        } else {
            return misused();
        }
    }
    const char *table = at < argc ? argv[at++] : NULL;
    if (table && (!is_table(table) || (is_cpu && !strcmp(table, "bf16")))) return misused();
    only = argv + at;
    return run_tables(table, is_cpu);
}

} // namespace cuda_check

int main(int argc, char **argv) {
    setenv("FM_CHECK_MASKS", "1", 1); /* before the first table is made */
    return cuda_check::run_command(argc, argv);
}
