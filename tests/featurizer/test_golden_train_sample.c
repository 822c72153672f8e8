/* test_golden_train_sample.c: complete training samples of the reference (golden/train_sample),
 * reproduced from its own random draws (golden/train_trace).
 *
 * The transforms replay the recorded draws, and the sample is expanded to the reference's tensors.
 * Every tensor must be equal: integers, counts and coordinates bit for bit, arctangents of
 * deletions to 3e-7, because two libraries' atan differ in the last digits. The inputs are the
 * reference's features before its random part (golden/nonensembled), so only the transforms are
 * tested. */
#include "featurizer/sample/choose.h"
#include "featurizer/sample/expand_geometry.h"
#include "featurizer/sample/sample.h"
#include "proto/base/file.h"
#include "proto/npz.h"
#include "tests/testing/manifest.h"
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_CYCLE = 4, N_SAMPLE = 5, N_KEY = 50, MAX_TEMPLATE = 4 };
static const float value_tolerance = 3e-7f;

/* -- the recorded draws */

typedef struct cycle_trace {
    const fm_npy *starts;    /* [5] first rows of the deleted blocks */
    const fm_npy *picks[3];  /* permutations: distillation cap (if any), rows, extra rows */
    const fm_npy *uniform;   /* [n_centre, N_res] */
    const fm_npy *replaced;  /* [n_centre, N_res] classes */
    const fm_npy *templates; /* [1] start; NULL without templates */
    const fm_npy *order;     /* [N_templ]; NULL without templates */
    const fm_npy *crop[2];   /* [1] residues taken off the end, start */
    size_t n_pick, n_picked;
} cycle_trace;

typedef struct trace {
    cycle_trace cycle[N_CYCLE];
    const fm_npy *clamp; /* [1] */
} trace;

/* Returns entry number *at, which must be of that kind, and advances. */
static const fm_npy *next(const fm_npz *npz, size_t *at, const char *kind) {
    for (size_t k = 0; k < npz->n_array; k++) {
        char *rest;
        const char *name = npz->arrays[k].name + strlen("trace_");
        if (strtoul(name, &rest, 10) != *at) continue;
        assert_string_equal(rest + 1, kind);
        (*at)++;
        return &npz->arrays[k];
    }
    fail_msg("the trace has no entry %zu", *at);
    return NULL;
}

static void read_trace(const fm_npz *npz, bool is_distillation, bool has_templates, trace *out) {
    size_t at = 0;
    next(npz, &at, "rand"); /* draws of a replacement that never happens */
    next(npz, &at, "rand");
    memset(out, 0, sizeof *out);
    for (size_t c = 0; c < N_CYCLE; c++) {
        cycle_trace *cycle = &out->cycle[c];
        cycle->starts = next(npz, &at, "randint");
        if (is_distillation) cycle->picks[cycle->n_pick++] = next(npz, &at, "randperm");
        cycle->picks[cycle->n_pick++] = next(npz, &at, "randperm");
        cycle->uniform = next(npz, &at, "rand");
        cycle->replaced = next(npz, &at, "categorical");
        cycle->picks[cycle->n_pick++] = next(npz, &at, "randperm");
        if (has_templates) {
            cycle->templates = next(npz, &at, "randint");
            cycle->order = next(npz, &at, "randperm");
        }
        cycle->crop[0] = next(npz, &at, "randint");
        cycle->crop[1] = next(npz, &at, "randint");
    }
    out->clamp = next(npz, &at, "rand");
    assert_int_equal(at, npz->n_array);
}

static uint32_t integer_at(const fm_npy *array, size_t k) {
    assert_string_equal(array->dtype, "<i8");
    assert_true(k < array->count);
    return (uint32_t)((const int64_t *)array->data)[k];
}

