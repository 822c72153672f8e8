/* merge.c: see merge.h. */
#include "cache/build/merge.h"

#include "cache/build/build_state.h"
#include "cache/build/item_note.h"
#include "cache/store/lock.h"
#include "cache/store/shard_copy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An item of the catalogue: done, refused with its reason, or left. */
typedef struct merge_item {
    char *name;
    char *reason; /* in the arena; NULL = not refused */
    bool is_left; /* not done */
    uint32_t attempt;
    fm_sha256 shard;
} merge_item;

typedef struct merge_shard {
    fm_shard_info info;
    char *cache;
} merge_shard;

typedef struct merging {
    const fm_merge_options *options;
    fm_catalogue *catalogue;
    fm_arena *arena;
    fm_build_state state;
    merge_item *item; /* heap */
    uint32_t n_item, max_item;
    merge_shard *shard; /* heap */
    uint32_t n_shard, max_shard;
    fm_merge_report report;
} merging;

/* -- the catalogue */

static fm_status keep_text(fm_arena *arena, const char *text, char **ret_copy, fm_error *reterr) {
    size_t size = strlen(text) + 1;
    char *copy = fm_arena_alloc(arena, size);
    if (!copy) return fm_arena_full(arena, reterr);
    memcpy(copy, text, size);
    *ret_copy = copy;
    return FM_OK;
}

static fm_status no_memory(fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list");
}

static fm_status take_row(void *context, const fm_catalogue_row *row, fm_error *reterr) {
    merging *self = context;
    merge_item item = {.attempt = row->attempt, .shard = row->shard};
    item.is_left = row->state == FM_CATALOGUE_PENDING || row->state == FM_CATALOGUE_LEASED;
    self->report.n_left += item.is_left;
    if (!fm_build_grow((void **)&self->item, self->n_item, &self->max_item, sizeof item)) {
        return no_memory(reterr);
    }
    fm_status status = keep_text(self->arena, row->name, &item.name, reterr);
    if (!status && row->state == FM_CATALOGUE_REFUSED) {
        status = keep_text(self->arena, row->reason, &item.reason, reterr);
    }
    if (!status) self->item[self->n_item++] = item;
    return status;
}

static fm_status take_shard_row(void *context, const fm_catalogue_shard *shard, fm_error *reterr) {
    merging *self = context;
    merge_shard copy = {.info = shard->info};
    if (!fm_build_grow((void **)&self->shard, self->n_shard, &self->max_shard, sizeof copy)) {
        return no_memory(reterr);
    }
    fm_status status = keep_text(self->arena, shard->cache, &copy.cache, reterr);
    if (!status) self->shard[self->n_shard++] = copy;
    return status;
}

static fm_status read_catalogue(merging *self, fm_error *reterr) {
    const fm_merge_options *options = self->options;
    const fm_catalogue_options opened = {.job = options->job, .is_there = true};
    fm_status status = fm_catalogue_open(options->where, &opened, &self->catalogue, reterr);
    if (!status) status = fm_catalogue_each_row(self->catalogue, ~0u, take_row, self, reterr);
    if (!status) status = fm_catalogue_each_shard(self->catalogue, take_shard_row, self, reterr);
    if (status) return status;
    const char *job = self->catalogue->options.job;
    if (self->n_item == 0) {
        return fm_fail_in(reterr, FM_ERR_NOT_FOUND, self->catalogue->where,
                          "there is nothing in job '%s'", job);
    }
    if (self->report.n_left && !options->partial) {
        return fm_fail_in(reterr, FM_ERR_EXISTS, self->catalogue->where,
                          "job '%s' has %u items that are not done (foldmill catalogue status); "
                          "--partial merges without them",
                          job, self->report.n_left);
    }
    return FM_OK;
}

/* -- shards */

static fm_status bring_shard(merging *self, const merge_shard *shard, fm_error *reterr) {
    const fm_merge_options *options = self->options;
    fm_merge_report *report = &self->report;
    fm_shard_came came = FM_SHARD_WAS_THERE;
    fm_status status = FM_ERR_NOT_FOUND;
    for (uint32_t i = 0; i <= options->n_from && status == FM_ERR_NOT_FOUND; i++) {
        const char *from = i < options->n_from ? options->from[i] : shard->cache;
        status = fm_shard_bring(from, options->cache, &shard->info.hash, shard->info.bytes, NULL,
                                &came, reterr);
    }
    if (status == FM_ERR_NOT_FOUND) {
        char hex[FM_SHA256_HEX];
        fm_sha256_format(&shard->info.hash, hex);
        return fm_fail_in(reterr, FM_ERR_NOT_FOUND, shard->cache,
                          "shard %.16s... is neither there nor in a cache of --from; if it is "
                          "lost, foldmill catalogue rebuild gives its chains out again",
                          hex);
    }
    report->n_linked += came == FM_SHARD_LINKED;
    report->n_copied += came == FM_SHARD_COPIED;
    if (came == FM_SHARD_COPIED) report->copied_bytes += shard->info.bytes;
    return status;
}

