/* build_others.c: keeps what a cache holds beside the dataset of a build. See build_state.h and
 * docs/reference/store.md, "Several datasets in one cache".
 *
 * A build makes a whole new generation, so a chain that no result names would be gone. Which
 * chains stay depends on the dataset that they came from: a generation records the name and the
 * path of each in a note of its own. The decision (fm_build_check_others) falls before any work
 * is done, and the chains join the results after it (fm_build_keep_others). Their notes come with
 * them, so that a later build of their own dataset makes nothing again. */
#include "cache/build/build_state.h"

#include "cache/source/names.h"
#include "cache/store/store.h"
#include "proto/base/plural.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char TITLE[] = "foldmill sources 1\n";

/* -- names */

/* Length of the dataset's name in front of a chain's, without the colon; 0 = none. */
static size_t dataset_length(const char *chain) {
    const char *bare = fm_name_in_dataset(chain);
    return bare == chain ? 0 : (size_t)(bare - chain) - 1;
}

static bool is_of(const char *chain, const char *dataset) {
    size_t length = dataset_length(chain);
    return strlen(dataset) == length && memcmp(chain, dataset, length) == 0;
}

/* True when the source has a dataset of the chain's name. */
static bool has_dataset(const fm_source *source, const char *chain) {
    for (uint32_t i = 0; i < source->n_dataset; i++) {
        if (is_of(chain, source->dataset[i].name)) return true;
    }
    return false;
}

static bool is_unnamed(const fm_source *source) {
    return source->n_dataset && !source->dataset[0].name[0];
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* -- the record of datasets: "NAME<tab>PATH" lines in a note */

static fm_sha256 record_key(void) {
    return fm_sha256_of(TITLE, sizeof TITLE - 1);
}

/* The lines of the base's record, borrowed; NULL when an older foldmill made the base. */
static const char *find_record(const fm_generation *base, const char **ret_end) {
    fm_sha256 key = record_key();
    for (uint32_t i = 0; i < base->n_note; i++) {
        const fm_note_entry *note = &base->note[i];
        if (memcmp(&note->key, &key, sizeof key) != 0) continue;
        const char *text = (const char *)note->value.data;
        if (note->value.size < sizeof TITLE - 1 || memcmp(text, TITLE, sizeof TITLE - 1) != 0) {
            return NULL;
        }
        *ret_end = text + note->value.size;
        return text + sizeof TITLE - 1;
    }
    return NULL;
}

/* A line of the record; false at its end. */
typedef struct record_line {
    const char *name, *path;
    size_t name_bytes, path_bytes;
} record_line;

static bool next_line(const char **at, const char *end, record_line *ret_line) {
    const char *stop = *at < end ? memchr(*at, '\n', (size_t)(end - *at)) : NULL;
    const char *tab = stop ? memchr(*at, '\t', (size_t)(stop - *at)) : NULL;
    if (!tab) return false;
    *ret_line = (record_line){*at, tab + 1, (size_t)(tab - *at), (size_t)(stop - tab) - 1};
    *at = stop + 1;
    return true;
}

static bool is_text(const char *text, size_t bytes, const char *word) {
    return strlen(word) == bytes && memcmp(text, word, bytes) == 0;
}

/* -- the decision */

/* How many chains the cache has of a dataset's name, and how many of them the source has. */
typedef struct overlap {
    uint32_t n_cached, n_common;
    uint32_t n_path; /* recorded paths of that name */
    bool same_path;
} overlap;

/* The names of the source's chains, sorted. */
static fm_status list_chains(const fm_source *source, fm_arena *arena, const char ***ret_names,
                             uint32_t *ret_n, fm_error *reterr) {
    const char **names = fm_arena_alloc_array(arena, (size_t)source->n_chain + 1, sizeof *names);
    uint32_t n = 0;
    if (!names) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < source->n_structure; i++) {
        const fm_source_structure *structure = &source->structure[i];
        for (uint32_t k = 0; k < structure->n_chain && n < source->n_chain; k++)
            names[n++] = structure->chain[k].name;
    }
    if (n) qsort(names, n, sizeof *names, compare_names);
    *ret_names = names;
    *ret_n = n;
    return FM_OK;
}