/* Returns a draw that the reference makes in every cycle with the same result. */
static uint32_t shared_integer(const trace *t, size_t offset) {
    uint32_t value = 0;
    for (size_t c = 0; c < N_CYCLE; c++) {
        const fm_npy *array;
        memcpy(&array, (const char *)&t->cycle[c] + offset, sizeof array);
        assert_non_null(array);
        if (c > 0) assert_int_equal(integer_at(array, 0), value);
        value = integer_at(array, 0);
    }
    return value;
}

static uint32_t replay_below(void *context, fm_sample_purpose purpose, uint32_t cycle,
                             uint32_t number, uint32_t below) {
    const trace *t = context;
    uint32_t drawn = UINT32_MAX;
    switch (purpose) {
    case FM_SAMPLE_DRAW_BLOCK_DELETION:
        drawn = integer_at(t->cycle[cycle].starts, number) - 1;
        break;
    case FM_SAMPLE_DRAW_CROP:
        drawn = shared_integer(t, number == 0 ? offsetof(cycle_trace, crop[0])
                                              : offsetof(cycle_trace, crop[1]));
        break;
    case FM_SAMPLE_DRAW_TEMPLATE_COUNT:
        drawn = shared_integer(t, offsetof(cycle_trace, templates));
        break;
    default: fail_msg("no recorded integer of purpose %d", (int)purpose);
    }
    assert_true(drawn < below);
    return drawn;
}

static bool replay_chance(void *context, fm_sample_purpose purpose, uint32_t q32) {
    const trace *t = context;
    assert_int_equal(purpose, FM_SAMPLE_DRAW_CLAMPED_FAPE);
    return (double)((const float *)t->clamp->data)[0] < (double)q32 / 4294967296.0;
}

static void replay_pick(void *context, fm_sample_purpose purpose, uint32_t cycle, uint32_t number,
                        uint32_t *list, uint32_t n, uint32_t n_pick) {
    (void)number;
    trace *t = context;
    cycle_trace *own = &t->cycle[cycle];
    const fm_npy *permutation =
        purpose == FM_SAMPLE_DRAW_TEMPLATE_ORDER ? own->order : own->picks[own->n_picked++];
    assert_true(own->n_picked <= own->n_pick);
    assert_int_equal(permutation->count, n);
    assert_true(n_pick <= n || purpose == FM_SAMPLE_DRAW_DISTILLATION_CAP);
    uint32_t *before = malloc((n + 1) * sizeof *before);
    assert_non_null(before);
    if (n) memcpy(before, list, n * sizeof *before);
    for (uint32_t k = 0; k < n; k++) {
        assert_true(integer_at(permutation, k) < n);
        list[k] = before[integer_at(permutation, k)];
    }
    free(before);
}

static void replay_mask(void *context, uint32_t cycle, const fm_masking *masking, uint8_t *msa,
                        uint8_t *chosen) {
    const cycle_trace *own = &((const trace *)context)->cycle[cycle];
    size_t n = (size_t)masking->n_centre * masking->part->n_res;
    assert_int_equal(own->uniform->count, n);
    assert_int_equal(own->replaced->count, n);
    for (size_t k = 0; k < n; k++) {
        chosen[k] = ((const float *)own->uniform->data)[k] < 0.15f;
        uint32_t restype = integer_at(own->replaced, k);
        if (!chosen[k]) continue;
        msa[k] = restype == FM_MSA_MASK ? FM_MSA_MASK : fm_hhblits_from_restype[restype];
    }
}

/* -- the chain */

static fm_npz read_npz(fm_arena *arena, const char *folder, const char *name) {
    char relative[1024], path[2048];
    fm_bytes bytes;
    fm_npz npz;
    snprintf(relative, sizeof relative, "golden/%s/%s", folder, name);
    fm_test_reference_path(path, sizeof path, relative);
    assert_int_equal(fm_file_read(arena, path, (size_t)1 << 30, &bytes, NULL), FM_OK);
    assert_int_equal(fm_npz_parse(arena, bytes, &npz, NULL), FM_OK);
    return npz;
}

