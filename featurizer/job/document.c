/* document.c: the tree of a description, and messages about its values; see document.h. */
#include "featurizer/job/document.h"

#include "proto/base/options.h"
#include "proto/base/utf8.h"
#include "proto/limits.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert(FM_LIMIT_JOB_DEPTH == 32, "a document keeps the last value of each depth");

/* -- filling */

fm_status fm_document_add(fm_document *document, fm_value node) {
    if (document->n_value++ >= FM_LIMIT_JOB_VALUE) {
        return fm_fail_at(document->reterr, FM_ERR_LIMIT, node.line, node.column, node.offset,
                          "found more than %u values, expected a description of jobs",
                          FM_LIMIT_JOB_VALUE);
    }
    fm_value *added = fm_arena_alloc(document->arena, sizeof *added);
    if (!added) return fm_arena_full(document->arena, document->reterr);
    *added = node;
    fm_value *parent = document->open;
    added->parent = parent;
    if (!parent) {
        document->root = added;
    } else {
        fm_value *last = document->last[document->depth - 1];
        added->index = parent->n++;
        if (last) {
            last->next = added;
        } else {
            parent->first = added;
        }
        document->last[document->depth - 1] = added;
        if (parent->kind == FM_DOCUMENT_MAP) added->key = document->key;
        document->key = (fm_bytes){0};
    }
    if (node.kind != FM_DOCUMENT_LIST && node.kind != FM_DOCUMENT_MAP) return FM_OK;
    if (document->depth == FM_LIMIT_JOB_DEPTH) {
        return fm_fail_at(document->reterr, FM_ERR_LIMIT, node.line, node.column, node.offset,
                          "found values more than %u deep, expected a description of jobs",
                          FM_LIMIT_JOB_DEPTH);
    }
    document->last[document->depth++] = NULL;
    document->open = added;
    return FM_OK;
}

void fm_document_close(fm_document *document) {
    document->depth--;
    document->open = (fm_value *)(uintptr_t)document->open->parent;
}

fm_status fm_document_set_key(fm_document *document, fm_bytes key, uint32_t line, uint32_t column,
                              size_t offset) {
    const fm_value *map = document->open;
    if (map->n >= FM_LIMIT_JOB_KEY) {
        return fm_fail_at(document->reterr, FM_ERR_LIMIT, line, column, offset,
                          "found more than %u keys of one mapping", FM_LIMIT_JOB_KEY);
    }
    for (const fm_value *at = map->first; at; at = at->next) {
        if (at->key.size != key.size || memcmp(at->key.data, key.data, key.size) != 0) continue;
        return fm_fail_at(document->reterr, FM_ERR_FORMAT, line, column, offset,
                          "found the key '%.40s' a second time, first in line %u",
                          (const char *)key.data, at->line);
    }
    document->key = key;
    return FM_OK;
}

/* -- asking */

const fm_value *fm_value_get(const fm_value *map, const char *key) {
    if (!map || map->kind != FM_DOCUMENT_MAP) return NULL;
    for (const fm_value *at = map->first; at; at = at->next)
        if (strcmp((const char *)at->key.data, key) == 0) return at;
    return NULL;
}

/* -- messages */

void fm_value_path(const fm_value *node, char *out, size_t bytes) {
    const fm_value *chain[FM_LIMIT_JOB_DEPTH + 1];
    size_t n = 0, at = 0;
    for (; node->parent; node = node->parent)
        chain[n++] = node;
    out[0] = '\0';
    while (n-- > 0 && at + 1 < bytes) {
        int size = chain[n]->key.data ? snprintf(out + at, bytes - at, at ? ".%.32s" : "%.32s",
                                                 (const char *)chain[n]->key.data)
                                      : snprintf(out + at, bytes - at, "[%u]", chain[n]->index);
        at += (size_t)size;
    }
    fm_utf8_make_plain(out);
}

fm_status(fm_value_fail)(const fm_value *node, fm_error *reterr, fm_status status,
                         const char *format, ...) {
    char path[200], message[FM_ERROR_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    fm_value_path(node, path, sizeof path);
    return fm_fail_at(reterr, status, node->line, node->column, node->offset, "%s%s%s", path,
                      path[0] ? ": " : "", message);
}

const char *fm_value_describe(const fm_value *node, char out[80]) {
    const char *text = (const char *)node->text.data;
    switch ((fm_document_kind)node->kind) {
    case FM_DOCUMENT_NULL: return "null";
    case FM_DOCUMENT_BOOL: return node->is_true ? "true" : "false";
    case FM_DOCUMENT_LIST: return node->n ? "a list" : "an empty list";
    case FM_DOCUMENT_MAP: return "a mapping";
    case FM_DOCUMENT_NUMBER: snprintf(out, 80, "%.40s", text); break;
    case FM_DOCUMENT_TEXT: snprintf(out, 80, "'%.40s'", text); break;
    }
    fm_utf8_make_plain(out);
    return out;
}

fm_status fm_value_expect(const fm_value *node, const char *expected, fm_error *reterr) {
    char found[80];
    return fm_value_fail(node, reterr, FM_ERR_FORMAT, "found %s, expected %s",
                         fm_value_describe(node, found), expected);
}

fm_status fm_value_check_keys(const fm_value *map, const char *const *keys, size_t n,
                              fm_error *reterr) {
    if (map->kind != FM_DOCUMENT_MAP) return fm_value_expect(map, "a mapping", reterr);
    for (const fm_value *at = map->first; at; at = at->next) {
        const char *key = (const char *)at->key.data;
        size_t i = 0;
        while (i < n && strcmp(keys[i], key) != 0)
            i++;
        if (i < n) continue;
        const char *nearest = fm_options_nearest(key, keys, n);
        char list[256];
        size_t size = 0;
        for (i = 0; i < n && size + 1 < sizeof list; i++)
            size += (size_t)snprintf(list + size, sizeof list - size, i ? ", %s" : "%s", keys[i]);
        return fm_value_fail(at, reterr, FM_ERR_FORMAT, "found an unknown key, %s%s",
                             nearest ? "did you mean " : "expected one of ",
                             nearest ? nearest : list);
    }
    return FM_OK;
}

fm_status fm_value_integer(const fm_value *node, int64_t low, int64_t high, int64_t *ret_value,
                           fm_error *reterr) {
    char expected[80], *end = NULL;
    const char *text = (const char *)node->text.data;
    bool is_number =
        node->kind == FM_DOCUMENT_NUMBER || (node->kind == FM_DOCUMENT_TEXT && node->is_plain);
    bool is_integer = is_number && node->text.size <= 20 && node->text.size > 0 &&
                      strspn(text, "-0123456789") == node->text.size;
    int64_t value = is_integer ? strtoll(text, &end, 10) : 0;
    if (is_integer && *end == '\0' && value >= low && value <= high) {
        *ret_value = value;
        return FM_OK;
    }
    if (low == high) {
        snprintf(expected, sizeof expected, "%lld", (long long)low);
    } else {
        snprintf(expected, sizeof expected, "a whole number from %lld to %lld", (long long)low,
                 (long long)high);
    }
    return fm_value_expect(node, expected, reterr);
}

fm_status fm_value_text(const fm_value *node, const char **ret_text, fm_error *reterr) {
    if (node->kind != FM_DOCUMENT_TEXT) return fm_value_expect(node, "a text", reterr);
    *ret_text = (const char *)node->text.data;
    return FM_OK;
}
