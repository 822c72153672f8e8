/* generation.c: reading and publishing a generation. generation_files.c and manifest.c encode the
 * files; see generation.h.
 *
 * Publishing is safe against a crash at any instant. The new generation has a new number, so its
 * files replace nothing. Each file is written to a temporary name, synced and renamed
 * (fm_file_write_atomic); the manifest, which has the hashes of the others, is written last.
 * CURRENT is renamed last, and that rename is the only step that readers can see: before it they
 * read the old generation, after it the new one. A crash before it leaves files that no CURRENT
 * names; the next build takes a higher number, and gc removes them. Shards are sealed and synced
 * before any of this begins.
 */
#include "cache/store/generation_files.h"

#include "proto/base/bisect.h"
#include "proto/base/directory.h"
#include "proto/base/file.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum {
    MANIFEST_BYTES_MAX = 64 << 20,
    CURRENT_BYTES_MAX = 64,
};

#define INDEX_BYTES_MAX ((size_t)8 << 30)

/* -- finding */

static int order_of_chain(const void *array, uint32_t i, const void *name) {
    const fm_generation *generation = array;
    return strcmp(generation->names + generation->chain[i].name_at, name);
}

bool fm_generation_find_chain(const fm_generation *generation, const char *name,
                              uint32_t *ret_chain) {
    return fm_bisect(generation, generation->n_chain, order_of_chain, name, ret_chain);
}

static int order_of_blob(const void *array, uint32_t i, const void *hash) {
    const fm_generation *generation = array;
    return memcmp(&generation->blob[i].hash, hash, sizeof(fm_sha256));
}

bool fm_generation_find_blob(const fm_generation *generation, const fm_sha256 *hash,
                             uint32_t *ret_blob) {
    return fm_bisect(generation, generation->n_blob, order_of_blob, hash, ret_blob);
}

bool fm_generation_is_complex(const fm_generation *generation, uint32_t item) {
    return generation->blob[generation->chain[item].part[0]].kind == FM_PART_ASSEMBLY;
}

uint32_t fm_generation_part(const fm_generation *generation, uint32_t item, fm_part_kind kind) {
    bool is_of_complex = kind >= FM_PART_ASSEMBLY;
    uint32_t slot = kind - (is_of_complex ? FM_PART_ASSEMBLY : FM_PART_SEQUENCE);
    if (slot >= FM_N_PART || fm_generation_is_complex(generation, item) != is_of_complex) {
        return FM_NO_PART;
    }
    return generation->chain[item].part[slot];
}

/* -- paths and digests */

fm_status fm_generation_path(const char *cache, uint64_t number, const char *suffix, char *out,
                             size_t out_bytes, fm_error *reterr) {
    int n = snprintf(out, out_bytes, "%s/generations/%08" PRIu64 ".%s", cache, number, suffix);
    if (n > 0 && (size_t)n < out_bytes) return FM_OK;
    return fm_fail(reterr, FM_ERR_LIMIT, "the cache's path is too long");
}

static void update_with_parts(fm_sha256_state *state, const fm_generation *generation,
                              const fm_chain_entry *chain) {
    uint8_t n_part = 0;
    for (int k = 0; k < FM_N_PART; k++)
        n_part += chain->part[k] != FM_NO_PART;
    fm_sha256_update(state, &n_part, 1);
    for (int k = 0; k < FM_N_PART; k++) {
        if (chain->part[k] == FM_NO_PART) continue;
        uint8_t kind = (uint8_t)generation->blob[chain->part[k]].kind;
        fm_sha256_update(state, &kind, 1);
        fm_sha256_update(state, &generation->blob[chain->part[k]].hash, sizeof(fm_sha256));
    }
}

static fm_sha256 finish_hash(fm_sha256_state *state) {
    fm_sha256 digest = fm_sha256_digest(state);
    fm_sha256_destroy(state);
    return digest;
}

fm_sha256 fm_generation_digest(const fm_generation *generation) {
    static const char title[] = "foldmill content 1\n";
    fm_sha256_state *state = fm_sha256_create();
    fm_sha256_update(state, title, sizeof title - 1);
    for (uint32_t i = 0; i < generation->n_chain; i++) {
        const char *name = generation->names + generation->chain[i].name_at;
        fm_sha256_update(state, name, strlen(name) + 1);
        update_with_parts(state, generation, &generation->chain[i]);
    }
    return finish_hash(state);
}

fm_sha256 fm_generation_chain_hash(const fm_generation *generation, uint32_t chain) {
    fm_sha256_state *state = fm_sha256_create();
    update_with_parts(state, generation, &generation->chain[chain]);
    return finish_hash(state);
}

