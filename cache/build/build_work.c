/* build_work.c: a worker of a build: it takes one structure at a time, with all its chains. See
 * build.h.
 *
 * For each chain a worker makes its parts in this order: sequence and structure, the note of its
 * facts, the MSA, the template hits. Each step (do_structure, do_msa, do_hits) first computes the
 * key of its inputs. If a note with this key names known blobs, the part exists and is not made
 * again. The structure file is parsed only when some step needs it, and once for all its chains
 * (ensure_parsed, ensure_parts). Two arenas separate the lifetimes: structure_arena is reset for
 * each structure, chain_arena for each chain.
 *
 * A refusal ends its chain and nothing else: do_chain records the error as the chain's result. */
#include "cache/build/build_work.h"

#include "cache/store/blob.h"
#include "proto/limits.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- keys */

/* Options that change a part; the format of a query comes shifted by KEY_QUERY_SHIFT. */
enum { KEY_COMPAT = 1, KEY_PREDICTED = 2, KEY_PDB = 4, KEY_QUERY_SHIFT = 3 };

fm_sha256_state *fm_build_begin_key(const fm_build_work *work, const char *stage, uint32_t version,
                                    uint8_t flags) {
    static const char title[] = "foldmill key 1\n";
    if (work->features.compat_openfold) flags |= KEY_COMPAT;
    uint8_t fixed[5] = {(uint8_t)version, (uint8_t)(version >> 8), (uint8_t)(version >> 16),
                        (uint8_t)(version >> 24), flags};
    fm_sha256_state *key = fm_sha256_create();
    fm_sha256_update(key, title, sizeof title - 1);
    fm_sha256_update(key, stage, strlen(stage) + 1);
    fm_sha256_update(key, fixed, sizeof fixed);
    return key;
}

fm_sha256 fm_build_end_key(fm_sha256_state *key) {
    fm_sha256 hash = fm_sha256_digest(key);
    fm_sha256_destroy(key);
    return hash;
}

/* The parts of a structure depend on how its text is read. */
static uint8_t reading_flags(const fm_build_work *work) {
    if (work->source->query) return (uint8_t)(work->source->query << KEY_QUERY_SHIFT);
    if (work->source->is_pdb) return KEY_PDB; /* always predicted */
    return work->features.is_predicted ? KEY_PREDICTED : 0;
}

static fm_sha256 structure_key(const fm_build_work *work, const char *author_id) {
    fm_sha256_state *key =
        fm_build_begin_key(work, "structure", FM_STAGE_STRUCTURE, reading_flags(work));
    if (!author_id) author_id = ""; /* no chain has this id */
    fm_sha256_update(key, work->text_hash.bytes, sizeof work->text_hash.bytes);
    fm_sha256_update(key, author_id, strlen(author_id) + 1);
    return fm_build_end_key(key);
}

fm_sha256 fm_build_chains_key(const fm_build_work *work) {
    fm_sha256_state *key =
        fm_build_begin_key(work, "chains", FM_STAGE_STRUCTURE, reading_flags(work));
    fm_sha256_update(key, work->text_hash.bytes, sizeof work->text_hash.bytes);
    return fm_build_end_key(key);
}

fm_sha256 fm_build_rows_key(const fm_build_work *work, const char *stage, const fm_sha256 *sequence,
                            const fm_msa_input *inputs, size_t n_input) {
    fm_sha256_state *key = fm_build_begin_key(work, stage, FM_STAGE_MSA, 0);
    fm_sha256_update(key, sequence->bytes, sizeof sequence->bytes);
    for (size_t i = 0; i < n_input; i++) {
        fm_sha256 hash = fm_sha256_of(inputs[i].content.data, inputs[i].content.size);
        fm_sha256_update(key, inputs[i].name, strlen(inputs[i].name) + 1);
        fm_sha256_update(key, hash.bytes, sizeof hash.bytes);
    }
    return fm_build_end_key(key);
}

