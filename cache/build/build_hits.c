/* build_hits.c: see build_hits.h.
 *
 * All workers share one table with a slot for each structure that a hit has named. A worker takes a
 * slot for itself (take_slot), so that only one reads the file, and gives it back filled; others
 * that need the same structure wait meanwhile. A slot is filled in stages, each at its first use:
 * the hash of the file (for the key of a hits part), the entry (what mapping needs), and the
 * identities of structure parts, one per chain. */
#include "cache/build/build_hits.h"

#include "cache/store/blob.h"
#include "cache/build/kalign.h"
#include "featurizer/parse/hhr.h"
#include "featurizer/parse/hmmsearch.h"
#include "featurizer/structure.h"
#include "proto/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* address space */
#define TABLE_ARENA_BYTES ((size_t)64 << 30)

enum { ID_BYTES = 4 };

/* What is known about one structure. One worker at a time fills it in; values that are set stay. */
typedef struct slot {
    const fm_source_structure *structure; /* NULL = the source has none */
    bool busy;                            /* a worker is filling it in */
    bool has_hash, has_entry;
    fm_sha256 hash;   /* hash of the file's unpacked content */
    fm_status status; /* status of the entry */
    fm_template_entry entry;
    fm_sha256 *identity; /* [n_chain] structure parts made so far; zeros = not yet */
} slot;

struct fm_build_templates {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    fm_build_state *state;
    fm_arena arena; /* holds all that follows; used under the lock */
    fm_hash_map slot_of;
    slot **slots;
    uint32_t n_slot, max_slot;
};

fm_status fm_build_templates_create(fm_build_state *state, fm_build_templates **ret,
                                    fm_error *reterr) {
    fm_build_templates *templates = calloc(1, sizeof *templates);
    if (!templates) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of templates");
    fm_status status = fm_arena_init(&templates->arena, TABLE_ARENA_BYTES, reterr);
    if (status) {
        free(templates);
        return status;
    }
    templates->state = state;
    pthread_mutex_init(&templates->lock, NULL);
    pthread_cond_init(&templates->changed, NULL);
    *ret = templates;
    return FM_OK;
}

void fm_build_templates_destroy(fm_build_templates *templates) {
    if (!templates) return;
    fm_arena_fini(&templates->arena);
    fm_hash_map_fini(&templates->slot_of);
    free(templates->slots);
    pthread_mutex_destroy(&templates->lock);
    pthread_cond_destroy(&templates->changed);
    free(templates);
}

fm_status fm_build_reader_init(fm_build_reader *reader, fm_build_state *state,
                               fm_build_templates *templates, fm_error *reterr) {
    *reader = (fm_build_reader){.templates = templates, .state = state};
    return fm_arena_init(&reader->arena, fm_build_worker_bytes(state, 1), reterr);
}

void fm_build_reader_fini(fm_build_reader *reader) {
    fm_arena_fini(&reader->arena);
}

/* -- the table */

/* Lock held. NULL when memory ran out. */
static slot *add_slot(fm_build_templates *templates, const fm_sha256 *key, const char *id) {
    slot *added = fm_arena_calloc(&templates->arena, 1, sizeof *added);
    if (!added ||
        !fm_build_grow((void **)&templates->slots, templates->n_slot, &templates->max_slot,
                       sizeof *templates->slots) ||
        !fm_hash_map_add(&templates->slot_of, key, templates->n_slot)) {
        return NULL;
    }
    added->structure = fm_source_find_template(templates->state->source, id);
    templates->slots[templates->n_slot++] = added;
    return added;
}

/* Takes the slot of an id for the caller alone, until give_slot. */
static slot *take_slot(fm_build_templates *templates, const char *id) {
    fm_sha256 key = fm_sha256_of(id, strlen(id));
    pthread_mutex_lock(&templates->lock);
    uint32_t *at = fm_hash_map_find(&templates->slot_of, &key);
    slot *taken = at ? templates->slots[*at] : add_slot(templates, &key, id);
    while (taken && taken->busy)
        pthread_cond_wait(&templates->changed, &templates->lock);
    if (taken) taken->busy = true;
    pthread_mutex_unlock(&templates->lock);
    return taken;
}

static void give_slot(fm_build_templates *templates, slot *taken) {
    pthread_mutex_lock(&templates->lock);
    taken->busy = false;
    pthread_cond_broadcast(&templates->changed);
    pthread_mutex_unlock(&templates->lock);
}

