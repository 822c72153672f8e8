/* build_complex.c: makes the parts of a complex: its assembly, and the rows and hits of its
 * entities. See build.h.
 *
 * An entity takes the alignments of one of its chains. All rows of a protein are the msa of a chain
 * of its sequence, under the same key, so whichever comes first makes the part. A note keeps what a
 * later build must know of the assembly without parsing it:
 *
 *     32  hash of the assembly part       u32 entities, and each of them:
 *     36  the row of facts                    u8 fm_polymer, u8 has rows, u16 bytes of author ids
 *     u32 bytes of the records,               u16 bytes of its own id; 0: no list has it
 *         and then their table                32 hash of its sequence
 *     u32 bytes of the next,                  the ids, each with a zero byte
 *         u64[2] clusters of the sides
 *         of each record
 *
 * It does not depend on lists of clusters: they take effect when a generation is made, so that
 * another list makes no part again. */
#include "cache/build/build_work.h"

#include "cache/build/item_note.h"
#include "featurizer/complex/complex.h"
#include "featurizer/complex/read.h"
#include "featurizer/complex/records.h"
#include "proto/base/directory.h"
#include "proto/chem/residue.h"
#include "proto/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIDES_BYTES = 2 * sizeof(uint64_t), /* of a record, in a note */
    KEY_PROTENIX = 8,                   /* in the key of a complex */
};

typedef struct complex_entity {
    uint8_t polymer; /* fm_polymer */
    bool has_rows;
    fm_sha256 sequence;
    const char *authors; /* ids of its chains, each with a zero byte */
    uint32_t author_bytes;
    const char *id; /* of one that a list of clusters may have; NULL = another */
} complex_entity;

struct fm_build_complex {
    fm_build_result result;
    fm_bytes note;
    uint32_t n_entity;
    complex_entity *entities;
    fm_part_entity_inputs *inputs; /* [n_entity] */
    bool has_assembly, stays;      /* it stays in chain_arena while entities come and go */
    fm_assembly assembly;
    size_t mark; /* of chain_arena, where an entity's memory begins */
};

bool fm_build_has_complex(const fm_build_state *state, const fm_source_structure *structure) {
    return state->components && fm_source_has_complex(state->source, structure);
}

/* -- the assembly */

static fm_status ensure_assembly(fm_build_work *work, fm_error *reterr) {
    fm_build_complex *self = work->complex;
    const fm_assembly_options options = {.compat_protenix = work->state->options->compat_protenix};
    if (self->has_assembly) return FM_OK;
    fm_status status = fm_assembly_read(work->text, work->state->components, &options,
                                        &work->chain_arena, &self->assembly, reterr);
    if (status) return fm_error_in(reterr, work->source->path);
    self->has_assembly = true;
    return FM_OK;
}

static fm_sha256 complex_key(const fm_build_work *work) {
    const fm_sha256 *components = &work->state->components->hash;
    uint8_t flags = work->state->options->compat_protenix ? KEY_PROTENIX : 0;
    fm_sha256_state *key = fm_build_begin_key(work, "complex", FM_STAGE_COMPLEX, flags);
    fm_sha256_update(key, work->text_hash.bytes, sizeof work->text_hash.bytes);
    fm_sha256_update(key, components->bytes, sizeof components->bytes);
    return fm_build_end_key(key);
}

static fm_bytes sequence_of(const fm_assembly_entity *entity) {
    return (fm_bytes){(const uint8_t *)entity->sequence, entity->n_residue};
}

/* -- the note */

/* Writes the author ids of an entity's chains, each once; returns their bytes. */
static uint32_t list_authors(const fm_assembly *assembly, uint32_t entity, char *out) {
    size_t n = 0;
    for (uint32_t c = 0; c < assembly->n_chain; c++) {
        const char *id = assembly->chains[c].auth_asym_id;
        size_t size = strlen(id) + 1;
        if (assembly->chains[c].entity != entity || fm_build_is_listed(out, n, id)) continue;
        if (n + size > UINT16_MAX) break; /* alignments are found by the first ones */
        memcpy(out + n, id, size);
        n += size;
    }
    return (uint32_t)n;
}

