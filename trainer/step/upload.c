/* upload.c: see upload.h. Every tensor is written into the host's copy of the state, which has the
 * device's layout, and sent from there. */
#include "trainer/step/upload.h"

#include "trainer/step/templates.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { ATOM_CA = 1, ATOM_CB = 3, N_ATOM37 = 37, GLYCINE = 7, UNKNOWN_RESIDUE = 20, GAP = 21 };

/* Å: pLDDT, resolved and aligned error are learnt from structures between these alone (1.9.6). */
static const float LOWEST_RESOLUTION = 0.1f, HIGHEST_RESOLUTION = 3.0f;

/* Far above any chain, and differences stay far from overflow. */
enum { MOST_RESIDUE_INDEX = 1 << 24 };

static void *host_of(const fm_trainer *trainer, int32_t tensor) {
    return trainer->host + trainer->state.offset[tensor];
}

static void send(const fm_trainer *trainer, int32_t tensor) {
    const fm_kernels *kernels = trainer->params.kernels;
    kernels->upload(NULL, fm_state_data(&trainer->state, tensor), host_of(trainer, tensor),
                    (size_t)fm_tensor_local_bytes(&trainer->state.tensor[tensor]));
}

/* The nearest bf16, ties to even; values here are finite. */
static uint16_t bf16_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Element i of a real tensor, in the tensor's own type. */
static void put(const fm_trainer *trainer, int32_t tensor, int64_t i, double value) {
    void *host = host_of(trainer, tensor);
    switch (trainer->state.tensor[tensor].element) {
    case FM_ELEMENT_F64: ((double *)host)[i] = value; break;
    case FM_ELEMENT_BF16: ((uint16_t *)host)[i] = bf16_of((float)value); break;
    default: ((float *)host)[i] = (float)value;
    }
}

/* The first of `count` bytes that is above `most`, or count. */
static size_t first_above(const uint8_t *bytes, size_t count, uint8_t most) {
    size_t i = 0;
    while (i < count && bytes[i] <= most) {
        i++;
    }
    return i;
}

static fm_status check_ids(const char *name, const uint8_t *ids, size_t count, uint8_t most,
                           fm_error *reterr) {
    size_t bad = first_above(ids, count, most);
    if (bad == count) {
        return FM_OK;
    }
    return fm_fail(reterr, FM_ERR_DATA, "element %zu of %s is %u, expected 0 to %u", bad, name,
                   ids[bad], most);
}

static fm_status check_residues(const fm_features *f, fm_error *reterr) {
    for (uint32_t i = 0; i < f->n_res; i++) {
        if (f->residue_index[i] < 0 || f->residue_index[i] > MOST_RESIDUE_INDEX) {
            return fm_fail(reterr, FM_ERR_DATA,
                           "element %u of residue_index is %d, expected 0 to %d", i,
                           (int)f->residue_index[i], MOST_RESIDUE_INDEX);
        }
    }
    fm_status status = check_ids("aatype", f->aatype, f->n_res, UNKNOWN_RESIDUE, reterr);
    return status ? status
                  : check_ids("template_aatype", f->template_aatype, (size_t)f->n_templ * f->n_res,
                              FM_TEMPLATE_CLASSES - 1, reterr);
}

static fm_status check_cycle(const fm_features *f, const fm_cycle_features *c, fm_error *reterr) {
    size_t count = (size_t)c->n_clust * f->n_res;
    for (uint32_t s = 0; s < c->n_clust; s++) {
        if (c->cluster_size[s] == 0) {
            return fm_fail(reterr, FM_ERR_DATA,
                           "element %u of cluster_size is 0, expected 1 or more", s);
        }
    }
    fm_status status = check_ids("msa", c->msa, count, FM_MSA_CLASSES - 1, reterr);
    if (!status) {
        status = check_ids("true_msa", c->true_msa, count, FM_MSA_CLASSES - 1, reterr);
    }
    return status ? status
                  : check_ids("extra_msa", c->extra_msa, (size_t)c->n_extra * f->n_res,
                              FM_MSA_CLASSES - 1, reterr);
}