static overlap measure(const fm_source *source, const char *dataset, const char *path,
                       bool single_sequence, const char *const *names, uint32_t n_name,
                       const fm_generation *base) {
    overlap found = {0};
    for (uint32_t i = 0; i < base->n_chain; i++) {
        const char *chain = base->names + base->chain[i].name_at;
        if (!is_of(chain, dataset)) continue;
        found.n_cached++;
        bool common = n_name && bsearch(&chain, names, n_name, sizeof *names, compare_names);
        /* A single sequence is known only once its structure is read, which stands for it, and for
         * its complex. */
        bool is_of_structure = single_sequence || fm_generation_is_complex(base, i);
        found.n_common += common || (is_of_structure && fm_source_has_structure(source, chain));
    }
    const char *end = NULL, *at = find_record(base, &end);
    record_line line;
    while (at && next_line(&at, end, &line)) {
        if (!is_text(line.name, line.name_bytes, dataset)) continue;
        found.n_path++;
        found.same_path |= path && is_text(line.path, line.path_bytes, path);
    }
    return found;
}

/* The first recorded path of a dataset's name, for messages. */
static void name_recorded(const fm_generation *base, const char *dataset, char out[256]) {
    const char *end = NULL, *at = find_record(base, &end);
    record_line line;
    snprintf(out, 256, "another dataset");
    while (at && next_line(&at, end, &line)) {
        if (!is_text(line.name, line.name_bytes, dataset)) continue;
        snprintf(out, 256, "%.*s", (int)line.path_bytes, line.path);
        return;
    }
}

static fm_status refuse(const fm_source_dataset *dataset, const overlap *found,
                        const fm_generation *base, fm_error *reterr) {
    char recorded[256];
    uint32_t n = dataset->name[0] ? found->n_cached : base->n_chain;
    name_recorded(base, dataset->name, recorded);
    return fm_fail(
        reterr, FM_ERR_EXISTS,
        "the cache has %u chain%s of %.160s, and %u of them %s not in %.160s; --add keeps "
        "them beside the new ones, --replace leaves them out, and nothing is done without "
        "one of the two",
        n, fm_plural(n), recorded, n - found->n_common, n - found->n_common == 1 ? "is" : "are",
        dataset->path ? dataset->path : "this job");
}

fm_status fm_build_check_others(const fm_source *source, const fm_build_options *options,
                                const fm_generation *base, fm_arena *arena,
                                fm_build_others *ret_others, fm_error *reterr) {
    const char **names;
    uint32_t n_name;
    *ret_others = (fm_build_others){.keep_named = options->others != FM_BUILD_OTHERS_REPLACE ||
                                                  !is_unnamed(source)};
    if (!base->number || !base->n_chain) return FM_OK;
    fm_status status = list_chains(source, arena, &names, &n_name, reterr);
    for (uint32_t i = 0; i < source->n_dataset && !status; i++) {
        const fm_source_dataset *dataset = &source->dataset[i];
        const overlap found = measure(source, dataset->name, dataset->path,
                                      options->single_sequence, names, n_name, base);
        bool is_whole = found.n_common == found.n_cached && (found.n_cached || dataset->name[0]);
        /* The uniclust30/ of an unnamed dataset. */
        is_whole |= i > 0 && is_unnamed(source) && !found.n_cached;
        bool is_same = is_whole || (found.same_path && found.n_common);
        bool is_near = found.n_common && 2 * (uint64_t)found.n_common >= found.n_cached;
        bool has_paths = found.n_path && dataset->path;
        bool is_inferred = !has_paths && found.n_common && (is_same || is_near);
        if (!is_same && !is_inferred && options->others == FM_BUILD_OTHERS_CHECK) {
            status = refuse(dataset, &found, base, reterr);
        }
        ret_others->is_inferred |= is_inferred && options->others == FM_BUILD_OTHERS_CHECK;
        /* Chains of two datasets without a name cannot be told apart: none is left out. */
        bool is_mixed = found.n_path > 1 && options->others == FM_BUILD_OTHERS_CHECK;
        ret_others->keep_all |= is_mixed || options->others == FM_BUILD_OTHERS_ADD;
    }
    return status;
}