static fm_chain_facts facts_of(const fm_assembly *assembly) {
    fm_chain_facts facts = {.flags = FM_FACTS_KNOWN | FM_FACTS_COMPLEX,
                            .n_res = assembly->n_token,
                            .resolution = assembly->resolution > 0 ? assembly->resolution : 0};
    if (strcmp(assembly->release_date, "9999-12-31") != 0) {
        memcpy(facts.release_date, assembly->release_date, sizeof facts.release_date);
    }
    return facts;
}

static uint64_t hash_text(const char *text) {
    return fm_xxh3(text, strlen(text));
}

static uint64_t cluster_of(const fm_complex_row *row, const uint64_t sides[2]) {
    return row->is_interface ? fm_complex_row_join(sides[0], sides[1]) : sides[0];
}

/* Fills a row, and the clusters of its sides in the order of its entities. */
static void set_row(const fm_assembly *assembly, const fm_complex_record *record,
                    fm_complex_row *row, uint64_t sides[2]) {
    *row = (fm_complex_row){.is_interface = record->is_interface,
                            .asym_id = {-1, -1},
                            .entity = {UINT32_MAX, UINT32_MAX}};
    for (int side = 0; side < 1 + record->is_interface; side++) {
        const fm_assembly_chain *chain = &assembly->chains[record->chain[side]];
        row->kind[side] = record->kind[side];
        row->chain[side] = record->chain[side];
        row->asym_id[side] = chain->asym_id;
        row->entity[side] = chain->entity;
        sides[side] = hash_text(record->side[side]);
    }
    row->cluster = cluster_of(row, sides);
    if (row->entity[0] <= row->entity[1]) return;
    uint32_t first = row->entity[0];
    uint64_t first_cluster = sides[0];
    row->entity[0] = row->entity[1];
    row->entity[1] = first;
    sides[0] = sides[1];
    sides[1] = first_cluster;
}

/* The drawn records, with numbers for their texts, and the clusters of their sides. */
static fm_status list_rows(const fm_assembly *assembly, bool compat_protenix, fm_arena *arena,
                           fm_bytes *ret_rows, fm_bytes *ret_sides, fm_error *reterr) {
    const fm_record_options options = {.compat_protenix = compat_protenix};
    const fm_complex_record *records;
    uint32_t n, n_row = 0;
    fm_status status = fm_complex_records_list(assembly, &options, arena, &records, &n, reterr);
    if (status) return status;
    fm_complex_row *rows = fm_arena_calloc(arena, n, sizeof *rows);
    uint8_t *data = fm_arena_alloc_array(arena, n, SIDES_BYTES);
    if (!rows || !data) return fm_arena_full(arena, reterr);
    fm_writer writer = fm_writer_of(data, (size_t)n * SIDES_BYTES);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t sides[2] = {0};
        if (!fm_complex_record_is_drawn(&records[i])) continue;
        set_row(assembly, &records[i], &rows[n_row++], sides);
        fm_write_u64(&writer, sides[0]);
        fm_write_u64(&writer, sides[1]);
    }
    *ret_sides = (fm_bytes){data, writer.at};
    return fm_complex_rows_encode(rows, n_row, arena, ret_rows, reterr);
}

