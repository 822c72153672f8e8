/* item_note.c: see item_note.h. */
#include "cache/build/item_note.h"

#include "proto/base/bytes.h"
#include "proto/limits.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    REASON_BYTES_MAX = 4096,
    RESULTS_MAX = 1 << 16, /* chains of one structure */
    FORMAT_CHAINS = 1,
    FORMAT_COMPLEXES = 2, /* some results are complexes */
};

/* Kinds of results. */
enum { CHAIN, REFUSED, COMPLEX };

static const char magic[] = "FMIT";

fm_sha256 fm_item_note_key(const char *job, const char *item, uint32_t attempt) {
    static const char title[] = "foldmill item 1\n";
    uint8_t number[4];
    fm_writer writer = fm_writer_of(number, sizeof number);
    fm_write_u32(&writer, attempt);
    fm_sha256_state *state = fm_sha256_create();
    fm_sha256_update(state, title, sizeof title - 1);
    fm_sha256_update(state, job, strlen(job) + 1);
    fm_sha256_update(state, item, strlen(item) + 1);
    fm_sha256_update(state, number, sizeof number);
    fm_sha256 key = fm_sha256_digest(state);
    fm_sha256_destroy(state);
    return key;
}

/* -- writing */

static void write_text(fm_writer *writer, const char *text) {
    size_t n = strnlen(text, REASON_BYTES_MAX);
    fm_write_u16(writer, (uint16_t)n);
    fm_write_bytes(writer, text, n);
}

static void write_hashes(fm_writer *writer, const bool has[FM_N_PART],
                         const fm_sha256 hash[FM_N_PART]) {
    uint8_t mask = 0;
    for (int k = 0; k < FM_N_PART; k++)
        mask |= (uint8_t)(has[k] << k);
    fm_write_u8(writer, mask);
    for (int k = 0; k < FM_N_PART; k++) {
        if (has[k]) fm_write_bytes(writer, &hash[k], sizeof hash[k]);
    }
}

static void write_list(fm_writer *writer, const fm_sha256 *hash, uint32_t n) {
    fm_write_u32(writer, n);
    fm_write_bytes(writer, hash, n * sizeof *hash);
}

static void write_result(fm_writer *writer, const fm_build_result *result) {
    write_text(writer, result->name);
    fm_write_u8(writer, result->reason ? REFUSED : result->is_complex ? COMPLEX : CHAIN);
    if (result->reason) {
        fm_write_u8(writer, (uint8_t)result->status);
        write_text(writer, result->reason);
        return;
    }
    write_hashes(writer, result->has, result->part);
    write_hashes(writer, result->has_key, result->key);
    fm_write_u8(writer, result->has_listed);
    if (result->has_listed) {
        const fm_listed *listed = &result->listed;
        fm_write_bytes(writer, listed->release_date, sizeof listed->release_date);
        fm_write_f32(writer, listed->resolution);
        fm_write_u32(writer, listed->cluster_size);
    }
    write_list(writer, result->named, result->n_named);
    if (!result->is_complex) return;
    write_list(writer, result->entity_key, result->n_entity_key);
    fm_write_u32(writer, (uint32_t)result->summary.size);
    fm_write_bytes(writer, result->summary.data, result->summary.size);
}

static uint32_t format_of(const fm_item_note *note) {
    for (uint32_t i = 0; i < note->n_result; i++) {
        if (note->result[i].is_complex && !note->result[i].reason) return FORMAT_COMPLEXES;
    }
    return FORMAT_CHAINS;
}

static void write_note(fm_writer *writer, const fm_item_note *note) {
    fm_write_bytes(writer, magic, 4);
    fm_write_u32(writer, format_of(note));
    write_text(writer, note->job);
    write_text(writer, note->item);
    fm_write_bytes(writer, &note->options, sizeof note->options);
    fm_write_bytes(writer, &note->source, sizeof note->source);
    fm_write_u32(writer, note->attempt);
    fm_write_u32(writer, note->n_result);
    for (uint32_t i = 0; i < note->n_result; i++)
        write_result(writer, &note->result[i]);
}

