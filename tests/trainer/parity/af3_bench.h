/* af3_bench.h: a network of AlphaFold 3 on a device, with the parameters and the sample of a case
 * of the reference, and the comparison of its tensors with the expected ones. */
#ifndef FM_TESTS_TRAINER_AF3_BENCH_H
#define FM_TESTS_TRAINER_AF3_BENCH_H

#include "tests/trainer/parity/af3_case.h"

enum { AF3_NAME_BYTES = 256 };

enum { AF3_NOISE_GROUPS = 16 };

/* The errors of a plain composition in bf16 or tf32; those of a run may be twice as large. Means
 * over the arrays of a group are compared, because the error of one array is too random. */
typedef struct af3_noise {
    char group[AF3_NOISE_GROUPS][16];
    double mean[AF3_NOISE_GROUPS];
    int n;
    bool is_bf16; /* else tf32 */
    bool known;   /* by a run of the composition */
} af3_noise;

typedef struct af3_bench {
    const fm_kernels *kernels;
    const fm_npz *expected;
    const char *name;        /* of the run, for its lines */
    bool wide, failed;       /* wide: double precision */
    af3_noise *noise;        /* of bf16; NULL: the gates are those of the caller */
    const fm_groups *groups; /* the ranks that share the sample; NULL: one rank */
    af3_case of;
    fm_arena arena;
    fm_params *params; /* own, or those of a trainer */
    fm_params own;
    fm_af3_weights weights;
    fm_state state;
    fm_af3_inputs inputs;
    uint8_t *host; /* mirror of the state */
    bool written[FM_STATE_TENSORS];
} af3_bench;

/* Reads the case, for the ranks of `groups`, which the caller has set. The arena is large. */
FM_MUST_USE fm_status bench_open_case(af3_bench *b, const char *config, const fm_npz *in, int pad,
                                      fm_error *reterr);
/* The same, and makes the table of parameters and the state's own tensors. The caller then declares
 * more tensors, records its tapes and calls bench_allocate. */
FM_MUST_USE fm_status bench_open(af3_bench *b, const char *config, const fm_npz *in, int pad,
                                 fm_error *reterr);
FM_MUST_USE fm_status bench_allocate(af3_bench *b, fm_error *reterr);
void bench_close(af3_bench *b);
/* Whether this rank prints what all ranks know. */
bool bench_prints(const af3_bench *b);

/* -- values of the state */

/* Writes element `at` of a tensor to the mirror; bench_send uploads all tensors written since its
 * last call. The context is the bench. */
void bench_put(void *context, int32_t tensor, int64_t at, double value);
void bench_clear(af3_bench *b, int32_t tensor);
void bench_send(af3_bench *b);
/* Returns numbers of the device in memory of the arena. */
double *bench_fetch(af3_bench *b, const void *device, fm_element element, int64_t count);
/* Uploads `count` values to the device's elements. */
void bench_upload(af3_bench *b, void *device, fm_element element, int64_t count,
                  const double *values);
/* Loads w/NAME of every row, into the values and the average, where there is one. */
void af3_load_parameters(const fm_npz *weights, fm_params *params);
/* The same with the case's weights. */
void bench_load_parameters(af3_bench *b);

/* -- comparing */

typedef struct af3_worst {
    double error, sum; /* the worst; of all */
    char name[AF3_NAME_BYTES];
    int count;
} af3_worst;

void af3_note(af3_worst *w, const char *name, double error);
/* ||data - array|| / ||array||. */
double af3_relative(const double *data, const fm_npy *array);
/* Compares a kept tensor, which may be padded, with the expected out/NAME, if there is one. */
void bench_compare(af3_bench *b, af3_worst *w, const fm_tape *tape, fm_tensor_ref tensor,
                   const char *name);
/* Prints the line of a group on the first rank, and on any that fails, and notes a failure. With
 * noise, a gate above 0 is replaced by that of bf16. */
void bench_report(af3_bench *b, const char *group, const af3_worst *w, double gate);
/* The same with the gate that is given. */
void bench_report_gate(af3_bench *b, const char *group, const af3_worst *w, double gate);
/* Compares the memory that the runs of a pass have used with the planned memory. */
void bench_report_memory(af3_bench *b, const char *pass, const fm_tape *tape);

#endif