static fm_status no_memory(fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_NOMEM, "no memory left for the list of templates");
}

/* -- files */

static fm_status read_file(fm_build_reader *reader, slot *taken, fm_bytes *ret_text,
                           fm_error *reterr) {
    reader->id[0] = 0;
    fm_arena_reset(&reader->arena);
    fm_status status = fm_source_read_structure(
        taken->structure, fm_build_input_bytes(reader->state), &reader->arena, ret_text, reterr);
    if (status) return fm_error_in(reterr, taken->structure->path);
    taken->hash = fm_sha256_of(ret_text->data, ret_text->size);
    taken->has_hash = true;
    pthread_mutex_lock(&reader->state->lock);
    reader->state->progress.input_bytes += ret_text->size;
    pthread_mutex_unlock(&reader->state->lock);
    return FM_OK;
}

/* Reads and parses the file, unless it is the current one. */
static fm_status parse_file(fm_build_reader *reader, slot *taken, const char *id,
                            fm_error *reterr) {
    const fm_mmcif_options options = {.compat_openfold =
                                          reader->state->options->features.compat_openfold};
    fm_bytes text;
    if (strcmp(reader->id, id) == 0) return FM_OK;
    fm_status status = read_file(reader, taken, &text, reterr);
    if (!status) status = fm_mmcif_parse(text, &options, &reader->arena, &reader->mmcif, reterr);
    if (status) return status;
    snprintf(reader->id, sizeof reader->id, "%s", id);
    return FM_OK;
}

static void *copy_to(fm_arena *arena, const void *data, size_t size) {
    void *copy = fm_arena_alloc(arena, size);
    if (copy && size) memcpy(copy, data, size);
    return copy;
}

/* Copies the entry, with all it points to, into the table's memory. */
static bool keep_entry(fm_build_templates *templates, const fm_template_entry *entry, slot *taken) {
    fm_arena *arena = &templates->arena;
    bool good = true;
    pthread_mutex_lock(&templates->lock);
    fm_template_chain *chains = copy_to(arena, entry->chain, entry->n_chain * sizeof *chains);
    taken->identity = fm_arena_calloc(arena, entry->n_chain, sizeof *taken->identity);
    good = chains && taken->identity;
    for (uint32_t i = 0; i < entry->n_chain && good; i++) {
        fm_template_chain *chain = &chains[i];
        chain->author_id = copy_to(arena, chain->author_id, strlen(chain->author_id) + 1);
        chain->sequence = copy_to(arena, chain->sequence, chain->n_res);
        if (chain->n_atom) {
            chain->n_atom = copy_to(arena, chain->n_atom, chain->n_res);
            good = chain->n_atom != NULL;
        }
        good = good && chain->author_id && chain->sequence;
    }
    pthread_mutex_unlock(&templates->lock);
    taken->entry = *entry;
    taken->entry.chain = chains;
    return good;
}

static fm_status fill_entry(fm_build_reader *reader, slot *taken, const char *id,
                            fm_error *reterr) {
    fm_template_entry entry;
    fm_status status = parse_file(reader, taken, id, reterr);
    if (!status) status = fm_template_entry_of(&reader->mmcif, &reader->arena, &entry, reterr);
    if (!status && !keep_entry(reader->templates, &entry, taken)) return no_memory(reterr);
    if (status == FM_ERR_NOMEM || status == FM_ERR_CANCELLED) return status;
    /* A failing disk must not change what a cache holds: the chain is refused, and nothing is
     * remembered about the structure. */
    if (status == FM_ERR_IO) return fm_error_in(reterr, taken->structure->path);
    /* The file exists, so the error is in its content: the job goes on, and the hit is not "no
     * file". */
    taken->status = status == FM_ERR_NOT_FOUND ? FM_ERR_DATA : status;
    taken->has_entry = true;
    return FM_OK;
}

/* -- callbacks of the mapping */

static fm_status give_entry(void *context, const char *id, const fm_template_entry **ret_entry,
                            fm_error *reterr) {
    fm_build_reader *reader = context;
    slot *taken = take_slot(reader->templates, id);
    if (!taken) return no_memory(reterr);
    fm_status status = FM_OK;
    if (!taken->structure) {
        status = fm_fail(reterr, FM_ERR_NOT_FOUND, "the dataset has no structure %s", id);
    } else if (!taken->has_entry) {
        status = fill_entry(reader, taken, id, reterr);
    }
    if (!status) status = taken->status;
    give_slot(reader->templates, taken);
    *ret_entry = &taken->entry;
    return status;
}

