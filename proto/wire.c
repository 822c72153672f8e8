/* wire.c: see wire.h. Each message has a writer and, next to it, its reader. The table after them
 * says what each kind may carry. Byte tables: docs/reference/wire.md.
 *
 * A reader does not check for the end of the body at each field: fm_reader remembers that it ran
 * past the end, and fm_wire_decode asks once, after the last field. */
#include "proto/wire.h"

#include "proto/template_date.h"
#include "proto/base/utf8.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAGIC = 0x314d4f46,   /* "FOM1" */
    LAYOUT_VERSION = 1,   /* of the header, HELLO and ERROR, whose layout never changes */
    HEADER_CHECK_AT = 28, /* the header check covers the bytes before it */
};

/* -- texts */

/* True for UTF-8 without control characters (U+0000 to U+001F, U+007F to U+009F). */
static bool is_plain(const void *text, size_t bytes) {
    const uint8_t *at = text;
    for (size_t n; bytes; bytes -= n, at += n) {
        n = fm_utf8_size(at, bytes);
        if (n == 0 || at[0] < 0x20 || at[0] == 0x7f) return false;
        if (at[0] == 0xc2 && at[1] < 0xa0) return false;
    }
    return true;
}

void fm_wire_text(char *out, size_t out_bytes, const char *text) {
    size_t n = 0;
    for (; text[n] && n + 1 < out_bytes; n++)
        out[n] = text[n];
    memset(out + n, 0, out_bytes - n);
    fm_utf8_make_plain(out);
}

/* A text is a u16 length and that many bytes, UTF-8 without control characters or terminator. */
static void write_text(fm_writer *writer, const char *text) {
    size_t bytes = strlen(text);
    assert(bytes <= UINT16_MAX && is_plain(text, bytes));
    fm_write_u16(writer, (uint16_t)bytes);
    fm_write_bytes(writer, text, bytes);
}

/* A text that does not fit, is not plain or is truncated makes the reader fail. */
static void read_text(fm_reader *reader, char *out, size_t out_bytes) {
    size_t bytes = fm_read_u16(reader);
    const uint8_t *text = bytes < out_bytes ? fm_read_borrow(reader, bytes) : NULL;
    if (!text || !is_plain(text, bytes)) {
        reader->failed = true;
        bytes = 0;
    }
    if (bytes) memcpy(out, text, bytes);
    memset(out + bytes, 0, out_bytes - bytes);
}

/* Reads a field that must be zero. */
static void read_zero(fm_reader *reader, size_t bytes) {
    const uint8_t *at = fm_read_borrow(reader, bytes);
    for (size_t i = 0; at && i < bytes; i++) {
        if (at[i]) reader->failed = true;
    }
}

static void read_hash(fm_reader *reader, fm_sha256 *out) {
    const uint8_t *at = fm_read_borrow(reader, sizeof out->bytes);
    if (at) memcpy(out->bytes, at, sizeof out->bytes);
}

/* -- messages: writer, reader */

static void write_hello(fm_writer *writer, const fm_wire_message *message) {
    const fm_wire_hello *hello = &message->hello;
    fm_write_u16(writer, hello->version_min);
    fm_write_u16(writer, hello->version_max);
    fm_write_u32(writer, hello->features);
    fm_write_u64(writer, hello->schema_hash);
    fm_write_bytes(writer, hello->snapshot.bytes, sizeof hello->snapshot.bytes);
    write_text(writer, hello->snapshot_name);
    write_text(writer, hello->agent);
}

static fm_status read_hello(fm_reader *reader, fm_wire_message *message, fm_error *reterr) {
    fm_wire_hello *hello = &message->hello;
    hello->version_min = fm_read_u16(reader);
    hello->version_max = fm_read_u16(reader);
    hello->features = fm_read_u32(reader);
    hello->schema_hash = fm_read_u64(reader);
    read_hash(reader, &hello->snapshot);
    read_text(reader, hello->snapshot_name, sizeof hello->snapshot_name);
    read_text(reader, hello->agent, sizeof hello->agent);
    if (hello->version_min > hello->version_max) {
        return fm_fail(reterr, FM_ERR_PROTOCOL, "protocol versions %u to %u are no range",
                       hello->version_min, hello->version_max);
    }
    return FM_OK;
}

