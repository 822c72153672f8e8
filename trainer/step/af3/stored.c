/* stored.c: see stored.h. A table states the type, shape, range and destination of each array;
 * checks that arrays agree with each other follow it. */
#include "trainer/step/af3/stored.h"

#include "proto/base/file.h"
#include "proto/chem/template_pairs.h"
#include "proto/complex_sample.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const size_t ARENA_BYTES = (size_t)4 << 30; /* address space: the file and its arrays */

#define MOST_ID 2147483647.0
#define MOST_NUMBER 1e6
#define MOST_LENGTH 1e5

/* Extents that a sample chooses; the others are numbers. */
enum { TOKENS = -1, ATOMS = -2, ROWS = -3, TEMPLATES = -4, EXTENTS = 5, RANK = 4 };

typedef struct reader {
    const fm_npz *npz;
    fm_arena *arena;
    int64_t extent[EXTENTS]; /* extent[-TOKENS] and so on */
    fm_af3_features *to;
    bool is_predicted;       /* no labels of bonds and of equivalent atoms are read */
    bool has_template_atoms; /* the expanded sample has templates as atoms */
    fm_error *error;
} reader;

typedef struct array_row {
    const char *name;
    bool is_float; /* <f4, else <i8 */
    int rank;
    int32_t shape[RANK];
    double min, max;
    bool is_flag;  /* no values but 0 and 1 */
    size_t at;     /* of its pointer in fm_af3_features */
    size_t second; /* of another pointer to it; 0: none */
} array_row;

#define SAMPLE(field) offsetof(fm_af3_features, sample.field)
#define LABELS(field) offsetof(fm_af3_features, labels.field)
#define FLAG .min = 0, .max = 1, .is_flag = true

static const array_row rows[] = {
    {"asym_id", false, 1, {TOKENS}, -MOST_ID, MOST_ID, .at = SAMPLE(asym_id)},
    {"entity_id", false, 1, {TOKENS}, -MOST_ID, MOST_ID, .at = SAMPLE(entity_id)},
    {"sym_id", false, 1, {TOKENS}, -MOST_ID, MOST_ID, .at = SAMPLE(sym_id)},
    {"residue_index", false, 1, {TOKENS}, -MOST_ID, MOST_ID, .at = SAMPLE(residue_index)},
    {"token_index", false, 1, {TOKENS}, -MOST_ID, MOST_ID, .at = SAMPLE(token_index)},
    {"restype", true, 2, {TOKENS, 32}, -MOST_NUMBER, MOST_NUMBER, .at = SAMPLE(restype)},
    {"profile", true, 2, {TOKENS, 32}, -MOST_NUMBER, MOST_NUMBER, .at = SAMPLE(profile)},
    {"deletion_mean", true, 1, {TOKENS}, -MOST_NUMBER, MOST_NUMBER, .at = SAMPLE(deletion_mean)},
    {"token_bonds", true, 2, {TOKENS, TOKENS}, FLAG, .at = SAMPLE(token_bonds)},
    {"frame_atom_index", false, 2, {TOKENS, 3}, -MOST_ID, MOST_ID, .at = LABELS(frame_atom_index)},
    {"has_frame", false, 1, {TOKENS}, FLAG, .at = LABELS(has_frame)},
    {"msa", false, 2, {ROWS, TOKENS}, 0, 31, .at = SAMPLE(msa)},
    {"has_deletion",
     true,
     2,
     {ROWS, TOKENS},
     -MOST_NUMBER,
     MOST_NUMBER,
     .at = SAMPLE(has_deletion)},
    {"deletion_value",
     true,
     2,
     {ROWS, TOKENS},
     -MOST_NUMBER,
     MOST_NUMBER,
     .at = SAMPLE(deletion_value)},
    {"atom_to_token_idx",
     false,
     1,
     {ATOMS},
     0,
     MOST_ID,
     .at = SAMPLE(atom_to_token_idx),
     .second = LABELS(atom_to_token_idx)},
    {"atom_to_tokatom_idx",
     false,
     1,
     {ATOMS},
     0,
     FM_STORED_SLOTS - 1,
     .at = SAMPLE(atom_to_tokatom_idx)},
    {"ref_pos", true, 2, {ATOMS, 3}, -MOST_LENGTH, MOST_LENGTH, .at = SAMPLE(ref_pos)},
    {"ref_charge", true, 1, {ATOMS}, -MOST_NUMBER, MOST_NUMBER, .at = SAMPLE(ref_charge)},
    {"ref_mask", true, 1, {ATOMS}, FLAG, .at = SAMPLE(ref_mask)},
    {"ref_element", true, 2, {ATOMS, 128}, FLAG, .at = SAMPLE(ref_element)},
    {"ref_atom_name_chars", true, 3, {ATOMS, 4, 64}, FLAG, .at = SAMPLE(ref_atom_name_chars)},
    {"ref_space_uid", false, 1, {ATOMS}, 0, MOST_ID, .at = SAMPLE(ref_space_uid)},
    {"is_rna", false, 1, {ATOMS}, FLAG, .at = LABELS(is_rna)},
    {"is_dna", false, 1, {ATOMS}, FLAG, .at = LABELS(is_dna)},
    {"is_ligand", false, 1, {ATOMS}, FLAG, .at = LABELS(is_ligand)},
    {"distogram_rep_atom_mask",
     false,
     1,
     {ATOMS},
     FLAG,
     .at = SAMPLE(distogram_rep_atom_mask),
     .second = LABELS(distogram_rep_atom_mask)},
    {"pae_rep_atom_mask", false, 1, {ATOMS}, FLAG, .at = LABELS(pae_rep_atom_mask)},
    {"plddt_m_rep_atom_mask", false, 1, {ATOMS}, FLAG, .at = LABELS(plddt_m_rep_atom_mask)},
    {"coordinate", true, 2, {ATOMS, 3}, -MOST_LENGTH, MOST_LENGTH, .at = LABELS(coordinate)},
    {"coordinate_mask", true, 1, {ATOMS}, FLAG, .at = LABELS(coordinate_mask)},
};