fm_status fm_item_note_encode(const fm_item_note *note, fm_bytes *ret_bytes, fm_error *reterr) {
    fm_writer writer = fm_writer_of(NULL, 0);
    write_note(&writer, note);
    size_t size = writer.at;
    uint8_t *data = malloc(size);
    if (!data) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a note");
    writer = fm_writer_of(data, size);
    write_note(&writer, note);
    assert(!writer.failed && writer.at == size);
    *ret_bytes = (fm_bytes){data, size};
    return FM_OK;
}

fm_status fm_item_note_summarize(const fm_build_complex_note *note, fm_arena *arena,
                                 fm_bytes *ret_summary, fm_error *reterr) {
    fm_bytes rows = {0};
    uint8_t facts[FM_FACTS_BYTES];
    fm_status status = fm_complex_rows_encode(note->rows, note->n_row, arena, &rows, reterr);
    if (status) return status;
    size_t size = sizeof facts + 2 * sizeof(uint32_t) + rows.size;
    uint8_t *data = malloc(size);
    if (!data) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a note");
    fm_facts_encode_row(&note->facts, facts);
    fm_writer writer = fm_writer_of(data, size);
    fm_write_bytes(&writer, facts, sizeof facts);
    fm_write_u32(&writer, note->n_protein);
    fm_write_u32(&writer, note->n_unclustered);
    fm_write_bytes(&writer, rows.data, rows.size);
    assert(!writer.failed && writer.at == size);
    *ret_summary = (fm_bytes){data, size};
    return FM_OK;
}

/* -- reading */

/* Names become lines of lists, so they must have no control bytes. */
static bool has_control(const char *text) {
    for (; *text; text++) {
        if ((unsigned char)*text < ' ') return true;
    }
    return false;
}

static char *read_text(fm_reader *reader, fm_arena *arena, size_t min, size_t max) {
    size_t n = fm_read_u16(reader);
    const uint8_t *bytes = fm_read_borrow(reader, n);
    char *text = bytes || n == 0 ? fm_arena_alloc(arena, n + 1) : NULL;
    if (!text || n < min || n > max || (n && memchr(bytes, 0, n))) {
        reader->failed = true;
        return NULL;
    }
    if (n) memcpy(text, bytes, n);
    text[n] = '\0';
    return text;
}

static void read_hash(fm_reader *reader, fm_sha256 *out) {
    const uint8_t *bytes = fm_read_borrow(reader, sizeof out->bytes);
    if (bytes) memcpy(out->bytes, bytes, sizeof out->bytes);
}

static void read_hashes(fm_reader *reader, bool has[FM_N_PART], fm_sha256 hash[FM_N_PART]) {
    uint8_t mask = fm_read_u8(reader);
    if (mask >> FM_N_PART) reader->failed = true;
    for (int k = 0; k < FM_N_PART; k++) {
        has[k] = mask >> k & 1;
        if (has[k]) read_hash(reader, &hash[k]);
    }
}

static bool read_bool(fm_reader *reader) {
    uint8_t value = fm_read_u8(reader);
    if (value > 1) reader->failed = true;
    return value == 1;
}

static void read_listed(fm_reader *reader, fm_listed *listed) {
    const uint8_t *date = fm_read_borrow(reader, sizeof listed->release_date);
    if (date) memcpy(listed->release_date, date, sizeof listed->release_date);
    if (listed->release_date[sizeof listed->release_date - 1]) reader->failed = true;
    listed->resolution = fm_read_f32(reader);
    listed->cluster_size = fm_read_u32(reader);
}

static fm_sha256 *read_list(fm_reader *reader, fm_arena *arena, uint32_t *ret_n) {
    uint32_t n = fm_read_u32(reader);
    if (n > fm_reader_left(reader) / sizeof(fm_sha256)) reader->failed = true;
    fm_sha256 *list = reader->failed ? NULL : fm_arena_alloc_array(arena, n, sizeof *list);
    if (!list) reader->failed = true;
    for (uint32_t i = 0; i < n && !reader->failed; i++)
        read_hash(reader, &list[i]);
    *ret_n = n;
    return list;
}