/* Copies and reads all shards of the job, because only their notes tell which items they contain.
 * Each is hashed first. */
static fm_status take_shards(merging *self, fm_error *reterr) {
    const fm_merge_options *options = self->options;
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < self->n_shard && !status; i++) {
        if (options->progress) options->progress(options->progress_context, i, self->n_shard);
        status = bring_shard(self, &self->shard[i], reterr);
        if (!status) status = fm_build_take_shard(&self->state, &self->shard[i].info.hash, reterr);
        self->report.shard_bytes += self->shard[i].info.bytes;
    }
    self->report.n_shard = self->n_shard;
    if (!status && self->state.failed) {
        *reterr = self->state.error;
        status = self->state.failed;
    }
    return status;
}

/* -- items */

static bool knows(const fm_build_state *state, const fm_sha256 *hash) {
    return fm_build_find_blob(state, hash) != NULL;
}

static bool knows_all(const fm_build_state *state, const fm_build_result *result) {
    for (int k = 0; k < FM_N_PART; k++) {
        if (result->has[k] && !knows(state, &result->part[k])) return false;
    }
    for (uint32_t i = 0; i < result->n_named; i++) {
        if (!knows(state, &result->named[i])) return false;
    }
    return true;
}

/* Puts the notes of the chain's parts into the generation, so that a build over the merged cache
 * makes nothing again. */
static void use_notes(fm_build_state *state, const fm_build_result *result) {
    for (int k = 0; k < FM_N_PART; k++) {
        fm_build_note *note =
            result->has_key[k] ? fm_build_find_note(state, &result->key[k]) : NULL;
        if (note) note->used = true;
    }
    for (uint32_t i = 0; i < result->n_entity_key; i++) {
        fm_build_note *note = fm_build_find_note(state, &result->entity_key[i]);
        if (note) note->used = true;
    }
}

static fm_status add_result(merging *self, const char *item, const fm_build_result *found,
                            fm_error *reterr) {
    fm_build_result result = *found;
    /* The state frees its own copies. */
    result.named = result.entity_key = NULL;
    result.summary = (fm_bytes){0};
    if (found->reason) {
        /* The reason must be one line. */
        for (char *at = result.reason; *at; at++) {
            if ((unsigned char)*at < ' ') *at = '?';
        }
        fm_build_add_result(&self->state, found->name, &result, NULL);
        return FM_OK;
    }
    if (!knows_all(&self->state, found)) {
        return fm_fail_in(reterr, FM_ERR_CORRUPT, item,
                          "a part of chain %s lies in no shard of the job", found->name);
    }
    if (found->n_named) {
        size_t bytes = found->n_named * sizeof *found->named;
        result.named = malloc(bytes);
        if (!result.named) return no_memory(reterr);
        memcpy(result.named, found->named, bytes);
    }
    use_notes(&self->state, found);
    fm_build_add_result(&self->state, found->name, &result, NULL);
    return FM_OK;
}

static fm_status add_refused(merging *self, const merge_item *item, fm_error *reterr) {
    char name[FM_LIMIT_NAME_BYTES + 1];
    (void)reterr;
    snprintf(name, sizeof name, "%s", item->name);
    size_t n = strlen(name);
    if (n > 1 && name[n - 1] == '/') name[n - 1] = '\0';
    const fm_build_result refused = {.name = name, .reason = item->reason, .status = FM_ERR_DATA};
    return add_result(self, item->name, &refused, reterr);
}