static const array_row bond_row = {"bond_mask",    false, 2,
                                   {ATOMS, ATOMS}, FLAG,  .at = LABELS(bond_mask)};

/* Absent where there are no templates. */
static const array_row template_rows[] = {
    {"template_aatype", false, 2, {TEMPLATES, TOKENS}, 0, 31, .at = SAMPLE(template_aatype)},
    {"template_distogram",
     true,
     4,
     {TEMPLATES, TOKENS, TOKENS, 39},
     FLAG,
     .at = SAMPLE(template_distogram)},
    {"template_pseudo_beta_mask",
     true,
     3,
     {TEMPLATES, TOKENS, TOKENS},
     FLAG,
     .at = SAMPLE(template_pseudo_beta_mask)},
    {"template_unit_vector",
     true,
     4,
     {TEMPLATES, TOKENS, TOKENS, 3},
     -2,
     2,
     .at = SAMPLE(template_unit_vector)},
    {"template_backbone_frame_mask",
     true,
     3,
     {TEMPLATES, TOKENS, TOKENS},
     FLAG,
     .at = SAMPLE(template_backbone_frame_mask)},
};

enum { N_ROW = sizeof rows / sizeof rows[0], N_TEMPLATE_ROW = 5 };

/* -- one array */

static const fm_npy *find(const reader *r, const char *name) {
    char text[64];
    const fm_npy *array = fm_npz_find(r->npz, name);
    snprintf(text, sizeof text, "in/%s", name);
    return array ? array : fm_npz_find(r->npz, text);
}

/* "[25, 32]" */
static const char *format_shape(char out[160], int rank, const uint64_t *shape) {
    size_t at = (size_t)snprintf(out, 160, "[");
    for (int axis = 0; axis < rank && at < 140; axis++)
        at += (size_t)snprintf(out + at, 160 - at, "%s%" PRIu64, axis ? ", " : "", shape[axis]);
    snprintf(out + at, 160 - at, "]");
    return out;
}

