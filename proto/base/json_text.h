/* json_text.h: writes one JSON object to a stream, as commands with --json print it.
 *
 *     fm_json_writer json;
 *     fm_json_begin(&json, stdout);
 *     fm_json_put_u64(&json, "chains", 22);
 *     fm_json_open_array(&json, "refusals");
 *     fm_json_open_object(&json, NULL);
 *     fm_json_put_string(&json, "chain", "1abc_A");
 *     fm_json_close(&json);
 *     fm_json_close(&json);
 *     fm_json_end(&json);
 *
 * Each member of the outermost object takes a line, and so does each object in an array that is
 * such a member. Deeper values stay on the line of their parent. Inside an array, `key` is NULL.
 * Errors of the stream are the caller's to check. */
#ifndef FM_BASE_JSON_TEXT_H
#define FM_BASE_JSON_TEXT_H

#include "proto/base/hash.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { FM_JSON_DEPTH_MAX = 8 };

typedef struct fm_json_writer {
    FILE *out;
    bool is_line; /* the whole object on one line */
    int depth;    /* containers that are open */
    struct {
        bool is_array, has_member;
    } level[FM_JSON_DEPTH_MAX];
} fm_json_writer;

/* The outermost object. begin_line writes it on one line. */
void fm_json_begin(fm_json_writer *json, FILE *out);
void fm_json_begin_line(fm_json_writer *json, FILE *out);
void fm_json_end(fm_json_writer *json);

void fm_json_open_object(fm_json_writer *json, const char *key);
void fm_json_open_array(fm_json_writer *json, const char *key);
/* Closes the container that was opened last. */
void fm_json_close(fm_json_writer *json);

/* Text is quoted; quotes, backslashes and control bytes are escaped. A byte that belongs to no
 * UTF-8 character becomes U+FFFD. NULL gives null. */
void fm_json_put_string(fm_json_writer *json, const char *key, const char *text);
/* Writes such text without a writer. */
void fm_json_put_quoted(FILE *out, const char *text);
/* As fm_json_put_string, for text that is not terminated. */
void fm_json_put_text(fm_json_writer *json, const char *key, const void *text, size_t bytes);
void fm_json_put_u64(fm_json_writer *json, const char *key, uint64_t value);
void fm_json_put_i64(fm_json_writer *json, const char *key, int64_t value);
/* With `digits` decimals; a value that is not finite gives null. */
void fm_json_put_f64(fm_json_writer *json, const char *key, double value, int digits);
/* With the digits that read back to the same bits (exact.h); null as above. */
void fm_json_put_exact(fm_json_writer *json, const char *key, double value);
void fm_json_put_exact_f32(fm_json_writer *json, const char *key, float value);
void fm_json_put_bool(fm_json_writer *json, const char *key, bool value);
/* 64 hex digits. */
void fm_json_put_hash(fm_json_writer *json, const char *key, const fm_sha256 *hash);

#endif
