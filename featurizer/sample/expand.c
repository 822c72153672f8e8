/* expand.c: see expand.h. Supplement 1.2.9, table 1, lists the features. */
#include "featurizer/sample/expand.h"

#include "proto/chem/residue.h"
#include "proto/schema.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* An expansion in progress. Element e of an array in cycle c is at [e * n_cycle + c]. */
typedef struct expansion {
    const fm_sample *sample;
    const fm_expand_sizes *sizes;
    fm_arena *arena;
    fm_array *array;
    size_t n_array, n_cycle;
    bool full; /* the arena is full */
} expansion;

/* Adds a zeroed array with the axis of cycles; returns NULL when the arena is full. */
static void *add(expansion *e, const char *key, const char *dtype, size_t rank,
                 const uint64_t *shape) {
    assert(e->n_array < FM_N_EXPANDED && rank < FM_ARRAY_RANK);
    fm_array array = {.key = key, .dtype = dtype, .rank = rank + 1};
    size_t count = e->n_cycle;
    for (size_t k = 0; k < rank; k++) {
        array.shape[k] = shape[k];
        count *= shape[k];
    }
    array.shape[rank] = e->n_cycle;
    void *data = fm_arena_calloc(e->arena, count, (size_t)(dtype[2] - '0'));
    array.data = data;
    e->array[e->n_array++] = array;
    e->full = e->full || !data;
    return data;
}

static float *add_floats(expansion *e, const char *key, size_t rank, const uint64_t *shape) {
    return add(e, key, "<f4", rank, shape);
}

static int64_t *add_integers(expansion *e, const char *key, size_t rank, const uint64_t *shape) {
    return add(e, key, "<i8", rank, shape);
}

static void put_float(const expansion *e, float *out, size_t element, float value) {
    for (size_t c = 0; c < e->n_cycle; c++)
        out[element * e->n_cycle + c] = value;
}

static void put_integer(const expansion *e, int64_t *out, size_t element, int64_t value) {
    for (size_t c = 0; c < e->n_cycle; c++)
        out[element * e->n_cycle + c] = value;
}

/* Maps a number of deletions, or their mean, into [0, 1). */
static float deletion_value(float deletions) {
    return atanf(deletions / 3.0f) * (float)(2.0 / 3.14159265358979323846);
}

static const void *data_of(const fm_sample *sample, fm_tensor_id id, uint32_t cycle) {
    return fm_sample_find(sample, id, cycle)->data;
}

/* -- shared by the cycles */

static void expand_scalars(expansion *e) {
    const fm_sample *sample = e->sample;
    int64_t *seq_length = add_integers(e, "seq_length", 0, NULL);
    float *resolution = add_floats(e, "resolution", 0, NULL);
    float *is_distillation = add_floats(e, "is_distillation", 0, NULL);
    float *use_clamped_fape = add_floats(e, "use_clamped_fape", 0, NULL);
    if (e->full) return;
    put_integer(e, seq_length, 0, sample->n_res);
    put_float(e, resolution, 0, sample->resolution);
    put_float(e, is_distillation, 0, sample->is_distillation);
    put_float(e, use_clamped_fape, 0, sample->use_clamped_fape);
}

static void expand_sequence(expansion *e) {
    const uint64_t shape[] = {e->sizes->n_res, FM_N_TARGET_FEAT};
    const uint8_t *types = data_of(e->sample, FM_T_AATYPE, FM_SHARED);
    const int32_t *index = data_of(e->sample, FM_T_RESIDUE_INDEX, FM_SHARED);
    int64_t *aatype = add_integers(e, "aatype", 1, shape);
    int64_t *residue_index = add_integers(e, "residue_index", 1, shape);
    float *seq_mask = add_floats(e, "seq_mask", 1, shape);
    float *target_feat = add_floats(e, "target_feat", 2, shape);
    if (e->full) return;
    for (size_t i = 0; i < e->sample->n_res; i++) {
        put_integer(e, aatype, i, types[i]);
        put_integer(e, residue_index, i, index[i]);
        put_float(e, seq_mask, i, 1);
        /* class 0 marks the boundary of a domain, which no chain has */
        put_float(e, target_feat, i * FM_N_TARGET_FEAT + 1 + types[i], 1);
    }
}