static fm_status add_item(merging *self, const merge_item *item, fm_error *reterr) {
    fm_build_state *state = &self->state;
    if (item->is_left) return FM_OK;
    if (item->reason) return add_refused(self, item, reterr);
    const char *job = self->catalogue->options.job;
    fm_sha256 key = fm_item_note_key(job, item->name, item->attempt);
    const fm_build_note *found = fm_build_find_note(state, &key);
    fm_item_note note;
    size_t mark = fm_arena_mark(self->arena);
    bool good = found != NULL;
    if (good) {
        good = !fm_item_note_decode((fm_bytes){found->value, found->value_bytes}, self->arena,
                                    &note, NULL) &&
               strcmp(note.job, job) == 0 && strcmp(note.item, item->name) == 0 &&
               note.attempt == item->attempt;
    }
    if (!good) {
        return fm_fail_in(reterr, FM_ERR_CORRUPT, item->name,
                          "the job's shards have no note of attempt %u; foldmill catalogue rebuild "
                          "gives the item out again",
                          item->attempt);
    }
    fm_status status = FM_OK;
    bool has_complex = false;
    for (uint32_t i = 0; i < note.n_result && !status; i++) {
        has_complex |= note.result[i].is_complex;
        status = add_result(self, item->name, &note.result[i], reterr);
    }
    if (!has_complex) fm_arena_rewind(self->arena, mark); /* their facts and rows are borrowed */
    return status;
}

/* -- the generation */

/* Describes the job as the source of a build. *ret_singles: it has items that are whole structures,
 * whose chains only the notes name. */
static fm_status describe_job(const merging *self, fm_source *ret_source, bool *ret_singles,
                              fm_error *reterr) {
    const char **names = fm_arena_alloc_array(self->arena, self->n_item, sizeof *names);
    if (!names) return fm_arena_full(self->arena, reterr);
    for (uint32_t i = 0; i < self->n_item; i++) {
        names[i] = self->item[i].name;
        *ret_singles |= names[i][strlen(names[i]) - 1] == '/';
    }
    return fm_source_of_items(names, self->n_item, self->arena, ret_source, reterr);
}

static fm_status publish(merging *self, const fm_build_others *others, const fm_generation *base,
                         fm_error *reterr) {
    fm_build_state *state = &self->state;
    fm_build_report *report = &self->report.build;
    fm_generation generation = {0};
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < self->n_item && !status; i++)
        status = add_item(self, &self->item[i], reterr);
    if (!status) status = fm_build_take_generation(state, base, self->arena, reterr);
    if (!status) status = fm_build_keep_others(state, others, base, self->arena, reterr);
    if (!status) {
        status =
            fm_build_publish(state, base, self->arena, &generation, &report->published, reterr);
    }
    if (!status) status = fm_build_report_results(state, self->arena, report, reterr);
    if (status) return status;
    fm_build_report_generation(&generation, report);
    fm_build_count_change(base, &generation, report);
    report->seconds = fm_build_seconds(state);
    return FM_OK;
}

/* Decides about the chains that the cache has already, then takes the shards and publishes. */
static fm_status merge_items(merging *self, fm_error *reterr) {
    const fm_merge_options *options = self->options;
    fm_build_options build = {.cache = options->cache, .n_job = 1, .others = options->others};
    fm_source source;
    fm_generation base = {0};
    fm_build_others others;
    fm_status status = describe_job(self, &source, &build.single_sequence, reterr);
    if (status) return status;
    status = fm_generation_read(options->cache, FM_GENERATION_ALL, self->arena, &base, reterr);
    if (status && status != FM_ERR_NOT_FOUND) return status;
    status = fm_build_check_others(&source, &build, &base, self->arena, &others, reterr);
    if (status) return status;
    fm_build_state_init(&self->state, &source, &build);
    status = take_shards(self, reterr);
    if (!status) status = publish(self, &others, &base, reterr);
    fm_build_state_fini(&self->state);
    return status;
}

static fm_status run_locked(const fm_merge_options *options, fm_arena *arena,
                            fm_merge_report *ret_report, fm_error *reterr) {
    merging self = {.options = options, .arena = arena};
    fm_status status = read_catalogue(&self, reterr);
    if (!status) status = merge_items(&self, reterr);
    if (!status) *ret_report = self.report;
    fm_catalogue_close(self.catalogue);
    free(self.item);
    free(self.shard);
    return status;
}

fm_status fm_merge_run(const fm_merge_options *options, fm_arena *arena,
                       fm_merge_report *ret_report, fm_error *reterr) {
    fm_merge_options own = *options;
    fm_cache_lock lock;
    fm_error error;
    fm_status status = fm_cache_lock_alone(options->cache, &lock, &error);
    if (!status) {
        own.cache = fm_held_folder_path(&lock.cache);
        status = run_locked(&own, arena, ret_report, &error);
        fm_cache_unlock(&lock, status);
    }
    if (status && reterr) *reterr = error;
    return status;
}
