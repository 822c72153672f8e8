/* step_sample.h: a synthetic sample and a small model with all its parts, for tests of whole steps.
 * No size is a multiple of 2. */
#ifndef FM_TESTS_TRAINER_STEP_SAMPLE_H
#define FM_TESTS_TRAINER_STEP_SAMPLE_H

#include "tests/trainer/common/op_check.h"
#include "tests/testing/model_configs.h"

#include "trainer/step/step.h"

enum { N_RES = 11, N_CLUST = 5, N_EXTRA = 7, N_CYCLE = 3, N_TEMPL = 3 };

/* One synthetic sample with valid values; its cycles differ. */
typedef struct sample {
    uint8_t aatype[N_RES];
    int32_t residue_index[N_RES];
    float positions[N_RES][37][3];
    uint64_t mask[N_RES];
    uint8_t msa[N_CYCLE][N_CLUST][N_RES], true_msa[N_CYCLE][N_CLUST][N_RES];
    uint8_t bert_mask[N_CYCLE][(N_CLUST * N_RES + 7) / 8];
    uint16_t deletion[N_CYCLE][N_CLUST][N_RES];
    uint8_t profile[N_CYCLE][N_CLUST][N_RES][23];
    uint32_t deletion_sum[N_CYCLE][N_CLUST][N_RES], size[N_CYCLE][N_CLUST];
    uint8_t extra_msa[N_CYCLE][N_EXTRA][N_RES];
    uint16_t extra_deletion[N_CYCLE][N_EXTRA][N_RES];
    uint8_t template_aatype[N_TEMPL][N_RES];
    float template_positions[N_TEMPL][N_RES][37][3];
    uint64_t template_mask[N_TEMPL][N_RES];
    fm_features features;
} sample;

static inline uint32_t below(uint32_t stream, int64_t at, uint32_t n) {
    return (uint32_t)((op_uniform(stream, at) + 1) / 2 * n);
}

static inline void make_cycle(sample *s, int c) {
    for (int r = 0; r < N_CLUST; r++) {
        s->size[c][r] = 1 + below(4, c * N_CLUST + r, 4);
        for (int i = 0; i < N_RES; i++) {
            int at = (c * N_CLUST + r) * N_RES + i;
            s->true_msa[c][r][i] = (uint8_t)below(5, r * N_RES + i, 22);
            bool masked = below(6, at, 5) == 0;
            s->msa[c][r][i] = masked ? 22 : s->true_msa[c][r][i];
            s->bert_mask[c][(r * N_RES + i) / 8] |= (uint8_t)(masked << (r * N_RES + i) % 8);
            s->deletion[c][r][i] = (uint16_t)(below(7, at, 4) == 0 ? below(8, at, 9) : 0);
            s->deletion_sum[c][r][i] = s->deletion[c][r][i] + below(9, at, 3);
            s->profile[c][r][i][s->true_msa[c][r][i]] = (uint8_t)s->size[c][r];
        }
    }
    for (int at = 0; at < N_EXTRA * N_RES; at++) {
        (&s->extra_msa[c][0][0])[at] = (uint8_t)below(10, c * N_EXTRA * N_RES + at, 22);
        (&s->extra_deletion[c][0][0])[at] = (uint16_t)below(11, c * N_EXTRA * N_RES + at, 3);
    }
    s->features.cycle[c] =
        (fm_cycle_features){.n_clust = N_CLUST,
                            .msa = &s->msa[c][0][0],
                            .true_msa = &s->true_msa[c][0][0],
                            .bert_mask = s->bert_mask[c],
                            .deletion_matrix = &s->deletion[c][0][0],
                            .cluster_profile = s->profile[c],
                            .profile_element = FM_ELEMENT_U8,
                            .cluster_deletion_sum = &s->deletion_sum[c][0][0],
                            .cluster_size = s->size[c],
                            .n_extra = N_EXTRA,
                            .extra_msa = &s->extra_msa[c][0][0],
                            .extra_deletion_matrix = &s->extra_deletion[c][0][0]};
}

