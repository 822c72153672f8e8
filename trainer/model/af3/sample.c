/* sample.c: see sample.h. */
#include "trainer/model/af3/sample.h"

#include "trainer/ops/relative_position.h"

#include <assert.h>
#include <math.h>

enum { NO_CLASS = 255 };

static void put(const fm_af3_writer *to, int32_t tensor, int64_t at, double value) {
    to->put(to->context, tensor, at, value);
}

/* -- tokens */

static fm_status write_relative(const fm_af3_sample *s, const fm_af3_config *c,
                                const fm_af3_inputs *in, const fm_af3_writer *to, fm_arena *scratch,
                                fm_error *reterr) {
    int64_t n = s->n_token, N = c->n_token;
    uint8_t *ids = fm_arena_alloc_array(scratch, (size_t)(FM_RELATIVE_KINDS * n * n), 1);
    if (!ids) return fm_arena_full(scratch, reterr);
    fm_relative_position_classes(n, s->asym_id, s->residue_index, s->entity_id, s->sym_id,
                                 s->token_index, ids);
    for (int64_t row = 0; row < FM_RELATIVE_KINDS * N; row++) {
        int64_t kind = row / N, i = row % N;
        for (int64_t j = 0; j < N; j++) {
            bool inside = i < n && j < n;
            put(to, in->relative, row * N + j, inside ? ids[(kind * n + i) * n + j] : NO_CLASS);
        }
    }
    return FM_OK;
}

static void write_tokens(const fm_af3_sample *s, const fm_af3_config *c, const fm_af3_inputs *in,
                         const fm_af3_writer *to) {
    int64_t n = s->n_token, N = c->n_token;
    for (int64_t i = 0; i < n; i++) {
        int64_t first = i * FM_AF3_TOKEN_FEATURES;
        put(to, in->mask_single, i, 1);
        for (int64_t k = 0; k < FM_AF3_RESTYPES; k++) {
            put(to, in->token_features, first + k, s->restype[i * FM_AF3_RESTYPES + k]);
            put(to, in->token_features, first + FM_AF3_RESTYPES + k,
                s->profile[i * FM_AF3_RESTYPES + k]);
        }
        put(to, in->token_features, first + FM_AF3_TOKEN_FEATURES - 1, s->deletion_mean[i]);
        for (int64_t j = 0; j < n; j++) {
            put(to, in->mask_pair, i * N + j, 1);
            put(to, in->bonds, i * N + j, s->token_bonds[i * n + j]);
        }
        for (int64_t k = 0; k < c->n_sample; k++)
            put(to, in->training.mask, k * N + i, 1);
    }
}

/* -- templates */

enum {
    T_BINS = 39,
    T_BETA = T_BINS,
    T_TYPE_J = T_BETA + 1,
    T_TYPE_I = T_TYPE_J + FM_AF3_RESTYPES,
    T_VECTOR = T_TYPE_I + FM_AF3_RESTYPES,
    T_FRAME = T_VECTOR + 3,
    T_END = T_FRAME + 1
};

/* Writes the features of pair p = (t, i, j) that are not 0. */
static void write_template_pair(const fm_af3_sample *s, const fm_af3_writer *to, int32_t tensor,
                                int64_t first, int64_t p, int64_t i, int64_t j) {
    const int64_t *type = s->template_aatype + p / (s->n_token * s->n_token) * s->n_token;
    put(to, tensor, first + T_TYPE_J + type[j], 1);
    put(to, tensor, first + T_TYPE_I + type[i], 1);
    if (s->asym_id[i] != s->asym_id[j]) return;
    const float *bins = s->template_distogram + p * T_BINS, *unit = s->template_unit_vector + 3 * p;
    for (int k = 0; k < T_BINS; k++)
        if (bins[k] != 0) put(to, tensor, first + k, (double)bins[k]);
    put(to, tensor, first + T_BETA, (double)s->template_pseudo_beta_mask[p]);
    for (int k = 0; k < 3; k++)
        put(to, tensor, first + T_VECTOR + k, (double)unit[k]);
    put(to, tensor, first + T_FRAME, (double)s->template_backbone_frame_mask[p]);
}

void fm_af3_write_templates(const fm_af3_sample *s, int64_t N, int32_t tensor,
                            const fm_af3_writer *to) {
    int64_t n = s->n_token;
    static_assert((int)T_END == (int)FM_AF3_TEMPLATE_PAIR, "the features of a template pair");
    for (int64_t t = 0, p = 0; t < s->n_template; t++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++, p++)
                write_template_pair(s, to, tensor, ((t * N + i) * N + j) * FM_AF3_TEMPLATE_PAIR, p,
                                    i, j);
}

/* -- atoms */

/* The class of a one-hot row; NO_CLASS if all are 0. */
static double class_of(const float *row, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (row[i] != 0) return (double)i;
    }
    return NO_CLASS;
}