static void write_welcome(fm_writer *writer, const fm_wire_message *message) {
    const fm_wire_welcome *welcome = &message->welcome;
    fm_write_u16(writer, welcome->version);
    fm_write_u16(writer, 0);
    fm_write_u32(writer, welcome->features);
    fm_write_u64(writer, welcome->schema_hash);
    fm_write_bytes(writer, welcome->snapshot.bytes, sizeof welcome->snapshot.bytes);
    fm_write_u32(writer, welcome->n_chain);
    fm_write_u32(writer, welcome->heartbeat_ms);
    fm_write_u32(writer, welcome->max_stream);
    write_text(writer, welcome->snapshot_name);
    write_text(writer, welcome->agent);
}

static fm_status read_welcome(fm_reader *reader, fm_wire_message *message, fm_error *reterr) {
    (void)reterr;
    fm_wire_welcome *welcome = &message->welcome;
    welcome->version = fm_read_u16(reader);
    read_zero(reader, 2);
    welcome->features = fm_read_u32(reader);
    welcome->schema_hash = fm_read_u64(reader);
    read_hash(reader, &welcome->snapshot);
    welcome->n_chain = fm_read_u32(reader);
    welcome->heartbeat_ms = fm_read_u32(reader);
    welcome->max_stream = fm_read_u32(reader);
    read_text(reader, welcome->snapshot_name, sizeof welcome->snapshot_name);
    read_text(reader, welcome->agent, sizeof welcome->agent);
    return FM_OK;
}

static void write_open(fm_writer *writer, const fm_wire_message *message) {
    const fm_wire_open *params = &message->open;
    fm_write_u64(writer, params->seed);
    fm_write_u64(writer, params->first_step);
    fm_write_u64(writer, params->n_step);
    fm_write_u32(writer, params->group);
    fm_write_u32(writer, params->n_group);
    fm_write_u32(writer, params->order);
    fm_write_u32(writer, params->window);
    fm_write_u32(writer, params->policy);
    fm_write_u32(writer, params->global_batch);
    fm_write_u32(writer, params->crop_size);
    fm_write_u32(writer, params->max_msa_clusters);
    fm_write_u32(writer, params->max_extra_msa);
    fm_write_u32(writer, params->max_cycle);
    fm_write_u32(writer, params->credit_items);
    fm_write_u32(writer, params->token.epoch);
    fm_write_u64(writer, params->credit_bytes);
    fm_write_u64(writer, params->token.watermark);
    fm_write_u32(writer, params->token.bitmap_bytes);
    fm_write_bytes(writer, params->token.bitmap, params->token.bitmap_bytes);
    fm_write_u32(writer, params->max_template_date);
    fm_write_u32(writer, params->reach);
    write_text(writer, params->plan);
}

static void read_token_bitmap(fm_reader *reader, fm_token *token) {
    token->bitmap_bytes = fm_read_u32(reader);
    const uint8_t *bitmap = token->bitmap_bytes <= FM_LIMIT_TOKEN_BYTES
                                ? fm_read_borrow(reader, token->bitmap_bytes)
                                : NULL;
    if (!bitmap) {
        reader->failed = true;
        token->bitmap_bytes = 0;
    }
    if (token->bitmap_bytes) memcpy(token->bitmap, bitmap, token->bitmap_bytes);
}

static fm_status read_open(fm_reader *reader, fm_wire_message *message, fm_error *reterr) {
    fm_wire_open *params = &message->open;
    params->seed = fm_read_u64(reader);
    params->first_step = fm_read_u64(reader);
    params->n_step = fm_read_u64(reader);
    params->group = fm_read_u32(reader);
    params->n_group = fm_read_u32(reader);
    params->order = fm_read_u32(reader);
    params->window = fm_read_u32(reader);
    params->policy = fm_read_u32(reader);
    params->global_batch = fm_read_u32(reader);
    params->crop_size = fm_read_u32(reader);
    params->max_msa_clusters = fm_read_u32(reader);
    params->max_extra_msa = fm_read_u32(reader);
    params->max_cycle = fm_read_u32(reader);
    params->credit_items = fm_read_u32(reader);
    params->token.epoch = fm_read_u32(reader);
    params->credit_bytes = fm_read_u64(reader);
    params->token.watermark = fm_read_u64(reader);
    read_token_bitmap(reader, &params->token);
    params->max_template_date = fm_read_u32(reader);
    params->reach = fm_read_u32(reader);
    read_text(reader, params->plan, sizeof params->plan);
    if (reader->failed) return FM_OK; /* the caller reports it */
    return fm_wire_open_check(params, reterr);
}