/* Reads what a complex has beside its parts. */
static void read_complex(fm_reader *reader, fm_arena *arena, fm_build_result *result) {
    result->is_complex = true;
    result->entity_key = read_list(reader, arena, &result->n_entity_key);
    result->summary.size = fm_read_u32(reader);
    result->summary.data = fm_read_borrow(reader, result->summary.size);
    fm_chain_facts *facts = fm_arena_alloc(arena, sizeof *facts);
    if (reader->failed || !facts) return;
    fm_reader inner = fm_reader_of(result->summary.data, result->summary.size);
    const fm_bytes row = {fm_read_borrow(&inner, FM_FACTS_BYTES), FM_FACTS_BYTES};
    result->n_protein = fm_read_u32(&inner);
    result->n_unclustered = fm_read_u32(&inner);
    size_t rows = fm_reader_left(&inner);
    const fm_bytes table = {fm_read_borrow(&inner, rows), rows};
    if (inner.failed || fm_facts_decode_row(row, facts, NULL) ||
        !(facts->flags & FM_FACTS_COMPLEX) || result->n_unclustered > result->n_protein ||
        !result->has[1] ||
        fm_complex_rows_decode(table, 1, arena, &result->rows, &result->n_row, NULL)) {
        reader->failed = true;
    }
    result->facts = facts;
}

static void read_result(fm_reader *reader, fm_arena *arena, fm_build_result *result) {
    result->item = FM_BUILD_NO_ITEM;
    result->name = read_text(reader, arena, 1, FM_LIMIT_NAME_BYTES);
    if (!result->name || has_control(result->name)) reader->failed = true;
    uint8_t kind = fm_read_u8(reader);
    if (kind > COMPLEX) reader->failed = true;
    if (kind == REFUSED) {
        result->status = (fm_status)fm_read_u8(reader);
        result->reason = read_text(reader, arena, 0, REASON_BYTES_MAX);
        return;
    }
    read_hashes(reader, result->has, result->part);
    read_hashes(reader, result->has_key, result->key);
    result->has_listed = read_bool(reader);
    if (result->has_listed) read_listed(reader, &result->listed);
    if (!result->has[FM_PART_SEQUENCE - 1]) reader->failed = true;
    result->named = read_list(reader, arena, &result->n_named);
    if (kind == COMPLEX) read_complex(reader, arena, result);
}

fm_status fm_item_note_decode(fm_bytes bytes, fm_arena *arena, fm_item_note *ret_note,
                              fm_error *reterr) {
    fm_reader reader = fm_reader_of(bytes.data, bytes.size);
    const uint8_t *begin = fm_read_borrow(&reader, 4);
    uint32_t format = fm_read_u32(&reader);
    bool good = begin && memcmp(begin, magic, 4) == 0;
    fm_item_note note = {0};
    fm_build_result *result = NULL;
    if (good) {
        note.job = read_text(&reader, arena, 1, FM_LIMIT_NAME_BYTES);
        note.item = read_text(&reader, arena, 1, FM_LIMIT_NAME_BYTES);
        read_hash(&reader, &note.options);
        read_hash(&reader, &note.source);
        note.attempt = fm_read_u32(&reader);
        note.n_result = fm_read_u32(&reader);
        good = !reader.failed && note.n_result <= RESULTS_MAX;
    }
    if (good) result = fm_arena_calloc(arena, note.n_result, sizeof *result);
    good = good && result;
    for (uint32_t i = 0; good && i < note.n_result; i++) {
        read_result(&reader, arena, &result[i]);
        good = !reader.failed;
    }
    note.result = result;
    if (!good || fm_reader_left(&reader) || format != format_of(&note)) {
        return fm_fail(reterr, FM_ERR_FORMAT, "not the note of an item");
    }
    *ret_note = note;
    return FM_OK;
}