static void expand_structure(expansion *e) {
    const uint64_t shape[] = {e->sizes->n_res, FM_N_ATOM37, 3};
    const float *from = data_of(e->sample, FM_T_ALL_ATOM_POSITIONS, FM_SHARED);
    const uint64_t *bits = data_of(e->sample, FM_T_ALL_ATOM_MASK, FM_SHARED);
    float *positions = add_floats(e, "all_atom_positions", 3, shape);
    float *mask = add_floats(e, "all_atom_mask", 2, shape);
    if (e->full) return;
    for (size_t k = 0; k < (size_t)e->sample->n_res * FM_N_ATOM37; k++) {
        put_float(e, mask, k, (float)(bits[k / FM_N_ATOM37] >> k % FM_N_ATOM37 & 1));
        for (size_t x = 0; x < 3; x++)
            put_float(e, positions, k * 3 + x, from[k * 3 + x]);
    }
}

/* -- separate for each cycle */

static uint32_t count_at(const fm_tensor_view *profile, size_t k) {
    switch (profile->dtype) {
    case FM_U8: return ((const uint8_t *)profile->data)[k];
    case FM_U16: return ((const uint16_t *)profile->data)[k];
    default: return ((const uint32_t *)profile->data)[k];
    }
}

/* Writes the 49 numbers of one position: class, has deletion, deletion value, cluster profile, mean
 * deletion value. */
static void put_msa_feat(const expansion *e, uint32_t cycle, size_t source, float n_row,
                         float *out) {
    const fm_tensor_view *profile = fm_sample_find(e->sample, FM_T_CLUSTER_PROFILE, cycle);
    uint8_t id = ((const uint8_t *)data_of(e->sample, FM_T_MSA, cycle))[source];
    uint16_t deletions =
        ((const uint16_t *)data_of(e->sample, FM_T_DELETION_MATRIX, cycle))[source];
    uint32_t sum = ((const uint32_t *)data_of(e->sample, FM_T_CLUSTER_DELETION_SUM, cycle))[source];
    out[id * e->n_cycle] = 1;
    out[FM_N_MSA_CLASS * e->n_cycle] = deletions > 0;
    out[(FM_N_MSA_CLASS + 1) * e->n_cycle] = deletion_value(deletions);
    for (size_t k = 0; k < FM_N_MSA_CLASS; k++) {
        out[(FM_N_MSA_CLASS + 2 + k) * e->n_cycle] =
            (float)count_at(profile, source * FM_N_MSA_CLASS + k) / n_row;
    }
    out[(FM_N_MSA_FEAT - 1) * e->n_cycle] = deletion_value((float)sum / n_row);
}

/* Returns a cluster's size as the reference computes its divisor: the number of members plus 1e-6 +
 * 1 in float32. */
static float cluster_divisor(const fm_sample *sample, uint32_t cycle, size_t centre) {
    const uint32_t *size = data_of(sample, FM_T_CLUSTER_SIZE, cycle);
    return (1e-6f + 1.0f) + (float)(size[centre] - 1);
}