static void write_opened(fm_writer *writer, const fm_wire_message *message) {
    const fm_wire_opened *opened = &message->opened;
    fm_write_u64(writer, opened->n_sample);
    fm_write_u64(writer, opened->max_sample_bytes);
    fm_write_u32(writer, opened->global_batch);
    fm_write_u32(writer, opened->crop_size);
    fm_write_u32(writer, opened->max_msa_clusters);
    fm_write_u32(writer, opened->max_extra_msa);
    fm_write_u32(writer, opened->max_cycle);
    fm_write_u32(writer, opened->epoch_samples);
    fm_write_u32(writer, opened->samples_per_step);
    fm_write_u32(writer, opened->max_template_date);
}

static fm_status read_opened(fm_reader *reader, fm_wire_message *message, fm_error *reterr) {
    fm_wire_opened *opened = &message->opened;
    opened->n_sample = fm_read_u64(reader);
    opened->max_sample_bytes = fm_read_u64(reader);
    opened->global_batch = fm_read_u32(reader);
    opened->crop_size = fm_read_u32(reader);
    opened->max_msa_clusters = fm_read_u32(reader);
    opened->max_extra_msa = fm_read_u32(reader);
    opened->max_cycle = fm_read_u32(reader);
    opened->epoch_samples = fm_read_u32(reader);
    opened->samples_per_step = fm_read_u32(reader);
    opened->max_template_date = fm_read_u32(reader);
    if (opened->max_sample_bytes > FM_LIMIT_FRAME_BYTES) {
        return fm_fail(reterr, FM_ERR_LIMIT, "samples of up to %llu bytes, at most %zu",
                       (unsigned long long)opened->max_sample_bytes, FM_LIMIT_FRAME_BYTES);
    }
    return FM_OK;
}

static void write_credit(fm_writer *writer, const fm_wire_message *message) {
    fm_write_u32(writer, message->credit.items);
    fm_write_u32(writer, 0);
    fm_write_u64(writer, message->credit.bytes);
}

static fm_status read_credit(fm_reader *reader, fm_wire_message *message, fm_error *reterr) {
    message->credit.items = fm_read_u32(reader);
    read_zero(reader, 4);
    message->credit.bytes = fm_read_u64(reader);
    if (message->credit.items > FM_LIMIT_CREDIT_ITEMS ||
        message->credit.bytes > FM_LIMIT_CREDIT_BYTES) {
        return fm_fail(reterr, FM_ERR_LIMIT,
                       "credit for %u items and %llu bytes, at most %u and %llu",
                       message->credit.items, (unsigned long long)message->credit.bytes,
                       FM_LIMIT_CREDIT_ITEMS, (unsigned long long)FM_LIMIT_CREDIT_BYTES);
    }
    return FM_OK;
}

static void write_ping(fm_writer *writer, const fm_wire_message *message) {
    fm_write_u64(writer, message->ping);
}

static fm_status read_ping(fm_reader *reader, fm_wire_message *message, fm_error *reterr) {
    (void)reterr;
    message->ping = fm_read_u64(reader);
    return FM_OK;
}

static void write_end(fm_writer *writer, const fm_wire_message *message) {
    fm_write_u32(writer, message->end.reason);
    fm_write_u32(writer, 0);
    fm_write_u64(writer, message->end.n_sent);
}

static fm_status read_end(fm_reader *reader, fm_wire_message *message, fm_error *reterr) {
    message->end.reason = fm_read_u32(reader);
    read_zero(reader, 4);
    message->end.n_sent = fm_read_u64(reader);
    if (message->end.reason < FM_WIRE_DELIVERED || message->end.reason > FM_WIRE_CLOSED) {
        return fm_fail(reterr, FM_ERR_PROTOCOL, "END with the unknown reason %u",
                       message->end.reason);
    }
    return FM_OK;
}

static void write_error(fm_writer *writer, const fm_wire_message *message) {
    fm_write_u16(writer, message->error.status);
    fm_write_u8(writer, message->error.scope);
    fm_write_u8(writer, 0);
    fm_write_u32(writer, 0);
    fm_write_u64(writer, message->error.index);
    write_text(writer, message->error.text);
}