static fm_status check_shape(const reader *r, const fm_npy *array, const char *name, bool is_float,
                             int rank, const uint64_t *shape) {
    char found[160], expected[160];
    const char *dtype = is_float ? "<f4" : "<i8";
    if (strcmp(array->dtype, dtype) != 0) {
        return fm_fail(r->error, FM_ERR_DATA, "%s: found type %s, expected %s", name, array->dtype,
                       dtype);
    }
    bool same = (int)array->rank == rank;
    for (int axis = 0; same && axis < rank; axis++)
        same = array->shape[axis] == shape[axis];
    if (same) return FM_OK;
    return fm_fail(r->error, FM_ERR_DATA, "%s: found shape %s, expected %s", name,
                   format_shape(found, (int)array->rank, array->shape),
                   format_shape(expected, rank, shape));
}

static fm_status refuse_value(const reader *r, const char *name, uint64_t at, double found,
                              const char *expected) {
    return fm_fail(r->error, FM_ERR_DATA, "%s[%" PRIu64 "]: found %.9g, expected %s", name, at,
                   found, expected);
}

static fm_status check_values(const reader *r, const fm_npy *array, const array_row *row) {
    for (uint64_t i = 0; i < array->count; i++) {
        double value = row->is_float ? (double)((const float *)array->data)[i]
                                     : (double)((const int64_t *)array->data)[i];
        bool good = value >= row->min && value <= row->max; /* false for not-a-number */
        if (good && (!row->is_flag || value == 0 || value == 1)) continue;
        char expected[64] = "0 or 1";
        if (!row->is_flag) snprintf(expected, sizeof expected, "%.9g to %.9g", row->min, row->max);
        return refuse_value(r, row->name, i, value, expected);
    }
    return FM_OK;
}

static fm_status read_row(reader *r, const array_row *row) {
    uint64_t shape[RANK] = {0};
    const fm_npy *array = find(r, row->name);
    if (!array) return fm_fail(r->error, FM_ERR_DATA, "%s: the array is missing", row->name);
    for (int axis = 0; axis < row->rank; axis++) {
        int32_t extent = row->shape[axis];
        shape[axis] = (uint64_t)(extent < 0 ? r->extent[-extent] : extent);
    }
    fm_status status = check_shape(r, array, row->name, row->is_float, row->rank, shape);
    if (!status) status = check_values(r, array, row);
    if (status) return status;
    memcpy((char *)r->to + row->at, &array->data, sizeof array->data);
    if (row->second) memcpy((char *)r->to + row->second, &array->data, sizeof array->data);
    return FM_OK;
}

/* -- sizes */

/* Finds an extent of the sample in the first axis of an array. */
static fm_status read_extent(reader *r, const char *name, int which, int64_t least, int64_t most) {
    const fm_npy *array = find(r, name);
    if (!array || array->rank == 0) {
        return fm_fail(r->error, FM_ERR_DATA, "%s: the array is missing or a scalar", name);
    }
    if (array->shape[0] < (uint64_t)least || array->shape[0] > (uint64_t)most) {
        return fm_fail(r->error, FM_ERR_DATA, "%s: found length %" PRIu64 ", expected %lld to %lld",
                       name, array->shape[0], (long long)least, (long long)most);
    }
    r->extent[-which] = (int64_t)array->shape[0];
    return FM_OK;
}

static fm_status read_extents(reader *r) {
    const int64_t most_tokens = r->is_predicted ? FM_COMPLEX_PREDICTED_TOKENS : FM_STORED_TOKENS;
    const int64_t most_atoms = r->is_predicted ? FM_COMPLEX_PREDICTED_ATOMS : FM_STORED_ATOMS;
    fm_status status = read_extent(r, "asym_id", TOKENS, 1, most_tokens);
    if (!status) status = read_extent(r, "atom_to_token_idx", ATOMS, 1, most_atoms);
    if (!status) status = read_extent(r, "msa", ROWS, 1, FM_STORED_MSA);
    if (!status && find(r, "template_aatype")) {
        status = read_extent(r, "template_aatype", TEMPLATES, 0, FM_STORED_TEMPLATES);
    }
    r->to->sample.n_token = r->to->labels.n_token = r->extent[-TOKENS];
    r->to->sample.n_atom = r->to->labels.n_atom = r->extent[-ATOMS];
    r->to->sample.n_msa = r->extent[-ROWS];
    r->to->sample.n_template = r->extent[-TEMPLATES];
    return status;
}

