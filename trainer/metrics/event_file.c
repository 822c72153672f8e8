/* event_file.c: see event_file.h for the format.
 *
 * Messages are built from the inside out in fixed buffers: a value (tag, number) goes into the
 * summary, the summary into the event, the event into a framed record. A protocol buffer field is a
 * key (field * 8 + wire type) followed by its value; messages and strings are preceded by their
 * length.
 *
 * On resume the file is read from the start. Each frame is checked by its two crcs, and the file is
 * cut after the last whole record whose step is not above the resumed step. This also removes a
 * record that a crash cut short. */
#include "trainer/metrics/event_file.h"

#include "proto/base/bytes.h"
#include "proto/base/directory.h"
#include "proto/base/file.h"
#include "trainer/metrics/appender.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    VALUE_BYTES = 64, /* of one value, at most: tags are short */
    N_VALUE = FM_METRICS_TERMS + FM_METRICS_SCORES + 8,
    MESSAGE_BYTES = N_VALUE * VALUE_BYTES,
    RECORD_BYTES = MESSAGE_BYTES + 128,
    HEAD_BYTES = 12, /* the length and its crc */
    TAIL_BYTES = 4,
    PATH_BYTES = 4096,
};
#define MAX_FILE_BYTES ((size_t)8 << 30)

static const char file_name[] = "events.out.tfevents.foldmill", version[] = "brain.Event:2";

struct fm_event_file {
    fm_appender *file;
    char path[PATH_BYTES], folder[PATH_BYTES];
    size_t existed; /* bytes of the folder's path that existed before */
};

/* -- crc */

uint32_t fm_crc32c(const void *data, size_t size) {
    const uint8_t *at = data;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0); /* the polynomial, reflected */
    }
    return ~crc;
}

static uint32_t masked(const void *data, size_t size) {
    uint32_t crc = fm_crc32c(data, size);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* -- protocol buffers: a key is field * 8 + wire type */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_varint(fm_writer *w, uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        fm_write_u8(w, (uint8_t)(value | 0x80));
    fm_write_u8(w, (uint8_t)value);
}

static void put_key(fm_writer *w, int field, int type) {
    put_varint(w, (uint64_t)field * 8 + (uint64_t)type);
}

static void put_bytes(fm_writer *w, int field, const void *data, size_t size) {
    put_key(w, field, BYTES);
    put_varint(w, size);
    fm_write_bytes(w, data, size);
}

static void put_double(fm_writer *w, int field, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(w, field, FIXED64);
    fm_write_u64(w, bits);
}

/* Summary.value: tag and number. */
static void put_value(fm_writer *summary, const char *group, const char *name, double value) {
    char tag[VALUE_BYTES];
    uint8_t message[VALUE_BYTES];
    if (!isfinite(value)) return;
    int n = snprintf(tag, sizeof tag, "%s/%s", group, name);
    fm_writer w = fm_writer_of(message, sizeof message);
    put_bytes(&w, 1, tag, (size_t)n);
    put_key(&w, 2, FIXED32);
    fm_write_f32(&w, (float)value);
    assert(n > 0 && !w.failed);
    put_bytes(summary, 1, message, w.at);
}

static void put_summary(fm_writer *w, const fm_metrics_step *step) {
    put_value(w, "loss", "total", step->loss);
    for (uint32_t t = 0; t < step->n_term; t++)
        put_value(w, "loss", step->term[t].name, step->term[t].value);
    for (uint32_t s = 0; s < step->n_score; s++)
        put_value(w, "structure", step->score[s].name, step->score[s].value);
    put_value(w, "optimizer", "grad_norm", step->grad_norm);
    put_value(w, "optimizer", "learning_rate", step->learning_rate);
    put_value(w, "time", "step_s", step->step_s);
    put_value(w, "time", "data_wait_s", step->data_wait_s);
}

/* -- records */

static fm_status write_record(const fm_event_file *file, const void *data, size_t size,
                              fm_error *reterr) {
    uint8_t record[HEAD_BYTES + RECORD_BYTES + TAIL_BYTES];
    fm_writer w = fm_writer_of(record, sizeof record);
    fm_write_u64(&w, size);
    fm_write_u32(&w, masked(record, sizeof(uint64_t)));
    fm_write_bytes(&w, data, size);
    fm_write_u32(&w, masked(data, size));
    assert(!w.failed);
    return fm_appender_add(file->file, record, w.at, reterr);
}

fm_status fm_event_file_sync(fm_event_file *file, fm_error *reterr) {
    return fm_appender_sync(file->file, reterr);
}

fm_status fm_event_file_write(fm_event_file *file, const fm_metrics_step *step, double wall_s,
                              fm_error *reterr) {
    uint8_t message[MESSAGE_BYTES], event[RECORD_BYTES];
    fm_writer summary = fm_writer_of(message, sizeof message);
    fm_writer w = fm_writer_of(event, sizeof event);
    put_summary(&summary, step);
    put_double(&w, 1, wall_s);
    put_key(&w, 2, VARINT);
    put_varint(&w, step->step);
    put_bytes(&w, 5, message, summary.at);
    assert(!summary.failed && !w.failed);
    return write_record(file, event, w.at, reterr);
}

static fm_status write_version(const fm_event_file *file, double wall_s, fm_error *reterr) {
    uint8_t event[VALUE_BYTES];
    fm_writer w = fm_writer_of(event, sizeof event);
    put_double(&w, 1, wall_s);
    put_bytes(&w, 3, version, sizeof version - 1);
    assert(!w.failed);
    return write_record(file, event, w.at, reterr);
}

/* -- an existing file */

/* Returns the next record's data and size; NULL at the end and where a record is cut off or
 * damaged. */
static const uint8_t *next_record(fm_reader *reader, size_t *ret_size) {
    const uint8_t *head = reader->data + reader->at;
    uint64_t size = fm_read_u64(reader);
    uint32_t crc = fm_read_u32(reader);
    if (reader->failed || crc != masked(head, sizeof size) || size > fm_reader_left(reader)) {
        return NULL;
    }
    const uint8_t *data = fm_read_borrow(reader, (size_t)size);
    crc = fm_read_u32(reader);
    if (reader->failed || crc != masked(data, (size_t)size)) return NULL;
    *ret_size = (size_t)size;
    return data;
}

/* The step of an event that we wrote: wall_time comes first, then the step. 0 if it has no step. */
static uint64_t step_of(const uint8_t *data, size_t size) {
    fm_reader r = fm_reader_of(data, size);
    uint64_t step = 0;
    fm_read_u8(&r);
    fm_read_u64(&r);
    if (fm_read_u8(&r) != 2 * 8 + VARINT) return 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t byte = fm_read_u8(&r);
        step |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) break;
    }
    return step;
}

