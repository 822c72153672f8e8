/* catalogue_rebuild.c: see catalogue_rebuild.h. */
#include "cache/build/catalogue_rebuild.h"

#include "cache/build/item_note.h"
#include "cache/store/refusals.h"
#include "proto/base/directory.h"
#include "proto/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct found_item {
    fm_item_note note; /* in the arena */
    fm_sha256 shard;
} found_item;

typedef struct rebuilding {
    fm_catalogue *catalogue;
    fm_arena *arena;
    fm_hash_map blobs;   /* in all shards */
    fm_hash_map item_of; /* hash of the name -> position */
    found_item *item;    /* heap */
    uint32_t n_item, max_item;
    fm_catalogue_shard *shard; /* heap; caches are the caller's */
    uint32_t n_shard, max_shard;
    fm_catalogue_row *row; /* heap */
    uint32_t n_row;
    fm_sha256 at; /* the current shard */
    fm_rebuild_report report;
} rebuilding;

static fm_status no_memory(fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list");
}

/* -- shards */

static fm_status see_blob(void *context, const fm_sha256 *hash, const fm_shard_blob *blob,
                          fm_error *reterr) {
    rebuilding *self = context;
    (void)blob;
    if (fm_hash_map_find(&self->blobs, hash)) return FM_OK;
    return fm_hash_map_add(&self->blobs, hash, 0) ? FM_OK : no_memory(reterr);
}

static fm_status see_note(void *context, const fm_sha256 *key, fm_bytes value, fm_error *reterr) {
    rebuilding *self = context;
    found_item found = {.shard = self->at};
    size_t mark = fm_arena_mark(self->arena);
    bool good = !fm_item_note_decode(value, self->arena, &found.note, NULL) &&
                strcmp(found.note.job, self->catalogue->options.job) == 0;
    if (good) {
        fm_sha256 expected = fm_item_note_key(found.note.job, found.note.item, found.note.attempt);
        good = memcmp(&expected, key, sizeof expected) == 0;
    }
    if (!good) {
        fm_arena_rewind(self->arena, mark);
        return FM_OK;
    }
    fm_sha256 name = fm_sha256_of(found.note.item, strlen(found.note.item));
    const uint32_t *at = fm_hash_map_find(&self->item_of, &name);
    if (at) {
        if (self->item[*at].note.attempt < found.note.attempt) self->item[*at] = found;
        return FM_OK;
    }
    if (!fm_build_grow((void **)&self->item, self->n_item, &self->max_item, sizeof found) ||
        !fm_hash_map_add(&self->item_of, &name, self->n_item)) {
        return no_memory(reterr);
    }
    self->item[self->n_item++] = found;
    return FM_OK;
}

/* A damaged shard is ignored; its hash is checked before its entries are read. */
static fm_status read_shard(rebuilding *self, const char *cache, const char *name,
                            fm_error *reterr) {
    char path[PATH_MAX];
    const fm_shard_visitor visitor = {self, see_blob, see_note};
    fm_catalogue_shard shard = {.cache = cache};
    if (strlen(name) != FM_SHA256_HEX - 1 + strlen(".lmdb") ||
        fm_sha256_parse(name, FM_SHA256_HEX - 1, &self->at) ||
        !fm_shard_path(cache, &self->at, path, sizeof path)) {
        return FM_OK;
    }
    fm_status status = fm_shard_walk(path, &self->at, &visitor, &shard.info, reterr);
    if (status == FM_ERR_NOMEM) return status;
    if (status) {
        self->report.n_damaged++;
        return FM_OK;
    }
    if (!fm_build_grow((void **)&self->shard, self->n_shard, &self->max_shard, sizeof shard)) {
        return no_memory(reterr);
    }
    self->shard[self->n_shard++] = shard;
    return FM_OK;
}

static fm_status read_cache(rebuilding *self, const char *cache, fm_error *reterr) {
    char path[PATH_MAX];
    fm_name_list names;
    fm_status status = fm_build_path(cache, "shards", path, reterr);
    if (status) return status;
    status = fm_directory_list(path, false, FM_LIMIT_N_CHAIN, self->arena, &names, reterr);
    if (status == FM_ERR_NOT_FOUND) return FM_OK; /* a worker that sealed nothing */
    for (size_t i = 0; i < names.n && !status; i++)
        status = read_shard(self, cache, names.name[i], reterr);
    free(names.name);
    return status;
}

/* -- rows */