/* -- structure and sequence */

static void count_input(fm_build_work *work, uint64_t bytes) {
    pthread_mutex_lock(&work->state->lock);
    work->state->progress.input_bytes += bytes;
    pthread_mutex_unlock(&work->state->lock);
}

fm_status fm_build_read_file(fm_build_work *work, const fm_source_file *file, fm_bytes *ret_content,
                             fm_error *reterr) {
    fm_status status = fm_source_read(file, fm_build_input_bytes(work->state), &work->chain_arena,
                                      ret_content, reterr);
    if (!status) count_input(work, ret_content->size);
    return status;
}

/* Parses the structure file once. */
static fm_status ensure_parsed(fm_build_work *work, fm_error *reterr) {
    if (!work->parsed) {
        work->parsed = true;
        work->parse_status =
            fm_structure_file_parse(work->text, work->source->is_pdb, &work->features,
                                    &work->structure_arena, &work->file, &work->parse_error);
        if (work->parse_status) fm_error_in(&work->parse_error, work->source->path);
    }
    if (work->parse_status) *reterr = work->parse_error;
    return work->parse_status;
}

/* The parts of a chain whose file has a sequence and no structure. */
static fm_status parse_query(fm_build_work *work, fm_build_chain *job, fm_error *reterr) {
    fm_arena *arena = &work->chain_arena;
    fm_status status =
        fm_query_parse(work->text, work->source->query, arena, &job->sequence, reterr);
    return status ? status : fm_query_structure(&job->sequence, arena, &job->structure, reterr);
}

static fm_status parse_structure(fm_build_work *work, fm_build_chain *job, fm_error *reterr) {
    fm_status status = ensure_parsed(work, reterr);
    if (status) return status;
    return fm_structure_file_features(&work->file, job->author_id, &work->features,
                                      &work->chain_arena, &job->sequence, &job->structure, reterr);
}

static fm_status ensure_parts(fm_build_work *work, fm_build_chain *job, fm_error *reterr) {
    if (job->have_parts) return FM_OK;
    if (job->complex) {
        fm_status found = fm_build_entity_sequence(work, job, reterr);
        job->have_parts = !found;
        return found;
    }
    fm_status status =
        work->source->query ? parse_query(work, job, reterr) : parse_structure(work, job, reterr);
    if (status) fm_error_in(reterr, work->source->path);
    job->have_parts = !status;
    return status;
}

fm_status fm_build_keep_part(fm_build_work *work, fm_build_result *result, int slot,
                             fm_part_kind kind, fm_bytes bytes, fm_error *reterr) {
    fm_sha256 hash = fm_sha256_of(bytes.data, bytes.size);
    result->part[slot] = hash;
    result->has[slot] = true;
    result->reused = false;
    if (fm_build_knows_blob(work->state, &hash)) return FM_OK;
    fm_bytes packed;
    fm_status status = fm_blob_pack(bytes, kind, &work->chain_arena, &packed, reterr);
    /* Claimed last, because another worker may have made the same part meanwhile. */
    if (!status && !fm_build_claim_blob(work->state, &hash, kind, bytes.size)) {
        fm_build_push(work->state, false, &hash, packed);
    }
    return status;
}

/* Keeps a part of a chain, whose kind is its slot. */
static fm_status keep_part(fm_build_work *work, fm_build_chain *job, fm_part_kind kind,
                           fm_bytes bytes, fm_error *reterr) {
    return fm_build_keep_part(work, &job->result, (int)kind - 1, kind, bytes, reterr);
}

