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
};

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

static void write_result(fm_writer *writer, const fm_build_result *result) {
    write_text(writer, result->name);
    fm_write_u8(writer, result->reason != NULL);
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
    fm_write_u32(writer, result->n_named);
    fm_write_bytes(writer, result->named, result->n_named * sizeof *result->named);
}

static void write_note(fm_writer *writer, const fm_item_note *note) {
    fm_write_bytes(writer, magic, 4);
    fm_write_u32(writer, 1);
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

static void read_result(fm_reader *reader, fm_arena *arena, fm_build_result *result) {
    result->item = FM_BUILD_NO_ITEM;
    result->name = read_text(reader, arena, 1, FM_LIMIT_NAME_BYTES);
    if (!result->name || has_control(result->name)) reader->failed = true;
    if (read_bool(reader)) {
        result->status = (fm_status)fm_read_u8(reader);
        result->reason = read_text(reader, arena, 0, REASON_BYTES_MAX);
        return;
    }
    read_hashes(reader, result->has, result->part);
    read_hashes(reader, result->has_key, result->key);
    result->has_listed = read_bool(reader);
    if (result->has_listed) read_listed(reader, &result->listed);
    if (!result->has[FM_PART_SEQUENCE - 1]) reader->failed = true;
    result->n_named = fm_read_u32(reader);
    if (result->n_named > fm_reader_left(reader) / sizeof *result->named) reader->failed = true;
    if (reader->failed) return;
    result->named = fm_arena_alloc_array(arena, result->n_named, sizeof *result->named);
    if (!result->named) reader->failed = true;
    for (uint32_t i = 0; i < result->n_named && !reader->failed; i++)
        read_hash(reader, &result->named[i]);
}

fm_status fm_item_note_decode(fm_bytes bytes, fm_arena *arena, fm_item_note *ret_note,
                              fm_error *reterr) {
    fm_reader reader = fm_reader_of(bytes.data, bytes.size);
    const uint8_t *begin = fm_read_borrow(&reader, 4);
    bool good = begin && memcmp(begin, magic, 4) == 0 && fm_read_u32(&reader) == 1;
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
    if (!good || fm_reader_left(&reader)) {
        return fm_fail(reterr, FM_ERR_FORMAT, "not the note of an item");
    }
    note.result = result;
    *ret_note = note;
    return FM_OK;
}