static fm_status read_error(fm_reader *reader, fm_wire_message *message, fm_error *reterr) {
    message->error.status = fm_read_u16(reader);
    message->error.scope = fm_read_u8(reader);
    read_zero(reader, 5);
    message->error.index = fm_read_u64(reader);
    read_text(reader, message->error.text, sizeof message->error.text);
    if (!message->error.status || message->error.scope < FM_WIRE_SCOPE_SAMPLE ||
        message->error.scope > FM_WIRE_SCOPE_CONNECTION) {
        return fm_fail(reterr, FM_ERR_PROTOCOL, "ERROR with status %u and scope %u",
                       message->error.status, message->error.scope);
    }
    return FM_OK;
}

static void write_close(fm_writer *writer, const fm_wire_message *message) {
    (void)writer;
    (void)message;
}

static fm_status read_close(fm_reader *reader, fm_wire_message *message, fm_error *reterr) {
    (void)reader;
    (void)message;
    (void)reterr;
    return FM_OK;
}

static void write_auth(fm_writer *writer, const fm_wire_message *message) {
    write_text(writer, message->auth.secret);
}

static fm_status read_auth(fm_reader *reader, fm_wire_message *message, fm_error *reterr) {
    (void)reterr;
    read_text(reader, message->auth.secret, sizeof message->auth.secret);
    return FM_OK;
}

/* -- the table of kinds */

typedef enum stream_rule { ON_CONNECTION, ON_STREAM, ON_EITHER } stream_rule;

typedef struct kind_rule {
    const char *name;
    stream_rule stream;
    uint32_t max_body_bytes;
    void (*write)(fm_writer *writer, const fm_wire_message *message);
    fm_status (*read)(fm_reader *reader, fm_wire_message *message, fm_error *reterr);
} kind_rule;

static const kind_rule kind_rules[] = {
    [FM_WIRE_HELLO] = {"HELLO", ON_CONNECTION, 900, write_hello, read_hello},
    [FM_WIRE_WELCOME] = {"WELCOME", ON_CONNECTION, 900, write_welcome, read_welcome},
    [FM_WIRE_OPEN] = {"OPEN", ON_STREAM, 8500, write_open, read_open},
    [FM_WIRE_OPENED] = {"OPENED", ON_STREAM, 48, write_opened, read_opened},
    [FM_WIRE_CREDIT] = {"CREDIT", ON_STREAM, 16, write_credit, read_credit},
    [FM_WIRE_SAMPLE] = {"SAMPLE", ON_STREAM, FM_LIMIT_FRAME_BYTES, NULL, NULL},
    [FM_WIRE_PING] = {"PING", ON_CONNECTION, 8, write_ping, read_ping},
    [FM_WIRE_PONG] = {"PONG", ON_CONNECTION, 8, write_ping, read_ping},
    [FM_WIRE_END] = {"END", ON_STREAM, 16, write_end, read_end},
    [FM_WIRE_ERROR] = {"ERROR", ON_EITHER, 900, write_error, read_error},
    [FM_WIRE_CLOSE] = {"CLOSE", ON_EITHER, 0, write_close, read_close},
    [FM_WIRE_AUTH] = {"AUTH", ON_CONNECTION, 2 + FM_WIRE_SECRET_BYTES, write_auth, read_auth},
};

static_assert(sizeof kind_rules / sizeof kind_rules[0] == FM_WIRE_N_KIND,
              "every kind of message needs a row in kind_rules");

static const kind_rule *find_rule(uint32_t kind) {
    return kind >= 1 && kind < FM_WIRE_N_KIND ? &kind_rules[kind] : NULL;
}

const char *fm_wire_kind_name(uint32_t kind) {
    const kind_rule *rule = find_rule(kind);
    return rule ? rule->name : "?";
}

/* -- frames */

static uint32_t check_of(const void *data, size_t bytes) {
    return (uint32_t)fm_xxh3(data, bytes);
}

void fm_wire_header_encode(const fm_wire_header *header, uint8_t out[FM_WIRE_HEADER_BYTES]) {
    fm_writer writer = fm_writer_of(out, FM_WIRE_HEADER_BYTES);
    fm_write_u32(&writer, MAGIC);
    fm_write_u8(&writer, LAYOUT_VERSION);
    fm_write_u8(&writer, header->kind);
    fm_write_u16(&writer, 0);
    fm_write_u32(&writer, header->stream);
    fm_write_u32(&writer, header->body_bytes);
    fm_write_u64(&writer, header->sequence);
    fm_write_u32(&writer, header->body_check);
    fm_write_u32(&writer, check_of(out, HEADER_CHECK_AT));
}