static fm_status make_structure(fm_build_work *work, fm_build_chain *job, fm_error *reterr) {
    fm_bytes sequence, structure;
    fm_arena *arena = &work->chain_arena;
    fm_status status = ensure_parts(work, job, reterr);
    if (!status) status = fm_part_sequence_encode(&job->sequence, arena, &sequence, reterr);
    if (!status) status = fm_part_structure_encode(&job->structure, arena, &structure, reterr);
    if (!status) status = keep_part(work, job, FM_PART_SEQUENCE, sequence, reterr);
    if (!status) status = keep_part(work, job, FM_PART_STRUCTURE, structure, reterr);
    if (status) fm_error_in(reterr, work->source->path);
    return status;
}

static void keep_key(fm_build_result *result, fm_part_kind kind, const fm_sha256 *key) {
    result->key[kind - 1] = *key;
    result->has_key[kind - 1] = true;
}

static fm_status do_structure(fm_build_work *work, fm_build_chain *job, fm_error *reterr) {
    fm_sha256 key = structure_key(work, job->author_id);
    fm_sha256 value[2];
    fm_build_result *result = &job->result;
    keep_key(result, FM_PART_STRUCTURE, &key);
    if (fm_build_use_note(work->state, &key, value[0].bytes, sizeof value)) {
        result->part[FM_PART_SEQUENCE - 1] = value[0];
        result->part[FM_PART_STRUCTURE - 1] = value[1];
        result->has[FM_PART_SEQUENCE - 1] = result->has[FM_PART_STRUCTURE - 1] = true;
        return FM_OK;
    }
    fm_status status = make_structure(work, job, reterr);
    if (status) return status;
    value[0] = result->part[FM_PART_SEQUENCE - 1];
    value[1] = result->part[FM_PART_STRUCTURE - 1];
    fm_build_make_note(work->state, &key, (fm_bytes){value[0].bytes, sizeof value});
    return FM_OK;
}

/* Notes the chain's facts (facts.h); parses the structure only when no step has. */
static fm_status do_facts(fm_build_work *work, fm_build_chain *job, fm_error *reterr) {
    const fm_build_result *result = &job->result;
    uint8_t row[FM_FACTS_BYTES];
    fm_bytes known;
    fm_sha256 key =
        fm_facts_key(&result->part[FM_PART_SEQUENCE - 1], &result->part[FM_PART_STRUCTURE - 1]);
    if (fm_build_use_text(work->state, &key, &work->chain_arena, &known)) return FM_OK;
    fm_status status = ensure_parts(work, job, reterr);
    if (status) return status;
    const fm_chain_facts facts = fm_facts_of(&job->sequence, &job->structure);
    fm_facts_encode_row(&facts, row);
    fm_build_make_note(work->state, &key, (fm_bytes){row, sizeof row});
    return FM_OK;
}

/* -- msa */

/* A chain without an alignment is a single sequence only where that was asked for, and in compat,
 * as the reference makes it. Else a search that failed would pass as one without results. */
static fm_status accept_no_alignment(fm_build_work *work, uint32_t n_file,
                                     const fm_source_file *file, fm_error *reterr) {
    const fm_build_options *options = work->state->options;
    if (options->single_sequence || options->features.compat_openfold || work->source->query) {
        fm_build_count_without_alignments(work->state);
        return FM_OK;
    }
    if (n_file == 0) {
        return fm_fail(reterr, FM_ERR_DATA,
                       "found no file, expected an alignment (.a3m or .sto); --single-sequence "
                       "builds the chain without");
    }
    return fm_fail(reterr, FM_ERR_DATA,
                   "found %u file%s but no alignment (.a3m or .sto), the first is %.80s; "
                   "--single-sequence builds the chain without",
                   n_file, n_file == 1 ? "" : "s", file[0].name);
}