static fm_status write_note(fm_build_complex *self, const fm_sha256 *part, bool compat_protenix,
                            fm_arena *arena, fm_error *reterr) {
    const fm_assembly *assembly = &self->assembly;
    const fm_chain_facts facts = facts_of(assembly);
    uint8_t row[FM_FACTS_BYTES];
    fm_bytes rows = {0}, sides = {0};
    fm_status status = list_rows(assembly, compat_protenix, arena, &rows, &sides, reterr);
    size_t room = 128 + rows.size + sides.size + (size_t)assembly->n_entity * 64;
    for (uint32_t i = 0; i < assembly->n_entity; i++)
        room += strlen(assembly->entities[i].id) + 1;
    for (uint32_t c = 0; c < assembly->n_chain; c++)
        room += strlen(assembly->chains[c].auth_asym_id) + 1;
    uint8_t *data = status ? NULL : fm_arena_alloc(arena, room);
    char *authors = status ? NULL : fm_arena_alloc(arena, UINT16_MAX + 1);
    if (status) return status;
    if (!data || !authors) return fm_arena_full(arena, reterr);
    fm_writer writer = fm_writer_of(data, room);
    fm_facts_encode_row(&facts, row);
    fm_write_bytes(&writer, part->bytes, sizeof part->bytes);
    fm_write_bytes(&writer, row, sizeof row);
    fm_write_u32(&writer, (uint32_t)rows.size);
    fm_write_bytes(&writer, rows.data, rows.size);
    fm_write_u32(&writer, (uint32_t)sides.size);
    fm_write_bytes(&writer, sides.data, sides.size);
    fm_write_u32(&writer, assembly->n_entity);
    for (uint32_t i = 0; i < assembly->n_entity && !status; i++) {
        const fm_assembly_entity *entity = &assembly->entities[i];
        bool has_rows = fm_entity_has_rows(entity);
        uint32_t n = has_rows ? list_authors(assembly, i, authors) : 0;
        size_t id_bytes = fm_complex_record_is_clustered(entity) ? strlen(entity->id) + 1 : 0;
        if (id_bytes > FM_LIMIT_NAME_BYTES) id_bytes = 0; /* no list has it */
        fm_sha256 hash = {{0}};
        if (has_rows) {
            status =
                fm_entity_sequence_hash(sequence_of(entity), entity->polymer, arena, &hash, reterr);
        }
        fm_write_u8(&writer, entity->polymer);
        fm_write_u8(&writer, has_rows);
        fm_write_u16(&writer, (uint16_t)n);
        fm_write_u16(&writer, (uint16_t)id_bytes);
        fm_write_bytes(&writer, hash.bytes, sizeof hash.bytes);
        fm_write_bytes(&writer, authors, n);
        fm_write_bytes(&writer, entity->id, id_bytes);
    }
    self->note = (fm_bytes){data, writer.at};
    return status;
}

/* Reads an entity of a note; false when it is broken. */
static bool read_entity(fm_reader *reader, complex_entity *entity) {
    entity->polymer = fm_read_u8(reader);
    entity->has_rows = fm_read_u8(reader) != 0;
    entity->author_bytes = fm_read_u16(reader);
    uint32_t id_bytes = fm_read_u16(reader);
    const uint8_t *hash = fm_read_borrow(reader, FM_SHA256_BYTES);
    const uint8_t *authors = fm_read_borrow(reader, entity->author_bytes);
    const uint8_t *id = fm_read_borrow(reader, id_bytes);
    if (!hash || !authors || !id) return false;
    if (entity->author_bytes && authors[entity->author_bytes - 1]) return false;
    if (id_bytes && id[id_bytes - 1]) return false;
    memcpy(entity->sequence.bytes, hash, FM_SHA256_BYTES);
    entity->authors = (const char *)authors;
    entity->id = id_bytes ? (const char *)id : NULL;
    return true;
}

/* Borrows the table of records and the clusters of their sides; false when they are cut off. */
static bool read_records(fm_reader *reader, fm_bytes *ret_rows, fm_bytes *ret_sides) {
    uint32_t size = fm_read_u32(reader);
    *ret_rows = (fm_bytes){fm_read_borrow(reader, size), size};
    size = fm_read_u32(reader);
    *ret_sides = (fm_bytes){fm_read_borrow(reader, size), size};
    return !reader->failed;
}

/* Reads the entities, and of each the cluster that a list has for it, or NULL. */
static bool find_clusters(fm_reader *reader, const fm_source *source, const char *name,
                          const uint64_t **clusters, uint32_t n, fm_build_complex_note *note) {
    for (uint32_t i = 0; i < n; i++) {
        complex_entity entity = {0};
        if (!read_entity(reader, &entity)) return false;
        clusters[i] = entity.id ? fm_source_entity_cluster(source, name, entity.id) : NULL;
        note->n_protein += entity.id != NULL;
        note->n_unclustered += entity.id && !clusters[i];
    }
    return true;
}