typedef struct chain {
    fm_npz features; /* of the whole chain, before anything random */
    fm_part_sequence sequence;
    fm_part_msa msa;
    fm_part_structure structure;
    fm_record record;
    uint32_t n_template;
} chain;

static const void *feature_of(const chain *c, const char *name, size_t rank) {
    const fm_npy *array = fm_npz_find(&c->features, name);
    assert_non_null(array);
    assert_int_equal(array->rank, rank);
    return array->data;
}

static void read_msa(chain *c, fm_arena *arena) {
    const fm_npy *array = fm_npz_find(&c->features, "msa");
    uint32_t n_seq = (uint32_t)array->shape[0], n_res = (uint32_t)array->shape[1];
    size_t n = (size_t)n_seq * n_res;
    const int64_t *restypes = array->data;
    const float *deletions = feature_of(c, "deletion_matrix", 2);
    const float *expected = feature_of(c, "hhblits_profile", 2);
    uint8_t *msa = fm_arena_alloc(arena, n);
    uint16_t *deletion_matrix = fm_arena_alloc_array(arena, n, sizeof *deletion_matrix);
    uint32_t *profile = fm_arena_calloc(arena, n_res, FM_N_HHBLITS * sizeof *profile);
    assert_true(msa && deletion_matrix && profile);
    for (size_t k = 0; k < n; k++) {
        msa[k] = fm_hhblits_from_restype[restypes[k]];
        deletion_matrix[k] = (uint16_t)deletions[k];
        profile[k % n_res * FM_N_HHBLITS + msa[k]]++;
    }
    /* the reference's profile is our counts, in restype order, divided in float32 */
    for (size_t k = 0; k < (size_t)n_res * FM_N_HHBLITS; k++) {
        uint32_t count =
            profile[k / FM_N_HHBLITS * FM_N_HHBLITS + fm_hhblits_from_restype[k % FM_N_HHBLITS]];
        float own = (float)count / (float)n_seq;
        assert_memory_equal(&own, &expected[k], sizeof own);
    }
    c->msa = (fm_part_msa){.n_seq = n_seq,
                           .n_res = n_res,
                           .msa = msa,
                           .deletion_matrix = deletion_matrix,
                           .profile = profile};
}

static void read_chain(chain *c, const char *source, fm_arena *arena) {
    char name[256];
    snprintf(name, sizeof name, "%s.npz", source);
    c->features = read_npz(arena, "nonensembled", name);
    read_msa(c, arena);
    uint32_t n_res = c->msa.n_res;
    const int64_t *aatype = feature_of(c, "aatype", 1);
    const float *mask = feature_of(c, "all_atom_mask", 2);
    char *letters = fm_arena_alloc(arena, n_res);
    uint8_t *bytes = fm_arena_alloc(arena, (size_t)n_res * FM_N_ATOM37);
    assert_true(letters && bytes);
    for (size_t i = 0; i < n_res; i++)
        letters[i] = fm_restype_letters[aatype[i]];
    for (size_t k = 0; k < (size_t)n_res * FM_N_ATOM37; k++)
        bytes[k] = mask[k] > 0;
    c->sequence = (fm_part_sequence){.n_res = n_res, .sequence = letters};
    c->structure = (fm_part_structure){
        .n_res = n_res,
        .all_atom_positions = feature_of(c, "all_atom_positions", 3),
        .all_atom_mask = bytes,
        .resolution = *(const float *)feature_of(c, "resolution", 0),
        .is_distillation = *(const float *)feature_of(c, "is_distillation", 0) > 0,
    };
    c->record = (fm_record){
        .name = source, .sequence = &c->sequence, .msa = &c->msa, .structure = &c->structure};
    c->n_template = (uint32_t)fm_npz_find(&c->features, "template_aatype")->shape[0];
}

/* -- the comparison */