/* Reads the chain's alignment files, which are sorted by name. */
static fm_status read_alignments(fm_build_work *work, const fm_build_chain *job,
                                 fm_msa_input *inputs, size_t *ret_n, fm_error *reterr) {
    fm_arena *arena = &work->chain_arena;
    uint32_t n_file;
    const fm_source_file *file;
    fm_status status = fm_source_files(job->chain, arena, &n_file, &file, reterr);
    if (status) return status;
    size_t n = 0;
    bool has_hits = false;
    for (uint32_t i = 0; i < n_file && !status; i++) {
        fm_msa_format format = fm_msa_format_of_name(file[i].name);
        has_hits |= fm_source_is_search(file[i].name);
        if (format == FM_MSA_NONE) continue;
        if (n == FM_BUILD_N_ALIGNMENT) {
            return fm_fail(reterr, FM_ERR_LIMIT, "more than %d alignment files",
                           FM_BUILD_N_ALIGNMENT);
        }
        inputs[n] = (fm_msa_input){.name = file[i].name, .format = format};
        status = fm_build_read_file(work, &file[i], &inputs[n++].content, reterr);
    }
    if (!status && n == 0) status = accept_no_alignment(work, n_file, file, reterr);
    if (!status) *ret_n = n;
    if (!status && !has_hits) fm_build_count_without_hits(work->state);
    return status;
}

/* Errors of alignments name the file; this adds its folder. */
void fm_build_name_folder(const fm_build_chain *job, fm_error *error) {
    const char *where = job->chain->folder ? job->chain->folder : job->chain->db;
    char path[PATH_MAX + FM_ERROR_SOURCE_BYTES];
    if (!where) where = job->name;
    if (error->source[0] && !strchr(error->source, '/')) {
        snprintf(path, sizeof path, "%s/%s", where, error->source);
    } else {
        if (error->source[0]) return;
        snprintf(path, sizeof path, "%s", where);
    }
    error->source[0] = '\0';
    fm_error_in(error, path);
}

static fm_status make_msa(fm_build_work *work, fm_build_chain *job, const fm_msa_input *inputs,
                          size_t n_input, fm_error *reterr) {
    fm_part_msa msa;
    fm_msa_report report = {0};
    fm_bytes bytes;
    fm_arena *arena = &work->chain_arena;
    fm_status status = ensure_parts(work, job, reterr);
    if (!status) {
        status = fm_features_msa(&job->sequence, inputs, n_input, &work->state->options->features,
                                 arena, &msa, &report, reterr);
    }
    if (!status) fm_build_count_left_out(work->state, report.n_left_out);
    if (!status) status = fm_part_msa_encode(&msa, arena, &bytes, reterr);
    return status ? status : keep_part(work, job, FM_PART_MSA, bytes, reterr);
}

fm_status fm_build_do_msa(fm_build_work *work, fm_build_chain *job, fm_error *reterr) {
    fm_msa_input *inputs =
        fm_arena_alloc_array(&work->chain_arena, FM_BUILD_N_ALIGNMENT, sizeof *inputs);
    if (!inputs) return fm_arena_full(&work->chain_arena, reterr);
    size_t n_input;
    fm_status status = read_alignments(work, job, inputs, &n_input, reterr);
    fm_build_result *result = &job->result;
    if (!status) {
        fm_sha256 key =
            fm_build_rows_key(work, "msa", &result->part[FM_PART_SEQUENCE - 1], inputs, n_input);
        fm_sha256 *value = &result->part[FM_PART_MSA - 1];
        keep_key(result, FM_PART_MSA, &key);
        if (fm_build_use_note(work->state, &key, value->bytes, sizeof *value)) {
            result->has[FM_PART_MSA - 1] = true;
            return FM_OK;
        }
        status = make_msa(work, job, inputs, n_input, reterr);
        if (!status) fm_build_make_note(work->state, &key, (fm_bytes){value->bytes, sizeof *value});
    }
    if (status) fm_build_name_folder(job, reterr);
    return status;
}

/* -- hits */