/* -- reading */

uint64_t fm_generation_number_parse(fm_bytes text) {
    uint64_t number = 0;
    bool good = text.size >= 2 && text.size <= 19 && text.data[text.size - 1] == '\n';
    for (size_t i = 0; good && i + 1 < text.size; i++) {
        good = text.data[i] >= '0' && text.data[i] <= '9';
        number = number * 10 + (uint64_t)(text.data[i] - '0');
    }
    return good ? number : 0;
}

fm_status fm_generation_current(const char *cache, fm_arena *arena, uint64_t *ret_number,
                                fm_error *reterr) {
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/CURRENT", cache);
    if (n <= 0 || (size_t)n >= sizeof path) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the cache's path is too long");
    }
    fm_bytes text;
    fm_status status = fm_file_read(arena, path, CURRENT_BYTES_MAX, &text, reterr);
    if (status == FM_ERR_NOT_FOUND) {
        status = fm_fail(reterr, status,
                         "no cache here: there is no CURRENT; foldmill build makes "
                         "one");
        if (reterr) fm_error_in(reterr, cache);
    }
    if (status) return status;
    *ret_number = fm_generation_number_parse(text);
    if (*ret_number) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_CORRUPT, path,
                      "this does not hold a generation's number; remove it and run foldmill build "
                      "again, which takes over what is sealed");
}

uint64_t fm_generation_number_of(const char *name, const char *suffix) {
    size_t digits = strspn(name, "0123456789");
    uint64_t number = 0;
    if (digits < 8 || digits > 18 || name[digits] != '.' ||
        strcmp(name + digits + 1, suffix) != 0) {
        return 0;
    }
    for (size_t i = 0; i < digits; i++)
        number = number * 10 + (uint64_t)(name[i] - '0');
    return number;
}

/* Reads a file of the generation and checks its SHA-256, unless `hash` is NULL. */
static fm_status read_file(const char *cache, uint64_t number, const char *suffix,
                           const fm_sha256 *hash, size_t max_bytes, fm_arena *arena,
                           fm_bytes *ret_bytes, fm_error *reterr) {
    char path[PATH_MAX];
    fm_status status = fm_generation_path(cache, number, suffix, path, sizeof path, reterr);
    fm_bytes bytes;
    if (!status) status = fm_file_read(arena, path, max_bytes, &bytes, reterr);
    if (status) return status;
    fm_sha256 found = fm_sha256_of(bytes.data, bytes.size);
    if (hash && memcmp(&found, hash, sizeof found) != 0) {
        status = fm_fail(reterr, FM_ERR_CORRUPT,
                         "the file's SHA-256 is not the one that the manifest names");
        if (reterr) fm_error_in(reterr, path);
        return status;
    }
    *ret_bytes = bytes;
    return FM_OK;
}

fm_status fm_generation_read_all(const char *cache, const fm_generation *generation,
                                 fm_arena *arena, fm_bytes *ret_bytes, fm_error *reterr) {
    return read_file(cache, generation->number, "all", &generation->all_hash, INDEX_BYTES_MAX,
                     arena, ret_bytes, reterr);
}

fm_status fm_generation_read_facts(const char *cache, const fm_generation *generation,
                                   fm_arena *arena, const fm_chain_facts **ret_facts,
                                   fm_error *reterr) {
    char path[PATH_MAX];
    fm_bytes bytes;
    *ret_facts = NULL;
    if (!generation->has_facts) return FM_OK;
    fm_status status = read_file(cache, generation->number, "facts", &generation->facts_hash,
                                 INDEX_BYTES_MAX, arena, &bytes, reterr);
    if (status) return status;
    status = fm_facts_decode(bytes, generation->n_chain, arena, ret_facts, reterr);
    if (status && reterr &&
        !fm_generation_path(cache, generation->number, "facts", path, sizeof path, NULL)) {
        fm_error_in(reterr, path);
    }
    return status;
}

fm_status fm_generation_read_rows(const char *cache, const fm_generation *generation,
                                  fm_arena *arena, const fm_complex_row **ret_rows, uint32_t *ret_n,
                                  fm_error *reterr) {
    char path[PATH_MAX];
    fm_bytes bytes;
    *ret_rows = NULL;
    *ret_n = 0;
    if (!generation->n_complex) return FM_OK;
    fm_status status = read_file(cache, generation->number, "records", &generation->rows_hash,
                                 INDEX_BYTES_MAX, arena, &bytes, reterr);
    if (status) return status;
    status = fm_complex_rows_decode(bytes, generation->n_chain, arena, ret_rows, ret_n, reterr);
    for (uint32_t i = 0; i < *ret_n && !status; i++) {
        if (fm_generation_is_complex(generation, (*ret_rows)[i].item)) continue;
        status = fm_fail(reterr, FM_ERR_CORRUPT, "record %u is not of a complex", i);
    }
    if (status && reterr &&
        !fm_generation_path(cache, generation->number, "records", path, sizeof path, NULL)) {
        fm_error_in(reterr, path);
    }
    return status;
}

