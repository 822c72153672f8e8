/* kbench.cuh: how a case of kbench is written; docs/reference/cuda.md, "Benchmarks", has an
 * example.
 *
 * A case is a function that makes its operands through a `bench` and gives it the parts: calls of
 * the table that are timed, usually "fwd" and "bwd". The function runs twice, on the oracle's table
 * and on the table that is measured, with the same inputs (bf16 numbers, drawn on the device); then
 * the outputs are compared. One line in the list of its file registers a case. */
#ifndef FM_TESTS_KBENCH_CUH
#define FM_TESTS_KBENCH_CUH

#include "trainer/backend/cuda/core/cuda.h"

#include <functional>
#include <string>
#include <vector>

namespace kbench {

typedef std::function<void(fm_stream *)> work;

struct output {
    std::string name;
    fm_element element;
    int64_t n;
    void *memory;
    bool is_borrowed;
    bool is_updated; /* the parts change its content */
};

struct timed {
    const char *name;
    double flops, bytes;
    work run, reset;
};

/* The operands and parts of one run of a case. Memory comes from the table and is kept to the end
 * of the run. */
struct bench {
    const fm_kernels *k; /* whose entries are called */
    bool is_oracle;      /* k is the oracle's: compute the reference for any path */
    const char *path;    /* as registered; "" for the table as it is */
    fm_kernels patched;  /* what k points to where the path changes entries */
    uint32_t drawn = 0;
    std::vector<output> outputs;
    std::vector<void *> others;
    std::vector<timed> parts;
    std::vector<std::function<void()>> ends; /* run when memory is freed */

    bool is(const char *name) const; /* whether this run is the path of that name */

    /* Inputs, uniform in [-size, size): class act, class acc, f32 in every table, ones, a 0/1 mask
     * with each period-th element 0, bytes below a modulus, 0 1 2 ... */
    void *act(int64_t n, double size = 1);
    void *acc(int64_t n, double size = 1);
    float *floats(int64_t n, double size = 1);
    void *ones(int64_t n);
    float *float_ones(int64_t n);
    void *mask(int64_t n, int64_t period);
    uint8_t *bytes(int64_t n, int modulus);
    int32_t *indices(int64_t n);
    /* Outputs, compared under this name after every part has run once; they begin as NaN. */
    void *out(const char *name, int64_t n);
    void *out_acc(const char *name, int64_t n);
    fm_out grad(const char *name, int64_t n, bool is_acc = false);
    /* An input that the parts change, acc; compared like an output. */
    void *updated(const char *name, int64_t n, double size, bool is_positive = false);
    /* Results that are not compared, and workspaces. */
    void *scratch(size_t bytes);
    /* Memory that the case owns: filled like an input (range 0: a mask), compared like an output.
     */
    void fill(void *p, fm_element element, int64_t n, double range);
    void borrow(const char *name, fm_element element, int64_t n, void *p);

    /* The place `n` act elements after p (slices of one matrix). */
    void *at(void *p, int64_t n) const;
    const void *at(const void *p, int64_t n) const;
    /* Bytes of n act elements. */
    double size(double n) const;

    /* A part: matrix product FLOPs, ideal bytes (every operand once), and the call. Parts run in
     * order; where there is more than one, the whole is timed too, as "all". A call that changes
     * its operands has a reset, which runs before each call and is not timed. */
    void part(const char *name, double flops, double bytes, work run, work reset = NULL);

    bench(const fm_kernels *table, const char *path, void (*patch)(fm_kernels *), bool is_oracle);
    ~bench();
    bench(const bench &) = delete;
    bench &operator=(const bench &) = delete;

  private:
    void *memory(size_t bytes);
    void *drawn_f32(int64_t n, double size);
    void *place(fm_element element, int64_t n, void *f32);
    void move(void *to, fm_element element, int64_t n, void *f32);
    void *keep(const char *name, fm_element element, int64_t n, void *from);
};

/* Another way to compute the same: a table with some entries replaced, or (patch NULL) a branch in
 * the case: `if (b.is("composed") || b.is_oracle)`. */
struct path {
    const char *name;
    void (*patch)(fm_kernels *table);
};

/* Warm times (ms) of other programs at the same shape: of the part "fwd", of all parts. 0: none. */
struct peer {
    double fwd, all;
};

enum oracle_kind { ORACLE_DEVICE, ORACLE_CPU, ORACLE_NONE };

struct options {
    int stages = 1; /* tensors that a composed bf16 path rounds on the way to an output */
    /* Stages do not tell: the error of the oracle's own kernels, results rounded to bf16, is
     * measured, and twice that is allowed (not less than stages say). */
    bool is_measured = false;
    oracle_kind oracle = ORACLE_DEVICE;
    bool is_f32 = false; /* this case is f32 in bf16 runs too */
};

typedef std::function<void(bench &)> make;

struct test_case {
    std::string name; /* with the path, as printed */
    const char *path;
    void (*patch)(fm_kernels *);
    peer other;
    options how;
    make body;
};

/* A case and, beside it, one for each further path. */
void add(const char *name, peer other, options how, const make &body,
         const std::vector<path> &paths = {});

/* kbench_oracle*.cu: the f32 table with naive kernels, one thread per element of the output. It has
 * products, layer norm, gates, sums, attention, outer product mean, triangle multiplication,
 * dropout and the optimiser. The other entries are those of the f32 table. */
const fm_kernels *oracle_table(void);
/* Whether its results of class act are rounded to bf16: then it is a naive bf16 composition. */
void oracle_rounds(bool on);
/* kbench_oracle_cores.cu: its part of both. */
void oracle_cores(fm_kernels *table);
void cores_round(bool on);

/* kbench_case.cu, for cases and the runner: the device's f32 table, its default stream. */
const fm_kernels *f32_table(void);

/* The lists of cases, one per file. */
void add_attention_cases(void);
void add_pair_cases(void);
void add_module_cases(void);
void add_row_cases(void);
void add_element_cases(void);
void add_gemm_cases(void);
void add_optimiser_cases(void);
void add_structure_cases(void);
void add_self_tests(void);

} // namespace kbench

#endif
