/* foreign.c: names and shapes of foreign arrays; see foreign.h. foreign_io.c reads and writes
 * files.
 *
 * For a naming, each row of the parameter table gets its foreign name. Rows are sorted by name and
 * layer. With DeepMind's naming all blocks of a stack share one name, so rows of equal name become
 * the slices of one array with the block as leading axis. */
#include "trainer/checkpoint/foreign.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 256 };

const char *fm_weight_names_word(fm_weight_names naming) {
    static const char *const names[FM_N_NAMING] = {"foldmill", "openfold", "openfold-1",
                                                   "deepmind"};
    return names[naming];
}

bool fm_foreign_has_names(const fm_params *params, fm_weight_names naming) {
    return naming == FM_NAMING_FOLDMILL || params->param[0].deepmind;
}

/* -- names */

/* A part of an OpenFold name and what OpenFold 1.0 has in its place. There, some modules belong to
 * a block's "core", template modules have no common parent, and some layers have no wrapper. */
typedef struct replacement {
    const char *now, *then;
} replacement;

static const replacement openfold_1[] = {
    {".pair_stack.", ".core."},
    {".msa_transition.", ".core.msa_transition."},
    {".outer_product_mean.", ".core.outer_product_mean."},
    {"template_embedder.", ""},
    {"template_single_embedder.", "template_angle_embedder."},
    {"linear_q_points.linear.", "linear_q_points."},
    {"linear_kv_points.linear.", "linear_kv_points."},
};

/* Replaces the first `now` in the text by `then`, if there is one. */
static void replace(char text[NAME_BYTES], const replacement *with) {
    char *at = strstr(text, with->now);
    if (!at) return;
    char rest[NAME_BYTES];
    snprintf(rest, sizeof rest, "%s", at + strlen(with->now));
    snprintf(at, NAME_BYTES - (size_t)(at - text), "%s%s", with->then, rest);
}

/* The row's name under a naming, allocated in the arena; NULL if the arena is full. */
static const char *name_of(const fm_param *param, fm_weight_names naming, fm_arena *arena) {
    char text[NAME_BYTES];
    int n = 0;
    switch (naming) {
    case FM_NAMING_FOLDMILL: n = snprintf(text, sizeof text, "%s", param->name); break;
    case FM_NAMING_OPENFOLD:
    case FM_NAMING_OPENFOLD_1: n = snprintf(text, sizeof text, "%s", param->openfold); break;
    default:
        n = snprintf(text, sizeof text, "alphafold/alphafold_iteration/%s", param->deepmind);
        break;
    }
    assert(n > 0 && n < NAME_BYTES - 32); /* leaves room for what the replacements add */
    (void)n;
    size_t n_replacement = sizeof openfold_1 / sizeof openfold_1[0];
    for (size_t i = 0; naming == FM_NAMING_OPENFOLD_1 && i < n_replacement; i++)
        replace(text, &openfold_1[i]);
    char *name = fm_arena_alloc(arena, strlen(text) + 1);
    if (name) memcpy(name, text, strlen(text) + 1);
    return name;
}

/* -- shapes */

/* Fills in the shape of one slice in DeepMind's layout and returns its rank. */
static int deepmind_shape(const fm_param *param, uint64_t *shape) {
    uint64_t c_out = (uint64_t)param->shape[0], c_in = (uint64_t)param->shape[1];
    uint64_t heads = (uint64_t)param->deepmind_heads;
    bool vector = param->rank == 1;
    int rank = 0;
    switch (param->deepmind_layout) {
    case FM_DEEPMIND_SAME: shape[rank++] = c_out; break;
    case FM_DEEPMIND_TRANSPOSED:
        shape[rank++] = c_in;
        shape[rank++] = c_out;
        break;
    case FM_DEEPMIND_HEADS_OUT:
        assert(heads > 0 && c_out % heads == 0);
        if (!vector) shape[rank++] = c_in;
        shape[rank++] = heads;
        shape[rank++] = c_out / heads;
        break;
    case FM_DEEPMIND_HEADS_IN:
        assert(heads > 0 && c_in % heads == 0);
        shape[rank++] = heads;
        shape[rank++] = c_in / heads;
        shape[rank++] = c_out;
        break;
    }
    return rank;
}

static void set_shape(fm_foreign_array *array, const fm_param *param, fm_weight_names naming) {
    if (naming != FM_NAMING_DEEPMIND) {
        array->rank = param->rank;
        for (int axis = 0; axis < param->rank; axis++)
            array->shape[axis] = (uint64_t)param->shape[axis];
        return;
    }
    bool stacked = param->deepmind_layer >= 0;
    if (stacked) array->shape[0] = array->n_slice;
    array->rank = stacked + deepmind_shape(param, array->shape + stacked);
    array->transposed = param->rank == 2;
}

/* -- the list */

typedef struct named_row {
    const char *name;
    int32_t layer, row;
} named_row;

static int by_name_and_layer(const void *left, const void *right) {
    const named_row *a = left, *b = right;
    int order = strcmp(a->name, b->name);
    return order ? order : (a->layer > b->layer) - (a->layer < b->layer);
}

/* Turns each run of rows with the same name into one array with these rows as slices. */
static void fill_list(const fm_params *params, fm_weight_names naming, const named_row *named,
                      int32_t *rows, fm_foreign_list *list) {
    for (int32_t first = 0, last; first < params->n_param; first = last) {
        for (last = first; last < params->n_param; last++) {
            if (strcmp(named[first].name, named[last].name) != 0) break;
            rows[last] = named[last].row;
            assert(last == first || named[last].layer == named[last - 1].layer + 1);
        }
        fm_foreign_array *array = &list->array[list->n_array++];
        *array = (fm_foreign_array){
            .name = named[first].name, .n_slice = (uint32_t)(last - first), .row = rows + first};
        set_shape(array, &params->param[named[first].row], naming);
    }
}

fm_status fm_foreign_list_arrays(const fm_params *params, fm_weight_names naming, fm_arena *arena,
                                 fm_foreign_list *ret_list, fm_error *reterr) {
    size_t n = (size_t)params->n_param;
    fm_foreign_list list = {.array = fm_arena_alloc_array(arena, n, sizeof *list.array)};
    int32_t *rows = fm_arena_alloc_array(arena, n, sizeof *rows);
    named_row *named = fm_arena_alloc_array(arena, n, sizeof *named);
    if (!list.array || !rows || !named) return fm_arena_full(arena, reterr);
    for (size_t i = 0; i < n; i++) {
        const fm_param *param = &params->param[i];
        bool stacked = naming == FM_NAMING_DEEPMIND && param->deepmind_layer >= 0;
        named[i] = (named_row){.name = name_of(param, naming, arena),
                               .layer = stacked ? param->deepmind_layer : 0,
                               .row = (int32_t)i};
        if (!named[i].name) return fm_arena_full(arena, reterr);
    }
    qsort(named, n, sizeof *named, by_name_and_layer);
    fill_list(params, naming, named, rows, &list);
    *ret_list = list;
    return FM_OK;
}
