/* gc.c: a mark phase and a sweep phase; see gc.h.
 *
 *     mark    list the manifests, choose the generations to keep, and collect the hashes of all
 *             shards that the kept manifests name, sorted
 *     sweep   remove the manifests of the others, sync; their other files, sync; the shards whose
 *             hash is not in the list, sync
 *
 * The mark phase reads everything it needs before the first file is removed, and any error ends it:
 * a manifest that cannot be read could name shards that would be removed. A list that lacks the
 * generation in force, or a pinned one, is not complete, and ends it, too. The sweep removes a
 * manifest before its shards, and syncs in between. A crash can therefore leave shards that nothing
 * names, which the next run removes, but never a manifest without its shards. */
#include "cache/snapshot/gc.h"

#include "cache/store/generation_files.h"
#include "cache/store/generation_use.h"
#include "cache/store/lock.h"
#include "cache/snapshot/pins.h"
#include "proto/base/directory.h"
#include "proto/limits.h"
#include "proto/base/file.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MANIFEST_BYTES_MAX ((size_t)64 << 20)

typedef struct collecting {
    const char *cache;
    const fm_gc_options *options;
    fm_arena *arena;
    fm_error *reterr;
    fm_gc_report report;
    uint64_t *number; /* [n_number] existing generations, ascending */
    bool *keep;       /* [n_number] */
    uint32_t n_number;
    uint64_t current; /* number of the generation in force */
    fm_sha256 *shard; /* [n_shard] that kept manifests name, sorted once complete */
    size_t n_shard, max_shard;
} collecting;

/* -- mark: generations */

/* "00000012.manifest" -> 12; 0 for other names. */
static uint64_t number_of(const char *name, const char **ret_suffix) {
    const char *dot = strchr(name, '.');
    if (!dot) return 0;
    *ret_suffix = dot + 1;
    return fm_generation_number_of(name, dot + 1);
}

static int compare_numbers(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static fm_status list_generations(collecting *gc, fm_name_list *list) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/generations", gc->cache);
    fm_status status =
        fm_directory_list(path, false, FM_LIMIT_N_CHAIN, gc->arena, list, gc->reterr);
    if (status) return status;
    gc->number = fm_arena_alloc_array(gc->arena, list->n, sizeof *gc->number);
    gc->keep = fm_arena_calloc(gc->arena, list->n, sizeof *gc->keep);
    if (!gc->number || !gc->keep) return fm_arena_full(gc->arena, gc->reterr);
    for (size_t i = 0; i < list->n; i++) {
        const char *suffix;
        uint64_t number = number_of(list->name[i], &suffix);
        if (number && strcmp(suffix, "manifest") == 0) gc->number[gc->n_number++] = number;
    }
    if (gc->n_number) qsort(gc->number, gc->n_number, sizeof *gc->number, compare_numbers);
    return FM_OK;
}

static bool keep_number(collecting *gc, uint64_t number) {
    uint64_t *found = gc->n_number ? bsearch(&number, gc->number, gc->n_number, sizeof *gc->number,
                                             compare_numbers)
                                   : NULL;
    if (found) gc->keep[found - gc->number] = true;
    return found != NULL;
}

/* Keeps the generations that running servers read. */
static fm_status keep_held(collecting *gc) {
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < gc->n_number && !status; i++) {
        if (gc->keep[i]) continue;
        status = fm_generation_is_held(gc->cache, gc->number[i], &gc->keep[i], gc->reterr);
        gc->report.n_generation_held += gc->keep[i];
    }
    return status;
}

