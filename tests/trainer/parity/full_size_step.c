/* full_size_step.c: runs the preset af2-initial, with all its blocks and parameters, through one
 * step on the CPU at a reduced crop.
 *
 *     full_size_step [N_RES N_CLUST N_EXTRA]
 *
 * It prints the number of parameters, the planned memory, seconds, and the peak memory of the
 * process. It fails unless the count is that of the published model and memory is the planned size
 * to the byte. Losses and gradient must be finite, and every parameter that has a gradient must
 * have moved. Defaults: 16 residues, 8 clusters, 16 extra rows; 2 cycles, 4 templates. */
#include "trainer/app/settings/train_config.h"
#include "trainer/step/step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { N_CYCLE = 2, N_TEMPL = 4, N_ATOM37 = 37, N_CLASS = 23, PUBLISHED = 93229082 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* -- a made-up sample */

static void *take(size_t count, size_t size) {
    void *memory = calloc(count, size); /* lives as long as the process */
    if (!memory) {
        fprintf(stderr, "full_size_step: no memory\n");
        exit(1);
    }
    return memory;
}

/* Numbers below n, the same in every run. */
static uint32_t below(uint32_t n) {
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % n);
}

static uint8_t *ids(size_t count, uint32_t n) {
    uint8_t *out = take(count, 1);
    for (size_t i = 0; i < count; i++)
        out[i] = (uint8_t)below(n);
    return out;
}

/* Positions of a winding chain, with all atoms of a residue near its centre. */
static float *positions(size_t n_res) {
    float *x = take(n_res * N_ATOM37 * 3, sizeof *x);
    for (size_t k = 0; k < n_res * N_ATOM37; k++) {
        double turn = 1.7 * (double)(k / N_ATOM37);
        const double place[3] = {2.3 * cos(turn), 2.3 * sin(turn), 0.88 * turn};
        for (int axis = 0; axis < 3; axis++)
            x[3 * k + (size_t)axis] = (float)(place[axis] + 1e-3 * (double)below(2000));
    }
    return x;
}

static uint64_t *atoms(size_t count) {
    uint64_t *mask = take(count, sizeof *mask);
    for (size_t i = 0; i < count; i++)
        mask[i] = 31; /* N, CA, C, CB, O */
    return mask;
}

static fm_cycle_features make_cycle(const fm_model_config *c) {
    size_t n = (size_t)(c->n_seq * c->n_res), n_extra = (size_t)(c->n_extra * c->n_res);
    fm_cycle_features f = {.n_clust = (uint32_t)c->n_seq,
                           .msa = ids(n, 22),
                           .bert_mask = ids((n + 7) / 8, 64),
                           .deletion_matrix = take(n, sizeof(uint16_t)),
                           .cluster_profile = ids(n * N_CLASS, 2),
                           .profile_element = FM_ELEMENT_U8,
                           .cluster_deletion_sum = take(n, sizeof(uint32_t)),
                           .n_extra = (uint32_t)c->n_extra,
                           .extra_msa = ids(n_extra, 22),
                           .extra_deletion_matrix = take(n_extra, sizeof(uint16_t))};
    uint32_t *size = take((size_t)c->n_seq, sizeof *size);
    for (int64_t s = 0; s < c->n_seq; s++)
        size[s] = N_CLASS;
    f.cluster_size = size;
    f.true_msa = f.msa;
    return f;
}

static fm_features make_sample(const fm_model_config *c) {
    size_t n = (size_t)c->n_res;
    int32_t *index = take(n, sizeof *index);
    for (size_t i = 0; i < n; i++)
        index[i] = (int32_t)i;
    fm_features f = {.n_res = (uint32_t)n,
                     .aatype = ids(n, 20),
                     .residue_index = index,
                     .all_atom_positions = positions(n),
                     .all_atom_mask = atoms(n),
                     .resolution = 2,
                     .n_templ = N_TEMPL,
                     .template_aatype = ids(N_TEMPL * n, 20),
                     .template_all_atom_positions = positions(N_TEMPL * n),
                     .template_all_atom_mask = atoms(N_TEMPL * n),
                     .n_cycle = N_CYCLE};
    for (int i = 0; i < N_CYCLE; i++)
        f.cycle[i] = make_cycle(c);
    return f;
}

/* -- the step */