/* Gives the rows the clusters of the list. False for an entity that the complex does not have. */
static bool take_clusters(fm_complex_row *rows, uint32_t n_row, fm_bytes sides,
                          const uint64_t *const *clusters, uint32_t n) {
    fm_reader reader = fm_reader_of(sides.data, sides.size);
    if (sides.size != (size_t)n_row * SIDES_BYTES) return false;
    for (uint32_t i = 0; i < n_row; i++) {
        uint64_t side[2];
        for (int k = 0; k < 2; k++) {
            bool is_one = k < 1 + rows[i].is_interface;
            if (is_one && rows[i].entity[k] >= n) return false;
            side[k] = fm_read_u64(&reader);
            if (is_one && clusters[rows[i].entity[k]]) side[k] = *clusters[rows[i].entity[k]];
        }
        rows[i].cluster = cluster_of(&rows[i], side);
    }
    return true;
}

fm_status fm_build_read_complex_note(fm_bytes value, const fm_source *source, const char *name,
                                     fm_arena *arena, fm_build_complex_note *ret_note,
                                     fm_error *reterr) {
    fm_build_complex_note note = {0};
    fm_bytes table, sides;
    fm_reader reader = fm_reader_of(value.data, value.size);
    (void)fm_read_borrow(&reader, FM_SHA256_BYTES);
    const uint8_t *row = fm_read_borrow(&reader, FM_FACTS_BYTES);
    bool is_whole = row && read_records(&reader, &table, &sides);
    uint32_t n = fm_read_u32(&reader);
    if (!is_whole || reader.failed || n > value.size) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "the note of a complex is cut off");
    }
    fm_status status = fm_facts_decode_row((fm_bytes){row, FM_FACTS_BYTES}, &note.facts, reterr);
    if (!status) status = fm_complex_rows_decode(table, 1, arena, &note.rows, &note.n_row, reterr);
    if (status) return status;
    fm_complex_row *rows = (fm_complex_row *)(uintptr_t)note.rows; /* made here */
    size_t mark = fm_arena_mark(arena);
    const uint64_t **clusters = fm_arena_alloc_array(arena, n, sizeof *clusters);
    if (!clusters) return fm_arena_full(arena, reterr);
    if (!find_clusters(&reader, source, name, clusters, n, &note) ||
        !take_clusters(rows, note.n_row, sides, clusters, n)) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "the note of a complex has broken entities");
    }
    fm_arena_rewind(arena, mark);
    *ret_note = note;
    return FM_OK;
}

/* Takes the entities of the note; false when it is broken. */
static bool take_entities(fm_build_complex *self, fm_arena *arena) {
    fm_bytes rows, sides;
    fm_reader reader = fm_reader_of(self->note.data, self->note.size);
    (void)fm_read_borrow(&reader, FM_SHA256_BYTES + FM_FACTS_BYTES);
    if (!read_records(&reader, &rows, &sides)) return false;
    uint32_t n = fm_read_u32(&reader);
    if (reader.failed || n > self->note.size) return false;
    self->n_entity = n;
    self->entities = fm_arena_calloc(arena, n, sizeof *self->entities);
    self->inputs = fm_arena_calloc(arena, n, sizeof *self->inputs);
    if (!self->entities || !self->inputs) return false;
    for (uint32_t i = 0; i < n; i++)
        if (!read_entity(&reader, &self->entities[i])) return false;
    return fm_reader_left(&reader) == 0;
}

/* Uses the assembly part of an earlier build. */
static bool use_assembly(fm_build_work *work, const fm_sha256 *key) {
    fm_build_complex *self = work->complex;
    fm_sha256 part;
    if (!fm_build_use_text(work->state, key, &work->structure_arena, &self->note)) return false;
    if (self->note.size < sizeof part) return false;
    memcpy(&part, self->note.data, sizeof part);
    if (!fm_build_knows_blob(work->state, &part)) return false;
    if (!take_entities(self, &work->structure_arena)) return false;
    self->result.part[0] = part;
    self->result.has[0] = true;
    return true;
}

