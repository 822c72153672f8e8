/* sample.c: see sample.h. */
#include "trainer/model/af3/sample.h"

#include "proto/chem/template_pairs.h"
#include "trainer/backend/cpu_threads.h"
#include "trainer/ops/relative_position.h"

#include <assert.h>
#include <math.h>

enum { NO_CLASS = 255 };

static void put(const fm_af3_writer *to, int32_t tensor, int64_t at, double value) {
    to->put(to->context, tensor, at, value);
}

/* -- rows, which threads share */

typedef struct sharing {
    const fm_af3_sample *sample;
    const fm_af3_inputs *in;
    const fm_af3_writer *to;
    int64_t N;           /* recorded tokens */
    int64_t n_structure; /* that are trained side by side */
    int32_t tensor;      /* of the templates */
    uint8_t *ids;        /* [FM_RELATIVE_KINDS, n, n]; of templates: room for a row of each part */
    float *vectors;      /* room for a row of each part, [n, 3] */
    const int64_t *rows; /* of the MSA */
    int64_t n_row;
    int n_part;
    void (*write)(const struct sharing *s, int part, int64_t row);
} sharing;

static void write_part(void *context, int part) {
    const sharing *s = context;
    const int64_t end = fm_cpu_part_begin(s->n_row, 1, part + 1, s->n_part);
    for (int64_t row = fm_cpu_part_begin(s->n_row, 1, part, s->n_part); row < end; row++)
        s->write(s, part, row);
}

static int count_parts(int64_t n_row) {
    const int n = fm_cpu_threads();
    return n < 1 || n_row < n ? 1 : n;
}

static void write_rows(sharing *s, int64_t n_row,
                       void (*write)(const sharing *s, int part, int64_t row)) {
    s->n_row = n_row;
    s->n_part = count_parts(n_row);
    s->write = write;
    fm_cpu_run_parts(write_part, s, s->n_part);
}

/* -- tokens */

static void write_relative_row(const sharing *s, int part, int64_t row) {
    const int64_t n = s->sample->n_token, N = s->N, kind = row / N, i = row % N;
    (void)part;
    for (int64_t j = 0; j < N; j++) {
        bool inside = i < n && j < n;
        put(s->to, s->in->relative, row * N + j,
            inside ? s->ids[(kind * n + i) * n + j] : NO_CLASS);
    }
}

static fm_status write_relative(sharing *s, fm_arena *scratch, fm_error *reterr) {
    const fm_af3_sample *of = s->sample;
    const int64_t n = of->n_token;
    s->ids = fm_arena_alloc_array(scratch, (size_t)(FM_RELATIVE_KINDS * n * n), 1);
    if (!s->ids) return fm_arena_full(scratch, reterr);
    fm_relative_position_classes(n, of->asym_id, of->residue_index, of->entity_id, of->sym_id,
                                 of->token_index, s->ids);
    write_rows(s, FM_RELATIVE_KINDS * s->N, write_relative_row);
    return FM_OK;
}