static fm_status choose(collecting *gc) {
    fm_generation current;
    fm_status status =
        fm_generation_read(gc->cache, FM_GENERATION_SERVE, gc->arena, &current, gc->reterr);
    if (status) return status;
    gc->current = current.number;
    uint32_t n_pin, left = gc->options->keep_newest;
    const fm_pin *pin;
    status = fm_pins_read(gc->cache, gc->arena, &n_pin, &pin, gc->reterr);
    if (status) return status;
    if (!keep_number(gc, current.number)) {
        return fm_fail(gc->reterr, FM_ERR_CORRUPT,
                       "CURRENT names generation %" PRIu64
                       ", whose manifest is not in the list of generations/; nothing is removed",
                       current.number);
    }
    for (uint32_t i = 0; i < n_pin; i++) {
        if (keep_number(gc, pin[i].generation)) continue;
        return fm_fail(gc->reterr, FM_ERR_CORRUPT,
                       "snapshot %s is pinned to generation %" PRIu64
                       ", which is not there; nothing is removed (foldmill snapshot unpin %s)",
                       pin[i].name, pin[i].generation, pin[i].name);
    }
    for (uint32_t i = gc->n_number; i > 0 && left > 0; i--) {
        if (gc->keep[i - 1]) continue;
        gc->keep[i - 1] = true;
        left--;
    }
    return keep_held(gc);
}

/* -- mark: shards */

static fm_status name_shards(collecting *gc, uint64_t number) {
    char path[PATH_MAX];
    fm_bytes text;
    fm_generation generation;
    fm_sha256 index_hash;
    fm_status status =
        fm_generation_path(gc->cache, number, "manifest", path, sizeof path, gc->reterr);
    if (!status) status = fm_file_read(gc->arena, path, MANIFEST_BYTES_MAX, &text, gc->reterr);
    if (!status) {
        status = fm_manifest_decode(text, number, gc->arena, &generation, &index_hash, gc->reterr);
        if (status) fm_error_in(gc->reterr, path);
    }
    for (uint32_t i = 0; !status && i < generation.n_shard; i++) {
        if (gc->n_shard == gc->max_shard) {
            size_t max = gc->max_shard ? 2 * gc->max_shard : 256;
            fm_sha256 *grown = realloc(gc->shard, max * sizeof *grown);
            if (!grown) return fm_fail(gc->reterr, FM_ERR_NOMEM, "no memory for a list of shards");
            gc->shard = grown;
            gc->max_shard = max;
        }
        gc->shard[gc->n_shard++] = generation.shard[i].hash;
    }
    return status;
}

static int compare_hashes(const void *a, const void *b) {
    return memcmp(a, b, sizeof(fm_sha256));
}

static fm_status name_all_shards(collecting *gc) {
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < gc->n_number && !status; i++) {
        if (gc->keep[i]) status = name_shards(gc, gc->number[i]);
        gc->report.n_generation_kept += gc->keep[i];
        gc->report.n_generation_removed += !gc->keep[i];
    }
    if (!status && gc->n_shard) qsort(gc->shard, gc->n_shard, sizeof *gc->shard, compare_hashes);
    return status;
}

/* -- sweep */

static fm_status remove_file(collecting *gc, const char *folder, const char *name) {
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s/%s", gc->cache, folder, name);
    if (n <= 0 || n >= PATH_MAX) {
        return fm_fail(gc->reterr, FM_ERR_LIMIT, "the cache's path is too long");
    }
    if (gc->options->dry_run || unlink(path) == 0 || errno == ENOENT) return FM_OK;
    fm_fail(gc->reterr, FM_ERR_IO, "cannot remove: %s", strerror(errno));
    return fm_error_in(gc->reterr, path);
}

static fm_status sync_folder(collecting *gc, const char *folder) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", gc->cache, folder);
    return gc->options->dry_run ? FM_OK : fm_dir_sync(path, gc->reterr);
}

/* Removes the files of generations that exist and are not kept: manifests in the first pass, the
 * others in the second. Files without a manifest are those of a gc that was cut short, and are
 * removed; above the generation in force, they are of a killed build, and left to the next one. */
static fm_status remove_generations(collecting *gc, const fm_name_list *list, bool manifests) {
    fm_status status = FM_OK;
    for (size_t i = 0; i < list->n && !status; i++) {
        const char *suffix;
        uint64_t number = number_of(list->name[i], &suffix);
        if (!number || (strcmp(suffix, "manifest") == 0) != manifests) continue;
        const uint64_t *found =
            bsearch(&number, gc->number, gc->n_number, sizeof number, compare_numbers);
        if (found ? gc->keep[found - gc->number] : number > gc->current) continue;
        status = remove_file(gc, "generations", list->name[i]);
    }
    return status ? status : sync_folder(gc, "generations");
}