/* -- what arrays say of each other */

static fm_status check_chains(const reader *r) {
    const int64_t *asym = r->to->sample.asym_id, *entity = r->to->sample.entity_id;
    const int64_t n = r->to->sample.n_token;
    for (int64_t i = 1; i < n; i++) {
        if (asym[i] == asym[i - 1]) {
            if (entity[i] == entity[i - 1]) continue;
            return refuse_value(r, "entity_id", (uint64_t)i, (double)entity[i],
                                "one molecule in each chain");
        }
        for (int64_t k = 0; k < i; k++) {
            if (asym[k] != asym[i]) continue;
            return refuse_value(r, "asym_id", (uint64_t)i, (double)asym[i],
                                "the tokens of a chain side by side");
        }
    }
    return FM_OK;
}

/* Atoms are in the order of their tokens, which all have some, and in different slots. */
static fm_status check_atoms(const reader *r) {
    const fm_af3_sample *s = &r->to->sample;
    const char *name = "atom_to_token_idx";
    int64_t before = -1;
    uint32_t slots = 0;
    for (int64_t l = 0; l < s->n_atom; l++) {
        const int64_t token = s->atom_to_token_idx[l], slot = s->atom_to_tokatom_idx[l];
        char expected[96];
        if (token != before) slots = 0;
        if (token < before || token > before + 1 || token >= s->n_token || (l == 0 && token != 0)) {
            snprintf(expected, sizeof expected, "the token before or the next one, below %lld",
                     (long long)s->n_token);
            return refuse_value(r, name, (uint64_t)l, (double)token, expected);
        }
        if (slots >> slot & 1) {
            return refuse_value(r, "atom_to_tokatom_idx", (uint64_t)l, (double)slot,
                                "a slot that no other atom of the token has");
        }
        slots |= 1U << slot;
        before = token;
    }
    if (before == s->n_token - 1) return FM_OK;
    return fm_fail(r->error, FM_ERR_DATA, "%s: found no atom of token %lld, expected at least one",
                   name, (long long)(before + 1));
}

/* Each token has at most one marked atom, and with `needs` at least one. */
static fm_status check_marks(const reader *r, const char *name, const int64_t *mark, bool needs) {
    const fm_af3_sample *s = &r->to->sample;
    for (int64_t l = 0, n = 0; l < s->n_atom; l++) {
        n += mark[l];
        bool ends = l + 1 == s->n_atom || s->atom_to_token_idx[l + 1] != s->atom_to_token_idx[l];
        if (ends && (n > 1 || (needs && n == 0))) {
            return fm_fail(
                r->error, FM_ERR_DATA, "%s: found %lld atoms of token %lld, expected %s one", name,
                (long long)n, (long long)s->atom_to_token_idx[l], needs ? "exactly" : "at most");
        }
        if (ends) n = 0;
    }
    return FM_OK;
}

/* Rows of n values have at most one that is not 0. */
static fm_status check_one_hot(const reader *r, const char *name, const float *values,
                               int64_t n_row, int64_t n) {
    for (int64_t i = 0; i < n_row; i++) {
        int64_t count = 0;
        for (int64_t k = 0; k < n; k++)
            count += values[i * n + k] != 0;
        if (count <= 1) continue;
        return fm_fail(r->error, FM_ERR_DATA, "%s: found %lld ones in row %lld, expected at most 1",
                       name, (long long)count, (long long)i);
    }
    return FM_OK;
}

static fm_status refuse_asymmetry(const reader *r, const char *name, int64_t i, int64_t j) {
    return fm_fail(r->error, FM_ERR_DATA,
                   "%s: elements [%lld, %lld] and [%lld, %lld] differ, expected a symmetric array",
                   name, (long long)i, (long long)j, (long long)j, (long long)i);
}