/* Encodes the structure part of a chain and hands it to the writer unless it is known. */
static fm_status make_part(fm_build_reader *reader, slot *taken, const char *id, uint32_t chain,
                           fm_error *reterr) {
    fm_part_sequence sequence;
    fm_part_structure structure;
    fm_bytes bytes, packed;
    fm_arena *arena = reader->temporary;
    fm_build_state *state = reader->state;
    fm_status status = parse_file(reader, taken, id, reterr);
    if (!status) {
        status =
            fm_features_structure(&reader->mmcif, taken->entry.chain[chain].author_id,
                                  &state->options->features, arena, &sequence, &structure, reterr);
    }
    if (!status) status = fm_part_structure_encode(&structure, arena, &bytes, reterr);
    if (status) return status;
    fm_sha256 hash = fm_sha256_of(bytes.data, bytes.size);
    taken->identity[chain] = hash;
    if (fm_build_knows_blob(state, &hash)) return FM_OK;
    status = fm_blob_pack(bytes, FM_PART_STRUCTURE, arena, &packed, reterr);
    if (!status && !fm_build_claim_blob(state, &hash, FM_PART_STRUCTURE, bytes.size)) {
        fm_build_push(state, false, &hash, packed);
    }
    return status;
}

static fm_status give_structure(void *context, const char *id, uint32_t chain,
                                fm_sha256 *ret_identity, fm_error *reterr) {
    static const fm_sha256 none = {{0}};
    fm_build_reader *reader = context;
    slot *taken = take_slot(reader->templates, id);
    if (!taken) return no_memory(reterr);
    fm_status status = FM_OK;
    const fm_sha256 *identity = &taken->identity[chain];
    if (memcmp(identity, &none, sizeof none) == 0 ||
        !fm_build_knows_blob(reader->state, identity)) {
        status = make_part(reader, taken, id, chain, reterr);
    }
    *ret_identity = *identity;
    give_slot(reader->templates, taken);
    return status;
}

static bool give_listed_date(void *context, const char *id, char ret_date[FM_RELEASE_DATE]) {
    const fm_build_reader *reader = context;
    const char *date = fm_source_listed_date(reader->state->source, id);
    if (date) memcpy(ret_date, date, FM_RELEASE_DATE);
    return date != NULL;
}

static const char *give_successor(void *context, const char *id) {
    const fm_build_reader *reader = context;
    return fm_source_successor(reader->state->source, id);
}

static fm_status run_kalign(void *context, fm_bytes hit, fm_bytes chain, fm_arena *arena,
                            const char **ret_hit_row, const char **ret_chain_row,
                            size_t *ret_n_column, fm_error *reterr) {
    (void)context;
    return fm_kalign_align(NULL, hit, chain, arena, ret_hit_row, ret_chain_row, ret_n_column,
                           reterr);
}

/* -- a chain's part */

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static fm_status parse_search(const fm_build_search *search, fm_bytes query, bool compat,
                              fm_arena *arena, fm_hits *ret_hits, fm_error *reterr) {
    fm_status status =
        ends_with(search->name, ".hhr")
            ? fm_hhr_parse(search->text, compat, arena, ret_hits, reterr)
            : fm_hmmsearch_parse(search->text, query, compat, arena, ret_hits, reterr);
    return status ? fm_error_in(reterr, search->name) : FM_OK;
}

static fm_status hash_structure(fm_build_reader *reader, const char *id, fm_sha256 *ret_hash,
                                fm_error *reterr) {
    slot *taken = take_slot(reader->templates, id);
    fm_bytes text;
    if (!taken) return no_memory(reterr);
    /* A file that cannot be read counts as missing here; the mapping reports it. */
    if (taken->structure && !taken->has_hash) (void)!read_file(reader, taken, &text, reterr);
    *ret_hash = taken->hash;
    give_slot(reader->templates, taken);
    return FM_OK;
}

