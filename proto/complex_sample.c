/* complex_sample.c: see complex_sample.h. A table has the type and shape of each compact array, and
 * how it becomes an array of the whole form. */
#include "proto/complex_sample.h"

#include "proto/chem/template_pairs.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Extents that the sample chooses; the others are numbers. */
enum { TOKENS = -1, ATOMS = -2, ROWS = -3, TEMPLATES = -4, EXTENTS = 5, RANK = 4 };

enum {
    ROOM = 48, /* arrays of the whole form */
    MOST_ORDER_ATOMS = 64,
    MOST_ORDERS = 4096,
    N_DELETION = 256, /* values of a count of deletions */
};

#define PI 3.14159265358979323846

typedef enum conversion {
    AS_IS,
    TO_I64,
    TO_F32,
    TO_ONE_HOT, /* of `classes` places, float */
} conversion;

typedef struct array_row {
    const char *name;
    const char *dtype;
    int rank;
    int32_t shape[RANK];
    conversion conversion;
    int classes;
} array_row;

static const array_row rows[] = {
    {"asym_id", "<i4", 1, {TOKENS}, TO_I64, 0},
    {"entity_id", "<i4", 1, {TOKENS}, TO_I64, 0},
    {"sym_id", "<i4", 1, {TOKENS}, TO_I64, 0},
    {"residue_index", "<i4", 1, {TOKENS}, TO_I64, 0},
    {"token_index", "<i4", 1, {TOKENS}, TO_I64, 0},
    {"restype", "|u1", 1, {TOKENS}, TO_ONE_HOT, 32},
    {"profile", "<f4", 2, {TOKENS, 32}, AS_IS, 0},
    {"deletion_mean", "<f4", 1, {TOKENS}, AS_IS, 0},
    {"frame_atom_index", "<i4", 2, {TOKENS, 3}, TO_I64, 0},
    {"has_frame", "|u1", 1, {TOKENS}, TO_I64, 0},
    {"msa", "|u1", 2, {ROWS, TOKENS}, TO_I64, 0},
    {"atom_to_token_idx", "<i4", 1, {ATOMS}, TO_I64, 0},
    {"atom_to_tokatom_idx", "|u1", 1, {ATOMS}, TO_I64, 0},
    {"ref_pos", "<f4", 2, {ATOMS, 3}, AS_IS, 0},
    {"ref_charge", "|i1", 1, {ATOMS}, TO_F32, 0},
    {"ref_mask", "|u1", 1, {ATOMS}, TO_F32, 0},
    {"ref_element", "|u1", 1, {ATOMS}, TO_ONE_HOT, 128},
    {"ref_atom_name_chars", "|u1", 2, {ATOMS, 4}, TO_ONE_HOT, 64},
    {"ref_space_uid", "<i4", 1, {ATOMS}, TO_I64, 0},
    {"is_rna", "|u1", 1, {ATOMS}, TO_I64, 0},
    {"is_dna", "|u1", 1, {ATOMS}, TO_I64, 0},
    {"is_ligand", "|u1", 1, {ATOMS}, TO_I64, 0},
    {"distogram_rep_atom_mask", "|u1", 1, {ATOMS}, TO_I64, 0},
    {"pae_rep_atom_mask", "|u1", 1, {ATOMS}, TO_I64, 0},
    {"plddt_m_rep_atom_mask", "|u1", 1, {ATOMS}, TO_I64, 0},
    {"coordinate", "<f4", 2, {ATOMS, 3}, AS_IS, 0},
    {"coordinate_mask", "|u1", 1, {ATOMS}, TO_F32, 0},
};

typedef struct expander {
    const fm_npz *from;
    fm_arena *arena;
    fm_npy *arrays; /* [ROOM] */
    size_t n_array;
    uint64_t extent[EXTENTS]; /* extent[-TOKENS] and so on */
    uint32_t n_left_out;
    bool is_predicted; /* what a prediction needs, and no more */
    fm_error *error;
} expander;

static const fm_npy *find(const fm_npz *npz, const char *name) {
    static const char *const prefixes[] = {"", "in/", "features/"};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s%s", prefixes[i], name);
        const fm_npy *array = fm_npz_find(npz, text);
        if (array) return array;
    }
    return NULL;
}

bool fm_complex_sample_is_compact(const fm_npz *npz) {
    return find(npz, "token_bonds_pairs") != NULL;
}

/* -- reading compact arrays */