/* Fills the templates; a loop of the chain is not aligned. */
static inline void make_templates(sample *s) {
    for (int t = 0; t < N_TEMPL; t++) {
        for (int i = 0; i < N_RES; i++) {
            bool gap = i == 2 + t;
            s->template_aatype[t][i] = (uint8_t)(gap ? 21 : below(12, t * N_RES + i, 21));
            s->template_mask[t][i] = gap ? 0 : below(13, t * N_RES + i, 4) ? 31 : 7;
            for (int a = 0; a < 37 && !gap; a++) {
                float *x = s->template_positions[t][i][a];
                x[0] = 3.8f * (float)(i - t) + 0.4f * (float)a;
                x[1] = (float)(5 * op_uniform(14, (t * N_RES + i) * 37 + a));
                x[2] = (float)(5 * op_uniform(15, (t * N_RES + i) * 37 + a));
            }
        }
    }
    s->features.template_aatype = &s->template_aatype[0][0];
    s->features.template_all_atom_positions = &s->template_positions[0][0][0][0];
    s->features.template_all_atom_mask = &s->template_mask[0][0];
}

static inline void make_sample(sample *s) {
    *s = (sample){0};
    for (int i = 0; i < N_RES; i++) {
        s->aatype[i] = (uint8_t)below(1, i, 21);
        s->residue_index[i] = i + 3 * (i > 4);
        s->mask[i] = i == 6 ? 0 : 31;
        for (int a = 0; a < 37; a++) {
            s->positions[i][a][0] = 3.6f * (float)i + 0.3f * (float)a;
            s->positions[i][a][1] = (float)(4 * op_uniform(2, i * 37 + a));
            s->positions[i][a][2] = (float)(4 * op_uniform(3, i * 37 + a));
        }
    }
    for (int c = 0; c < N_CYCLE; c++)
        make_cycle(s, c);
    make_templates(s);
    s->features.n_res = N_RES;
    s->features.n_templ = 1; /* the model has room for two */
    s->features.n_cycle = N_CYCLE;
    s->features.resolution = 2;
    s->features.aatype = s->aatype;
    s->features.residue_index = s->residue_index;
    s->features.all_atom_positions = &s->positions[0][0][0];
    s->features.all_atom_mask = s->mask;
}

static inline fm_trainer_options small_options(void) {
    fm_trainer_options options = {.model = fm_model_config_tiny(),
                                  .optimizer = fm_optimizer_defaults(),
                                  .element = FM_ELEMENT_F32,
                                  .weight = {[FM_TERM_DISTOGRAM] = 0.3,
                                             [FM_TERM_MASKED_MSA] = 2.0,
                                             [FM_TERM_BACKBONE] = 0.5,
                                             [FM_TERM_SIDE_CHAIN] = 0.5,
                                             [FM_TERM_TORSION] = 1.0,
                                             [FM_TERM_PLDDT] = 0.01}};
    options.model.n_res = N_RES;
    options.model.n_seq = N_CLUST;
    options.model.n_extra = N_EXTRA;
    options.model.n_template = 2;
    options.model.structure = (fm_structure_config){.n_iteration = 2,
                                                    .n_head = 2,
                                                    .c_head = 4,
                                                    .n_qk = 2,
                                                    .n_v = 3,
                                                    .c_angle = 8,
                                                    .n_angle_block = 2,
                                                    .c_plddt = 8,
                                                    .n_plddt_bin = 50,
                                                    .n_aligned_error_bin = 64,
                                                    .dropout = 0.1,
                                                    .position_scale = 10};
    for (int i = 0; i < FM_LOSS_TERMS; i++) {
        if (fm_loss_terms[i].needs & FM_LOSS_STRUCTURE) options.weight[i] = 0.1;
    }
    options.seed = 7;
    options.optimizer.warmup_samples = 0;
    return options;
}

static inline fm_trainer *create(const fm_trainer_options *options) {
    fm_trainer *trainer = NULL;
    fm_error error = {0};
    if (fm_trainer_create(options, &trainer, &error)) fail_msg("%s", error.message);
    return trainer;
}

static inline fm_sample_result take(fm_trainer *trainer, const fm_features *features) {
    fm_sample_result result = {0};
    fm_error error = {0};
    if (fm_trainer_add_sample(trainer, features, &result, &error)) fail_msg("%s", error.message);
    return result;
}

#endif
