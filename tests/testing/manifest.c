/* manifest.c: see manifest.h. */
#include "tests/testing/manifest.h"

#include "tests/testing/testing.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fm_test_manifest {
    json_t *root, *items;
    fm_test_item *item; /* [n_item] */
    size_t n_item;
};

static void *take(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    assert(memory);
    return memory;
}

static void read_shape(fm_test_array *array, const json_t *shape) {
    array->rank = json_array_size(shape);
    assert(array->rank <= FM_TEST_RANK);
    for (size_t i = 0; i < array->rank; i++)
        array->shape[i] = (size_t)json_integer_value(json_array_get(shape, i));
}

static fm_test_array read_array(const json_t *key) {
    fm_test_array array = {
        .key = json_string_value(json_object_get(key, "key")),
        .dtype = json_string_value(json_object_get(key, "dtype")),
        .encoding = json_string_value(json_object_get(key, "enc")),
        .sha256 = json_string_value(json_object_get(key, "sha256")),
    };
    assert(array.key && array.dtype && array.sha256);
    read_shape(&array, json_object_get(key, "shape"));
    return array;
}

static void read_item(fm_test_item *item, const json_t *from) {
    item->kind = json_string_value(json_object_get(from, "kind"));
    item->source = json_string_value(json_object_get(from, "source"));
    item->file = json_string_value(json_object_get(from, "file"));
    item->chain = json_string_value(json_object_get(from, "chain"));
    assert(item->kind);
    json_t *error = json_object_get(from, "error");
    if (error) item->error = json_dumps(error, JSON_ENCODE_ANY);
    const json_t *files = json_object_get(from, "files"), *keys = json_object_get(from, "keys");
    item->n_file = json_array_size(files);
    const char **names = take(item->n_file, sizeof *names);
    for (size_t i = 0; i < item->n_file; i++)
        names[i] = json_string_value(json_array_get(files, i));
    item->files = names;
    item->n_array = json_array_size(keys);
    fm_test_array *array = take(item->n_array, sizeof *array);
    for (size_t i = 0; i < item->n_array; i++)
        array[i] = read_array(json_array_get(keys, i));
    item->array = array;
}

fm_test_manifest *fm_test_manifest_open(void) {
    if (!fm_test_reference()) return NULL;
    char path[4096];
    json_error_t error;
    fm_test_manifest *manifest = take(1, sizeof *manifest);
    fm_test_reference_path(path, sizeof path, "golden/manifest.json");
    manifest->root = json_load_file(path, 0, &error);
    assert(manifest->root);
    manifest->items = json_object_get(manifest->root, "items");
    manifest->n_item = json_array_size(manifest->items);
    assert(manifest->n_item > 0);
    manifest->item = take(manifest->n_item, sizeof *manifest->item);
    for (size_t i = 0; i < manifest->n_item; i++)
        read_item(&manifest->item[i], json_array_get(manifest->items, i));
    return manifest;
}

void fm_test_manifest_close(fm_test_manifest *manifest) {
    if (!manifest) return;
    for (size_t i = 0; i < manifest->n_item; i++) {
        free((void *)manifest->item[i].files);
        free((void *)manifest->item[i].array);
        free((void *)manifest->item[i].error);
    }
    free(manifest->item);
    json_decref(manifest->root);
    free(manifest);
}

size_t fm_test_manifest_count(const fm_test_manifest *manifest) {
    return manifest->n_item;
}

const fm_test_item *fm_test_manifest_item(const fm_test_manifest *manifest, size_t index) {
    assert(index < manifest->n_item);
    return &manifest->item[index];
}

const char *fm_test_item_text(const fm_test_manifest *manifest, size_t index, const char *path) {
    const json_t *at = json_array_get(manifest->items, index);
    char word[64];
    while (at && *path) {
        size_t n = strcspn(path, ".");
        assert(n < sizeof word);
        memcpy(word, path, n);
        word[n] = 0;
        path += n + (path[n] == '.');
        at = json_object_get(at, word);
    }
    return json_string_value(at);
}

size_t fm_test_item_integers(const fm_test_manifest *manifest, size_t index, const char *key,
                             int64_t *out, size_t max_count) {
    const json_t *list = json_object_get(json_array_get(manifest->items, index), key);
    if (!json_is_array(list)) return SIZE_MAX;
    size_t count = json_array_size(list);
    assert(count <= max_count);
    for (size_t i = 0; i < count; i++)
        out[i] = json_integer_value(json_array_get(list, i));
    return count;
}