static void write_atom(const fm_af3_sample *s, const fm_af3_config *c, const fm_af3_inputs *in,
                       const fm_af3_writer *to, int64_t l) {
    bool inside = l < s->n_atom;
    put(to, in->atom_token, l, inside ? (double)s->atom_to_token_idx[l] : -1);
    put(to, in->space, l, inside ? (double)s->ref_space_uid[l] : -1);
    for (int64_t k = 0; k < FM_ATOM_CLASSES && !inside; k++)
        put(to, in->atom_classes, k * c->n_atom + l, NO_CLASS);
    if (!inside) return;
    put(to, in->atom_mask, l, 1);
    put(to, in->atom_charge, l, asinh(s->ref_charge[l]));
    put(to, in->atom_has_reference, l, s->ref_mask[l]);
    put(to, in->atom_classes, l, 0);
    put(to, in->atom_classes, c->n_atom + l,
        class_of(s->ref_element + l * FM_ATOM_ELEMENTS, FM_ATOM_ELEMENTS));
    for (int64_t k = 0; k < 4; k++) {
        const float *row = s->ref_atom_name_chars + (4 * l + k) * FM_ATOM_CHARACTERS;
        put(to, in->atom_classes, (2 + k) * c->n_atom + l, class_of(row, FM_ATOM_CHARACTERS));
    }
}

void fm_af3_write_conformers(int64_t n_atom, const float *position, const fm_af3_inputs *in,
                             const fm_af3_writer *to) {
    for (int64_t i = 0; i < 3 * n_atom; i++) {
        put(to, in->atom_position, i, (double)position[i]);
        put(to, in->position, i, (double)position[i]);
    }
}

/* Writes which row of the slots' logits belongs to each atom, and the reverse, and the atoms that
 * represent tokens. */
static void write_slots(const fm_af3_sample *s, const fm_af3_config *c, const fm_af3_inputs *in,
                        const fm_af3_writer *to) {
    for (int64_t r = 0; r < c->max_atoms_per_token * c->n_token; r++)
        put(to, in->atom_of_row, r, -1);
    for (int64_t t = 0; t < c->n_token; t++)
        put(to, in->representative, t, -1);
    for (int64_t l = 0; l < s->n_atom; l++) {
        int64_t t = s->atom_to_token_idx[l];
        if (s->distogram_rep_atom_mask[l]) put(to, in->representative, t, (double)l);
    }
    for (int64_t l = 0; l < c->n_atom; l++) {
        bool inside = l < s->n_atom;
        int64_t row =
            inside ? s->atom_to_tokatom_idx[l] * c->n_token + s->atom_to_token_idx[l] : -1;
        put(to, in->slot_row, l, (double)row);
        if (inside) put(to, in->atom_of_row, row, (double)l);
    }
}

static void write_atoms(const fm_af3_sample *s, const fm_af3_config *c, const fm_af3_inputs *in,
                        const fm_af3_writer *to) {
    for (int64_t l = 0; l < c->n_atom; l++)
        write_atom(s, c, in, to, l);
    for (int64_t t = 0, l = 0; t <= c->n_token; t++) {
        while (l < s->n_atom && s->atom_to_token_idx[l] < t)
            l++;
        put(to, in->first_atom, t, (double)l);
    }
}

/* -- all */

fm_status fm_af3_write_sample(const fm_af3_sample *sample, const fm_af3_config *config,
                              const fm_af3_inputs *inputs, const fm_af3_writer *to,
                              fm_arena *scratch, fm_error *reterr) {
    assert(sample->n_token <= config->n_token && sample->n_atom <= config->n_atom);
    size_t mark = fm_arena_mark(scratch);
    fm_status status = write_relative(sample, config, inputs, to, scratch, reterr);
    fm_arena_rewind(scratch, mark);
    if (status) return status;
    assert(inputs->templates < 0 || sample->n_template == config->n_template);
    if (inputs->templates >= 0) {
        fm_af3_write_templates(sample, config->n_token, inputs->templates, to);
    }
    write_tokens(sample, config, inputs, to);
    write_atoms(sample, config, inputs, to);
    write_slots(sample, config, inputs, to);
    return FM_OK;
}

void fm_af3_write_msa(const fm_af3_sample *s, const fm_af3_config *c, const fm_af3_inputs *in,
                      const int64_t *rows, int64_t n_row, const fm_af3_writer *to) {
    int64_t n = s->n_token, N = c->n_token;
    assert(n_row <= c->n_msa);
    for (int64_t r = 0; r < n_row; r++) {
        for (int64_t i = 0; i < n; i++) {
            int64_t from = rows[r] * n + i, at = (r * N + i) * FM_AF3_MSA_FEATURES;
            assert(s->msa[from] >= 0 && s->msa[from] < FM_AF3_RESTYPES);
            put(to, in->mask_msa, r * N + i, 1);
            put(to, in->msa, at + s->msa[from], 1);
            put(to, in->msa, at + FM_AF3_RESTYPES, s->has_deletion[from]);
            put(to, in->msa, at + FM_AF3_RESTYPES + 1, s->deletion_value[from]);
        }
    }
}