static bool is_whole(const rebuilding *self, const fm_item_note *note) {
    for (uint32_t i = 0; i < note->n_result; i++) {
        const fm_build_result *result = &note->result[i];
        for (int k = 0; k < FM_N_PART && !result->reason; k++) {
            if (result->has[k] && !fm_hash_map_find(&self->blobs, &result->part[k])) return false;
        }
        for (uint32_t k = 0; k < result->n_named; k++) {
            if (!fm_hash_map_find(&self->blobs, &result->named[k])) return false;
        }
    }
    return true;
}

static void add_done(rebuilding *self) {
    for (uint32_t i = 0; i < self->n_item; i++) {
        const found_item *found = &self->item[i];
        if (!is_whole(self, &found->note)) {
            self->report.n_incomplete++;
            continue;
        }
        self->row[self->n_row++] = (fm_catalogue_row){.name = found->note.item,
                                                      .source = found->note.source,
                                                      .state = FM_CATALOGUE_DONE,
                                                      .attempt = found->note.attempt,
                                                      .n_chain = found->note.n_result,
                                                      .has_shard = true,
                                                      .shard = found->shard};
        self->report.n_done++;
    }
}

/* Adds refused chains that no shard has as done. */
static fm_status add_refused(rebuilding *self, const char *cache, fm_error *reterr) {
    fm_refusals refusals;
    fm_status status = fm_refusals_read(cache, self->arena, &refusals, reterr);
    if (status == FM_ERR_NOT_FOUND) return FM_OK; /* a worker's cache has no generation */
    if (status) return status;
    fm_catalogue_row *grown =
        realloc(self->row, (self->n_row + refusals.n + (size_t)1) * sizeof *grown);
    if (!grown) return no_memory(reterr);
    self->row = grown;
    for (uint32_t i = 0; i < refusals.n; i++) {
        const fm_refusal *refusal = &refusals.refusal[i];
        fm_sha256 name = fm_sha256_of(refusal->chain, strlen(refusal->chain));
        if (fm_hash_map_find(&self->item_of, &name)) continue;
        self->row[self->n_row++] = (fm_catalogue_row){
            .name = refusal->chain, .state = FM_CATALOGUE_REFUSED, .reason = refusal->reason};
        self->report.n_refused++;
    }
    return FM_OK;
}

static fm_status put_down(rebuilding *self, fm_error *reterr) {
    const fm_sha256 *options = &self->item[0].note.options;
    for (uint32_t i = 1; i < self->n_item; i++) {
        if (memcmp(&self->item[i].note.options, options, sizeof *options) != 0) {
            return fm_fail_in(reterr, FM_ERR_DATA, self->item[i].note.item,
                              "the shards hold job '%s' with two sets of options; give the caches "
                              "of one of them",
                              self->catalogue->options.job);
        }
    }
    /* The job first, then the shards, because items refer to them. */
    fm_status status = fm_catalogue_restore(self->catalogue, options, NULL, 0, reterr);
    for (uint32_t i = 0; i < self->n_shard && !status; i++)
        status = fm_catalogue_add_shard(self->catalogue, &self->shard[i], reterr);
    if (status) return status;
    return fm_catalogue_restore(self->catalogue, options, self->row, self->n_row, reterr);
}

fm_status fm_catalogue_rebuild(fm_catalogue *catalogue, const char *const *caches, uint32_t n_cache,
                               fm_arena *arena, fm_rebuild_report *ret_report, fm_error *reterr) {
    rebuilding self = {.catalogue = catalogue, .arena = arena};
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < n_cache && !status; i++)
        status = read_cache(&self, caches[i], reterr);
    if (!status && self.n_item == 0) {
        status = fm_fail(reterr, FM_ERR_NOT_FOUND, "no shard has an item of job '%s'",
                         catalogue->options.job);
    }
    if (!status) {
        self.row = calloc(self.n_item + (size_t)1, sizeof *self.row);
        status = self.row ? FM_OK : no_memory(reterr);
    }
    if (!status) add_done(&self);
    for (uint32_t i = 0; i < n_cache && !status; i++)
        status = add_refused(&self, caches[i], reterr);
    if (!status) status = put_down(&self, reterr);
    self.report.n_shard = self.n_shard;
    if (!status) *ret_report = self.report;
    fm_hash_map_fini(&self.blobs);
    fm_hash_map_fini(&self.item_of);
    free(self.item);
    free(self.shard);
    free(self.row);
    return status;
}