/* "25, 32" */
static void format_shape(char out[96], size_t rank, const uint64_t *shape) {
    out[0] = '\0';
    for (size_t axis = 0, at = 0; axis < rank && at < 64; axis++)
        at += (size_t)snprintf(out + at, 96 - at, "%s%" PRIu64, axis ? ", " : "", shape[axis]);
}

/* Finds an array of that type and shape. An extent UINT64_MAX is any. */
static fm_status take(const expander *e, const char *name, const char *dtype, int rank,
                      const uint64_t *shape, const fm_npy **ret_array) {
    char found[96], expected[96];
    const fm_npy *array = find(e->from, name);
    if (!array) return fm_fail(e->error, FM_ERR_DATA, "%s: the array is missing", name);
    if (strcmp(array->dtype, dtype) != 0) {
        return fm_fail(e->error, FM_ERR_DATA, "%s: found type %s, expected %s", name, array->dtype,
                       dtype);
    }
    *ret_array = array;
    bool same = array->rank == (size_t)rank;
    for (int axis = 0; same && axis < rank; axis++)
        same = shape[axis] == UINT64_MAX || array->shape[axis] == shape[axis];
    if (same) return FM_OK;
    format_shape(found, array->rank, array->shape);
    format_shape(expected, (size_t)rank, shape);
    return fm_fail(e->error, FM_ERR_DATA, "%s: found shape [%s], expected [%s]", name, found,
                   expected);
}

static fm_status refuse(const expander *e, const char *name, uint64_t at, int64_t found,
                        uint64_t least, uint64_t end) {
    return fm_fail(e->error, FM_ERR_DATA,
                   "%s[%" PRIu64 "]: found %" PRId64 ", expected %" PRIu64 " to %" PRIu64, name, at,
                   found, least, end ? end - 1 : 0);
}

/* Adds an array of zeros to the whole form; extents that are 0 end the shape. NULL: no memory. */
static void *add(expander *e, const char *name, bool is_float, const uint64_t shape[RANK]) {
    fm_npy *array = &e->arrays[e->n_array];
    *array = (fm_npy){.name = name, .item_bytes = is_float ? 4 : 8, .count = 1};
    snprintf(array->dtype, sizeof array->dtype, "%s", is_float ? "<f4" : "<i8");
    for (; array->rank < RANK && shape[array->rank]; array->rank++) {
        array->shape[array->rank] = shape[array->rank];
        if (__builtin_mul_overflow(array->count, shape[array->rank], &array->count)) return NULL;
    }
    void *data = fm_arena_calloc(e->arena, array->count, array->item_bytes);
    array->data = data;
    if (data) e->n_array++;
    return data;
}

/* -- conversions */

static int64_t value_at(const fm_npy *array, uint64_t i) {
    switch (array->dtype[1]) {
    case 'u': return ((const uint8_t *)array->data)[i];
    case 'i':
        return array->item_bytes == 1 ? ((const int8_t *)array->data)[i]
                                      : ((const int32_t *)array->data)[i];
    default: return 0;
    }
}

static fm_status convert_one_hot(expander *e, const array_row *row, const fm_npy *array) {
    uint64_t shape[RANK] = {0};
    memcpy(shape, array->shape, array->rank * sizeof *shape);
    const uint64_t classes = (uint64_t)row->classes;
    shape[array->rank] = classes;
    float *to = add(e, row->name, true, shape);
    if (!to) return fm_arena_full(e->arena, e->error);
    for (uint64_t i = 0; i < array->count; i++) {
        int64_t value = value_at(array, i);
        if (value >= row->classes) return refuse(e, row->name, i, value, 0, classes);
        to[i * classes + (uint64_t)value] = 1;
    }
    return FM_OK;
}

static fm_status convert(expander *e, const array_row *row) {
    uint64_t shape[RANK] = {0};
    const fm_npy *array;
    for (int axis = 0; axis < row->rank; axis++) {
        int32_t extent = row->shape[axis];
        shape[axis] = extent < 0 ? e->extent[-extent] : (uint64_t)extent;
    }
    fm_status status = take(e, row->name, row->dtype, row->rank, shape, &array);
    if (status) return status;
    if (row->conversion == AS_IS) {
        e->arrays[e->n_array] = *array;
        e->arrays[e->n_array++].name = row->name;
        return FM_OK;
    }
    if (row->conversion == TO_ONE_HOT) return convert_one_hot(e, row, array);
    bool is_float = row->conversion == TO_F32;
    void *to = add(e, row->name, is_float, shape);
    if (!to) return fm_arena_full(e->arena, e->error);
    for (uint64_t i = 0; i < array->count; i++) {
        if (is_float) {
            ((float *)to)[i] = (float)value_at(array, i);
        } else {
            ((int64_t *)to)[i] = value_at(array, i);
        }
    }
    return FM_OK;
}