fm_status fm_build_check_queries(const char *cache, fm_arena *arena, fm_error *reterr) {
    fm_generation base = {0};
    const fm_chain_facts *facts = NULL;
    const char *end = NULL;
    record_line line;
    /* A folder without a readable cache is left to the build. */
    if (fm_generation_read(cache, FM_GENERATION_ALL, arena, &base, NULL)) return FM_OK;
    fm_status status = fm_generation_read_facts(cache, &base, arena, &facts, reterr);
    if (status) return status;
    const char *at = find_record(&base, &end);
    bool is_built = at && next_line(&at, end, &line);
    /* A merged cache has no record. Chains without a structure count as predicted ones. */
    for (uint32_t i = 0; i < base.n_chain && facts && !is_built; i++)
        is_built = facts[i].flags & FM_FACTS_KNOWN && !(facts[i].flags & FM_FACTS_PREDICTED);
    if (!is_built) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_EXISTS, cache,
                      "found a cache of foldmill build with %u chain%s, which would be replaced; "
                      "expected a new folder or a cache of foldmill featurize",
                      base.n_chain, fm_plural(base.n_chain));
}

/* -- keeping */

static bool is_kept(const fm_source *source, const fm_build_others *others, const char *chain) {
    return others->keep_all || (others->keep_named && !has_dataset(source, chain));
}

/* What keeping needs to know of the base. */
typedef struct keeping {
    fm_build_state *state;
    const fm_generation *base;
    const fm_chain_facts *facts; /* [n_chain], or NULL */
    const fm_complex_row *rows;  /* [n_row] of its complexes, by item */
    uint32_t n_row, next_row;    /* items come in order */
    fm_hash_map list_of;         /* hash of a hits part -> its note in the base */
    bool *used;                  /* [n_blob of the base] by kept chains */
    fm_store *store;             /* opened when a hits part has no note */
    fm_arena *arena;
} keeping;

/* The blob that a note's list begins with; NULL when the note is no such list. */
static const fm_blob_entry *first_blob(const fm_generation *base, const fm_note_entry *note) {
    fm_sha256 hash;
    uint32_t blob;
    if (note->value.size < sizeof hash) return NULL;
    memcpy(hash.bytes, note->value.data, sizeof hash.bytes);
    if (!base->blob || !fm_generation_find_blob(base, &hash, &blob)) return NULL;
    /* More than a list follows the hash of an assembly. */
    bool is_list = note->value.size % FM_SHA256_BYTES == 0;
    return is_list || base->blob[blob].kind == FM_PART_ASSEMBLY ? &base->blob[blob] : NULL;
}

static fm_status map_lists(keeping *self, fm_error *reterr) {
    for (uint32_t i = 0; i < self->base->n_note; i++) {
        const fm_blob_entry *blob = first_blob(self->base, &self->base->note[i]);
        if (!blob || blob->kind != FM_PART_HITS || fm_hash_map_find(&self->list_of, &blob->hash)) {
            continue;
        }
        if (!fm_hash_map_add(&self->list_of, &blob->hash, i)) {
            return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of notes");
        }
    }
    return FM_OK;
}

static fm_status mark_used(keeping *self, const char *chain, const fm_sha256 *hash,
                           fm_error *reterr) {
    uint32_t blob;
    if (!fm_generation_find_blob(self->base, hash, &blob) ||
        !fm_build_find_blob(self->state, hash)) {
        return fm_fail_in(reterr, FM_ERR_CORRUPT, chain,
                          "a part of this chain, which the build must keep, is in no shard of the "
                          "cache; build its dataset again, or leave it out with --replace");
    }
    self->used[blob] = true;
    return FM_OK;
}

