/* snapshot_text.c: see snapshot_text.h. */
#include "cache/snapshot/snapshot_text.h"

#include "proto/limits.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { WEIGHT_DIGITS = 10, HEAD_BYTES = 64 };

/* Reads a decimal below 2^32 without leading zeros, ended by `stop`; returns what follows it, or
 * NULL. */
static char *parse_u32(char *text, const char *end, char stop, uint32_t *ret_value) {
    uint64_t value = 0;
    char *at = text;
    for (; at < end && *at >= '0' && *at <= '9' && at - text <= WEIGHT_DIGITS; at++)
        value = value * 10 + (uint64_t)(*at - '0');
    if (at == text || at == end || *at != stop || value > UINT32_MAX) return NULL;
    if (*text == '0' && at != text + 1) return NULL;
    *ret_value = (uint32_t)value;
    return at + 1;
}

/* Reads one line; terminates the name in place. Returns the next line, or NULL. */
static char *parse_line(char *text, char *end, fm_snapshot_line *ret_line) {
    char *newline = memchr(text, '\n', (size_t)(end - text));
    if (!newline) return NULL;
    char *at = parse_u32(text, newline, ' ', &ret_line->weight);
    if (!at || newline - at <= FM_SHA256_HEX ||
        fm_sha256_parse(at, FM_SHA256_HEX - 1, &ret_line->parts) || at[FM_SHA256_HEX - 1] != ' ') {
        return NULL;
    }
    at += FM_SHA256_HEX;
    size_t length = (size_t)(newline - at);
    if (length > FM_LIMIT_NAME_BYTES || memchr(at, '\0', length)) return NULL;
    *newline = '\0';
    ret_line->name = at;
    return newline + 1;
}

fm_status fm_snapshot_decode(fm_bytes bytes, fm_arena *arena, fm_snapshot_text *ret_text,
                             fm_error *reterr) {
    static const char title[] = "foldmill snapshot 1\nchains ";
    size_t title_bytes = sizeof title - 1;
    char *at = fm_arena_alloc(arena, bytes.size + 1);
    if (!at) return fm_arena_full(arena, reterr);
    if (bytes.size) memcpy(at, bytes.data, bytes.size);
    char *end = at + bytes.size;
    uint32_t n = 0;
    bool titled = bytes.size > title_bytes && memcmp(at, title, title_bytes) == 0;
    at = titled ? parse_u32(at + title_bytes, end, '\n', &n) : NULL;
    if (!at || n < 1 || n > FM_LIMIT_N_CHAIN || n > bytes.size / FM_SHA256_HEX) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 1, 0, 0,
                          "not a snapshot of format 1 with chains");
    }
    fm_snapshot_line *line = fm_arena_alloc_array(arena, n, sizeof *line);
    if (!line) return fm_arena_full(arena, reterr);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        at = parse_line(at, end, &line[i]);
        if (!at) {
            return fm_fail_at(reterr, FM_ERR_CORRUPT, i + 3, 0, 0,
                              "the line is not 'weight hash name'");
        }
        if (i > 0 && strcmp(line[i - 1].name, line[i].name) >= 0) {
            return fm_fail_at(reterr, FM_ERR_CORRUPT, i + 3, 0, 0, "chains are not sorted");
        }
        sum += line[i].weight;
    }
    if (at != end || sum == 0) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, n + 3, 0, 0,
                          "lines beyond the %u chains, or no chain with a weight", n);
    }
    *ret_text = (fm_snapshot_text){n, line};
    return FM_OK;
}

fm_status fm_snapshot_encode(const fm_snapshot_text *text, fm_arena *arena, fm_bytes *ret_bytes,
                             fm_error *reterr) {
    size_t capacity = HEAD_BYTES;
    for (uint32_t i = 0; i < text->n_line; i++)
        capacity += WEIGHT_DIGITS + 1 + FM_SHA256_HEX + strlen(text->line[i].name) + 1;
    char *out = fm_arena_alloc(arena, capacity);
    if (!out) return fm_arena_full(arena, reterr);
    size_t at = (size_t)snprintf(out, capacity, "foldmill snapshot 1\nchains %u\n", text->n_line);
    for (uint32_t i = 0; i < text->n_line; i++) {
        char hex[FM_SHA256_HEX];
        fm_sha256_format(&text->line[i].parts, hex);
        at += (size_t)snprintf(out + at, capacity - at, "%u %s %s\n", text->line[i].weight, hex,
                               text->line[i].name);
    }
    fm_arena_trim(arena, out, at);
    *ret_bytes = (fm_bytes){(const uint8_t *)out, at};
    return FM_OK;
}