static fm_status check_symmetry(const reader *r) {
    const int64_t n = r->to->sample.n_token, m = r->to->sample.n_atom;
    const float *bonds = r->to->sample.token_bonds;
    const int64_t *mask = r->to->labels.bond_mask;
    for (int64_t i = 0; i < n * n; i++) {
        bool same = bonds[i] == bonds[i % n * n + i / n];
        if (!same) return refuse_asymmetry(r, "token_bonds", i / n, i % n);
    }
    for (int64_t i = 0; mask && i < m * m; i++) {
        bool same = mask[i] == mask[i % m * m + i / m];
        if (!same) return refuse_asymmetry(r, "bond_mask", i / m, i % m);
    }
    return FM_OK;
}

static fm_status check_frames(const reader *r) {
    const fm_complex_labels *labels = &r->to->labels;
    for (int64_t i = 0; i < 3 * labels->n_token; i++) {
        int64_t atom = labels->frame_atom_index[i];
        if (!labels->has_frame[i / 3] || (atom >= 0 && atom < labels->n_atom)) continue;
        char expected[64];
        snprintf(expected, sizeof expected, "0 to %lld", (long long)labels->n_atom - 1);
        return refuse_value(r, "frame_atom_index", (uint64_t)i, (double)atom, expected);
    }
    return FM_OK;
}

static fm_status check_relations(const reader *r) {
    const fm_af3_features *f = r->to;
    fm_status status = check_chains(r);
    if (!status) status = check_atoms(r);
    if (!status) {
        status = check_marks(r, "distogram_rep_atom_mask", f->labels.distogram_rep_atom_mask, true);
    }
    if (!status) status = check_marks(r, "pae_rep_atom_mask", f->labels.pae_rep_atom_mask, false);
    if (!status) {
        status = check_marks(r, "plddt_m_rep_atom_mask", f->labels.plddt_m_rep_atom_mask, false);
    }
    if (!status) {
        status = check_one_hot(r, "ref_element", f->sample.ref_element, f->sample.n_atom, 128);
    }
    if (!status) {
        status = check_one_hot(r, "ref_atom_name_chars", f->sample.ref_atom_name_chars,
                               4 * f->sample.n_atom, 64);
    }
    if (!status) status = check_symmetry(r);
    return status ? status : check_frames(r);
}

/* -- resolution, and what decides the permutation of labels */

static fm_status read_resolution(reader *r) {
    static const uint64_t one[] = {1};
    const fm_npy *array = find(r, "resolution");
    if (!array) return fm_fail(r->error, FM_ERR_DATA, "resolution: the array is missing");
    fm_status status = check_shape(r, array, "resolution", true, 1, one);
    if (status) return status;
    double value = (double)*(const float *)array->data;
    if (!(value >= 0 && value <= MOST_LENGTH)) {
        return refuse_value(r, "resolution", 0, value, "0 to 100000");
    }
    r->to->labels.resolution = value;
    return FM_OK;
}

static fm_status read_numbers(reader *r) {
    static const array_row row = {"token_number",
                                  false,
                                  1,
                                  {TOKENS},
                                  -MOST_ID,
                                  MOST_ID,
                                  .at = offsetof(fm_af3_features, number)};
    if (!find(r, row.name)) return FM_OK;
    fm_status status = read_row(r, &row);
    const fm_af3_features *f = r->to;
    for (int64_t i = 1; i < f->sample.n_token && !status; i++) {
        bool ascends = f->number[i] > f->number[i - 1];
        if (ascends || f->sample.asym_id[i] != f->sample.asym_id[i - 1]) continue;
        status = refuse_value(r, row.name, (uint64_t)i, (double)f->number[i],
                              "more than the token before it in its chain");
    }
    return status;
}

/* Returns the array of integers, [n], or [any] where n is 0; NULL with the error. */
static const int64_t *read_integers(reader *r, const char *name, uint64_t n, uint64_t *ret_n) {
    const fm_npy *array = find(r, name);
    if (!array) {
        (void)fm_fail(r->error, FM_ERR_DATA, "%s: the array is missing", name);
        return NULL;
    }
    const uint64_t shape[] = {n ? n : array->rank ? array->shape[0] : 0};
    if (check_shape(r, array, name, false, 1, shape)) return NULL;
    *ret_n = shape[0];
    return array->data;
}