/* Reads the chain's template search files, which are sorted by name. */
static fm_status read_searches(fm_build_work *work, const fm_build_chain *job,
                               fm_build_search *search, size_t *ret_n, fm_error *reterr) {
    fm_arena *arena = &work->chain_arena;
    uint32_t n_file;
    const fm_source_file *file;
    fm_status status = fm_source_files(job->chain, arena, &n_file, &file, reterr);
    if (status) return status;
    size_t n = 0;
    for (uint32_t i = 0; i < n_file && !status; i++) {
        if (!fm_source_is_search(file[i].name)) continue;
        if (n == FM_BUILD_N_ALIGNMENT) {
            return fm_fail(reterr, FM_ERR_LIMIT, "more than %d template search files",
                           FM_BUILD_N_ALIGNMENT);
        }
        search[n].name = file[i].name;
        status = fm_build_read_file(work, &file[i], &search[n++].text, reterr);
    }
    if (!status) *ret_n = n;
    return status;
}

/* Takes the list "hash of the hits part, hashes of the structure parts that it names" into the
 * result. */
static fm_status take_list(fm_build_chain *job, fm_bytes list, fm_error *reterr) {
    fm_build_result *result = &job->result;
    fm_sha256 *hash = &result->part[FM_PART_HITS - 1];
    size_t n_named = list.size / sizeof *hash - 1;
    result->named = malloc((n_named + 1) * sizeof *hash);
    if (!result->named) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of parts");
    memcpy(hash, list.data, sizeof *hash);
    memcpy(result->named, list.data + sizeof *hash, n_named * sizeof *hash);
    result->n_named = (uint32_t)n_named;
    result->has[FM_PART_HITS - 1] = true;
    return FM_OK;
}

/* Lists the structure parts that a hits part names, each once, after a free place for the part's
 * own hash. */
static fm_status list_named(const fm_part_hits *hits, fm_arena *arena, fm_sha256 **ret_list,
                            size_t *ret_n, fm_error *reterr) {
    fm_sha256 *list = fm_arena_alloc_array(arena, (size_t)hits->n_hit + 1, sizeof *list);
    fm_hash_map seen = {0};
    size_t n = 1;
    bool good = list != NULL;
    for (uint32_t i = 0; i < hits->n_hit && good; i++) {
        const fm_template_hit *hit = &hits->hit[i];
        if (hit->fault || fm_hash_map_find(&seen, &hit->structure)) continue;
        good = fm_hash_map_add(&seen, &hit->structure, 0);
        list[n++] = hit->structure;
    }
    fm_hash_map_fini(&seen);
    if (!good) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of parts");
    *ret_list = list;
    *ret_n = n;
    return FM_OK;
}

static fm_status make_hits(fm_build_work *work, fm_build_chain *job, const fm_build_search *search,
                           size_t n_search, fm_bytes *ret_list, fm_error *reterr) {
    fm_part_hits hits;
    fm_bytes bytes;
    fm_sha256 *list;
    size_t n;
    fm_arena *arena = &work->chain_arena;
    fm_status status = ensure_parts(work, job, reterr);
    if (!status) {
        status = fm_build_hits_map(&work->reader, &job->sequence, search, n_search, arena, &hits,
                                   reterr);
    }
    if (!status) status = fm_part_hits_encode(&hits, arena, &bytes, reterr);
    if (!status) status = list_named(&hits, arena, &list, &n, reterr);
    if (!status) status = keep_part(work, job, FM_PART_HITS, bytes, reterr);
    if (status) return status;
    list[0] = job->result.part[FM_PART_HITS - 1];
    *ret_list = (fm_bytes){list[0].bytes, n * sizeof *list};
    return FM_OK;
}