/* The structure parts that a hits part names, read from the part itself. */
static fm_status read_named(keeping *self, uint32_t chain, fm_build_result *result,
                            fm_error *reterr) {
    const fm_part_hits *hits;
    fm_status status = FM_OK;
    if (!self->store) status = fm_store_open(self->state->options->cache, &self->store, reterr);
    size_t mark = fm_arena_mark(self->arena);
    if (!status) status = fm_store_load_hits(self->store, chain, self->arena, &hits, reterr);
    if (status) return status;
    uint32_t n_hit = hits ? hits->n_hit : 0;
    result->named = malloc((n_hit + (size_t)1) * sizeof *result->named);
    for (uint32_t i = 0; i < n_hit && result->named; i++) {
        if (!hits->hit[i].fault) result->named[result->n_named++] = hits->hit[i].structure;
    }
    fm_arena_rewind(self->arena, mark);
    return result->named ? FM_OK : fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of parts");
}

static fm_status list_named(keeping *self, uint32_t chain, const fm_sha256 *hits,
                            fm_build_result *result, fm_error *reterr) {
    const uint32_t *at = fm_hash_map_find(&self->list_of, hits);
    if (!at) return read_named(self, chain, result, reterr);
    const fm_bytes list = self->base->note[*at].value;
    size_t n = list.size / FM_SHA256_BYTES - 1;
    result->named = malloc((n + 1) * sizeof *result->named);
    if (!result->named) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of parts");
    if (n) memcpy(result->named, list.data + FM_SHA256_BYTES, n * FM_SHA256_BYTES);
    result->n_named = (uint32_t)n;
    return FM_OK;
}

/* Names the parts of an entity, and the structures of its hits. */
static fm_status name_entity(keeping *self, const fm_part_entity_inputs *inputs,
                             fm_build_result *result, fm_error *reterr) {
    fm_part_hits hits = {0};
    fm_status status = fm_build_add_inputs(result, inputs, reterr);
    if (!status && fm_entity_has_part(&inputs->hits)) {
        status = fm_store_load_hits_part(self->store, &inputs->hits, self->arena, &hits, reterr);
    }
    for (uint32_t i = 0; i < hits.n_hit && !status; i++)
        if (!hits.hit[i].fault) status = fm_build_add_named(result, &hits.hit[i].structure, reterr);
    return status;
}

/* Names what the parts of a complex name, and takes its records. */
static fm_status name_complex(keeping *self, uint32_t item, fm_build_result *result,
                              fm_error *reterr) {
    fm_part_assembly assembly;
    fm_part_entities entities = {0};
    fm_status status = FM_OK;
    size_t mark = fm_arena_mark(self->arena);
    if (!self->store) status = fm_store_open(self->state->options->cache, &self->store, reterr);
    if (!status) status = fm_store_load_assembly(self->store, item, self->arena, &assembly, reterr);
    if (!status) status = fm_build_add_named(result, &assembly.components, reterr);
    if (!status) status = fm_store_load_entities(self->store, item, self->arena, &entities, reterr);
    for (uint32_t i = 0; i < entities.n_entity && !status; i++)
        status = name_entity(self, &entities.inputs[i], result, reterr);
    fm_arena_rewind(self->arena, mark);
    while (self->next_row < self->n_row && self->rows[self->next_row].item < item)
        self->next_row++;
    result->is_complex = true;
    result->rows = self->rows + self->next_row;
    while (self->next_row < self->n_row && self->rows[self->next_row].item == item) {
        self->next_row++;
        result->n_row++;
    }
    return status;
}

static fm_status keep_chain(keeping *self, uint32_t index, fm_error *reterr) {
    const fm_generation *base = self->base;
    const fm_chain_entry *chain = &base->chain[index];
    const char *name = base->names + chain->name_at;
    fm_build_result result = {.item = FM_BUILD_NO_ITEM, .is_kept = true, .reused = true};
    fm_status status = FM_OK;
    for (int k = 0; k < FM_N_PART && !status; k++) {
        if (chain->part[k] == FM_NO_PART) continue;
        result.has[k] = true;
        result.part[k] = base->blob[chain->part[k]].hash;
        status = mark_used(self, name, &result.part[k], reterr);
    }
    if (!status && fm_generation_is_complex(base, index)) {
        status = name_complex(self, index, &result, reterr);
    } else if (!status && result.has[FM_PART_HITS - 1]) {
        status = list_named(self, index, &result.part[FM_PART_HITS - 1], &result, reterr);
    }
    for (uint32_t i = 0; i < result.n_named && !status; i++)
        status = mark_used(self, name, &result.named[i], reterr);
    result.facts = self->facts ? &self->facts[index] : NULL;
    if (status) {
        free(result.named);
    } else {
        fm_build_add_result(self->state, name, &result, NULL);
    }
    return status;
}