/* Pairs a < b become a symmetric matrix. */
static fm_status convert_pairs(expander *e, const char *name, const char *whole, uint64_t n,
                               bool is_float) {
    const fm_npy *array;
    fm_status status = take(e, name, "<i4", 2, (uint64_t[]){UINT64_MAX, 2}, &array);
    if (status) return status;
    void *to = add(e, whole, is_float, (uint64_t[RANK]){n, n});
    if (!to) return fm_arena_full(e->arena, e->error);
    const int32_t *pair = array->data;
    for (uint64_t i = 0; i < array->count; i += 2) {
        uint64_t end = (uint64_t)pair[i + 1];
        if (pair[i + 1] < 1 || end >= n) return refuse(e, name, i + 1, pair[i + 1], 1, n);
        if (pair[i] < 0 || pair[i] >= pair[i + 1]) return refuse(e, name, i, pair[i], 0, end);
        uint64_t above = (uint64_t)pair[i] * n + end, below = end * n + (uint64_t)pair[i];
        if (is_float) {
            ((float *)to)[above] = ((float *)to)[below] = 1;
        } else {
            ((int64_t *)to)[above] = ((int64_t *)to)[below] = 1;
        }
    }
    return FM_OK;
}

static fm_status convert_deletions(expander *e) {
    const fm_npy *array;
    float value_of[N_DELETION];
    uint64_t shape[RANK] = {e->extent[-ROWS], e->extent[-TOKENS]};
    fm_status status = take(e, "deletion", "|u1", 2, shape, &array);
    if (status) return status;
    float *has = add(e, "has_deletion", true, shape), *value = NULL;
    if (has) value = add(e, "deletion_value", true, shape);
    if (!value) return fm_arena_full(e->arena, e->error);
    for (int d = 0; d < N_DELETION; d++)
        value_of[d] = (float)(atan(d / 3.0) * (2.0 / PI));
    for (uint64_t i = 0; i < array->count; i++) {
        uint8_t deleted = ((const uint8_t *)array->data)[i];
        has[i] = deleted > 0;
        value[i] = value_of[deleted];
    }
    return FM_OK;
}

/* An unknown resolution is -1 in the reference's features and 0 in stored samples. */
static fm_status convert_resolution(expander *e) {
    const fm_npy *array;
    fm_status status = take(e, "resolution", "<f4", 1, (uint64_t[]){1}, &array);
    if (status) return status;
    float *to = add(e, "resolution", true, (uint64_t[RANK]){1});
    if (!to) return fm_arena_full(e->arena, e->error);
    float value = *(const float *)array->data;
    *to = value == -1.0f ? 0.0f : value;
    return FM_OK;
}

/* The token's number in its chain before the crop. It is optional: without it labels stay. */
static fm_status convert_numbers(expander *e) {
    static const array_row row = {"token_number", "<i4", 1, {TOKENS}, TO_I64, 0};
    return find(e->from, row.name) ? convert(e, &row) : FM_OK;
}

/* -- templates */

static const array_row class_row = {"template_aatype", "|u1", 2, {TEMPLATES, TOKENS}, TO_I64, 0};

/* The features of pairs are 200 times as large as the atoms, so they are computed where they are
 * used. */
static fm_status keep_templates(expander *e) {
    static const array_row atom_rows[] = {
        {"template_atoms", "<f4", 4, {TEMPLATES, TOKENS, FM_N_TEMPLATE_ATOM, 3}, AS_IS, 0},
        {"template_atom_mask", "|u1", 2, {TEMPLATES, TOKENS}, AS_IS, 0}};
    if (e->extent[-TEMPLATES] == 0) return FM_OK;
    fm_status status = convert(e, &class_row);
    for (size_t i = 0; i < 2 && !status; i++)
        status = convert(e, &atom_rows[i]);
    return status;
}