static fm_status check_for_kind(const fm_wire_header *header, const kind_rule *rule,
                                fm_error *reterr) {
    if ((rule->stream == ON_CONNECTION && header->stream != 0) ||
        (rule->stream == ON_STREAM && header->stream == 0)) {
        return fm_fail(reterr, FM_ERR_PROTOCOL, "%s on stream %u", rule->name, header->stream);
    }
    if (header->body_bytes > rule->max_body_bytes) {
        return fm_fail(reterr, FM_ERR_LIMIT, "%s of %u bytes, at most %u", rule->name,
                       header->body_bytes, rule->max_body_bytes);
    }
    if (header->kind == FM_WIRE_SAMPLE && header->body_check != 0) {
        return fm_fail(reterr, FM_ERR_PROTOCOL,
                       "SAMPLE with a body check in its header, which must be 0");
    }
    return FM_OK;
}

fm_status fm_wire_header_decode(const uint8_t in[FM_WIRE_HEADER_BYTES], fm_wire_header *ret_header,
                                fm_error *reterr) {
    fm_reader reader = fm_reader_of(in, FM_WIRE_HEADER_BYTES);
    fm_wire_header header;
    uint32_t magic = fm_read_u32(&reader);
    uint8_t version = fm_read_u8(&reader);
    header.kind = fm_read_u8(&reader);
    uint16_t flags = fm_read_u16(&reader);
    header.stream = fm_read_u32(&reader);
    header.body_bytes = fm_read_u32(&reader);
    header.sequence = fm_read_u64(&reader);
    header.body_check = fm_read_u32(&reader);
    uint32_t header_check = fm_read_u32(&reader);
    if (magic != MAGIC) {
        return fm_fail(reterr, FM_ERR_PROTOCOL, "not a foldmill frame: no magic FOM1");
    }
    if (header_check != check_of(in, HEADER_CHECK_AT)) {
        return fm_fail(reterr, FM_ERR_PROTOCOL, "a frame header does not match its checksum");
    }
    const kind_rule *rule = find_rule(header.kind);
    if (version != LAYOUT_VERSION || flags != 0 || !rule) {
        return fm_fail(reterr, FM_ERR_PROTOCOL, "frame layout %u, kind %u, flags %u are not known",
                       version, header.kind, flags);
    }
    fm_status status = check_for_kind(&header, rule, reterr);
    if (status) return status;
    *ret_header = header;
    return FM_OK;
}

size_t fm_wire_encode(const fm_wire_message *message, uint64_t sequence, uint8_t *out,
                      size_t capacity) {
    const kind_rule *rule = find_rule(message->kind);
    assert(rule && rule->write && capacity >= FM_WIRE_HEADER_BYTES);
    fm_writer writer = fm_writer_of(out + FM_WIRE_HEADER_BYTES, capacity - FM_WIRE_HEADER_BYTES);
    rule->write(&writer, message);
    assert(!writer.failed && writer.at <= rule->max_body_bytes);
    fm_wire_header header = {
        .kind = message->kind,
        .stream = message->stream,
        .body_bytes = (uint32_t)writer.at,
        .sequence = sequence,
        .body_check = check_of(out + FM_WIRE_HEADER_BYTES, writer.at),
    };
    fm_wire_header_encode(&header, out);
    return FM_WIRE_HEADER_BYTES + writer.at;
}

fm_status fm_wire_decode(const fm_wire_header *header, fm_bytes body, fm_wire_message *ret_message,
                         fm_error *reterr) {
    const kind_rule *rule = find_rule(header->kind);
    assert(rule && rule->read && body.size == header->body_bytes);
    if (check_of(body.data, body.size) != header->body_check) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "the body of %s does not match its checksum",
                       rule->name);
    }
    fm_reader reader = fm_reader_of(body.data, body.size);
    fm_wire_message message = {.kind = header->kind, .stream = header->stream};
    fm_status status = rule->read(&reader, &message, reterr);
    if (!reader.failed && status) return status;
    if (reader.failed || fm_reader_left(&reader) != 0) {
        return fm_fail(reterr, FM_ERR_PROTOCOL,
                       "the body of %s (%zu bytes) is cut, too long, or has a field that must be "
                       "zero or plain text",
                       rule->name, body.size);
    }
    *ret_message = message;
    return FM_OK;
}