static void expand_centres(expansion *e) {
    const uint64_t shape[] = {e->sizes->n_clust, e->sizes->n_res, FM_N_MSA_FEAT};
    float *msa_feat = add_floats(e, "msa_feat", 3, shape);
    int64_t *true_msa = add_integers(e, "true_msa", 2, shape);
    float *bert_mask = add_floats(e, "bert_mask", 2, shape);
    float *msa_mask = add_floats(e, "msa_mask", 2, shape);
    float *msa_row_mask = add_floats(e, "msa_row_mask", 1, shape);
    if (e->full) return;
    size_t n_res = e->sample->n_res, n_cycle = e->n_cycle;
    for (uint32_t c = 0; c < n_cycle; c++) {
        const fm_tensor_view *msa = fm_sample_find(e->sample, FM_T_MSA, c);
        const uint8_t *ids = data_of(e->sample, FM_T_TRUE_MSA, c);
        const uint8_t *bits = data_of(e->sample, FM_T_BERT_MASK, c);
        for (size_t r = 0; r < msa->shape[0]; r++) {
            float n_row = cluster_divisor(e->sample, c, r);
            msa_row_mask[r * n_cycle + c] = 1;
            for (size_t i = 0; i < n_res; i++) {
                size_t source = r * n_res + i, target = r * e->sizes->n_res + i;
                true_msa[target * n_cycle + c] = ids[source];
                bert_mask[target * n_cycle + c] = (float)(bits[source / 8] >> source % 8 & 1);
                msa_mask[target * n_cycle + c] = 1;
                put_msa_feat(e, c, source, n_row, msa_feat + target * FM_N_MSA_FEAT * n_cycle + c);
            }
        }
    }
}

static void expand_extra(expansion *e) {
    const uint64_t shape[] = {e->sizes->n_extra, e->sizes->n_res};
    int64_t *extra_msa = add_integers(e, "extra_msa", 2, shape);
    float *mask = add_floats(e, "extra_msa_mask", 2, shape);
    float *row_mask = add_floats(e, "extra_msa_row_mask", 1, shape);
    float *has_deletion = add_floats(e, "extra_has_deletion", 2, shape);
    float *value = add_floats(e, "extra_deletion_value", 2, shape);
    if (e->full) return;
    size_t n_res = e->sample->n_res, n_cycle = e->n_cycle;
    for (uint32_t c = 0; c < n_cycle; c++) {
        const fm_tensor_view *msa = fm_sample_find(e->sample, FM_T_EXTRA_MSA, c);
        const uint8_t *ids = msa->data;
        const uint16_t *deletions = data_of(e->sample, FM_T_EXTRA_DELETION_MATRIX, c);
        for (size_t r = 0; r < msa->shape[0]; r++) {
            row_mask[r * n_cycle + c] = 1;
            for (size_t i = 0; i < n_res; i++) {
                size_t source = r * n_res + i;
                size_t target = (r * e->sizes->n_res + i) * n_cycle + c;
                extra_msa[target] = ids[source];
                mask[target] = 1;
                has_deletion[target] = deletions[source] > 0;
                value[target] = deletion_value(deletions[source]);
            }
        }
    }
}

/* -- whole sample */

static bool ids_below(const fm_tensor_view *tensor, uint8_t below) {
    const uint8_t *ids = tensor->data;
    size_t wrong = 0;
    for (size_t k = 0; k < tensor->bytes; k++)
        wrong += ids[k] >= below;
    return wrong == 0;
}

/* Checks that every tensor read here is present and fits. */
static fm_status check(const fm_sample *sample, const fm_expand_sizes *sizes, fm_error *reterr) {
    static const fm_tensor_id shared[] = {FM_T_AATYPE, FM_T_RESIDUE_INDEX, FM_T_ALL_ATOM_POSITIONS,
                                          FM_T_ALL_ATOM_MASK};
    bool is_complete = true;
    for (size_t t = 0; t < sizeof shared / sizeof shared[0]; t++)
        is_complete = is_complete && fm_sample_find(sample, shared[t], FM_SHARED);
    for (uint32_t c = 0; c < sample->n_cycle; c++) {
        for (uint32_t id = FM_T_MSA; id <= FM_T_EXTRA_DELETION_MATRIX; id++)
            is_complete = is_complete && fm_sample_find(sample, (fm_tensor_id)id, c);
    }
    if (!is_complete) {
        return fm_fail(reterr, FM_ERR_DATA, "the sample lacks a tensor that expanding needs");
    }
    bool fits = sample->n_res <= sizes->n_res;
    for (uint32_t c = 0; c < sample->n_cycle; c++) {
        fits = fits && fm_sample_find(sample, FM_T_MSA, c)->shape[0] <= sizes->n_clust &&
               fm_sample_find(sample, FM_T_EXTRA_MSA, c)->shape[0] <= sizes->n_extra;
    }
    bool is_valid = ids_below(fm_sample_find(sample, FM_T_AATYPE, FM_SHARED), FM_RESTYPE_X + 1);
    for (uint32_t c = 0; c < sample->n_cycle; c++)
        is_valid = is_valid && ids_below(fm_sample_find(sample, FM_T_MSA, c), FM_N_MSA_CLASS);
    if (!is_valid) return fm_fail(reterr, FM_ERR_DATA, "the sample has an id outside its classes");
    if (fits) return FM_OK;
    return fm_fail(reterr, FM_ERR_DATA,
                   "the sample has more than %u residues, %u clusters or %u "
                   "extra rows",
                   sizes->n_res, sizes->n_clust, sizes->n_extra);
}