static fm_status check_rows(const fm_model_config *config, const fm_cycle_features *c,
                            uint32_t cycle, fm_error *reterr) {
    if (c->n_clust < 1 || c->n_clust > config->n_seq) {
        return fm_fail(reterr, FM_ERR_LIMIT, "cycle %u has %u clusters, the model takes 1 to %lld",
                       cycle, c->n_clust, (long long)config->n_seq);
    }
    if (config->n_extra_block > 0 && c->n_extra > config->n_extra) {
        return fm_fail(reterr, FM_ERR_LIMIT,
                       "cycle %u has %u extra MSA rows, the model takes 0 to %lld", cycle,
                       c->n_extra, (long long)config->n_extra);
    }
    return FM_OK;
}

fm_status fm_upload_check(const fm_trainer *trainer, const fm_features *features,
                          fm_error *reterr) {
    const fm_model_config *config = &trainer->options.model;
    if (features->n_res < 1 || features->n_res > config->n_res) {
        return fm_fail(reterr, FM_ERR_LIMIT,
                       "the sample has %u residues, the model takes 1 to %lld", features->n_res,
                       (long long)config->n_res);
    }
    if (features->n_cycle < 1 || features->n_cycle > FM_MAX_CYCLE) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the sample has %u cycles, a step takes 1 to %d",
                       features->n_cycle, FM_MAX_CYCLE);
    }
    fm_status status = check_residues(features, reterr);
    for (uint32_t c = 0; c < features->n_cycle && !status; c++) {
        status = check_rows(config, &features->cycle[c], c, reterr);
        if (!status) {
            status = check_cycle(features, &features->cycle[c], reterr);
        }
    }
    return status;
}

/* C-beta, or C-alpha of glycine; zeros where it is not resolved. */
static void put_pseudo_beta(fm_trainer *trainer, const fm_features *f) {
    float *x = host_of(trainer, trainer->pseudo_beta);
    float *mask = host_of(trainer, trainer->pseudo_beta_mask);
    memset(x, 0, (size_t)trainer->options.model.n_res * 3 * sizeof *x);
    memset(mask, 0, (size_t)trainer->options.model.n_res * sizeof *mask);
    for (uint32_t i = 0; i < f->n_res; i++) {
        int atom = f->aatype[i] == GLYCINE ? ATOM_CA : ATOM_CB;
        if (f->all_atom_mask[i] >> atom & 1) {
            mask[i] = 1;
            memcpy(x + 3 * i, f->all_atom_positions + ((size_t)i * N_ATOM37 + (size_t)atom) * 3,
                   3 * sizeof *x);
        }
    }
}

/* Total = sum of factor * term; a term that a sample has no truth for weighs 0. */
static void put_factors(fm_trainer *trainer, const fm_features *f) {
    double *factors = host_of(trainer, trainer->factors), scale = sqrt((double)f->n_res);
    bool resolved = f->resolution >= LOWEST_RESOLUTION && f->resolution <= HIGHEST_RESOLUTION;
    int n = 0;
    factors[n++] = trainer->options.weight_distogram * scale;
    factors[n++] = trainer->options.weight_masked_msa * scale;
    for (int i = 0; i < FM_STRUCTURE_TERMS; i++) {
        bool gated = i == FM_TERM_PLDDT || i == FM_TERM_RESOLVED || i == FM_TERM_ALIGNED_ERROR;
        if (trainer->structure[i] != FM_TENSOR_NONE) {
            factors[n++] = gated && !resolved ? 0 : trainer->options.weight_structure[i] * scale;
        }
    }
}

/* The structure module's mask and ground truth. */
static void send_structure(fm_trainer *trainer, const fm_features *f) {
    int64_t n = trainer->options.model.n_res;
    int32_t tensors[FM_STRUCTURE_TRUTHS];
    for (int64_t i = 0; i < n; i++) {
        put(trainer, trainer->inputs.seq_mask, i, i < f->n_res);
    }
    bool fits = fm_structure_put_truth(&trainer->state, &trainer->truth, f, n, !f->unclamped_fape,
                                       trainer->host, &trainer->arena);
    assert(fits); /* the arena has room for any sample of the recorded shape */
    (void)fits;
    send(trainer, trainer->inputs.seq_mask);
    for (int i = 0; i < fm_structure_list_truth(&trainer->truth, tensors); i++) {
        send(trainer, tensors[i]);
    }
}

/* Row `t` of the template inputs, and of the mask of m below the clusters; `made` has n_res
 * residues, 0 for a template that is not there. */