/* Copies an order of n atoms, and checks that it names each of them once. */
static fm_status read_order(reader *r, const int64_t *from, uint64_t at, int64_t n, bool is_first,
                            int32_t *to) {
    uint64_t seen = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t atom = from[at + (uint64_t)i];
        bool good = atom >= 0 && atom < n && !(seen >> atom & 1) && (!is_first || atom == i);
        if (!good) {
            return refuse_value(r, "atom_order", at + (uint64_t)i, (double)atom,
                                is_first ? "the given order, 0 and up, as the first of a group"
                                         : "each atom of the group once");
        }
        seen |= (uint64_t)1 << atom;
        to[i] = (int32_t)atom;
    }
    return FM_OK;
}

enum { MOST_ORDER_ATOMS = 64, MOST_ORDERS = 4096 };

static fm_status read_group(reader *r, const int64_t *group, const int64_t *all, uint64_t n_all,
                            uint64_t *at, fm_atom_orders *out) {
    const int64_t first = group[0], n = group[1], count = group[2], end = group[3];
    bool good = n >= 1 && n <= MOST_ORDER_ATOMS && first >= end &&
                first <= r->to->sample.n_atom - n && count >= 1 && count <= MOST_ORDERS &&
                (uint64_t)(n * count) <= n_all - *at;
    if (!good) {
        return fm_fail(r->error, FM_ERR_DATA,
                       "atom_order: found a group of %lld atoms from %lld on with %lld orders, "
                       "expected 1 to %d atoms after the group before it, below atom %lld, and 1 "
                       "to %d orders that are in the array",
                       (long long)n, (long long)first, (long long)count, (int)MOST_ORDER_ATOMS,
                       (long long)r->to->sample.n_atom, (int)MOST_ORDERS);
    }
    int32_t *order = fm_arena_alloc_array(r->arena, (size_t)(n * count), sizeof *order);
    if (!order) return fm_arena_full(r->arena, r->error);
    *out = (fm_atom_orders){.first = first, .n = n, .n_order = (int32_t)count, .order = order};
    fm_status status = FM_OK;
    for (int64_t k = 0; k < count && !status; k++, *at += (uint64_t)n)
        status = read_order(r, all, *at, n, k == 0, order + k * n);
    return status;
}

static fm_status read_orders(reader *r) {
    uint64_t n = 0, n_all = 0, at = 0;
    if (!find(r, "atom_order")) return FM_OK;
    const int64_t *first = read_integers(r, "atom_order_first", 0, &n);
    const int64_t *size = first && n ? read_integers(r, "atom_order_size", n, &n) : first;
    const int64_t *count = size && n ? read_integers(r, "atom_order_count", n, &n) : size;
    const int64_t *all = count ? read_integers(r, "atom_order", 0, &n_all) : NULL;
    if (!all) return FM_ERR_DATA;
    fm_atom_orders *orders = fm_arena_alloc_array(r->arena, (size_t)n + 1, sizeof *orders);
    if (!orders) return fm_arena_full(r->arena, r->error);
    int64_t end = 0;
    for (uint64_t g = 0; g < n; g++) {
        const int64_t group[] = {first[g], size[g], count[g], end};
        fm_status status = read_group(r, group, all, n_all, &at, &orders[g]);
        if (status) return status;
        end = first[g] + size[g];
    }
    if (at != n_all) {
        return fm_fail(r->error, FM_ERR_DATA,
                       "atom_order: found %" PRIu64 " numbers, expected %" PRIu64, n_all, at);
    }
    r->to->orders = orders;
    r->to->n_orders = (int64_t)n;
    return FM_OK;
}

/* -- a sample */