fm_status fm_expand_sample(const fm_sample *sample, const fm_expand_sizes *sizes, fm_arena *arena,
                           fm_array ret_arrays[FM_N_EXPANDED], fm_error *reterr) {
    fm_status status = check(sample, sizes, reterr);
    if (status) return status;
    expansion e = {.sample = sample,
                   .sizes = sizes,
                   .arena = arena,
                   .array = ret_arrays,
                   .n_cycle = sample->n_cycle};
    expand_scalars(&e);
    expand_sequence(&e);
    expand_structure(&e);
    expand_centres(&e);
    expand_extra(&e);
    if (e.full) return fm_arena_full(arena, reterr);
    assert(e.n_array == FM_N_EXPANDED);
    return FM_OK;
}

/* -- features of the whole chain */

/* Repeats each of `count` elements once per cycle. */
static void repeat(const uint8_t *from, size_t count, size_t item_bytes, size_t n_cycle,
                   uint8_t *out) {
    for (size_t k = 0; k < count * n_cycle; k++)
        memcpy(out + k * item_bytes, from + k / n_cycle * item_bytes, item_bytes);
}

fm_status fm_expand_feature(const fm_sample *sample, const fm_expand_sizes *sizes,
                            const fm_array *feature, const fm_expand_templates *templates,
                            fm_arena *arena, fm_array *ret_array, fm_error *reterr) {
    size_t item_bytes = (size_t)(feature->dtype[2] - '0'), n_cycle = sample->n_cycle;
    bool has_residues = !templates || templates->has_residues;
    size_t residue_axis = templates ? 1 : 0;
    assert(feature->rank >= residue_axis + has_residues && feature->rank < FM_ARRAY_RANK);
    assert(sample->n_res <= sizes->n_res && (!templates || templates->n_templ <= sizes->n_templ));
    fm_array out = *feature;
    if (templates) out.shape[0] = sizes->n_templ;
    if (has_residues) out.shape[residue_axis] = sizes->n_res;
    out.shape[out.rank++] = n_cycle;

    size_t inner = 1; /* elements per residue, or per template without residues */
    for (size_t k = residue_axis + has_residues; k < feature->rank; k++)
        inner *= feature->shape[k];
    size_t n_outer = templates ? templates->n_templ : 1;
    size_t n_padded = templates ? sizes->n_templ : 1;
    size_t from_stride = inner * (has_residues ? feature->shape[residue_axis] : 1);
    size_t out_stride = inner * (has_residues ? sizes->n_res : 1);
    size_t first = has_residues ? inner * sample->crop_start : 0;
    size_t count = inner * (has_residues ? sample->n_res : 1);
    uint8_t *data = fm_arena_calloc(arena, n_padded * out_stride * n_cycle, item_bytes);
    if (!data) return fm_arena_full(arena, reterr);
    for (size_t k = 0; k < n_outer; k++) {
        size_t from = (templates ? templates->index[k] : 0) * from_stride + first;
        repeat((const uint8_t *)feature->data + from * item_bytes, count, item_bytes, n_cycle,
               data + k * out_stride * n_cycle * item_bytes);
    }
    out.data = data;
    *ret_array = out;
    return FM_OK;
}