static void put_template(fm_trainer *trainer, int64_t t, const fm_template_inputs *made,
                         const uint8_t *aatype, int64_t n_res) {
    const fm_model_config *config = &trainer->options.model;
    const fm_model_inputs *in = &trainer->inputs;
    enum { ROW = FM_TEMPLATE_ROW_FEATURES };
    for (int64_t i = 0; i < config->n_res; i++) {
        bool there = i < n_res;
        int64_t to = t * config->n_res + i;
        ((uint8_t *)host_of(trainer, in->template_aatype))[to] = there ? aatype[i] : GAP;
        for (int64_t axis = 0; axis < 3; axis++) {
            ((float *)host_of(trainer, in->template_pseudo_beta))[3 * to + axis] =
                there ? made->pseudo_beta[3 * i + axis] : 0;
        }
        put(trainer, in->template_pseudo_beta_mask, to, there ? made->pseudo_beta_mask[i] : 0);
        put(trainer, in->template_backbone_mask, to, there ? made->backbone_mask[i] : 0);
        put(trainer, in->msa_mask, config->n_seq * config->n_res + to,
            there ? made->psi_mask[i] : 0);
        for (int64_t k = 0; k < ROW; k++) {
            put(trainer, in->template_rows, to * ROW + k, there ? made->rows[i * ROW + k] : 0);
        }
    }
}

/* The model's first templates of the sample's; their order is by chance, so these are what a plan
 * with that many would have drawn. */
static void send_templates(fm_trainer *trainer, const fm_features *f) {
    const fm_model_inputs *in = &trainer->inputs;
    for (int64_t t = 0; t < trainer->options.model.n_template; t++) {
        fm_template_inputs made = {0};
        bool there = t < f->n_templ;
        size_t mark = fm_arena_mark(&trainer->arena);
        bool fits = !there || fm_template_make(f, (uint32_t)t, &trainer->arena, &made);
        assert(fits); /* the arena has room for any sample of the recorded shape */
        (void)fits;
        put_template(trainer, t, &made, there ? f->template_aatype + t * f->n_res : NULL,
                     there ? f->n_res : 0);
        put(trainer, in->template_mask, t, there);
        fm_arena_rewind(&trainer->arena, mark);
    }
    put(trainer, in->template_any, 0, f->n_templ > 0);
    const int32_t sent[] = {in->template_aatype,
                            in->template_pseudo_beta,
                            in->template_pseudo_beta_mask,
                            in->template_backbone_mask,
                            in->template_rows,
                            in->template_mask,
                            in->template_any};
    for (size_t i = 0; i < sizeof sent / sizeof sent[0]; i++) {
        send(trainer, sent[i]);
    }
}

void fm_upload_sample(fm_trainer *trainer, const fm_features *f) {
    const fm_model_config *config = &trainer->options.model;
    const fm_model_inputs *in = &trainer->inputs;
    int64_t n = config->n_res, n_res = f->n_res;
    uint8_t *aatype = host_of(trainer, in->aatype);
    int32_t *index = host_of(trainer, in->residue_index);
    for (int64_t i = 0; i < n; i++) {
        aatype[i] = i < n_res ? f->aatype[i] : UNKNOWN_RESIDUE;
        index[i] = i < n_res ? f->residue_index[i] : 0;
        for (int64_t j = 0; j < n; j++) {
            put(trainer, in->pair_mask, i * n + j, i < n_res && j < n_res);
        }
    }
    put_pseudo_beta(trainer, f);
    put_factors(trainer, f);
    if (config->structure.n_iteration > 0) {
        send_structure(trainer, f);
    }
    if (config->n_template > 0) {
        send_templates(trainer, f);
    }
    put(trainer, trainer->seed_gradient, 0, 1);
    const int32_t sent[] = {in->aatype,
                            in->residue_index,
                            in->pair_mask,
                            trainer->pseudo_beta,
                            trainer->pseudo_beta_mask,
                            trainer->factors,
                            trainer->seed_gradient};
    for (size_t i = 0; i < sizeof sent / sizeof sent[0]; i++) {
        send(trainer, sent[i]);
    }
}

static uint32_t profile_count(const fm_cycle_features *c, size_t at) {
    switch (c->profile_element) {
    case FM_ELEMENT_U8: return ((const uint8_t *)c->cluster_profile)[at];
    case FM_ELEMENT_U16: return ((const uint16_t *)c->cluster_profile)[at];
    default: return ((const uint32_t *)c->cluster_profile)[at];
    }
}

