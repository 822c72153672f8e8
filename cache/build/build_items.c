/* build_items.c: see build_items.h. */
#include "cache/build/build_items.h"

#include "proto/base/bisect.h"
#include "proto/base/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct named_target {
    fm_catalogue_entry entry;
    fm_build_target target;
} named_target;

static void add_text(fm_sha256_state *state, const char *text) {
    if (!text) text = "";
    fm_sha256_update(state, text, strlen(text) + 1);
}

static void add_number(fm_sha256_state *state, uint64_t number) {
    uint8_t bytes[8];
    fm_writer writer = fm_writer_of(bytes, sizeof bytes);
    fm_write_u64(&writer, number);
    fm_sha256_update(state, bytes, sizeof bytes);
}

static fm_sha256 hash_options(const fm_build_state *build) {
    const fm_build_options *options = build->options;
    fm_sha256_state *state = fm_sha256_create();
    add_text(state, "foldmill job 1");
    add_number(state, FM_STAGE_STRUCTURE);
    add_number(state, FM_STAGE_MSA);
    add_number(state, FM_STAGE_HITS);
    add_number(state, options->features.compat_openfold);
    add_number(state, options->single_sequence);
    if (build->components) {
        add_number(state, FM_STAGE_COMPLEX);
        fm_sha256_update(state, &build->components->hash, sizeof build->components->hash);
        if (options->compat_protenix) add_text(state, "protenix");
    }
    fm_sha256 hash = fm_sha256_digest(state);
    fm_sha256_destroy(state);
    return hash;
}

static void add_chain(const fm_source *source, const fm_source_chain *chain,
                      fm_sha256_state *state) {
    const fm_listed *listed = fm_source_listed_chain(source, chain->name);
    if (listed) {
        add_text(state, listed->release_date);
        fm_sha256_update(state, &listed->resolution, sizeof listed->resolution);
        add_number(state, listed->cluster_size);
    }
    add_text(state, chain->author_id);
    add_text(state, chain->refusal);
    add_number(state, chain->folder != NULL);
    add_number(state, chain->n_file);
    for (uint32_t i = 0; i < chain->n_file; i++) {
        add_text(state, chain->file[i].name);
        add_number(state, chain->file[i].bytes);
    }
}

/* The places of the inputs, without paths, because these differ between machines. `chain`: [n] of
 * the item. */
static fm_sha256 hash_source(const fm_source *source, const fm_source_structure *structure,
                             const fm_source_chain *chain, uint32_t n) {
    fm_sha256_state *state = fm_sha256_create();
    add_text(state, "foldmill source 1");
    add_text(state, structure->id);
    add_number(state, structure->is_pdb);
    add_number(state, source->dataset[structure->dataset].is_predicted);
    for (uint32_t i = 0; i < n; i++)
        add_chain(source, &chain[i], state);
    fm_sha256 hash = fm_sha256_digest(state);
    fm_sha256_destroy(state);
    return hash;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const named_target *)a)->entry.name, ((const named_target *)b)->entry.name);
}

/* Adds the structure's items at list[*n]. */
static fm_status add_structure(const fm_build_state *state, uint32_t index, fm_arena *arena,
                               named_target *list, uint32_t *n, fm_error *reterr) {
    const fm_source *source = state->source;
    const fm_source_structure *structure = &source->structure[index];
    bool is_one = fm_build_has_complex(state, structure);
    for (uint32_t i = 0; i < structure->n_chain && !is_one; i++) {
        const fm_source_chain *chain = &structure->chain[i];
        list[(*n)++] =
            (named_target){{chain->name, hash_source(source, structure, chain, 1)}, {index, i}};
    }
    if (!is_one && !state->options->single_sequence) return FM_OK;
    const char *prefix = source->dataset[structure->dataset].prefix;
    const char *id = is_one ? structure->key : structure->id; /* a complex is called by its key */
    size_t size = strlen(prefix) + strlen(id) + 2;
    char *name = fm_arena_alloc(arena, size);
    if (!name) return fm_arena_full(arena, reterr);
    snprintf(name, size, "%s%s/", prefix, id);
    uint32_t n_own = is_one ? structure->n_chain : 0;
    list[(*n)++] = (named_target){{name, hash_source(source, structure, structure->chain, n_own)},
                                  {index, FM_BUILD_STRUCTURE}};
    return FM_OK;
}

static bool is_nameable(const char *name) {
    size_t n = strlen(name);
    return n >= 1 && n <= FM_LIMIT_NAME_BYTES;
}

fm_status fm_build_list_items(const fm_build_state *state, fm_arena *arena,
                              fm_build_items *ret_items, fm_error *reterr) {
    const fm_source *source = state->source;
    size_t max = source->n_structure;
    for (uint32_t i = 0; i < source->n_structure; i++)
        max += source->structure[i].n_chain;
    fm_catalogue_entry *entry = fm_arena_alloc_array(arena, max, sizeof *entry);
    fm_build_target *target = fm_arena_alloc_array(arena, max, sizeof *target);
    named_target *list = fm_arena_alloc_array(arena, max, sizeof *list);
    if (!list || !entry || !target) return fm_arena_full(arena, reterr);
    uint32_t n = 0, kept = 0;
    for (uint32_t i = 0; i < source->n_structure; i++) {
        fm_status status = add_structure(state, i, arena, list, &n, reterr);
        if (status) return status;
    }
    if (n) qsort(list, n, sizeof *list, compare_names);
    for (uint32_t i = 0; i < n; i++) {
        if (!is_nameable(list[i].entry.name)) continue;
        if (kept && strcmp(entry[kept - 1].name, list[i].entry.name) == 0) continue;
        entry[kept] = list[i].entry;
        target[kept++] = list[i].target;
    }
    *ret_items = (fm_build_items){{hash_options(state), kept, entry}, target};
    return FM_OK;
}

static int order_of_item(const void *array, uint32_t i, const void *name) {
    const fm_build_items *items = array;
    return strcmp(items->listing.entry[i].name, name);
}

uint32_t fm_build_find_item(const fm_build_items *items, const char *name) {
    uint32_t item;
    return fm_bisect(items, items->listing.n, order_of_item, name, &item) ? item : UINT32_MAX;
}
