/* cuda_check.cuh: the operands of a case of cuda_check, and how a case is run.
 *
 * A case is one function that makes its operands through a `work_bench` and calls the table. The
 * function check() runs it on the CPU (f64) and twice on the GPU, with the same inputs. Inputs are
 * drawn as bf16 numbers, or f32 with the tf32 table, so that every table sees the same values. */
#ifndef FM_TESTS_TRAINER_CUDA_CHECK_CUH
#define FM_TESTS_TRAINER_CUDA_CHECK_CUH

#include "trainer/backend/cuda/core/cuda.h"

#include <functional>
#include <vector>

namespace cuda_check {

enum kind { INPUT, OUTPUT, INTEGERS, DOUBLES };

struct tensor {
    kind what;
    fm_element element;
    int64_t n;
    void *memory;
};

/* The operands of one run of a case on one table. Memory comes from the table and is freed with the
 * bench. */
struct work_bench {
    const fm_kernels *k = NULL;
    uint32_t drawn = 0;
    std::vector<tensor> tensors; /* the outputs that are compared */
    std::vector<void *> others;

    void *upload(const void *host, size_t bytes);
    void *make(fm_element element, const std::vector<double> &x);
    std::vector<double> draw(int64_t n, double size); /* bf16 numbers in [-size, size) */
    /* Inputs: given values (rounded to bf16 numbers), random act or acc, a mask of zeros and ones,
     * a workspace. */
    void *input(const std::vector<double> &x, fm_element element);
    void *act(int64_t n, double size = 1);
    void *acc(int64_t n, double size = 1);
    void *mask(int64_t n, int64_t period);
    void *space(size_t bytes);
    template <typename V> V *raw(const std::vector<V> &x);
    /* Outputs, which start as NaN, or as 1/2 when the kernel adds; and inputs that it updates. */
    void *keep(kind what, fm_element element, int64_t n, double value);
    void *out(int64_t n);
    void *out_acc(int64_t n);
    fm_out grad(int64_t n, fm_beta beta, bool is_acc = false);
    void *updated(int64_t n, double size, bool is_positive);
    std::vector<double> read(const tensor &t);
    ~work_bench();
};

template <typename V> V *work_bench::raw(const std::vector<V> &x) {
    void *memory = upload(x.data(), x.size() * sizeof(V));
    others.push_back(memory);
    return (V *)memory;
}

typedef std::function<void(work_bench &)> work;

/* Runs a case and prints its line. stages is the number of tensors that a composed bf16 path rounds
 * on the way to an output. is_rounded: the tf32 table must run the case's products on tensor cores,
 * so its errors must be those of rounded operands. */
void check(const char *name, int stages, const work &f, bool is_rounded = false);

/* A case on the host alone: prints the line of a condition that must hold. */
void expect(const char *name, bool is_ok);

/* The cases, in files of the same names (cuda_check_kernels.cu, ...). check_paths is for the host
 * alone, check_product_paths and check_wgmma for the bf16 table only. */
void check_paths(void);
void check_product_paths(void);
void check_kernels(void);
void check_transitions(void);
void check_attentions(void);
void check_gemms(void);
void check_structure(void);
void check_atoms(void);
void check_parts(void);
void check_wgmma(void);

} // namespace cuda_check

#endif