/* Returns how many elements differ. The deletions' arctangents are elements 24 and 48 of
 * msa_feat. */
static size_t count_different(const fm_npy *expected, const fm_array *got, size_t n_cycle) {
    bool is_feat = strcmp(expected->name, "msa_feat") == 0;
    bool is_value = strcmp(expected->name, "extra_deletion_value") == 0;
    const uint8_t *a = expected->data, *b = got->data;
    size_t different = 0, size = expected->item_bytes;
    for (size_t k = 0; k < expected->count; k++) {
        size_t column = k / n_cycle % FM_N_MSA_FEAT;
        if (is_value || (is_feat && (column == 24 || column == 48))) {
            float x, y;
            memcpy(&x, a + k * size, sizeof x);
            memcpy(&y, b + k * size, sizeof y);
            float distance = x > y ? x - y : y - x;
            different += !(distance <= value_tolerance);
        } else {
            different += memcmp(a + k * size, b + k * size, size) != 0;
        }
    }
    return different;
}

static bool agrees(const char *source, const fm_npy *expected, const fm_array *got) {
    bool same = got && strcmp(got->dtype, expected->dtype) == 0 && got->rank == expected->rank;
    for (size_t k = 0; same && k < got->rank; k++)
        same = got->shape[k] == expected->shape[k];
    if (!same) {
        fprintf(stderr, "%s: %s: missing, or of another type or shape\n", source, expected->name);
        return false;
    }
    size_t different = count_different(expected, got, N_CYCLE);
    if (different == 0) return true;
    fprintf(stderr, "%s: %s: %zu of %zu elements differ\n", source, expected->name, different,
            (size_t)expected->count);
    return false;
}

/* Returns the chain's feature of that name, cropped like the sample. */
static fm_array crop_feature(const chain *c, const fm_sample *sample, const fm_expand_sizes *sizes,
                             const fm_expand_templates *kept, const char *name, fm_arena *arena) {
    const fm_npy *array = fm_npz_find(&c->features, name);
    if (!array) fail_msg("no feature %s", name);
    fm_array feature = {.key = name, .dtype = array->dtype, .rank = array->rank};
    feature.data = array->data;
    for (size_t k = 0; k < array->rank; k++)
        feature.shape[k] = array->shape[k];
    fm_expand_templates templates = *kept;
    templates.has_residues =
        strcmp(name, "template_mask") != 0 && strcmp(name, "template_sum_probs") != 0;
    bool is_template = strncmp(name, "template_", strlen("template_")) == 0;
    fm_array out;
    assert_int_equal(fm_expand_feature(sample, sizes, &feature, is_template ? &templates : NULL,
                                       arena, &out, NULL),
                     FM_OK);
    return out;
}

/* A sample that holds a whole chain has all that OpenFold computes from coordinates. These samples
 * carry no templates. */
static void check_geometry(const char *file, const fm_sample *sample, const fm_expand_sizes *sizes,
                           const fm_npz *golden, fm_arena *arena) {
    fm_array arrays[FM_N_EXPANDED_GEOMETRY];
    size_t mark = fm_arena_mark(arena), n = 0;
    assert_int_equal(fm_expand_geometry(sample, sizes, arena, arrays, NULL), FM_OK);
    for (size_t k = 0; k < FM_N_EXPANDED_GEOMETRY; k++) {
        const fm_npy *expected = fm_npz_find(golden, arrays[k].key);
        assert_non_null(expected);
        if (strncmp(arrays[k].key, "template_", strlen("template_")) == 0) continue;
        assert_true(agrees(file, expected, &arrays[k]));
        n++;
    }
    assert_int_equal(n, FM_N_EXPANDED_GEOMETRY - 10);
    fm_arena_rewind(arena, mark);
}