static void write_token(const sharing *s, int part, int64_t i) {
    const fm_af3_sample *of = s->sample;
    const fm_af3_inputs *in = s->in;
    const int64_t n = of->n_token, N = s->N, first = i * FM_AF3_TOKEN_FEATURES;
    (void)part;
    put(s->to, in->mask_single, i, 1);
    for (int64_t k = 0; k < FM_AF3_RESTYPES; k++) {
        put(s->to, in->token_features, first + k, of->restype[i * FM_AF3_RESTYPES + k]);
        put(s->to, in->token_features, first + FM_AF3_RESTYPES + k,
            of->profile[i * FM_AF3_RESTYPES + k]);
    }
    put(s->to, in->token_features, first + FM_AF3_TOKEN_FEATURES - 1, of->deletion_mean[i]);
    for (int64_t j = 0; j < n; j++) {
        put(s->to, in->mask_pair, i * N + j, 1);
        put(s->to, in->bonds, i * N + j, of->token_bonds[i * n + j]);
    }
    for (int64_t k = 0; k < s->n_structure; k++)
        put(s->to, in->training.mask, k * N + i, 1);
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

/* What a template says of a pair. `bins` has the values of all bins, or is NULL and `bin` is the
 * one that is 1. */
typedef struct template_pair {
    const float *bins, *unit;
    int bin;
    double beta, frame;
} template_pair;

static void write_template_pair(const sharing *s, int64_t first, const template_pair *pair) {
    for (int k = 0; pair->bins && k < T_BINS; k++)
        if (pair->bins[k] != 0) put(s->to, s->tensor, first + k, (double)pair->bins[k]);
    if (!pair->bins && pair->bin < T_BINS) put(s->to, s->tensor, first + pair->bin, 1);
    if (pair->beta != 0) put(s->to, s->tensor, first + T_BETA, pair->beta);
    for (int k = 0; k < 3; k++)
        put(s->to, s->tensor, first + T_VECTOR + k, (double)pair->unit[k]);
    if (pair->frame != 0) put(s->to, s->tensor, first + T_FRAME, pair->frame);
}

/* Computes a row of a template from its atoms, in the part's room. */
static fm_template_pairs compute_row(const sharing *s, int part, int64_t t, int64_t i) {
    const int64_t n = s->sample->n_token;
    uint8_t *ids = s->ids + 3 * n * part;
    const fm_template_pairs row = {ids, ids + n, ids + 2 * n, s->vectors + 3 * n * part};
    const fm_template_atoms atoms = {s->sample->template_atoms + t * n * FM_N_TEMPLATE_ATOM * 3,
                                     s->sample->template_atom_mask + t * n};
    fm_template_pairs_row(&atoms, (uint32_t)n, (uint32_t)i, &row);
    return row;
}

/* Writes the features of the pairs (t, i, all) that are not 0. */
static void write_template_row(const sharing *s, int part, int64_t row) {
    const fm_af3_sample *of = s->sample;
    const int64_t n = of->n_token, t = row / n, i = row % n;
    const int64_t *type = of->template_aatype + t * n;
    fm_template_pairs own = {0};
    if (of->template_atoms) own = compute_row(s, part, t, i);
    for (int64_t j = 0; j < n; j++) {
        const int64_t first = ((t * s->N + i) * s->N + j) * FM_AF3_TEMPLATE_PAIR, p = row * n + j;
        put(s->to, s->tensor, first + T_TYPE_J + type[j], 1);
        put(s->to, s->tensor, first + T_TYPE_I + type[i], 1);
        if (of->asym_id[i] != of->asym_id[j]) continue;
        const template_pair pair =
            of->template_atoms
                ? (template_pair){NULL, own.unit_vector + 3 * j, own.bin[j],
                                  (double)own.beta_mask[j], (double)own.frame_mask[j]}
                : (template_pair){of->template_distogram + p * T_BINS,
                                  of->template_unit_vector + 3 * p, 0,
                                  (double)of->template_pseudo_beta_mask[p],
                                  (double)of->template_backbone_frame_mask[p]};
        write_template_pair(s, first, &pair);
    }
}

fm_status fm_af3_write_templates(const fm_af3_sample *sample, int64_t N, int32_t tensor,
                                 const fm_af3_writer *to, fm_arena *scratch, fm_error *reterr) {
    const int64_t n = sample->n_token, n_row = sample->n_template * n;
    const size_t mark = fm_arena_mark(scratch), room = (size_t)(n * count_parts(n_row));
    sharing s = {.sample = sample, .to = to, .N = N, .tensor = tensor};
    static_assert((int)T_END == (int)FM_AF3_TEMPLATE_PAIR, "the features of a template pair");
    if (n_row == 0) return FM_OK;
    if (sample->template_atoms) {
        s.ids = fm_arena_alloc_array(scratch, room, 3);
        s.vectors = fm_arena_alloc_array(scratch, room, 3 * sizeof(float));
        if (!s.ids || !s.vectors) return fm_arena_full(scratch, reterr);
    }
    write_rows(&s, n_row, write_template_row);
    fm_arena_rewind(scratch, mark);
    return FM_OK;
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
    const size_t mark = fm_arena_mark(scratch);
    sharing s = {.sample = sample,
                 .in = inputs,
                 .to = to,
                 .N = config->n_token,
                 .n_structure = config->n_sample};
    fm_status status = write_relative(&s, scratch, reterr);
    fm_arena_rewind(scratch, mark);
    assert(inputs->templates < 0 || sample->n_template == config->n_template);
    if (!status && inputs->templates >= 0) {
        status =
            fm_af3_write_templates(sample, config->n_token, inputs->templates, to, scratch, reterr);
    }
    if (status) return status;
    write_rows(&s, sample->n_token, write_token);
    write_atoms(sample, config, inputs, to);
    write_slots(sample, config, inputs, to);
    return FM_OK;
}

static void write_msa_row(const sharing *s, int part, int64_t r) {
    const fm_af3_sample *of = s->sample;
    const fm_af3_inputs *in = s->in;
    const int64_t n = of->n_token;
    (void)part;
    for (int64_t i = 0; i < n; i++) {
        const int64_t from = s->rows[r] * n + i, at = (r * s->N + i) * FM_AF3_MSA_FEATURES;
        assert(of->msa[from] >= 0 && of->msa[from] < FM_AF3_RESTYPES);
        put(s->to, in->mask_msa, r * s->N + i, 1);
        put(s->to, in->msa, at + of->msa[from], 1);
        put(s->to, in->msa, at + FM_AF3_RESTYPES, of->has_deletion[from]);
        put(s->to, in->msa, at + FM_AF3_RESTYPES + 1, of->deletion_value[from]);
    }
}

void fm_af3_write_msa(const fm_af3_sample *sample, const fm_af3_config *config,
                      const fm_af3_inputs *inputs, const int64_t *rows, int64_t n_row,
                      const fm_af3_writer *to) {
    sharing s = {.sample = sample, .in = inputs, .to = to, .N = config->n_token, .rows = rows};
    assert(n_row <= config->n_msa);
    write_rows(&s, n_row, write_msa_row);
}