/* Bytes of the whole records up to and including step `last`; 0 if the first record is not
 * whole. */
static size_t bytes_through(fm_bytes content, uint64_t last) {
    fm_reader reader = fm_reader_of(content.data, content.size);
    size_t whole = 0, size;
    const uint8_t *data;
    while (reader.at < content.size && (data = next_record(&reader, &size)) != NULL) {
        if (step_of(data, size) > last) break;
        whole = reader.at;
    }
    return whole;
}

static fm_status cut_behind(const char *path, uint64_t last, fm_error *reterr) {
    fm_arena arena;
    fm_bytes content;
    fm_status status = fm_arena_init(&arena, MAX_FILE_BYTES + ((size_t)1 << 20), reterr);
    if (status) return status;
    status = fm_file_read(&arena, path, MAX_FILE_BYTES, &content, reterr);
    if (!status && content.size > 0) {
        size_t bytes = bytes_through(content, last);
        if (bytes == 0) {
            status = fm_fail_in(reterr, FM_ERR_CORRUPT, path,
                                "this is not a file of TensorBoard events that foldmill wrote");
        } else {
            status = fm_file_write_atomic(path, content.data, bytes, reterr);
        }
    }
    fm_arena_fini(&arena);
    return status;
}

/* -- opening */

static fm_status prepare(fm_event_file *file, bool resume, uint64_t last, fm_error *reterr) {
    fm_path_kind kind;
    fm_status status = fm_path_look(file->path, &kind, reterr);
    if (status) return status;
    if (kind != FM_PATH_ABSENT && !resume) {
        return fm_fail_in(
            reterr, FM_ERR_EXISTS, file->path,
            "this folder has the events of another run; resume that run or choose another folder");
    }
    if (kind != FM_PATH_ABSENT) status = cut_behind(file->path, last, reterr);
    return status ? status : fm_appender_open(file->path, &file->file, reterr);
}

fm_status fm_event_file_open(const char *folder, bool resume, uint64_t last, double wall_s,
                             fm_event_file **ret_file, fm_error *reterr) {
    fm_event_file *file = calloc(1, sizeof *file);
    if (!file) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the event file");
    int n = snprintf(file->path, sizeof file->path, "%s/%s", folder, file_name);
    snprintf(file->folder, sizeof file->folder, "%s", folder);
    fm_status status =
        n < (int)sizeof file->path
            ? fm_dir_make_noting(folder, &file->existed, reterr)
            : fm_fail(reterr, FM_ERR_USAGE, "the path of the folder for events is too long");
    if (!status) status = prepare(file, resume, last, reterr);
    if (!status && fm_appender_is_empty(file->file)) status = write_version(file, wall_s, reterr);
    if (status) {
        fm_event_file_close(file);
        return status;
    }
    *ret_file = file;
    return FM_OK;
}

void fm_event_file_close(fm_event_file *file) {
    if (!file) return;
    fm_appender_close(file->file);
    free(file);
}

void fm_event_file_discard(fm_event_file *file) {
    if (!file) return;
    unlink(file->path);
    fm_dir_unmake(file->folder, file->existed);
    fm_event_file_close(file);
}