static fm_status make_assembly(fm_build_work *work, const fm_sha256 *key, fm_error *reterr) {
    fm_build_complex *self = work->complex;
    fm_arena *arena = &work->chain_arena;
    fm_part_assembly part;
    fm_bytes bytes = {0};
    fm_status status = ensure_assembly(work, reterr);
    if (status) return status;
    self->stays = true;
    self->mark = fm_arena_mark(arena);
    status =
        fm_assembly_pack(&self->assembly, &work->state->components->hash, arena, &part, reterr);
    if (!status) status = fm_part_assembly_encode(&part, arena, &bytes, reterr);
    if (!status) {
        status = fm_build_keep_part(work, &self->result, 0, FM_PART_ASSEMBLY, bytes, reterr);
    }
    if (!status) {
        status = write_note(self, &self->result.part[0], work->state->options->compat_protenix,
                            &work->structure_arena, reterr);
    }
    if (!status && !take_entities(self, &work->structure_arena)) {
        status = fm_arena_full(&work->structure_arena, reterr);
    }
    if (status) return fm_error_in(reterr, work->source->path);
    fm_build_make_note(work->state, key, self->note);
    return FM_OK;
}

/* -- entities */

fm_status fm_build_entity_sequence(fm_build_work *work, fm_build_chain *job, fm_error *reterr) {
    fm_status status = ensure_assembly(work, reterr);
    if (status) return status;
    return fm_entity_letters(sequence_of(&work->complex->assembly.entities[job->entity]),
                             &work->chain_arena, &job->sequence, reterr);
}

/* The first chain with alignments that is of the entity. */
static const fm_source_chain *find_chain(const fm_build_work *work, const complex_entity *entity) {
    for (uint32_t i = 0; i < work->source->n_chain; i++) {
        const fm_source_chain *chain = &work->source->chain[i];
        if (!chain->author_id) continue;
        if (fm_build_is_listed(entity->authors, entity->author_bytes, chain->author_id)) {
            return chain;
        }
    }
    return NULL;
}

/* *ret_chain = the alignments that the dataset has for the entity's sequence; NULL = none. A folder
 * that does not exist counts as none, because indices have more sequences than many datasets. */
static fm_status find_by_sequence(fm_build_work *work, const complex_entity *entity,
                                  const fm_source_chain **ret_chain, fm_error *reterr) {
    const fm_source_dataset *dataset = &work->state->source->dataset[work->source->dataset];
    const fm_sequence_list *list =
        entity->polymer == FM_POLYMER_RNA ? &dataset->rna : &dataset->proteins;
    const char *name = fm_sequence_list_find(list, &entity->sequence);
    fm_arena *arena = &work->structure_arena;
    fm_path_kind kind;
    *ret_chain = NULL;
    if (!name) return FM_OK;
    size_t size = strlen(list->folder) + strlen(name) + 2;
    char *folder = fm_arena_alloc(arena, size);
    fm_source_chain *chain = fm_arena_calloc(arena, 1, sizeof *chain);
    if (!folder || !chain) return fm_arena_full(arena, reterr);
    snprintf(folder, size, "%s/%s", list->folder, name);
    fm_status status = fm_path_look(folder, &kind, reterr);
    if (status || kind == FM_PATH_ABSENT) return status;
    chain->name = name;
    chain->folder = folder;
    *ret_chain = chain;
    return FM_OK;
}

static fm_status make_rows(fm_build_work *work, fm_build_chain *job, const fm_msa_input *inputs,
                           size_t n, fm_entity_rows kind, fm_error *reterr) {
    fm_part_msa msa;
    fm_bytes bytes = {0};
    fm_arena *arena = &work->chain_arena;
    fm_status status = ensure_assembly(work, reterr);
    if (!status) {
        status = fm_entity_msa_build(inputs, n, &work->complex->assembly.entities[job->entity],
                                     kind, arena, &msa, reterr);
    }
    if (!status) status = fm_part_msa_encode(&msa, arena, &bytes, reterr);
    return status ? status
                  : fm_build_keep_part(work, &job->result, FM_PART_MSA - 1, FM_PART_MSA, bytes,
                                       reterr);
}

/* A merge finds the notes of entities by the keys in the complex's result. */
static fm_status keep_key(fm_build_work *work, const fm_sha256 *key, fm_error *reterr) {
    return work->task.item ? fm_build_add_entity_key(&work->complex->result, key, reterr) : FM_OK;
}