/* The atoms of templates. fm_complex_sample_expand_predicted has checked all but their values. */
static fm_status read_template_atoms(reader *r) {
    static const array_row row = {"template_atoms",
                                  true,
                                  4,
                                  {TEMPLATES, TOKENS, FM_N_TEMPLATE_ATOM, 3},
                                  -MOST_LENGTH,
                                  MOST_LENGTH,
                                  .at = SAMPLE(template_atoms)};
    fm_status status = read_row(r, &template_rows[0]);
    if (!status) status = read_row(r, &row);
    const fm_npy *mask = find(r, "template_atom_mask");
    if (!status && mask) r->to->sample.template_atom_mask = mask->data;
    return status;
}

static fm_status read_templates(reader *r) {
    fm_status status = FM_OK;
    if (!find(r, "template_aatype")) return FM_OK;
    if (r->has_template_atoms) return read_template_atoms(r);
    for (int i = 0; i < N_TEMPLATE_ROW && !status; i++)
        status = read_row(r, &template_rows[i]);
    return status;
}

static fm_status read_all(reader *r) {
    fm_status status = read_extents(r);
    for (int i = 0; i < N_ROW && !status; i++)
        status = read_row(r, &rows[i]);
    if (!status && !r->is_predicted) status = read_row(r, &bond_row);
    if (!status) status = read_templates(r);
    if (!status) status = check_relations(r);
    if (!status) status = read_resolution(r);
    if (!status) status = read_numbers(r);
    return status || r->is_predicted ? status : read_orders(r);
}

fm_status fm_stored_sample_check_predicted(const fm_npz *npz, fm_arena *arena,
                                           fm_af3_features *ret_features, fm_error *reterr) {
    fm_npz whole;
    reader r = {.npz = npz,
                .arena = arena,
                .to = ret_features,
                .is_predicted = true,
                .has_template_atoms = fm_complex_sample_is_compact(npz),
                .error = reterr};
    *ret_features = (fm_af3_features){.n_cycle = 1};
    if (r.has_template_atoms) {
        fm_status status = fm_complex_sample_expand_predicted(npz, arena, &whole, reterr);
        if (status) return status;
        r.npz = &whole;
    }
    return read_all(&r);
}

fm_status fm_stored_sample_check(const fm_npz *npz, fm_arena *arena, fm_af3_features *ret_features,
                                 fm_error *reterr) {
    fm_npz whole;
    *ret_features = (fm_af3_features){.n_cycle = 1};
    if (fm_complex_sample_is_compact(npz)) {
        fm_status status =
            fm_complex_sample_expand(npz, arena, &whole, &ret_features->n_left_out, reterr);
        if (status) return status;
        npz = &whole;
    }
    reader r = {.npz = npz, .arena = arena, .to = ret_features, .error = reterr};
    return read_all(&r);
}

fm_status fm_stored_sample_parse(fm_bytes archive, fm_stored_sample *ret_sample, fm_error *reterr) {
    fm_npz npz;
    *ret_sample = (fm_stored_sample){.features = {.n_cycle = 1}};
    fm_status status = fm_arena_init(&ret_sample->arena, ARENA_BYTES, reterr);
    if (status) return status;
    status = fm_npz_parse(&ret_sample->arena, archive, &npz, reterr);
    if (!status) {
        status = fm_stored_sample_check(&npz, &ret_sample->arena, &ret_sample->features, reterr);
    }
    if (status) fm_stored_sample_release(ret_sample);
    return status;
}

fm_status fm_stored_sample_read(const char *path, fm_stored_sample *ret_sample, fm_error *reterr) {
    fm_arena file;
    fm_bytes content;
    fm_status status = fm_arena_init(&file, 2 * FM_STORED_FILE_BYTES, reterr);
    if (status) return status;
    status = fm_file_read(&file, path, FM_STORED_FILE_BYTES, &content, reterr);
    if (!status) {
        status = fm_stored_sample_parse(content, ret_sample, reterr);
        if (status && reterr) (void)fm_error_in(reterr, path);
    }
    fm_arena_fini(&file);
    return status;
}

void fm_stored_sample_release(fm_stored_sample *sample) {
    fm_arena_fini(&sample->arena);
    *sample = (fm_stored_sample){0};
}