/* Returns the number of identical arrays. */
static size_t check_sample(const fm_test_item *item, fm_arena *arena) {
    const char *file = strrchr(item->file, '/') + 1;
    chain c;
    trace recorded;
    fm_arena_reset(arena);
    read_chain(&c, item->source, arena);
    fm_npz golden = read_npz(arena, "train_sample", file);
    fm_npz drawn = read_npz(arena, "train_trace", file);
    assert_int_equal(golden.n_array, N_KEY);
    read_trace(&drawn, c.structure.is_distillation, c.n_template > 0, &recorded);
    const fm_draws draws = {.context = &recorded,
                            .below = replay_below,
                            .chance = replay_chance,
                            .pick = replay_pick,
                            .mask = replay_mask};
    fm_plan plan;
    assert_int_equal(fm_plan_find("openfold-initial", &plan, NULL), FM_OK);
    plan.crop_size = (uint32_t)fm_npz_find(&golden, "aatype")->shape[0];
    plan.max_msa_clusters = (uint32_t)fm_npz_find(&golden, "true_msa")->shape[0];
    plan.max_extra_msa = (uint32_t)fm_npz_find(&golden, "extra_msa")->shape[0];

    fm_sample sample;
    fm_array expanded[FM_N_EXPANDED];
    uint32_t index[MAX_TEMPLATE];
    assert_int_equal(fm_sample_make(&(fm_sample_request){.plan = &plan,
                                                         .record = &c.record,
                                                         .n_cycle = N_CYCLE,
                                                         .draws = &draws},
                                    arena, &sample, NULL),
                     FM_OK);
    for (size_t k = 0; k < N_CYCLE; k++)
        assert_int_equal(recorded.cycle[k].n_picked, recorded.cycle[k].n_pick);
    assert_true(c.n_template <= MAX_TEMPLATE);
    uint32_t kept = fm_choose_templates(&plan, &draws, c.n_template, index);
    const fm_expand_templates templates = {.index = index, .n_templ = kept};
    const fm_expand_sizes sizes = {plan.crop_size, plan.max_msa_clusters, plan.max_extra_msa,
                                   plan.max_templates};
    assert_int_equal(fm_expand_sample(&sample, &sizes, arena, expanded, NULL), FM_OK);

    if (sample.n_res == sample.n_res_chain) check_geometry(file, &sample, &sizes, &golden, arena);

    size_t identical = 0;
    for (size_t k = 0; k < golden.n_array; k++) {
        const fm_npy *expected = &golden.arrays[k];
        fm_array got = {.key = NULL};
        for (size_t e = 0; e < FM_N_EXPANDED; e++) {
            if (strcmp(expanded[e].key, expected->name) == 0) got = expanded[e];
        }
        size_t mark = fm_arena_mark(arena);
        if (!got.key) got = crop_feature(&c, &sample, &sizes, &templates, expected->name, arena);
        identical += agrees(file, expected, &got);
        fm_arena_rewind(arena, mark);
    }
    return identical;
}

static void golden_train_sample(void **state) {
    (void)state;
    if (!fm_test_reference()) {
        fprintf(stderr, "skipped: FM_REFERENCE_DATA is not set\n");
        skip();
    }
    fm_arena arena;
    assert_int_equal(fm_arena_init(&arena, (size_t)2 << 30, NULL), FM_OK);
    fm_test_manifest *manifest = fm_test_manifest_open();
    assert_non_null(manifest);
    size_t n_sample = 0, identical = 0;
    for (size_t i = 0; i < fm_test_manifest_count(manifest); i++) {
        const fm_test_item *item = fm_test_manifest_item(manifest, i);
        if (strcmp(item->kind, "train_sample") != 0) continue;
        identical += check_sample(item, &arena);
        n_sample++;
    }
    fm_test_manifest_close(manifest);
    fm_arena_fini(&arena);
    fm_test_golden_line("train_sample", n_sample * N_KEY, identical);
    assert_int_equal(n_sample, N_SAMPLE);
    assert_int_equal(identical, n_sample * N_KEY);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden_train_sample)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