static fm_status read_lists(const char *cache, fm_arena *arena, fm_generation *generation,
                            fm_error *reterr) {
    fm_bytes bytes;
    fm_status status = read_file(cache, generation->number, "notes", &generation->notes_hash,
                                 INDEX_BYTES_MAX, arena, &bytes, reterr);
    if (!status) status = fm_notes_decode(bytes, arena, generation, reterr);
    if (status) return status;
    status = read_file(cache, generation->number, "refused", &generation->refused_hash,
                       INDEX_BYTES_MAX, arena, &bytes, reterr);
    return status ? status : fm_refusals_decode(bytes, arena, generation, reterr);
}

fm_status fm_generation_read(const char *cache, fm_generation_what what, fm_arena *arena,
                             fm_generation *ret_generation, fm_error *reterr) {
    uint64_t number;
    fm_status status = fm_generation_current(cache, arena, &number, reterr);
    return status ? status
                  : fm_generation_read_at(cache, number, what, arena, ret_generation, reterr);
}

fm_status fm_generation_read_at(const char *cache, uint64_t number, fm_generation_what what,
                                fm_arena *arena, fm_generation *ret_generation, fm_error *reterr) {
    char path[PATH_MAX];
    fm_bytes bytes;
    fm_generation generation;
    fm_sha256 index_hash;
    fm_status status = fm_generation_path(cache, number, "manifest", path, sizeof path, reterr);
    if (status) return status;
    status = read_file(cache, number, "manifest", NULL, MANIFEST_BYTES_MAX, arena, &bytes, reterr);
    if (!status) {
        status = fm_manifest_decode(bytes, number, arena, &generation, &index_hash, reterr);
    }
    if (!status) {
        status =
            read_file(cache, number, "index", &index_hash, INDEX_BYTES_MAX, arena, &bytes, reterr);
    }
    if (!status) status = fm_index_decode(bytes, &generation, reterr);
    if (!status && what == FM_GENERATION_ALL) {
        status = read_lists(cache, arena, &generation, reterr);
    }
    if (!status) {
        fm_sha256 content = fm_generation_digest(&generation);
        if (memcmp(&content, &generation.content, sizeof content) != 0) {
            status = fm_fail(reterr, FM_ERR_CORRUPT,
                             "the index does not have the content digest of the manifest");
        }
    }
    if (status) {
        if (reterr) fm_error_in(reterr, path);
        return status;
    }
    *ret_generation = generation;
    return FM_OK;
}

/* -- publishing */

static fm_status write_file(const char *cache, uint64_t number, const char *suffix, fm_bytes bytes,
                            fm_error *reterr) {
    char path[PATH_MAX];
    fm_status status = fm_generation_path(cache, number, suffix, path, sizeof path, reterr);
    return status ? status : fm_file_write_atomic(path, bytes.data, bytes.size, reterr);
}

/* The lists of a generation, each a file of its own. */
typedef struct list_file {
    const char *suffix;
    fm_status (*encode)(const fm_generation *generation, fm_arena *arena, fm_bytes *ret_bytes,
                        fm_error *reterr);
} list_file;

static fm_status encode_facts(const fm_generation *generation, fm_arena *arena, fm_bytes *ret_bytes,
                              fm_error *reterr) {
    return fm_facts_encode(generation->facts, generation->n_chain, arena, ret_bytes, reterr);
}

static fm_status encode_rows(const fm_generation *generation, fm_arena *arena, fm_bytes *ret_bytes,
                             fm_error *reterr) {
    return fm_complex_rows_encode(generation->rows, generation->n_row, arena, ret_bytes, reterr);
}

static const list_file INDEX = {"index", fm_index_encode}, NOTES = {"notes", fm_notes_encode},
                       REFUSED = {"refused", fm_refusals_encode}, FACTS = {"facts", encode_facts},
                       RECORDS = {"records", encode_rows};

/* Encodes a list for its hash and, with `cache`, writes it. Its bytes are in the arena only
 * meanwhile: one list after the other takes the same memory. */
