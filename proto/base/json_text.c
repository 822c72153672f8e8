/* json_text.c: see json_text.h. */
#include "proto/base/json_text.h"

#include "proto/base/exact.h"
#include "proto/base/utf8.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static void print_string(FILE *out, const uint8_t *at, size_t left) {
    fputc('"', out);
    while (left) {
        size_t size = fm_utf8_size(at, left);
        if (size == 0) {
            fputs("\\ufffd", out);
        } else if (*at == '"' || *at == '\\') {
            fprintf(out, "\\%c", *at);
        } else if (*at < 0x20 || *at == 0x7f) {
            fprintf(out, "\\u%04x", *at);
        } else {
            fwrite(at, 1, size, out);
        }
        size = size ? size : 1;
        at += size;
        left -= size;
    }
    fputc('"', out);
}

void fm_json_put_quoted(FILE *out, const char *text) {
    print_string(out, (const uint8_t *)text, strlen(text));
}

/* Writes what separates a value from the one before it, and its key. */
static void begin_value(fm_json_writer *json, const char *key, bool is_container) {
    assert(json->depth > 0);
    bool is_array = json->level[json->depth - 1].is_array;
    bool is_first = !json->level[json->depth - 1].has_member;
    bool takes_line = json->depth == 1 || (json->depth == 2 && is_array && is_container);
    assert(is_array == !key);
    json->level[json->depth - 1].has_member = true;
    if (!is_first) fputc(',', json->out);
    if (takes_line && !json->is_line) {
        fprintf(json->out, "\n%*s", 2 * json->depth, "");
    } else if (!is_first) {
        fputc(' ', json->out);
    }
    if (!key) return;
    print_string(json->out, (const uint8_t *)key, strlen(key));
    fputs(": ", json->out);
}

static void open_container(fm_json_writer *json, bool is_array) {
    assert(json->depth < FM_JSON_DEPTH_MAX);
    fputc(is_array ? '[' : '{', json->out);
    json->level[json->depth].is_array = is_array;
    json->level[json->depth].has_member = false;
    json->depth++;
}

void fm_json_begin(fm_json_writer *json, FILE *out) {
    *json = (fm_json_writer){.out = out};
    open_container(json, false);
}

void fm_json_begin_line(fm_json_writer *json, FILE *out) {
    fm_json_begin(json, out);
    json->is_line = true;
}

void fm_json_end(fm_json_writer *json) {
    assert(json->depth == 1);
    fputs(json->is_line ? "}\n" : "\n}\n", json->out);
    json->depth = 0;
}

void fm_json_open_object(fm_json_writer *json, const char *key) {
    begin_value(json, key, true);
    open_container(json, false);
}

void fm_json_open_array(fm_json_writer *json, const char *key) {
    begin_value(json, key, true);
    open_container(json, true);
}

void fm_json_close(fm_json_writer *json) {
    assert(json->depth > 1);
    json->depth--;
    fputc(json->level[json->depth].is_array ? ']' : '}', json->out);
}

void fm_json_put_string(fm_json_writer *json, const char *key, const char *text) {
    begin_value(json, key, false);
    if (text) {
        print_string(json->out, (const uint8_t *)text, strlen(text));
    } else {
        fputs("null", json->out);
    }
}

void fm_json_put_text(fm_json_writer *json, const char *key, const void *text, size_t bytes) {
    begin_value(json, key, false);
    print_string(json->out, text, bytes);
}

void fm_json_put_u64(fm_json_writer *json, const char *key, uint64_t value) {
    begin_value(json, key, false);
    fprintf(json->out, "%llu", (unsigned long long)value);
}

void fm_json_put_i64(fm_json_writer *json, const char *key, int64_t value) {
    begin_value(json, key, false);
    fprintf(json->out, "%lld", (long long)value);
}

void fm_json_put_f64(fm_json_writer *json, const char *key, double value, int digits) {
    begin_value(json, key, false);
    if (isfinite(value)) {
        fprintf(json->out, "%.*f", digits, value);
    } else {
        fputs("null", json->out);
    }
}

void fm_json_put_exact(fm_json_writer *json, const char *key, double value) {
    char text[FM_EXACT_BYTES] = "null";
    begin_value(json, key, false);
    if (isfinite(value)) fm_exact_f64(value, 6, text);
    fputs(text, json->out);
}

void fm_json_put_exact_f32(fm_json_writer *json, const char *key, float value) {
    char text[FM_EXACT_BYTES] = "null";
    begin_value(json, key, false);
    if (isfinite(value)) fm_exact_f32(value, 6, text);
    fputs(text, json->out);
}

void fm_json_put_bool(fm_json_writer *json, const char *key, bool value) {
    begin_value(json, key, false);
    fputs(value ? "true" : "false", json->out);
}

void fm_json_put_hash(fm_json_writer *json, const char *key, const fm_sha256 *hash) {
    char hex[FM_SHA256_HEX];
    fm_sha256_format(hash, hex);
    fm_json_put_string(json, key, hex);
}