/* Position (s, i) of the recorded shape from position k of the sample. */
static void put_position(fm_trainer *trainer, const fm_cycle_features *c, int64_t to, size_t k) {
    const fm_model_inputs *in = &trainer->inputs;
    ((uint8_t *)host_of(trainer, in->msa))[to] = c->msa[k];
    ((uint16_t *)host_of(trainer, in->deletion))[to] = c->deletion_matrix[k];
    ((uint32_t *)host_of(trainer, in->deletion_sum))[to] = c->cluster_deletion_sum[k];
    uint32_t *profile = (uint32_t *)host_of(trainer, in->profile) + to * FM_MSA_CLASSES;
    for (size_t i = 0; i < FM_MSA_CLASSES; i++) {
        profile[i] = profile_count(c, k * FM_MSA_CLASSES + i);
    }
    ((int32_t *)host_of(trainer, trainer->true_msa))[to] = c->true_msa[k];
    put(trainer, trainer->bert_mask, to, c->bert_mask[k / 8] >> k % 8 & 1);
    put(trainer, in->msa_mask, to, 1);
}

static void put_padding(fm_trainer *trainer, int64_t to) {
    const fm_model_inputs *in = &trainer->inputs;
    ((uint8_t *)host_of(trainer, in->msa))[to] = GAP;
    ((uint16_t *)host_of(trainer, in->deletion))[to] = 0;
    ((uint32_t *)host_of(trainer, in->deletion_sum))[to] = 0;
    memset((uint32_t *)host_of(trainer, in->profile) + to * FM_MSA_CLASSES, 0,
           FM_MSA_CLASSES * sizeof(uint32_t));
    ((int32_t *)host_of(trainer, trainer->true_msa))[to] = GAP;
    put(trainer, trainer->bert_mask, to, 0);
    put(trainer, in->msa_mask, to, 0);
}

static void put_extra_msa(fm_trainer *trainer, const fm_features *f, const fm_cycle_features *c) {
    const fm_model_config *config = &trainer->options.model;
    const fm_model_inputs *in = &trainer->inputs;
    uint8_t *msa = host_of(trainer, in->extra_msa);
    uint16_t *deletion = host_of(trainer, in->extra_deletion);
    for (int64_t s = 0; s < config->n_extra; s++) {
        for (int64_t i = 0; i < config->n_res; i++) {
            bool there = s < c->n_extra && i < f->n_res;
            int64_t to = s * config->n_res + i, from = s * f->n_res + i;
            msa[to] = there ? c->extra_msa[from] : GAP;
            deletion[to] = there ? c->extra_deletion_matrix[from] : 0;
            put(trainer, in->extra_msa_mask, to, there);
        }
    }
    send(trainer, in->extra_msa);
    send(trainer, in->extra_deletion);
    send(trainer, in->extra_msa_mask);
}

void fm_upload_cycle(fm_trainer *trainer, const fm_features *f, uint32_t cycle) {
    const fm_model_config *config = &trainer->options.model;
    const fm_model_inputs *in = &trainer->inputs;
    const fm_cycle_features *c = &f->cycle[cycle];
    uint32_t *size = host_of(trainer, in->cluster_size);
    for (int64_t s = 0; s < config->n_seq; s++) {
        size[s] = s < c->n_clust ? c->cluster_size[s] : 1;
        for (int64_t i = 0; i < config->n_res; i++) {
            if (s < c->n_clust && i < f->n_res) {
                put_position(trainer, c, s * config->n_res + i, (size_t)s * f->n_res + (size_t)i);
            } else {
                put_padding(trainer, s * config->n_res + i);
            }
        }
    }
    if (config->n_extra_block > 0) {
        put_extra_msa(trainer, f, c);
    }
    uint32_t *clock = host_of(trainer, trainer->clock);
    clock[FM_CLOCK_STEP] = (uint32_t)trainer->optimizer.step;
    clock[FM_CLOCK_SLOT] = f->slot;
    clock[FM_CLOCK_CYCLE] = cycle;
    const int32_t sent[] = {in->msa,           in->deletion,       in->profile,
                            in->deletion_sum,  in->cluster_size,   in->msa_mask,
                            trainer->true_msa, trainer->bert_mask, trainer->clock};
    for (size_t i = 0; i < sizeof sent / sizeof sent[0]; i++) {
        send(trainer, sent[i]);
    }
}