/* -- the parameters of a stream */

static fm_status check_order(const fm_wire_open *params, fm_error *reterr) {
    if (params->order < FM_WIRE_STRICT || params->order > FM_WIRE_FREE) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "order %u, expected strict (1), bounded (2) or free (3)", params->order);
    }
    bool window_fits = params->order != FM_WIRE_BOUNDED
                           ? params->window == 0
                           : params->window >= 1 && params->window <= FM_LIMIT_WINDOW;
    if (!window_fits) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "window %u, expected 1 to %u for bounded and 0 otherwise", params->window,
                       FM_LIMIT_WINDOW);
    }
    if (params->reach > FM_LIMIT_FREE_WINDOW) {
        return fm_fail(reterr, FM_ERR_USAGE, "reach %u, at most %u", params->reach,
                       FM_LIMIT_FREE_WINDOW);
    }
    if (params->policy != FM_WIRE_STOP && params->policy != FM_WIRE_SKIP) {
        return fm_fail(reterr, FM_ERR_USAGE, "policy %u, expected stop (1) or skip (2)",
                       params->policy);
    }
    return FM_OK;
}

fm_status fm_wire_open_check(const fm_wire_open *params, fm_error *reterr) {
    if (params->n_group < 1 || params->n_group > FM_LIMIT_N_GROUP ||
        params->group >= params->n_group) {
        return fm_fail(reterr, FM_ERR_USAGE, "group %u of %u, expected g < G <= %u", params->group,
                       params->n_group, FM_LIMIT_N_GROUP);
    }
    if (params->first_step > FM_LIMIT_STEP || params->n_step > FM_LIMIT_STEP) {
        return fm_fail(reterr, FM_ERR_USAGE, "first step %llu and %llu steps, at most 2^40 each",
                       (unsigned long long)params->first_step, (unsigned long long)params->n_step);
    }
    if (params->global_batch > FM_LIMIT_GLOBAL_BATCH) {
        return fm_fail(reterr, FM_ERR_USAGE, "global batch %u, at most %u", params->global_batch,
                       FM_LIMIT_GLOBAL_BATCH);
    }
    if (params->credit_items > FM_LIMIT_CREDIT_ITEMS ||
        params->credit_bytes > FM_LIMIT_CREDIT_BYTES) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "a first credit of %u items and %llu bytes is too much",
                       params->credit_items, (unsigned long long)params->credit_bytes);
    }
    if (!fm_token_is_canonical(&params->token) ||
        params->token.watermark > FM_LIMIT_STEP * FM_LIMIT_GLOBAL_BATCH) {
        return fm_fail(reterr, FM_ERR_USAGE, "the resume token is not canonical");
    }
    if (params->plan[0] == '\0') {
        return fm_fail(reterr, FM_ERR_USAGE, "a stream needs the name of a plan");
    }
    if (params->max_template_date && !fm_template_date_is(params->max_template_date)) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "max_template_date is %u, expected YYYYMMDD, 1 (query) or 2 (any)",
                       params->max_template_date);
    }
    return check_order(params, reterr);
}

fm_status fm_wire_order_parse(const char *text, uint32_t *ret_order, uint32_t *ret_window,
                              fm_error *reterr) {
    if (strcmp(text, "strict") == 0) {
        *ret_order = FM_WIRE_STRICT;
        *ret_window = 0;
        return FM_OK;
    }
    if (strcmp(text, "free") == 0) {
        *ret_order = FM_WIRE_FREE;
        *ret_window = 0;
        return FM_OK;
    }
    static const char bounded[] = "bounded:";
    size_t prefix = sizeof bounded - 1;
    if (strncmp(text, bounded, prefix) == 0 && text[prefix] >= '1' && text[prefix] <= '9') {
        char *end;
        unsigned long window = strtoul(text + prefix, &end, 10);
        if (*end == '\0' && window <= FM_LIMIT_WINDOW) {
            *ret_order = FM_WIRE_BOUNDED;
            *ret_window = (uint32_t)window;
            return FM_OK;
        }
    }
    return fm_fail(reterr, FM_ERR_USAGE,
                   "order '%s', expected strict, bounded:W or free, W from 1 to %u", text,
                   FM_LIMIT_WINDOW);
}
