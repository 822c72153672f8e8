/* document.h: JSON and YAML text as one tree of values, each with its place in the text.
 *
 * The base library's tree of JSON (proto/base/json_tree.h) keeps no places, and a description that
 * a person wrote is refused by place and path:
 *
 *     job.json:7:23: sequences[0].protein.modifications[1].ptmPosition: found 12, expected 1 to 9
 *
 * Of YAML only what JSON has, too, is read: no anchors, aliases, tags or further documents. Keys
 * that come twice are refused. The tree is in the arena; it borrows nothing from the text. */
#ifndef FM_JOB_DOCUMENT_H
#define FM_JOB_DOCUMENT_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>

typedef enum fm_document_kind {
    FM_DOCUMENT_NULL,
    FM_DOCUMENT_BOOL,
    FM_DOCUMENT_NUMBER, /* of JSON; YAML's are plain text */
    FM_DOCUMENT_TEXT,
    FM_DOCUMENT_LIST,
    FM_DOCUMENT_MAP,
} fm_document_kind;

typedef struct fm_value {
    uint8_t kind;  /* fm_document_kind */
    bool is_plain; /* text of YAML without quotes: it may be a number */
    bool is_true;
    uint32_t n;     /* values of a list or a map */
    uint32_t index; /* in its parent */
    uint32_t line, column;
    size_t offset;
    fm_bytes text; /* of a text or a number; terminated */
    fm_bytes key;  /* in a map; terminated. data is NULL elsewhere */
    const struct fm_value *parent, *first, *next;
} fm_value;

/* The text must be UTF-8. Returns FM_ERR_FORMAT with the place, or FM_ERR_LIMIT for a text that is
 * nested too deep or has too many values. */
FM_MUST_USE fm_status fm_document_parse_json(fm_bytes text, fm_arena *arena,
                                             const fm_value **ret_root, fm_error *reterr);
FM_MUST_USE fm_status fm_document_parse_yaml(fm_bytes text, fm_arena *arena,
                                             const fm_value **ret_root, fm_error *reterr);

/* Returns the member of a map, or NULL. NULL and other kinds have none. */
const fm_value *fm_value_get(const fm_value *map, const char *key);

/* Returns what a value is, for messages: "a list", "the text 'abc'". */
const char *fm_value_describe(const fm_value *node, char out[80]);

/* Writes the path of a value, at most `bytes` with its end. */
void fm_value_path(const fm_value *node, char *out, size_t bytes);

/* Fails at a value: its place, and its path before the message. */
fm_status fm_value_fail(const fm_value *node, fm_error *reterr, fm_status status,
                        const char *format, ...) FM_PRINTF(4, 5);
#define fm_value_fail(node, reterr, status, ...)                                                   \
    fm_failed(fm_value_fail(node, reterr, status, __VA_ARGS__), status)

/* Fails with what was found and what was expected. */
FM_MUST_USE fm_status fm_value_expect(const fm_value *node, const char *expected, fm_error *reterr);

/* Refuses keys that are not among the n ones. */
FM_MUST_USE fm_status fm_value_check_keys(const fm_value *map, const char *const *keys, size_t n,
                                          fm_error *reterr);
/* The same with the keys of an array. */
#define FM_CHECK_KEYS(map, keys, reterr)                                                           \
    fm_value_check_keys(map, keys, sizeof(keys) / sizeof(keys)[0], reterr)

/* Whether the value is missing or null. */
static inline bool fm_value_is_null(const fm_value *node) {
    return !node || node->kind == FM_DOCUMENT_NULL;
}

/* Reads an integer from low to high. */
FM_MUST_USE fm_status fm_value_integer(const fm_value *node, int64_t low, int64_t high,
                                       int64_t *ret_value, fm_error *reterr);
/* Reads a text. Borrowed from the tree, terminated, without zeros inside. */
FM_MUST_USE fm_status fm_value_text(const fm_value *node, const char **ret_text, fm_error *reterr);

/* -- for the two readers */

typedef struct fm_document {
    fm_arena *arena;
    fm_error *reterr;
    fm_value *open; /* the list or map that is being filled */
    fm_value *root;
    fm_value *last[32]; /* [depth] the last value of each open one */
    uint32_t depth, n_value;
    fm_bytes key; /* of the next value of the open map; data is NULL before it is set */
} fm_document;

/* Adds a value to the open list or map, or as the root. `node` is copied. Lists and maps are opened
 * by it. */
FM_MUST_USE fm_status fm_document_add(fm_document *document, fm_value node);
/* Notes the key of the next value. */
FM_MUST_USE fm_status fm_document_set_key(fm_document *document, fm_bytes key, uint32_t line,
                                          uint32_t column, size_t offset);
void fm_document_close(fm_document *document);

#endif