static fm_status convert_templates(expander *e) {
    const uint64_t n_template = e->extent[-TEMPLATES], n = e->extent[-TOKENS], n_pair = n * n;
    const fm_npy *atoms, *mask;
    if (n_template == 0) return FM_OK;
    fm_status status = convert(e, &class_row);
    if (!status) {
        status = take(e, "template_atoms", "<f4", 4,
                      (uint64_t[]){n_template, n, FM_N_TEMPLATE_ATOM, 3}, &atoms);
    }
    if (!status) {
        status = take(e, "template_atom_mask", "|u1", 2, (uint64_t[]){n_template, n}, &mask);
    }
    if (status) return status;
    uint8_t *ids = fm_arena_alloc(e->arena, 3 * n_pair);
    float *bins =
        add(e, "template_distogram", true, (uint64_t[RANK]){n_template, n, n, FM_N_TEMPLATE_BIN});
    float *beta =
        bins ? add(e, "template_pseudo_beta_mask", true, (uint64_t[RANK]){n_template, n, n}) : NULL;
    float *frames =
        beta ? add(e, "template_backbone_frame_mask", true, (uint64_t[RANK]){n_template, n, n})
             : NULL;
    float *unit =
        frames ? add(e, "template_unit_vector", true, (uint64_t[RANK]){n_template, n, n, 3}) : NULL;
    if (!ids || !unit) return fm_arena_full(e->arena, e->error);
    for (uint64_t k = 0; k < n_template; k++) {
        const fm_template_pairs pairs = {ids, ids + n_pair, ids + 2 * n_pair,
                                         unit + k * n_pair * 3};
        const fm_template_atoms of = {(const float *)atoms->data + k * n * FM_N_TEMPLATE_ATOM * 3,
                                      (const uint8_t *)mask->data + k * n};
        fm_template_pairs_list(&of, (uint32_t)n, &pairs);
        for (uint64_t i = 0; i < n_pair; i++) {
            uint64_t at = k * n_pair + i;
            beta[at] = pairs.beta_mask[i];
            frames[at] = pairs.frame_mask[i];
            if (pairs.bin[i] < FM_N_TEMPLATE_BIN) bins[at * FM_N_TEMPLATE_BIN + pairs.bin[i]] = 1;
        }
    }
    return FM_OK;
}

/* -- orders of equivalent atoms */

/* The residues' symmetries, as the features of complexes have them. */
typedef struct symmetries {
    const int32_t *first_atom, *count; /* [n + 1], [n] */
    const int16_t *data;
    uint64_t n, n_data;
} symmetries;

static fm_status take_symmetries(const expander *e, symmetries *ret) {
    const fm_npy *first, *count, *data;
    uint64_t n_atom = e->extent[-ATOMS];
    fm_status status = take(e, "atom_perm/count", "<i4", 1, (uint64_t[]){UINT64_MAX}, &count);
    if (!status) {
        status = take(e, "atom_perm/first_atom", "<i4", 1, (uint64_t[]){count->count + 1}, &first);
    }
    if (!status) status = take(e, "atom_perm/data", "<i2", 1, (uint64_t[]){UINT64_MAX}, &data);
    if (status) return status;
    *ret = (symmetries){first->data, count->data, data->data, count->count, data->count};
    uint64_t used = 0;
    for (uint64_t r = 0; r <= ret->n; r++) {
        int64_t at = ret->first_atom[r], least = r ? ret->first_atom[r - 1] : 0;
        if (at < least || (uint64_t)at > n_atom) {
            return refuse(e, "atom_perm/first_atom", r, at, (uint64_t)least, n_atom + 1);
        }
    }
    for (uint64_t r = 0; r < ret->n; r++) {
        if (ret->count[r] < 0) return refuse(e, "atom_perm/count", r, ret->count[r], 0, INT32_MAX);
        used += (uint64_t)ret->count[r] * (uint64_t)(ret->first_atom[r + 1] - ret->first_atom[r]);
    }
    if (used == ret->n_data) return FM_OK;
    return fm_fail(e->error, FM_ERR_DATA,
                   "atom_perm/data: found %" PRIu64 " numbers, expected %" PRIu64, ret->n_data,
                   used);
}

