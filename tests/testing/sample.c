/* sample.c: see sample.h. */
#include "tests/testing/sample.h"

#include "proto/base/rng.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t size_of_word(const fm_test_shape *shape, uint32_t cycle, const char *word) {
    if (strncmp(word, "N_token_bond", 12) == 0) return shape->n_res - 1;
    if (strncmp(word, "N_token", 7) == 0) return shape->n_res;
    if (strncmp(word, "N_atom", 6) == 0) return shape->n_atom;
    if (strncmp(word, "N_row", 5) == 0) return shape->n_clust + cycle;
    if (strncmp(word, "N_bond_mask", 11) == 0) return 0;
    if (strncmp(word, "N_group+1", 9) == 0) return shape->n_res + 1;
    if (strncmp(word, "N_group", 7) == 0) return shape->n_res;
    if (strncmp(word, "N_order", 7) == 0) return shape->n_atom;
    if (strncmp(word, "N_res", 5) == 0) return shape->n_res;
    if (strncmp(word, "N_clust", 7) == 0) return shape->n_clust;
    if (strncmp(word, "N_extra", 7) == 0) return shape->n_extra;
    if (strncmp(word, "N_templ", 7) == 0) return shape->n_templ;
    if (strncmp(word, "ceil", 4) == 0) return (shape->n_clust * shape->n_res + 7) / 8;
    return (uint32_t)strtoul(word, NULL, 10);
}

static void fill(uint8_t *out, size_t bytes, uint64_t seed, uint64_t index, uint32_t salt) {
    const uint64_t small = 0x0f0f0f0f0f0f0f0fu; /* bytes of up to 15 are valid for every tensor */
    fm_philox_counter start = {{(uint32_t)index, (uint32_t)(index >> 32), salt, 0}};
    uint64_t state, word = 0;
    fm_philox_counter first = fm_philox(seed, start);
    memcpy(&state, first.word, sizeof state);
    for (size_t i = 0; i < bytes; i += sizeof word) {
        word = (state += 0x9e3779b97f4a7c15u) & small;
        memcpy(out + i, &word, bytes - i < sizeof word ? bytes - i : sizeof word);
    }
}

static fm_tensor_view make_tensor(const fm_tensor_rule *rule, const fm_test_shape *shape,
                                  uint32_t cycle, fm_arena *arena) {
    fm_tensor_view view = {.id = (uint16_t)rule->id, .cycle = (uint8_t)cycle};
    while (!(rule->dtypes >> view.dtype & 1))
        view.dtype++;
    view.bytes = fm_dtype_bytes(view.dtype);
    for (const char *word = rule->shape; *word;) {
        view.shape[view.rank] = size_of_word(shape, cycle, word);
        view.bytes *= view.shape[view.rank++];
        word += strcspn(word, " ");
        word += *word == ' ';
    }
    view.data = fm_arena_alloc(arena, view.bytes);
    assert(view.data);
    return view;
}

void fm_test_sample(const fm_test_shape *shape, uint64_t seed, uint64_t index,
                    uint32_t global_batch, fm_arena *arena, fm_sample *ret_sample) {
    size_t n_rule;
    const fm_tensor_rule *rules = fm_schema_rules(&n_rule);
    fm_tensor_view *tensor = fm_arena_calloc(arena, n_rule * (shape->n_cycle + 1), sizeof *tensor);
    assert(tensor);
    uint32_t n_tensor = 0;
    for (uint32_t c = 0; c <= shape->n_cycle; c++) {
        for (size_t r = 0; r < n_rule; r++) {
            fm_sample_kind kind = shape->n_atom ? FM_SAMPLE_OF_COMPLEX : FM_SAMPLE_OF_CHAIN;
            if (rules[r].per_cycle != (c > 0) || fm_schema_kind(rules[r].id) != kind) continue;
            if (!shape->n_templ && strncmp(rules[r].shape, "N_templ", 7) == 0) continue;
            fm_tensor_view view =
                make_tensor(&rules[r], shape, c ? c - 1 : (uint32_t)FM_SHARED, arena);
            fill((uint8_t *)(uintptr_t)view.data, view.bytes, seed, index, n_tensor);
            tensor[n_tensor++] = view;
        }
    }
    fm_sample sample = {.seed = seed,
                        .index = index,
                        .step = index / global_batch,
                        .slot = (uint32_t)(index % global_batch),
                        .chain = (uint32_t)(index % 1000),
                        .n_cycle = shape->n_cycle,
                        .n_res_chain = shape->n_res + 7,
                        .crop_start = shape->n_atom ? 0 : 3,
                        .n_res = shape->n_res,
                        .n_seq_chain = shape->n_clust + shape->n_extra,
                        .resolution = 2.5f,
                        .use_clamped_fape = index & 1,
                        .n_tensor = n_tensor,
                        .tensor = tensor};
    snprintf(sample.name, sizeof sample.name, "test_%llu", (unsigned long long)index % 1000);
    *ret_sample = sample;
}

fm_bytes fm_test_sample_bytes(const fm_sample *sample, fm_arena *arena) {
    size_t bytes = fm_sample_encoded_bytes(sample);
    uint8_t *out = fm_arena_alloc(arena, bytes);
    assert(out);
    fm_sample_encode(sample, out);
    return (fm_bytes){out, bytes};
}