/* A chain without template search files has no hits part. */
fm_status fm_build_do_hits(fm_build_work *work, fm_build_chain *job, fm_error *reterr) {
    fm_build_search *search =
        fm_arena_alloc_array(&work->chain_arena, FM_BUILD_N_ALIGNMENT, sizeof *search);
    size_t n_search = 0;
    fm_bytes list;
    if (!search) return fm_arena_full(&work->chain_arena, reterr);
    fm_status status = read_searches(work, job, search, &n_search, reterr);
    if (!status && n_search) {
        fm_sha256_state *state = fm_build_begin_key(work, "hits", FM_STAGE_HITS, 0);
        const fm_sha256 *sequence = &job->result.part[FM_PART_SEQUENCE - 1];
        fm_sha256_update(state, sequence->bytes, sizeof *sequence);
        status =
            fm_build_hits_key(&work->reader, search, n_search, &work->chain_arena, state, reterr);
        fm_sha256 key = fm_build_end_key(state);
        keep_key(&job->result, FM_PART_HITS, &key);
        if (!status && !fm_build_use_list(work->state, &key, &work->chain_arena, &list)) {
            status = make_hits(work, job, search, n_search, &list, reterr);
            if (!status) fm_build_make_note(work->state, &key, list);
        }
        if (!status) status = take_list(job, list, reterr);
    }
    if (status) fm_build_name_folder(job, reterr);
    return status;
}

/* -- chains and structures */

/* The item of the task's chain `index`. */
static uint32_t item_of(const fm_build_work *work, uint32_t index) {
    return work->task.item ? work->task.item[index] : FM_BUILD_NO_ITEM;
}

uint32_t fm_build_item_of_rest(const fm_build_work *work) {
    return item_of(work, work->task.n_chain);
}

/* `listed_by`: NULL, or the key of the note that says the structure has this chain. */
static void do_chain(fm_build_work *work, const fm_source_chain *chain, uint32_t item,
                     const fm_sha256 *listed_by) {
    if (fm_build_is_ending(work->state)) return;
    fm_error error = {0};
    fm_build_chain job = {.name = chain->name, .author_id = chain->author_id, .chain = chain};
    job.result.reused = true;
    job.result.item = item;
    if (listed_by) keep_key(&job.result, FM_PART_SEQUENCE, listed_by);
    fm_arena_reset(&work->chain_arena);
    fm_status status = FM_OK;
    /* A bad sequence is reported before the alignments that it lacks: no search can use it. */
    if (chain->refusal && work->source->query) status = ensure_parts(work, &job, &error);
    if (chain->refusal && !status) {
        status =
            fm_fail(&error, chain->is_unreadable ? FM_ERR_IO : FM_ERR_FORMAT, "%s", chain->refusal);
    }
    if (!status) status = do_structure(work, &job, &error);
    if (!status) status = do_facts(work, &job, &error);
    if (!status) status = fm_build_do_msa(work, &job, &error);
    if (!status) status = fm_build_do_hits(work, &job, &error);
    const fm_listed *listed = fm_source_listed_chain(work->state->source, chain->name);
    if (listed) {
        job.result.listed = *listed;
        job.result.listed.name = NULL;
        job.result.has_listed = true;
    }
    fm_build_add_result(work->state, chain->name, &job.result, status ? &error : NULL);
}

/* The author ids of all chains of the structure, each once, with a zero byte after each. */
static fm_status list_chains(fm_build_work *work, fm_bytes *ret_ids, fm_error *reterr) {
    fm_sha256 key = fm_build_chains_key(work);
    if (fm_build_use_text(work->state, &key, &work->structure_arena, ret_ids)) return FM_OK;
    fm_status status = ensure_parsed(work, reterr);
    if (status) return status;
    size_t bytes = 0, at = 0;
    uint32_t n = fm_structure_file_n_chain(&work->file);
    for (uint32_t i = 0; i < n; i++)
        bytes += strlen(fm_structure_file_chain_id(&work->file, i)) + 1;
    char *ids = fm_arena_alloc(&work->structure_arena, bytes);
    if (!ids) return fm_arena_full(&work->structure_arena, reterr);
    for (uint32_t i = 0; i < n; i++) {
        const char *id = fm_structure_file_chain_id(&work->file, i);
        size_t length = strlen(id) + 1;
        memcpy(ids + at, id, length);
        at += length;
    }
    *ret_ids = (fm_bytes){(const uint8_t *)ids, bytes};
    fm_build_make_note(work->state, &key, *ret_ids);
    return FM_OK;
}