/* Makes the rows of one kind of files. ret_part stays as it is where there is none. */
static fm_status do_rows(fm_build_work *work, fm_build_chain *job, const char *stage,
                         fm_entity_rows kind, fm_sha256 *ret_part, fm_error *reterr) {
    fm_arena *arena = &work->chain_arena;
    fm_msa_input *inputs = fm_arena_alloc_array(arena, FM_BUILD_N_ALIGNMENT, sizeof *inputs);
    const fm_source_file *file;
    uint32_t n_file = 0;
    size_t n = 0;
    if (!inputs) return fm_arena_full(arena, reterr);
    fm_status status = fm_source_files(job->chain, arena, &n_file, &file, reterr);
    for (uint32_t i = 0; i < n_file && !status; i++) {
        if (fm_entity_rows_of_name(file[i].name) != kind) continue;
        if (n == FM_BUILD_N_ALIGNMENT) {
            return fm_fail(reterr, FM_ERR_LIMIT, "more than %d alignment files",
                           FM_BUILD_N_ALIGNMENT);
        }
        inputs[n] =
            (fm_msa_input){.name = file[i].name, .format = fm_msa_format_of_ending(file[i].name)};
        status = fm_build_read_file(work, &file[i], &inputs[n++].content, reterr);
    }
    if (status || n == 0) return status;
    fm_sha256 *value = &job->result.part[FM_PART_MSA - 1];
    fm_sha256 key =
        fm_build_rows_key(work, stage, &job->result.part[FM_PART_SEQUENCE - 1], inputs, n);
    if (!fm_build_use_note(work->state, &key, value->bytes, sizeof *value)) {
        status = make_rows(work, job, inputs, n, kind, reterr);
        if (status) return status;
        fm_build_make_note(work->state, &key, (fm_bytes){value->bytes, sizeof *value});
    }
    *ret_part = *value;
    return keep_key(work, &key, reterr);
}

/* A protein's rows are those of its chain, and those of other species beside them. */
static fm_status do_protein(fm_build_work *work, fm_build_chain *job, fm_part_entity_inputs *inputs,
                            fm_error *reterr) {
    fm_build_result *result = &job->result;
    fm_status status = fm_build_do_msa(work, job, reterr);
    if (status) return status;
    inputs->unpaired = result->part[FM_PART_MSA - 1];
    status = do_rows(work, job, "paired", FM_ENTITY_ROWS_PAIRED, &inputs->paired, reterr);
    if (status) {
        fm_build_name_folder(job, reterr);
        return status;
    }
    status = fm_build_do_hits(work, job, reterr);
    if (!status && result->has[FM_PART_HITS - 1]) inputs->hits = result->part[FM_PART_HITS - 1];
    return status;
}

/* Frees what the entity before had. An assembly that it parsed goes, too. */
static void begin_entity(fm_build_work *work) {
    fm_build_complex *self = work->complex;
    fm_arena_rewind(&work->chain_arena, self->mark);
    self->has_assembly &= self->stays;
}

static fm_status do_entity(fm_build_work *work, uint32_t index, fm_error *reterr) {
    fm_build_complex *self = work->complex;
    const complex_entity *entity = &self->entities[index];
    fm_part_entity_inputs *inputs = &self->inputs[index];
    const fm_source_chain *chain = entity->has_rows ? find_chain(work, entity) : NULL;
    fm_status status = FM_OK;
    if (entity->has_rows && !chain) status = find_by_sequence(work, entity, &chain, reterr);
    if (status) return status;
    if (!chain) {
        if (entity->has_rows) fm_build_count_bare_entity(work->state);
        return FM_OK;
    }
    if (chain->refusal) {
        return fm_fail(reterr, chain->is_unreadable ? FM_ERR_IO : FM_ERR_FORMAT, "%s",
                       chain->refusal);
    }
    begin_entity(work);
    fm_build_chain job = {.name = chain->name, .chain = chain, .complex = self, .entity = index};
    job.result.reused = true;
    job.result.part[FM_PART_SEQUENCE - 1] = entity->sequence;
    if (entity->polymer == FM_POLYMER_RNA) {
        status = do_rows(work, &job, "rna", FM_ENTITY_ROWS_ALL, &inputs->unpaired, reterr);
        if (status) fm_build_name_folder(&job, reterr);
    } else {
        status = do_protein(work, &job, inputs, reterr);
    }
    self->result.reused &= job.result.reused;
    if (!status) status = fm_build_add_inputs(&self->result, inputs, reterr);
    for (uint32_t i = 0; i < job.result.n_named && !status; i++)
        status = fm_build_add_named(&self->result, &job.result.named[i], reterr);
    for (int k = 0; k < FM_N_PART && !status; k++)
        if (job.result.has_key[k]) status = keep_key(work, &job.result.key[k], reterr);
    free(job.result.named);
    return status;
}