static fm_status remove_shards(collecting *gc) {
    char path[PATH_MAX];
    fm_name_list list;
    snprintf(path, sizeof path, "%s/shards", gc->cache);
    fm_status status =
        fm_directory_list(path, false, FM_LIMIT_N_CHAIN, gc->arena, &list, gc->reterr);
    if (status == FM_ERR_NOT_FOUND) return FM_OK;
    for (size_t i = 0; i < list.n && !status; i++) {
        fm_sha256 hash;
        fm_path_kind kind;
        uint64_t bytes;
        const char *name = list.name[i];
        if (strlen(name) != FM_SHA256_HEX - 1 + strlen(".lmdb") ||
            strcmp(name + FM_SHA256_HEX - 1, ".lmdb") != 0 ||
            fm_sha256_parse(name, FM_SHA256_HEX - 1, &hash)) {
            continue;
        }
        fm_shard_path(gc->cache, &hash, path, sizeof path);
        status = fm_path_size(path, &kind, &bytes, gc->reterr);
        if (status) break;
        bool named =
            gc->n_shard && bsearch(&hash, gc->shard, gc->n_shard, sizeof hash, compare_hashes);
        *(named ? &gc->report.n_shard_kept : &gc->report.n_shard_removed) += 1;
        *(named ? &gc->report.kept_bytes : &gc->report.removed_bytes) += bytes;
        if (!named) status = remove_file(gc, "shards", name);
    }
    free(list.name);
    return status ? status : sync_folder(gc, "shards");
}

/* Files are removed from the cache's own folders only. Its shards may lie on another medium, behind
 * a link, and another cache may lie there, too. */
static fm_status refuse_links(collecting *gc) {
    static const char *const folders[] = {"generations", "shards"};
    fm_status status = FM_OK;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0] && !status; i++) {
        char path[PATH_MAX];
        bool is_link = false;
        snprintf(path, sizeof path, "%s/%s", gc->cache, folders[i]);
        status = fm_path_is_link(path, &is_link, gc->reterr);
        if (!is_link) continue;
        status = fm_fail_in(gc->reterr, FM_ERR_IO, path,
                            "is a symbolic link, behind which another cache may have files; "
                            "nothing is removed");
    }
    return status;
}

static fm_status collect(collecting *gc) {
    fm_name_list list = {0};
    fm_status status = refuse_links(gc);
    if (!status) status = list_generations(gc, &list);
    if (!status) status = choose(gc);
    if (!status) status = name_all_shards(gc);
    if (!status) status = remove_generations(gc, &list, true);
    if (!status) status = remove_generations(gc, &list, false);
    if (!status) status = remove_shards(gc);
    free(list.name);
    free(gc->shard);
    return status;
}

fm_status fm_gc_run(const char *cache, const fm_gc_options *options, fm_arena *arena,
                    fm_gc_report *ret_report, fm_error *reterr) {
    fm_error local;
    collecting gc = {
        .cache = cache, .options = options, .arena = arena, .reterr = reterr ? reterr : &local};
    char path[PATH_MAX];
    fm_cache_lock lock;
    snprintf(path, sizeof path, "%s/CURRENT", cache);
    fm_path_kind kind;
    fm_status status = fm_path_look(path, &kind, gc.reterr);
    if (status) return status;
    if (kind == FM_PATH_ABSENT) {
        fm_fail(gc.reterr, FM_ERR_NOT_FOUND, "no cache here: there is no CURRENT");
        return fm_error_in(gc.reterr, cache);
    }
    status = fm_cache_lock_alone(cache, &lock, gc.reterr);
    if (status) return status;
    gc.cache = fm_held_folder_path(&lock.cache);
    status = collect(&gc);
    fm_cache_unlock(&lock, status);
    if (!status) *ret_report = gc.report;
    return status;
}