/* The hit's id as the mapping reads it, in lower case; false when its name is too short. */
static bool read_id(const fm_hit *hit, char out[ID_BYTES + 1]) {
    if (hit->name.size < ID_BYTES) return false;
    for (int i = 0; i < ID_BYTES; i++) {
        uint8_t c = hit->name.data[i];
        out[i] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    out[ID_BYTES] = 0;
    return true;
}

/* Adds to *lists, which is created at first use, what the dataset's lists say about an id and about
 * the id that replaces it. An id that no list knows adds nothing, so a new date of one id changes
 * only the keys of parts that name it. */
static fm_status hash_listed(fm_build_reader *reader, const char *id, fm_sha256_state **lists,
                             fm_error *reterr) {
    const fm_source *source = reader->state->source;
    bool is_replaced =
        reader->state->options->features.compat_openfold || !fm_source_find_template(source, id);
    const char *date = fm_source_listed_date(source, id);
    const char *successor = is_replaced ? fm_source_successor(source, id) : NULL;
    const char *later = successor ? fm_source_listed_date(source, successor) : NULL;
    fm_sha256 hash = {{0}};
    if (!date && !successor) return FM_OK;
    if (!*lists) *lists = fm_sha256_create();
    const char *said[] = {id, date ? date : "", successor ? successor : "", later ? later : ""};
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++)
        fm_sha256_update(*lists, said[i], strlen(said[i]) + 1);
    fm_status status = successor ? hash_structure(reader, successor, &hash, reterr) : FM_OK;
    if (!status) fm_sha256_update(*lists, hash.bytes, sizeof hash.bytes);
    return status;
}

/* Adds the structures that the hits name, and what lists say about them. */
static fm_status hash_named(fm_build_reader *reader, const fm_hits *hits, fm_sha256_state *key,
                            fm_error *reterr) {
    fm_sha256_state *lists = NULL;
    fm_sha256 hash;
    fm_status status = FM_OK;
    char last[ID_BYTES + 1] = "", id[ID_BYTES + 1];
    for (uint32_t k = 0; k < hits->n_hit && !status; k++) {
        if (!read_id(&hits->hit[k], id) || strcmp(id, last) == 0) continue;
        memcpy(last, id, sizeof last);
        status = hash_structure(reader, id, &hash, reterr);
        if (!status) fm_sha256_update(key, hash.bytes, sizeof hash.bytes);
        if (!status) status = hash_listed(reader, id, &lists, reterr);
    }
    if (!lists) return status;
    hash = fm_sha256_digest(lists);
    fm_sha256_destroy(lists);
    fm_sha256_update(key, "lists", sizeof "lists");
    fm_sha256_update(key, hash.bytes, sizeof hash.bytes);
    return status;
}

fm_status fm_build_hits_key(fm_build_reader *reader, const fm_build_search *search, size_t n_search,
                            fm_arena *arena, fm_sha256_state *key, fm_error *reterr) {
    bool compat = reader->state->options->features.compat_openfold;
    size_t mark = fm_arena_mark(arena);
    for (size_t i = 0; i < n_search; i++) {
        fm_sha256 hash = fm_sha256_of(search[i].text.data, search[i].text.size);
        fm_sha256_update(key, search[i].name, strlen(search[i].name) + 1);
        fm_sha256_update(key, hash.bytes, sizeof hash.bytes);
        fm_hits hits;
        fm_status status = parse_search(&search[i], (fm_bytes){0}, compat, arena, &hits, reterr);
        if (!status) status = hash_named(reader, &hits, key, reterr);
        if (status) return status;
    }
    fm_arena_rewind(arena, mark);
    return FM_OK;
}

fm_status fm_build_hits_map(fm_build_reader *reader, const fm_part_sequence *sequence,
                            const fm_build_search *search, size_t n_search, fm_arena *arena,
                            fm_part_hits *ret_hits, fm_error *reterr) {
    bool compat = reader->state->options->features.compat_openfold;
    fm_hits *lists = fm_arena_alloc_array(arena, n_search, sizeof *lists);
    fm_bytes query = {(const uint8_t *)sequence->sequence, sequence->n_res};
    if (!lists) return fm_arena_full(arena, reterr);
    for (size_t i = 0; i < n_search; i++) {
        fm_status status = parse_search(&search[i], query, compat, arena, &lists[i], reterr);
        if (status) return status;
    }
    const fm_template_source source = {.context = reader,
                                       .entry = give_entry,
                                       .structure = give_structure,
                                       .listed_date = give_listed_date,
                                       .successor = give_successor,
                                       .align = run_kalign};
    reader->temporary = arena; /* after the mapping's own memory, for the duration of a call */
    return fm_templates_map(sequence, lists, n_search, compat, &source, arena, ret_hits, reterr);
}
