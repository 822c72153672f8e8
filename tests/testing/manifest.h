/* manifest.h: reads the reference data's two tables of contents. golden/manifest.json lists results
 * of the reference's pipeline, item by item; dev/digests.tsv has hashes of its parsers' results for
 * real files.
 *
 *     fm_test_manifest *manifest = fm_test_manifest_open();            NULL = no reference data
 *     for (size_t i = 0; i < fm_test_manifest_count(manifest); i++) {
 *         const fm_test_item *item = fm_test_manifest_item(manifest, i);
 *         if (strcmp(item->kind, "parse_a3m") == 0) ...
 *     }
 *     fm_test_manifest_close(manifest);
 *
 * Everything returned belongs to the manifest and lives until it is closed. A table that exists but
 * cannot be read fails an assertion. */
#ifndef FM_TESTS_MANIFEST_H
#define FM_TESTS_MANIFEST_H

#include "proto/base/hash.h"

#include <stdbool.h>

enum { FM_TEST_RANK = 6 };

/* One array of an item. sha256 covers its little-endian bytes in C order. */
typedef struct fm_test_array {
    const char *key, *dtype; /* "seqs", "uint8" */
    const char *encoding;    /* NULL, or "bytes\n": strings joined by newlines */
    const char *sha256;      /* 64 hex digits */
    size_t rank;
    size_t shape[FM_TEST_RANK];
} fm_test_array;

typedef struct fm_test_item {
    const char *kind;
    const char *source; /* below golden/ of the reference data: "inputs/..."; NULL = none */
    /* The .npz below the reference data: "golden/..."; NULL when the reference failed. */
    const char *file;
    const char *chain; /* NULL = none */
    const char *error; /* the reference's error as JSON text; NULL = none */
    size_t n_file;     /* msa_features: the folder's files, sorted by name */
    const char *const *files;
    size_t n_array;
    const fm_test_array *array;
} fm_test_item;

typedef struct fm_test_manifest fm_test_manifest;

/* Opens the golden manifest; NULL when the reference data is missing. */
fm_test_manifest *fm_test_manifest_open(void);
void fm_test_manifest_close(fm_test_manifest *manifest);
size_t fm_test_manifest_count(const fm_test_manifest *manifest);
const fm_test_item *fm_test_manifest_item(const fm_test_manifest *manifest, size_t index);

/* Returns a text of the item at "key" or "key.key" (such as "header.resolution", "seqres"); NULL =
 * none. */
const char *fm_test_item_text(const fm_test_manifest *manifest, size_t index, const char *path);
/* Copies a list of integers of the item ("missing") into out and returns its length, or SIZE_MAX
 * when there is none. Asserts that it fits. */
size_t fm_test_item_integers(const fm_test_manifest *manifest, size_t index, const char *key,
                             int64_t *out, size_t max_count);

/* Returns whether `size` bytes have the array's hash and shape, and prints both otherwise. */
bool fm_test_array_agrees(const fm_test_array *array, const size_t *shape, size_t rank,
                          const void *data, size_t size);

/* Prints "golden: 12 arrays, 12 identical, 0 different: WHAT" on stdout; ./run test adds these
 * lines up. */
void fm_test_golden_line(const char *what, size_t n_array, size_t n_identical);

/* One row of a digest table: an array's hash, or (key "ERROR") the reference's error. */
typedef struct fm_test_digest {
    const char *kind, *path, *chain; /* path below dev/ */
    const char *error_class, *error; /* "" = none */
    fm_test_array array;
} fm_test_digest;

typedef struct fm_test_digests {
    char *text; /* owned */
    size_t n_row;
    /* Owned, in the table's order. The rows of one (kind, path, chain) are consecutive. */
    fm_test_digest *row;
} fm_test_digests;

/* Reads dev/<name> ("digests.tsv", "digests_extra.tsv"). Returns false when the reference data is
 * missing. */
bool fm_test_digests_open(fm_test_digests *digests, const char *name);
void fm_test_digests_close(fm_test_digests *digests);

/* A JSON file of numbers and words, addressed by dotted paths: the reference model's configuration.
 * A file that cannot be read, and a path that is missing or not a number, fail an assertion. */
typedef struct fm_test_json fm_test_json;

fm_test_json *fm_test_json_open(const char *path);
/* Returns the number at "model.evoformer_stack.c_m"; true is 1, false 0. */
double fm_test_json_number(const fm_test_json *json, const char *path);
void fm_test_json_close(fm_test_json *json);

#endif