/* Columns of a residue's block become orders, one after the other. */
static fm_status convert_orders(expander *e) {
    symmetries s;
    if (!find(e->from, "atom_perm/data")) return FM_OK;
    fm_status status = take_symmetries(e, &s);
    if (status) return status;
    uint64_t shape[RANK] = {s.n + 1}, n = 0, n_order = 0, from = 0;
    int64_t *first = add(e, "atom_order_first", false, shape), *size = NULL, *count = NULL;
    if (first) size = add(e, "atom_order_size", false, shape);
    if (size) count = add(e, "atom_order_count", false, shape);
    shape[0] = s.n_data + 1;
    int64_t *order = count ? add(e, "atom_order", false, shape) : NULL;
    if (!order) return fm_arena_full(e->arena, e->error);
    for (uint64_t r = 0; r < s.n; r++) {
        int64_t atoms = s.first_atom[r + 1] - s.first_atom[r], columns = s.count[r];
        const int16_t *block = s.data + from;
        from += (uint64_t)(atoms * columns);
        if (columns < 2 || atoms == 0) continue;
        if (atoms > MOST_ORDER_ATOMS || columns > MOST_ORDERS) {
            e->n_left_out++;
            continue;
        }
        first[n] = s.first_atom[r];
        size[n] = atoms;
        count[n++] = columns;
        for (int64_t k = 0; k < columns; k++)
            for (int64_t i = 0; i < atoms; i++)
                order[n_order++] = block[i * columns + k];
    }
    fm_npy *last = &e->arrays[e->n_array];
    for (int i = 2; i <= 4; i++)
        last[-i].count = last[-i].shape[0] = n;
    last[-1].count = last[-1].shape[0] = n_order;
    return FM_OK;
}

/* -- a sample */

static fm_status read_extent(expander *e, const char *name, int which, uint64_t most) {
    const fm_npy *array = find(e->from, name);
    if (!array || array->rank == 0) {
        return fm_fail(e->error, FM_ERR_DATA, "%s: the array is missing or a scalar", name);
    }
    uint64_t n = array->shape[0];
    if (n < 1 || n > most) {
        return fm_fail(e->error, FM_ERR_DATA,
                       "%s: found length %" PRIu64 ", expected 1 to %" PRIu64, name, n, most);
    }
    e->extent[-which] = n;
    return FM_OK;
}

static fm_status read_extents(expander *e) {
    const fm_npy *templates = find(e->from, "template_aatype");
    const uint64_t most_tokens =
        e->is_predicted ? FM_COMPLEX_PREDICTED_TOKENS : FM_COMPLEX_SAMPLE_TOKENS;
    const uint64_t most_atoms =
        e->is_predicted ? FM_COMPLEX_PREDICTED_ATOMS : FM_COMPLEX_SAMPLE_ATOMS;
    fm_status status = read_extent(e, "asym_id", TOKENS, most_tokens);
    if (!status) status = read_extent(e, "atom_to_token_idx", ATOMS, most_atoms);
    if (!status) status = read_extent(e, "msa", ROWS, FM_COMPLEX_SAMPLE_ROWS);
    if (!status && templates && templates->rank > 0 && templates->shape[0] > 0) {
        status = read_extent(e, "template_aatype", TEMPLATES, FM_COMPLEX_SAMPLE_TEMPLATES);
    }
    return status;
}

static fm_status expand(expander *e) {
    fm_status status = read_extents(e);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && !status; i++)
        status = convert(e, &rows[i]);
    if (!status) {
        status = convert_pairs(e, "token_bonds_pairs", "token_bonds", e->extent[-TOKENS], true);
    }
    if (!status) status = convert_deletions(e);
    if (!status) status = convert_resolution(e);
    if (!status) status = convert_numbers(e);
    if (status || e->is_predicted) return status ? status : keep_templates(e);
    status = convert_pairs(e, "bond_mask_pairs", "bond_mask", e->extent[-ATOMS], false);
    if (!status) status = convert_templates(e);
    return status ? status : convert_orders(e);
}

fm_status fm_complex_sample_expand_predicted(const fm_npz *compact, fm_arena *arena,
                                             fm_npz *ret_whole, fm_error *reterr) {
    expander e = {.from = compact, .arena = arena, .is_predicted = true, .error = reterr};
    e.arrays = fm_arena_alloc_array(arena, ROOM, sizeof *e.arrays);
    if (!e.arrays) return fm_arena_full(arena, reterr);
    fm_status status = expand(&e);
    if (status) return status;
    *ret_whole = (fm_npz){e.n_array, e.arrays};
    return FM_OK;
}

fm_status fm_complex_sample_expand(const fm_npz *compact, fm_arena *arena, fm_npz *ret_whole,
                                   uint32_t *ret_n_left_out, fm_error *reterr) {
    expander e = {.from = compact, .arena = arena, .error = reterr};
    e.arrays = fm_arena_alloc_array(arena, ROOM, sizeof *e.arrays);
    if (!e.arrays) return fm_arena_full(arena, reterr);
    fm_status status = expand(&e);
    if (status) return status;
    *ret_whole = (fm_npz){e.n_array, e.arrays};
    if (ret_n_left_out) *ret_n_left_out = e.n_left_out;
    return FM_OK;
}