/* Marks the notes of kept chains as used. A note that names no parts says which chains a structure
 * has; it cannot be told whose it is, and is small. */
static void keep_notes(keeping *self) {
    for (uint32_t i = 0; i < self->base->n_note; i++) {
        const fm_note_entry *note = &self->base->note[i];
        const fm_blob_entry *blob = first_blob(self->base, note);
        bool is_facts = note->value.size == FM_FACTS_BYTES; /* gathered with their chain */
        if (blob ? !self->used[blob - self->base->blob] : is_facts) continue;
        fm_build_note *kept = fm_build_find_note(self->state, &note->key);
        if (kept) kept->used = true;
    }
}

static bool has_result(const char *const *names, uint32_t n, const char *name) {
    return n && bsearch(&name, names, n, sizeof *names, compare_names);
}

static fm_status keep_all(keeping *self, const fm_build_others *others, fm_error *reterr) {
    fm_build_state *state = self->state;
    const fm_generation *base = self->base;
    uint32_t n = state->n_result, n_kept = 0;
    const char **names = fm_arena_alloc_array(self->arena, (size_t)n + 1, sizeof *names);
    if (!names) return fm_arena_full(self->arena, reterr);
    for (uint32_t i = 0; i < n; i++)
        names[i] = state->result[i].name;
    if (n) qsort(names, n, sizeof *names, compare_names);
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < base->n_chain && !status; i++) {
        const char *name = base->names + base->chain[i].name_at;
        if (has_result(names, n, name) || !is_kept(state->source, others, name)) continue;
        status = keep_chain(self, i, reterr);
        n_kept++;
    }
    for (uint32_t i = 0; i < base->n_refused && !status; i++) {
        const fm_refusal *refusal = &base->refused[i];
        if (has_result(names, n, refusal->chain) ||
            !is_kept(state->source, others, refusal->chain)) {
            continue;
        }
        char *reason = (char *)(uintptr_t)refusal->reason; /* copied by the call */
        const fm_build_result result = {
            .item = FM_BUILD_NO_ITEM, .is_kept = true, .reason = reason, .status = FM_ERR_DATA};
        fm_build_add_result(state, refusal->chain, &result, NULL);
    }
    if (!status && n_kept) keep_notes(self);
    return status;
}

static char *make_line(fm_arena *arena, const char *name, size_t name_bytes, const char *path,
                       size_t path_bytes) {
    size_t size = name_bytes + path_bytes + 3;
    char *line = fm_arena_alloc(arena, size);
    if (!line) return NULL;
    snprintf(line, size, "%.*s\t%.*s\n", (int)name_bytes, name, (int)path_bytes, path);
    return line;
}

/* Lines of the base's record whose chains may be kept, and those of the source; sorted, each once.
 * A dataset whose path is not known was told by its chains, and keeps its line. */
