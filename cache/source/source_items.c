/* source_items.c: a source of which only names are known: those of a shared job's items. */
#include "cache/source/source_parts.h"

#include "cache/source/names.h"
#include "proto/chem/pdb_id.h"

#include <stdlib.h>
#include <string.h>

/* Length of "NAME:" in front of an item's name; 0 = none. */
static size_t prefix_length(const char *item) {
    return (size_t)(fm_name_in_dataset(item) - item);
}

static bool is_structure(const char *item) {
    size_t length = strlen(item);
    return length > 0 && item[length - 1] == '/';
}

static int compare_datasets(const void *a, const void *b) {
    return strcmp(((const fm_source_dataset *)a)->name, ((const fm_source_dataset *)b)->name);
}

static int compare_structures(const void *a, const void *b) {
    const fm_source_structure *x = a, *y = b;
    if (x->dataset != y->dataset) return x->dataset < y->dataset ? -1 : 1;
    return strcmp(x->key, y->key);
}

/* The position of the dataset with that prefix, or n. */
static uint32_t find_dataset(const fm_source_dataset *dataset, uint32_t n, const char *item) {
    size_t length = prefix_length(item);
    for (uint32_t i = 0; i < n; i++) {
        const char *prefix = dataset[i].prefix;
        if (strlen(prefix) == length && memcmp(prefix, item, length) == 0) return i;
    }
    return n;
}

/* Lists the datasets of the items, the one without a name first. */
static fm_status list_datasets(const char *const *item, uint32_t n_item, fm_arena *arena,
                               fm_source_dataset **ret_dataset, uint32_t *ret_n, fm_error *reterr) {
    enum { MAX = FM_SOURCE_N_DATASET + 1 }; /* a dataset without a name may bring uniclust30 */
    fm_source_dataset *dataset = fm_arena_calloc(arena, MAX, sizeof *dataset);
    if (!dataset) return fm_arena_full(arena, reterr);
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_item; i++) {
        if (find_dataset(dataset, n, item[i]) < n) continue;
        if (n == MAX) {
            return fm_fail(reterr, FM_ERR_LIMIT, "the items are of more than %d datasets", MAX);
        }
        size_t length = prefix_length(item[i]);
        dataset[n].prefix = fm_source_copy(arena, item[i], length);
        dataset[n].name = fm_source_copy(arena, item[i], length ? length - 1 : 0);
        if (!dataset[n].prefix || !dataset[n].name) return fm_arena_full(arena, reterr);
        n++;
    }
    if (n) qsort(dataset, n, sizeof *dataset, compare_datasets);
    *ret_dataset = dataset;
    *ret_n = n;
    return FM_OK;
}

/* Fills the structure that an item "<id>/" means. */
static fm_status name_structure(const char *item, uint32_t dataset, fm_arena *arena,
                                fm_source_structure *structure, fm_error *reterr) {
    const char *bare = fm_name_in_dataset(item);
    size_t length = strlen(bare) - 1;
    char *id = fm_source_copy(arena, bare, length), *key = fm_source_copy(arena, bare, length);
    if (!id || !key) return fm_arena_full(arena, reterr);
    if (fm_pdb_id_key(bare, length, key)) key[FM_PDB_ID_BYTES] = '\0';
    *structure = (fm_source_structure){.id = id, .key = key, .dataset = dataset};
    return FM_OK;
}

fm_status fm_source_of_items(const char *const *item, uint32_t n_item, fm_arena *arena,
                             fm_source *ret_source, fm_error *reterr) {
    fm_source_dataset *dataset;
    uint32_t n_dataset, n_structure = 0, n_chain = 0;
    fm_status status = list_datasets(item, n_item, arena, &dataset, &n_dataset, reterr);
    if (status) return status;
    fm_source_structure *structure = fm_arena_calloc(arena, (size_t)n_item + 1, sizeof *structure);
    fm_source_chain *chain = fm_arena_calloc(arena, (size_t)n_item + 1, sizeof *chain);
    if (!structure || !chain) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < n_item && !status; i++) {
        if (is_structure(item[i])) {
            status = name_structure(item[i], find_dataset(dataset, n_dataset, item[i]), arena,
                                    &structure[n_structure++], reterr);
        } else {
            chain[n_chain++].name = item[i];
        }
    }
    if (status) return status;
    if (n_structure) qsort(structure, n_structure, sizeof *structure, compare_structures);
    for (uint32_t i = n_structure; i-- > 0;) {
        fm_source_dataset *of = &dataset[structure[i].dataset];
        of->first_structure = i;
        of->n_structure++;
    }
    /* The chains are of one more structure, which no dataset has. */
    structure[n_structure] =
        (fm_source_structure){.id = "", .key = "", .n_chain = n_chain, .chain = chain};
    *ret_source = (fm_source){.n_dataset = n_dataset,
                              .n_structure = n_structure + 1,
                              .n_chain = n_chain,
                              .dataset = dataset,
                              .structure = structure};
    return FM_OK;
}