static fm_trainer_options options_of(const fm_train_config *config) {
    return (fm_trainer_options){.model = config->model,
                                .optimizer = fm_optimizer_defaults(),
                                .element = FM_ELEMENT_F32,
                                .weight = {[FM_TERM_DISTOGRAM] = config->loss[FM_TERM_DISTOGRAM],
                                           [FM_TERM_MASKED_MSA] = config->loss[FM_TERM_MASKED_MSA],
                                           [FM_TERM_BACKBONE] = config->loss[FM_TERM_BACKBONE],
                                           [FM_TERM_SIDE_CHAIN] = config->loss[FM_TERM_SIDE_CHAIN],
                                           [FM_TERM_TORSION] = config->loss[FM_TERM_TORSION],
                                           [FM_TERM_PLDDT] = config->loss[FM_TERM_PLDDT]}};
}

/* Whether the parameters that had a gradient differ from `before`. */
static bool have_moved(const fm_trainer *t, const float *before) {
    const float *now_at = t->recording.params.master, *gradient = t->recording.params.gradient;
    int64_t moved = 0, with_gradient = 0;
    for (int64_t i = 0; i < t->recording.params.n_element; i++) {
        moved += now_at[i] != before[i];
        with_gradient += gradient[i] != 0;
    }
    printf("parameters with a gradient %.2f M, that moved %.2f M\n", (double)with_gradient / 1e6,
           (double)moved / 1e6);
    /* Parameters that are far larger than their step may round it away. */
    return with_gradient > 0 && moved > with_gradient - with_gradient / 100;
}

static bool step(fm_trainer *t, const fm_features *features, fm_error *error) {
    size_t bytes = (size_t)t->recording.params.n_element * sizeof(float);
    float *before = take(1, bytes);
    memcpy(before, t->recording.params.master, bytes);
    fm_sample_result result;
    double start = now();
    if (fm_trainer_add_sample(t, features, &result, error)) return false;
    fm_trainer_update(t);
    printf("step of %d cycles: %.1f s, loss %.3f, gradient norm %.3f\n", N_CYCLE, now() - start,
           result.loss, result.gradient_norm);
    bool planned = fm_tape_used_bytes(&t->recording.tape[FM_TRAINER_LAST]) ==
                       t->recording.tape[FM_TRAINER_LAST].size.arena_bytes &&
                   fm_tape_used_bytes(&t->recording.tape[FM_TRAINER_CYCLE]) ==
                       t->recording.tape[FM_TRAINER_CYCLE].size.arena_bytes;
    if (!planned) printf("memory used is not what was planned\n");
    return have_moved(t, before) && planned && isfinite(result.loss) &&
           isfinite(result.gradient_norm);
}

static bool run(fm_train_config *config, fm_error *error) {
    fm_features features = make_sample(&config->model);
    fm_trainer_options options = options_of(config);
    fm_trainer *trainer = NULL;
    options.optimizer.warmup_samples = 0;
    double start = now();
    if (fm_trainer_create(&options, &trainer, error)) return false;
    char text[256];
    fm_trainer_describe(trainer, text, sizeof text);
    printf("%s\n%lld parameters, published %d\n", text,
           (long long)trainer->recording.params.n_value, PUBLISHED);
    printf("created in %.1f s\n", now() - start);
    bool good = trainer->recording.params.n_value == PUBLISHED && step(trainer, &features, error);
    fm_trainer_destroy(trainer);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("peak memory %.2f GiB\n", (double)usage.ru_maxrss / (1 << 20));
    return good;
}

int main(int argc, char **argv) {
    fm_train_config config;
    fm_error error = {0};
    if (argc != 1 && argc != 4) {
        fprintf(stderr, "usage: full_size_step [N_RES N_CLUST N_EXTRA]\n");
        return 2;
    }
    fm_status status = fm_train_config_preset("af2-initial", &config, &error);
    config.model.n_res = argc > 1 ? atoi(argv[1]) : 16;
    config.model.n_seq = argc > 1 ? atoi(argv[2]) : 8;
    config.model.n_extra = argc > 1 ? atoi(argv[3]) : 16;
    bool sizes = config.model.n_res > 0 && config.model.n_seq > 0 && config.model.n_extra > 0;
    bool good = !status && sizes && run(&config, &error);
    if (!good) fprintf(stderr, "full_size_step: %s\n", error.message[0] ? error.message : "failed");
    return good ? 0 : 1;
}