/* A chain that has the name of its file is its only one. */
static bool has_alignments(const fm_source_structure *source, const char *author_id) {
    for (uint32_t i = 0; i < source->n_chain; i++) {
        const char *id = source->chain[i].author_id;
        if (!id || strcmp(id, author_id) == 0) return true;
    }
    return false;
}

bool fm_build_is_listed(const char *ids, size_t size, const char *id) {
    for (size_t at = 0; at < size; at += strlen(ids + at) + 1) {
        if (strcmp(ids + at, id) == 0) return true;
    }
    return false;
}

static void count_chain(fm_build_work *work) {
    pthread_mutex_lock(&work->state->lock);
    work->state->progress.n_chain++;
    pthread_mutex_unlock(&work->state->lock);
}

/* A chain of nucleic acid is of its complex alone. */
static void drop_chain(fm_build_work *work) {
    pthread_mutex_lock(&work->state->lock);
    work->state->progress.n_chain--;
    pthread_mutex_unlock(&work->state->lock);
}

static const fm_source_dataset *dataset_of(const fm_build_work *work) {
    return &work->state->source->dataset[work->source->dataset];
}

/* A structure whose chains are unknown is refused under its own name. */
static void refuse_structure(fm_build_work *work, const fm_error *error) {
    const fm_build_result result = {.item = fm_build_item_of_rest(work)};
    char name[FM_SOURCE_DATASET_BYTES + FM_LIMIT_NAME_BYTES + 2];
    snprintf(name, sizeof name, "%s%s", dataset_of(work)->prefix, work->source->id);
    count_chain(work);
    fm_build_add_result(work->state, name, &result, error);
}

static void count_no_protein(fm_build_work *work) {
    pthread_mutex_lock(&work->state->lock);
    work->state->n_no_protein++;
    pthread_mutex_unlock(&work->state->lock);
}

static void do_single_sequences(fm_build_work *work) {
    fm_error error = {0};
    fm_bytes ids = {0};
    const char *text;
    fm_status status = list_chains(work, &ids, &error);
    if (status) {
        /* Each chain with alignments has been refused already, by its name. */
        if (work->source->n_chain) return;
        /* A file of nucleic acids alone is valid. */
        if (status == FM_ERR_NOT_FOUND) {
            count_no_protein(work);
        } else {
            refuse_structure(work, &error);
        }
        return;
    }
    text = (const char *)ids.data;
    const fm_sha256 listed_by = fm_build_chains_key(work);
    /* Predictions have the names of their files. */
    bool is_prediction = work->source->is_pdb || work->features.is_predicted;
    bool is_only = is_prediction && strlen(text) + 1 == ids.size;
    for (size_t at = 0; at < ids.size; at += strlen(text + at) + 1) {
        char name[FM_LIMIT_NAME_BYTES + 1];
        if (has_alignments(work->source, text + at) || fm_build_is_listed(text, at, text + at)) {
            continue;
        }
        int length = snprintf(name, sizeof name, "%s%s%s%s", dataset_of(work)->prefix,
                              work->source->id, is_only ? "" : "_", is_only ? "" : text + at);
        if (length <= 0 || (size_t)length >= sizeof name || strchr(name, ' ')) continue;
        count_chain(work);
        do_chain(work, &(fm_source_chain){.name = name, .author_id = is_only ? NULL : text + at},
                 fm_build_item_of_rest(work), &listed_by);
    }
}