/* -- the whole complex */

static fm_status do_parts(fm_build_work *work, fm_error *reterr) {
    fm_build_complex *self = work->complex;
    fm_bytes bytes = {0};
    fm_sha256 key = complex_key(work);
    self->result.key[0] = key;
    self->result.has_key[0] = true;
    fm_status status = FM_OK;
    if (!use_assembly(work, &key)) status = make_assembly(work, &key, reterr);
    if (!status) status = fm_build_add_named(&self->result, &work->state->components->hash, reterr);
    /* Where all chains have alignments, no single sequence keeps the key of their list. */
    if (!status && work->task.singles) {
        const fm_sha256 chains = fm_build_chains_key(work);
        status = keep_key(work, &chains, reterr);
    }
    for (uint32_t i = 0; i < self->n_entity && !status; i++)
        status = do_entity(work, i, reterr);
    if (status) return status;
    begin_entity(work);
    const fm_part_entities part = {self->n_entity, self->inputs};
    bool was_reused = self->result.reused;
    status = fm_part_entities_encode(&part, &work->chain_arena, &bytes, reterr);
    if (!status) {
        status = fm_build_keep_part(work, &self->result, 1, FM_PART_ENTITIES, bytes, reterr);
    }
    /* The part has no inputs of its own: it is new where one that it names is. */
    self->result.reused = was_reused;
    return status;
}

static void add_result(fm_build_work *work, const fm_build_result *result, const fm_error *error) {
    char name[FM_SOURCE_COMPLEX_BYTES];
    fm_source_name_complex(work->state->source, work->source, name);
    fm_build_add_result(work->state, name, result, error);
}

void fm_build_refuse_complex(fm_build_work *work, const fm_error *error) {
    const fm_build_result result = {.item = fm_build_item_of_rest(work), .is_complex = true};
    add_result(work, &result, error);
}

/* What the merge of a shared build takes from the note and from the worker's lists of clusters. */
static fm_status summarize(fm_build_work *work, fm_error *reterr) {
    char name[FM_SOURCE_COMPLEX_BYTES];
    fm_build_complex_note note;
    fm_arena *arena = &work->chain_arena;
    if (!work->task.item) return FM_OK;
    fm_source_name_complex(work->state->source, work->source, name);
    fm_status status = fm_build_read_complex_note(work->complex->note, work->state->source, name,
                                                  arena, &note, reterr);
    return status ? status
                  : fm_item_note_summarize(&note, arena, &work->complex->result.summary, reterr);
}

void fm_build_do_complex(fm_build_work *work) {
    fm_error error = {0};
    fm_build_complex *self = fm_arena_calloc(&work->structure_arena, 1, sizeof *self);
    if (!self) {
        (void)!fm_arena_full(&work->structure_arena, &error);
        fm_build_refuse_complex(work, &error);
        return;
    }
    self->result =
        (fm_build_result){.item = fm_build_item_of_rest(work), .is_complex = true, .reused = true};
    work->complex = self;
    fm_arena_reset(&work->chain_arena);
    self->mark = fm_arena_mark(&work->chain_arena);
    fm_status status = do_parts(work, &error);
    if (!status) status = summarize(work, &error);
    if (status) {
        fm_build_free_result(&self->result);
        fm_build_refuse_complex(work, &error);
    } else {
        add_result(work, &self->result, NULL);
    }
}

bool fm_build_is_no_protein(const fm_build_work *work, const char *author_id) {
    const fm_build_complex *self = work->complex;
    for (uint32_t i = 0; self && author_id && i < self->n_entity; i++) {
        const complex_entity *entity = &self->entities[i];
        if (entity->polymer != FM_POLYMER_RNA) continue;
        if (fm_build_is_listed(entity->authors, entity->author_bytes, author_id)) return true;
    }
    return false;
}