bool fm_test_array_agrees(const fm_test_array *array, const size_t *shape, size_t rank,
                          const void *data, size_t size) {
    char found[FM_SHA256_HEX];
    fm_sha256 hash = fm_sha256_of(data, size);
    fm_sha256_format(&hash, found);
    bool same_shape = rank == array->rank;
    for (size_t i = 0; same_shape && i < rank; i++)
        same_shape = shape[i] == array->shape[i];
    if (same_shape && strcmp(found, array->sha256) == 0) return true;
    fprintf(stderr, "array %s %s: shape [", array->key, array->dtype);
    for (size_t i = 0; i < rank; i++)
        fprintf(stderr, "%s%zu", i ? "," : "", shape[i]);
    fprintf(stderr, "] sha256 %.12s..., expected [", found);
    for (size_t i = 0; i < array->rank; i++)
        fprintf(stderr, "%s%zu", i ? "," : "", array->shape[i]);
    fprintf(stderr, "] %.12s...\n", array->sha256);
    return false;
}

/* Cuts the next tab-separated field off *at, which points into a terminated line. */
static const char *next_field(char **at) {
    char *field = *at, *end = field + strcspn(field, "\t");
    *at = *end ? end + 1 : end;
    *end = 0;
    return field;
}

static fm_test_digest read_digest(char *line) {
    fm_test_digest digest = {0};
    next_field(&line); /* split */
    digest.kind = next_field(&line);
    digest.path = next_field(&line);
    digest.chain = next_field(&line);
    digest.array.key = next_field(&line);
    digest.array.dtype = next_field(&line);
    json_t *shape = json_loads(next_field(&line), 0, NULL);
    if (shape) read_shape(&digest.array, shape);
    json_decref(shape);
    digest.array.sha256 = next_field(&line);
    digest.array.encoding = next_field(&line);
    if (!digest.array.encoding[0]) digest.array.encoding = NULL;
    digest.error_class = next_field(&line);
    digest.error = next_field(&line);
    return digest;
}

static char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    assert(file);
    int failed = fseek(file, 0, SEEK_END);
    long size = ftell(file);
    assert(!failed && size >= 0);
    rewind(file);
    char *text = take((size_t)size + 1, 1);
    size_t got = fread(text, 1, (size_t)size, file);
    assert(got == (size_t)size);
    (void)got;
    (void)failed;
    fclose(file);
    return text;
}

bool fm_test_digests_open(fm_test_digests *digests, const char *name) {
    if (!fm_test_reference()) return false;
    char path[4096], relative[256];
    int n = snprintf(relative, sizeof relative, "dev/%s", name);
    assert(n > 0 && (size_t)n < sizeof relative);
    (void)n;
    digests->text = read_text(fm_test_reference_path(path, sizeof path, relative));
    size_t n_line = 0;
    for (const char *c = digests->text; *c; c++)
        n_line += *c == '\n';
    digests->row = take(n_line + 1, sizeof *digests->row);
    digests->n_row = 0;
    char *line = digests->text + strcspn(digests->text, "\n"); /* skip the table's head */
    line += *line == '\n';
    while (*line) {
        char *end = line + strcspn(line, "\n"), *next = end + (*end == '\n');
        *end = 0;
        digests->row[digests->n_row++] = read_digest(line);
        line = next;
    }
    return true;
}

void fm_test_digests_close(fm_test_digests *digests) {
    free(digests->text);
    free(digests->row);
    *digests = (fm_test_digests){0};
}

fm_test_json *fm_test_json_open(const char *path) {
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (!root) fprintf(stderr, "%s:%d:%d: %s\n", path, error.line, error.column, error.text);
    assert(root);
    return (fm_test_json *)root;
}

double fm_test_json_number(const fm_test_json *json, const char *path) {
    const json_t *at = (const json_t *)json;
    char name[64];
    for (const char *rest = path; *rest;) {
        size_t n = strcspn(rest, ".");
        assert(n < sizeof name);
        snprintf(name, sizeof name, "%.*s", (int)n, rest);
        at = json_object_get(at, name);
        rest += n + (rest[n] == '.');
    }
    if (!json_is_number(at) && !json_is_boolean(at)) fprintf(stderr, "no number at %s\n", path);
    assert(json_is_number(at) || json_is_boolean(at));
    return json_is_boolean(at) ? json_is_true(at) : json_number_value(at);
}

void fm_test_json_close(fm_test_json *json) {
    json_decref((json_t *)json);
}

void fm_test_golden_line(const char *what, size_t n_array, size_t n_identical) {
    printf("golden: %zu arrays, %zu identical, %zu different: %s\n", n_array, n_identical,
           n_array - n_identical, what);
    fflush(stdout);
}
