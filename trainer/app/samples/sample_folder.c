/* sample_folder.c: see sample_folder.h. */
#include "trainer/app/samples/sample_folder.h"

#include "proto/base/directory.h"
#include "proto/base/rng.h"
#include "proto/limits.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FILES = 1 << 24, ORDER_STREAM = 0x73616d70 };
static const size_t NAME_ARENA_BYTES = (size_t)1 << 32; /* address space */
/* Folders up to this size stay in memory. */
static const uint64_t KEPT_BYTES = (uint64_t)256 << 20;

static const char ending[] = ".npz";

static bool is_sample(const char *name) {
    size_t n = strlen(name), m = sizeof ending - 1;
    return n > m && strcmp(name + n - m, ending) == 0;
}

static fm_status check_name(const char *name, fm_error *reterr) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._+-";
    size_t n = strspn(name, letters);
    if (!name[n] && n <= FM_LIMIT_NAME_BYTES) return FM_OK;
    return fm_fail(reterr, FM_ERR_DATA,
                   "found the name '%.100s', expected at most %u letters, digits and ._+-", name,
                   FM_LIMIT_NAME_BYTES);
}

static fm_status path_of(const fm_sample_folder *f, const char *name, char out[PATH_MAX],
                         fm_error *reterr) {
    if (snprintf(out, PATH_MAX, "%s/%s%s", f->path, name, ending) < PATH_MAX) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_LIMIT, f->path, "the path is too long");
}

/* Adds the file's name and size to the hash, and its size to *bytes. */
static fm_status add_file(fm_sample_folder *f, const char *name, fm_sha256_state *hash,
                          uint64_t *bytes, fm_error *reterr) {
    char path[PATH_MAX], line[FM_LIMIT_NAME_BYTES + 32];
    fm_path_kind kind;
    uint64_t size;
    fm_status status = check_name(name, reterr);
    if (status) return fm_error_in(reterr, f->path);
    size_t n = strlen(name) - (sizeof ending - 1);
    char *copy = fm_arena_alloc(&f->arena, n + 1);
    if (!copy) return fm_arena_full(&f->arena, reterr);
    memcpy(copy, name, n);
    copy[n] = '\0';
    f->file[f->n++] = copy;
    status = path_of(f, copy, path, reterr);
    if (!status) status = fm_path_size(path, &kind, &size, reterr);
    if (status) return status;
    *bytes += size;
    int length = snprintf(line, sizeof line, "%s %llu\n", copy, (unsigned long long)size);
    fm_sha256_update(hash, line, (size_t)length);
    return FM_OK;
}

static fm_status read_names(fm_sample_folder *f, const fm_name_list *list, fm_error *reterr) {
    uint64_t bytes = 0;
    f->file = fm_arena_alloc_array(&f->arena, list->n + 1, sizeof *f->file);
    if (!f->file) return fm_arena_full(&f->arena, reterr);
    fm_sha256_state *hash = fm_sha256_create();
    fm_status status = FM_OK;
    for (size_t i = 0; i < list->n && !status; i++)
        if (is_sample(list->name[i])) status = add_file(f, list->name[i], hash, &bytes, reterr);
    f->hash = fm_sha256_digest(hash);
    fm_sha256_destroy(hash);
    f->keeps = bytes <= KEPT_BYTES;
    if (status || f->n) return status;
    return fm_fail_in(reterr, FM_ERR_DATA, f->path, "found no file NAME.npz, expected samples");
}

fm_status fm_sample_folder_open(const char *path, fm_sample_folder *f, fm_error *reterr) {
    fm_name_list list = {0};
    *f = (fm_sample_folder){.path = path};
    fm_status status = fm_arena_init(&f->arena, NAME_ARENA_BYTES, reterr);
    if (!status) status = fm_directory_list(path, false, MOST_FILES, &f->arena, &list, reterr);
    if (!status) status = read_names(f, &list, reterr);
    free(list.name);
    if (!status) {
        f->sample = calloc(f->n, sizeof *f->sample);
        f->is_read = calloc(f->n, sizeof *f->is_read);
        f->order = calloc(f->n, sizeof *f->order);
        bool whole = f->sample && f->is_read && f->order;
        if (!whole) status = fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of samples");
    }
    if (status) fm_sample_folder_close(f);
    return status;
}

static void release(fm_sample_folder *f, uint32_t file) {
    if (f->is_read[file]) fm_stored_sample_release(&f->sample[file]);
    f->is_read[file] = false;
}

void fm_sample_folder_close(fm_sample_folder *f) {
    for (uint32_t i = 0; i < f->n && f->sample && f->is_read; i++)
        release(f, i);
    free(f->sample);
    free(f->is_read);
    free(f->order);
    fm_arena_fini(&f->arena);
    *f = (fm_sample_folder){0};
}

/* Shuffles the files by the seed and the pass. */
static void shuffle(fm_sample_folder *f, uint64_t seed, uint64_t pass) {
    for (uint32_t i = 0; i < f->n; i++)
        f->order[i] = i;
    for (uint32_t i = f->n - 1; i > 0; i--) {
        const fm_philox_counter at = {
            {i, (uint32_t)pass, (uint32_t)(pass >> 32), (uint32_t)ORDER_STREAM}};
        uint32_t other = (uint32_t)((uint64_t)fm_philox(seed, at).word[0] * (i + 1) >> 32);
        uint32_t file = f->order[other];
        f->order[other] = f->order[i];
        f->order[i] = file;
    }
    f->order_seed = seed;
    f->order_pass = pass;
    f->has_order = true;
}

uint32_t fm_sample_folder_file(fm_sample_folder *f, uint64_t seed, uint64_t index) {
    uint64_t pass = index / f->n;
    if (!f->has_order || f->order_seed != seed || f->order_pass != pass) shuffle(f, seed, pass);
    return f->order[index % f->n];
}

/* Makes a file the most recent one, and releases the one that leaves the last two. */
static void touch(fm_sample_folder *f, uint32_t file) {
    uint32_t *recent = f->recent;
    if (file == recent[0]) return;
    bool leaves = file != recent[1] && recent[1] != recent[0];
    if (leaves && !f->keeps) release(f, recent[1]);
    recent[1] = recent[0];
    recent[0] = file;
}

fm_status fm_sample_folder_read(fm_sample_folder *f, uint32_t file,
                                const fm_stored_sample **ret_sample, fm_error *reterr) {
    char path[PATH_MAX];
    assert(file < f->n);
    *ret_sample = &f->sample[file];
    touch(f, file);
    if (f->is_read[file]) return FM_OK;
    fm_status status = path_of(f, f->file[file], path, reterr);
    if (!status) status = fm_stored_sample_read(path, &f->sample[file], reterr);
    if (status) return status;
    f->is_read[file] = true;
    f->n_read++;
    return FM_OK;
}

bool fm_is_bad_sample(fm_status status) {
    return status == FM_ERR_DATA || status == FM_ERR_LIMIT || status == FM_ERR_CORRUPT ||
           status == FM_ERR_FORMAT || status == FM_ERR_UNSUPPORTED;
}