static fm_status put_list(const char *cache, const fm_generation *generation, const list_file *list,
                          fm_arena *arena, fm_sha256 *ret_hash, fm_error *reterr) {
    fm_bytes bytes = {0};
    size_t mark = fm_arena_mark(arena);
    fm_status status = list->encode(generation, arena, &bytes, reterr);
    if (!status) *ret_hash = fm_sha256_of(bytes.data, bytes.size);
    if (!status && cache) {
        status = write_file(cache, generation->number, list->suffix, bytes, reterr);
    }
    fm_arena_rewind(arena, mark);
    return status;
}

/* The lists but the index, whose format depends on the number of complexes. */
static fm_status put_lists(const char *cache, fm_generation *generation, fm_arena *arena,
                           fm_error *reterr) {
    fm_status status = put_list(cache, generation, &NOTES, arena, &generation->notes_hash, reterr);
    if (!status) {
        status = put_list(cache, generation, &REFUSED, arena, &generation->refused_hash, reterr);
    }
    if (!status && generation->has_facts) {
        status = put_list(cache, generation, &FACTS, arena, &generation->facts_hash, reterr);
    }
    if (!status && generation->n_complex) {
        status = put_list(cache, generation, &RECORDS, arena, &generation->rows_hash, reterr);
    }
    return status;
}

static void count_lists(fm_generation *generation) {
    generation->has_facts = generation->facts != NULL;
    generation->n_complex = 0;
    for (uint32_t i = 0; i < generation->n_chain; i++)
        generation->n_complex += fm_generation_is_complex(generation, i);
}

fm_status fm_generation_hash_lists(fm_generation *generation, fm_arena *arena, fm_error *reterr) {
    count_lists(generation);
    generation->content = fm_generation_digest(generation);
    return put_lists(NULL, generation, arena, reterr);
}

static fm_status write_current(const char *cache, uint64_t number, fm_error *reterr) {
    char path[PATH_MAX], text[32];
    int n = snprintf(path, sizeof path, "%s/CURRENT", cache);
    if (n <= 0 || (size_t)n >= sizeof path) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the cache's path is too long");
    }
    n = snprintf(text, sizeof text, "%" PRIu64 "\n", number);
    return fm_file_write_atomic(path, text, (size_t)n, reterr);
}

/* The first build has just made the cache's folders, so their names must be on the disk before
 * CURRENT is. Errors of the folder above the cache are ignored: the user may have no right to open
 * it. */
static fm_status sync_new_folders(const char *cache, uint64_t number, fm_error *reterr) {
    char above[PATH_MAX];
    if (number != 1) return FM_OK;
    int n = snprintf(above, sizeof above, "%s/..", cache);
    bool synced = n > 0 && (size_t)n < sizeof above && !fm_dir_sync(above, NULL);
    (void)synced;
    return fm_dir_sync(cache, reterr);
}

static fm_status check_is_new(const char *cache, uint64_t number, fm_error *reterr) {
    char path[PATH_MAX];
    fm_path_kind kind;
    fm_status status = fm_generation_path(cache, number, "manifest", path, sizeof path, reterr);
    if (!status) status = fm_path_look(path, &kind, reterr);
    if (status || kind == FM_PATH_ABSENT) return status;
    return fm_fail_in(reterr, FM_ERR_EXISTS, path,
                      "this generation exists, and a build never writes over one");
}

fm_status fm_generation_publish(const char *cache, fm_generation *generation, fm_bytes snapshot,
                                fm_arena *arena, fm_error *reterr) {
    char folder[PATH_MAX];
    int n = snprintf(folder, sizeof folder, "%s/generations", cache);
    if (n <= 0 || (size_t)n >= sizeof folder) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the cache's path is too long");
    }
    fm_sha256 index_hash;
    fm_bytes manifest;
    count_lists(generation);
    generation->all_hash = fm_sha256_of(snapshot.data, snapshot.size);
    generation->content = fm_generation_digest(generation);
    uint64_t number = generation->number;
    fm_status status = fm_dir_make(folder, reterr);
    if (!status) status = check_is_new(cache, number, reterr);
    if (!status) status = put_list(cache, generation, &INDEX, arena, &index_hash, reterr);
    if (!status) status = put_lists(cache, generation, arena, reterr);
    if (!status) status = fm_manifest_encode(generation, &index_hash, arena, &manifest, reterr);
    if (!status) status = write_file(cache, number, "all", snapshot, reterr);
    if (!status) status = write_file(cache, number, "manifest", manifest, reterr);
    if (!status) status = sync_new_folders(cache, number, reterr);
    return status ? status : write_current(cache, number, reterr);
}