static fm_status list_lines(const fm_source *source, const fm_generation *base,
                            const fm_build_options *options, const fm_build_others *others,
                            fm_arena *arena, const char ***ret_lines, uint32_t *ret_n,
                            fm_error *reterr) {
    bool has_paths = source->n_dataset && source->dataset[0].path;
    const char *end = NULL, *at = find_record(base, &end), *start = at;
    record_line line;
    uint32_t n = 0, n_max = source->n_dataset, kept = 0;
    while (at && next_line(&at, end, &line))
        n_max++;
    const char **lines = fm_arena_alloc_array(arena, n_max, sizeof *lines);
    if (!lines) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < source->n_dataset && has_paths; i++) {
        const fm_source_dataset *dataset = &source->dataset[i];
        lines[n++] = make_line(arena, dataset->name, strlen(dataset->name), dataset->path,
                               strlen(dataset->path));
    }
    for (at = start; at && next_line(&at, end, &line);) {
        bool is_other = true;
        for (uint32_t i = 0; i < source->n_dataset; i++)
            is_other &= !is_text(line.name, line.name_bytes, source->dataset[i].name);
        bool is_told = !has_paths && options->others != FM_BUILD_OTHERS_REPLACE;
        if (others->keep_all || is_told || (others->keep_named && is_other)) {
            lines[n++] = make_line(arena, line.name, line.name_bytes, line.path, line.path_bytes);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!lines[i]) return fm_arena_full(arena, reterr);
    }
    if (n) qsort(lines, n, sizeof *lines, compare_names);
    for (uint32_t i = 0; i < n; i++) {
        if (!kept || strcmp(lines[kept - 1], lines[i]) != 0) lines[kept++] = lines[i];
    }
    *ret_lines = lines;
    *ret_n = kept;
    return FM_OK;
}

/* Prepares the record of datasets, which joins the notes of a new generation. */
static fm_status record_datasets(fm_build_state *state, const fm_generation *base,
                                 const fm_build_others *others, fm_arena *arena, fm_error *reterr) {
    const char **lines, *end;
    uint32_t n;
    fm_status status =
        list_lines(state->source, base, state->options, others, arena, &lines, &n, reterr);
    if (status || (!n && !find_record(base, &end))) return status;
    size_t size = sizeof TITLE - 1, at = size;
    for (uint32_t i = 0; i < n; i++)
        size += strlen(lines[i]);
    char *text = fm_arena_alloc(arena, size);
    if (!text) return fm_arena_full(arena, reterr);
    memcpy(text, TITLE, at);
    for (uint32_t i = 0; i < n; i++) {
        memcpy(text + at, lines[i], strlen(lines[i]));
        at += strlen(lines[i]);
    }
    state->record_key = record_key();
    state->record = (fm_bytes){(const uint8_t *)text, size};
    /* A changed record makes a new generation. A first one does not: a cache of an older
     * foldmill, or a merged one, gets it with the next generation. */
    if (find_record(base, &end)) {
        pthread_mutex_lock(&state->lock);
        fm_build_put_note(state, &state->record_key, state->record);
        pthread_mutex_unlock(&state->lock);
        state->record = (fm_bytes){0};
    }
    return FM_OK;
}

fm_status fm_build_keep_others(fm_build_state *state, const fm_build_others *others,
                               const fm_generation *base, fm_arena *arena, fm_error *reterr) {
    keeping self = {.state = state, .base = base, .arena = arena};
    fm_status status = FM_OK;
    if (base->number && (others->keep_all || others->keep_named)) {
        self.used = fm_arena_calloc(arena, base->n_blob, sizeof *self.used);
        if (!self.used) status = fm_arena_full(arena, reterr);
        if (!status) {
            status =
                fm_generation_read_facts(state->options->cache, base, arena, &self.facts, reterr);
        }
        if (!status) {
            status = fm_generation_read_rows(state->options->cache, base, arena, &self.rows,
                                             &self.n_row, reterr);
        }
        if (!status) status = map_lists(&self, reterr);
        if (!status) status = keep_all(&self, others, reterr);
        fm_hash_map_fini(&self.list_of);
        if (self.store) fm_store_close(self.store);
    }
    if (!status) status = record_datasets(state, base, others, arena, reterr);
    if (!status && state->failed) {
        *reterr = state->error;
        status = state->failed;
    }
    return status;
}

void fm_build_count_change(const fm_generation *base, const fm_generation *generation,
                           fm_build_report *report) {
    uint32_t i = 0, k = 0;
    while (i < base->n_chain || k < generation->n_chain) {
        const char *old = i < base->n_chain ? base->names + base->chain[i].name_at : NULL;
        const char *new =
            k < generation->n_chain ? generation->names + generation->chain[k].name_at : NULL;
        int order = !old ? 1 : !new ? -1 : strcmp(old, new);
        report->n_left += order < 0;
        report->n_added += order > 0;
        i += order <= 0;
        k += order >= 0;
    }
}
