/* document_yaml.c: YAML as a tree with places; see document.h. The only door to libyaml. */
#include "featurizer/job/document.h"
#include "proto/limits.h"

#include <string.h>
#include <yaml.h>

static fm_status fail_at_mark(const fm_document *document, fm_status status, yaml_mark_t mark,
                              const char *message) {
    return fm_fail_at(document->reterr, status, mark.line + 1, mark.column + 1, mark.index, "%s",
                      message);
}

/* Whether plain text is null, true or false as YAML 1.2 has them. */
static void classify_plain(fm_value *node) {
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    static const char *const bools[] = {"true", "True", "TRUE", "false", "False", "FALSE"};
    const char *text = (const char *)node->text.data;
    node->is_plain = true;
    for (size_t i = 0; i < sizeof nulls / sizeof nulls[0]; i++)
        if (strcmp(text, nulls[i]) == 0) node->kind = FM_DOCUMENT_NULL;
    for (size_t i = 0; i < sizeof bools / sizeof bools[0]; i++) {
        if (strcmp(text, bools[i]) != 0) continue;
        node->kind = FM_DOCUMENT_BOOL;
        node->is_true = i < 3;
    }
}

static fm_status add_scalar(fm_document *document, const yaml_event_t *event) {
    size_t size = event->data.scalar.length;
    yaml_mark_t mark = event->start_mark;
    uint8_t *text = fm_arena_alloc(document->arena, size + 1);
    if (!text) return fm_arena_full(document->arena, document->reterr);
    memcpy(text, event->data.scalar.value, size);
    text[size] = '\0';
    if (memchr(text, 0, size)) {
        return fail_at_mark(document, FM_ERR_FORMAT, mark,
                            "found a zero byte in a text, expected characters");
    }
    fm_value node = {.kind = FM_DOCUMENT_TEXT,
                     .line = (uint32_t)mark.line + 1,
                     .column = (uint32_t)mark.column + 1,
                     .offset = mark.index,
                     .text = {text, size}};
    bool is_key = document->open && document->open->kind == FM_DOCUMENT_MAP && !document->key.data;
    if (is_key) {
        return fm_document_set_key(document, node.text, node.line, node.column, node.offset);
    }
    if (event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) classify_plain(&node);
    return fm_document_add(document, node);
}

static fm_status open_collection(fm_document *document, const yaml_event_t *event,
                                 fm_document_kind kind) {
    yaml_mark_t mark = event->start_mark;
    if (document->open && document->open->kind == FM_DOCUMENT_MAP && !document->key.data) {
        return fail_at_mark(document, FM_ERR_FORMAT, mark,
                            "found a list or mapping as a key, expected a text");
    }
    return fm_document_add(document, (fm_value){.kind = kind,
                                                .line = (uint32_t)mark.line + 1,
                                                .column = (uint32_t)mark.column + 1,
                                                .offset = mark.index});
}

/* Refuses what JSON does not have, and which would let a short text stand for a long one. */
static fm_status check_plain(const fm_document *document, const yaml_event_t *event) {
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (event->type == YAML_SCALAR_EVENT) {
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
    } else if (event->type == YAML_MAPPING_START_EVENT) {
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
    }
    if (!anchor && !tag && event->type != YAML_ALIAS_EVENT) return FM_OK;
    return fail_at_mark(document, FM_ERR_UNSUPPORTED, event->start_mark,
                        tag ? "found a tag of YAML, expected values without tags"
                            : "found an anchor or alias of YAML, expected the value itself");
}

static fm_status take_event(fm_document *document, const yaml_event_t *event) {
    fm_status status = check_plain(document, event);
    if (status) return status;
    switch (event->type) {
    case YAML_SCALAR_EVENT: return add_scalar(document, event);
    case YAML_SEQUENCE_START_EVENT: return open_collection(document, event, FM_DOCUMENT_LIST);
    case YAML_MAPPING_START_EVENT: return open_collection(document, event, FM_DOCUMENT_MAP);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: fm_document_close(document); return FM_OK;
    case YAML_DOCUMENT_START_EVENT:
        if (!document->root) return FM_OK;
        return fail_at_mark(document, FM_ERR_UNSUPPORTED, event->start_mark,
                            "found a second document, expected one description in a file");
    default: return FM_OK;
    }
}

fm_status fm_document_parse_yaml(fm_bytes text, fm_arena *arena, const fm_value **ret_root,
                                 fm_error *reterr) {
    fm_document document = {.arena = arena, .reterr = reterr};
    yaml_parser_t parser;
    if (text.size > FM_LIMIT_JOB_YAML_BYTES) {
        return fm_fail(reterr, FM_ERR_LIMIT, "found %zu bytes of YAML, expected at most %zu",
                       text.size, FM_LIMIT_JOB_YAML_BYTES);
    }
    if (!yaml_parser_initialize(&parser)) return fm_fail(reterr, FM_ERR_NOMEM, "no memory is left");
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, text.data, text.size);
    fm_status status = FM_OK;
    for (bool is_end = false; !is_end && !status;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            status = fm_fail_at(reterr, FM_ERR_FORMAT, parser.problem_mark.line + 1,
                                parser.problem_mark.column + 1, parser.problem_mark.index,
                                "this is not YAML: %s", parser.problem ? parser.problem : "?");
            break;
        }
        status = take_event(&document, &event);
        is_end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    if (status) return status;
    if (!document.root) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, 1, 1, 0, "found no value, expected a mapping");
    }
    *ret_root = document.root;
    return FM_OK;
}