static void refuse_task(fm_build_work *work, const fm_error *error) {
    const fm_build_task *task = &work->task;
    for (uint32_t i = 0; i < task->n_chain; i++) {
        const fm_build_result result = {.item = item_of(work, i)};
        fm_build_add_result(work->state, task->chain[i].name, &result, error);
    }
    /* The catalogue must learn that the item of the other chains was not done; a complex tells. */
    bool is_passing = error->status == FM_ERR_IO || error->status == FM_ERR_NOMEM;
    bool must_tell = task->item && is_passing && !task->complex;
    if (task->complex) fm_build_refuse_complex(work, error);
    if (task->singles && (!work->source->n_chain || must_tell)) refuse_structure(work, error);
}

static void do_task(fm_build_work *work) {
    const fm_source_structure *source = work->task.structure;
    fm_arena_reset(&work->structure_arena);
    work->source = source;
    work->parsed = false;
    work->complex = NULL;
    work->features = work->state->options->features;
    work->features.is_predicted = dataset_of(work)->is_predicted;
    fm_error error = {0};
    fm_status status = fm_source_read_structure(source, fm_build_input_bytes(work->state),
                                                &work->structure_arena, &work->text, &error);
    if (status) {
        fm_error_in(&error, source->path);
        work->parsed = true;
        work->parse_status = status;
        work->parse_error = error;
        work->text = (fm_bytes){0};
        refuse_task(work, &error);
        return;
    }
    work->text_hash = fm_sha256_of(work->text.data, work->text.size);
    count_input(work, work->text.size);
    if (work->task.complex && !fm_build_is_ending(work->state)) fm_build_do_complex(work);
    for (uint32_t i = 0; i < work->task.n_chain; i++) {
        if (fm_build_is_no_protein(work, work->task.chain[i].author_id)) {
            drop_chain(work);
        } else {
            do_chain(work, &work->task.chain[i], item_of(work, i), NULL);
        }
    }
    if (work->task.singles) do_single_sequences(work);
}

/* Takes the next structure with work to do. */
static bool next_structure(fm_build_state *state, fm_build_task *ret_task) {
    const fm_source_structure *found = NULL;
    pthread_mutex_lock(&state->lock);
    while (!found && !state->ending && state->next_structure < state->source->n_structure) {
        const fm_source_structure *here = &state->source->structure[state->next_structure++];
        if (here->n_chain || state->options->single_sequence || fm_build_has_complex(state, here)) {
            found = here;
        }
    }
    pthread_mutex_unlock(&state->lock);
    if (!found) return false;
    *ret_task = (fm_build_task){.structure = found,
                                .chain = found->chain,
                                .n_chain = found->n_chain,
                                .singles = state->options->single_sequence,
                                .complex = fm_build_has_complex(state, found)};
    return true;
}

static bool next_task(fm_build_state *state, fm_build_task *ret_task) {
    return state->feed ? state->feed->next(state->feed->context, ret_task)
                       : next_structure(state, ret_task);
}

void *fm_build_worker(void *context) {
    fm_build_work work = {.state = context};
    fm_build_state *state = context;
    fm_error error;
    fm_status status =
        fm_arena_init(&work.structure_arena, fm_build_worker_bytes(state, 1), &error);
    if (!status) status = fm_arena_init(&work.chain_arena, fm_build_worker_bytes(state, 6), &error);
    if (!status) status = fm_build_reader_init(&work.reader, state, state->templates, &error);
    if (status) fm_build_fail(state, &error);
    while (!status && next_task(state, &work.task)) {
        do_task(&work);
        if (state->feed) state->feed->done(state->feed->context, &work.task);
        pthread_mutex_lock(&state->lock);
        state->progress.structures_done++;
        pthread_mutex_unlock(&state->lock);
    }
    fm_arena_fini(&work.structure_arena);
    fm_arena_fini(&work.chain_arena);
    fm_build_reader_fini(&work.reader);
    pthread_mutex_lock(&state->lock);
    state->n_working--;
    pthread_cond_broadcast(&state->changed);
    pthread_mutex_unlock(&state->lock);
    return NULL;
}
