/* snapshot_text.c: see snapshot_text.h. */
#include "cache/snapshot/snapshot_text.h"

#include "cache/source/names.h"
#include "proto/limits.h"

#include <assert.h>
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

/* Returns what follows `word` at the start of the text, or NULL. */
static char *skip_word(char *text, const char *end, const char *word) {
    size_t bytes = strlen(word);
    bool is_there = (size_t)(end - text) >= bytes && memcmp(text, word, bytes) == 0;
    return is_there ? text + bytes : NULL;
}

/* Reads one line; terminates the name in place. Returns the next line, or NULL. */
static char *parse_line(char *text, const char *end, fm_snapshot_line *ret_line) {
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

uint32_t fm_snapshot_line_number(const fm_snapshot_text *text, uint32_t i) {
    uint32_t n_head = text->shares.n ? 3 + text->shares.n : 2;
    return n_head + 1 + i;
}

/* Reads "share N NAME", or "share N" for the dataset without a name, ended by LF; terminates the
 * name in place. Returns the next line, or NULL. */
static char *parse_share(char *text, char *end, fm_share *ret_share) {
    char *newline = memchr(text, '\n', (size_t)(end - text));
    char *number = newline ? skip_word(text, newline, "share ") : NULL;
    if (!number) return NULL;
    char *name = parse_u32(number, newline, ' ', &ret_share->billionths);
    if (name && !fm_name_is_dataset(name, (size_t)(newline - name))) return NULL;
    if (!name && !parse_u32(number, end, '\n', &ret_share->billionths)) return NULL;
    *newline = '\0';
    ret_share->dataset = name ? name : newline;
    return newline + 1;
}

/* Reads the number of shares and a line for each. Returns what follows them, or NULL. */
static char *parse_shares(char *at, char *end, fm_share share[FM_LIMIT_N_SHARE],
                          fm_shares *ret_shares) {
    uint32_t n = 0;
    at = parse_u32(at, end, '\n', &n);
    if (!at || n < 1 || n > FM_LIMIT_N_SHARE) return NULL;
    for (uint32_t i = 0; i < n && at; i++)
        at = parse_share(at, end, &share[i]);
    *ret_shares = (fm_shares){n, share};
    return at && fm_shares_are_canonical(ret_shares) ? at : NULL;
}

/* Reads everything before the chains; returns what follows, or NULL. */
static char *parse_head(char *at, char *end, fm_share share[FM_LIMIT_N_SHARE],
                        fm_snapshot_text *text) {
    char *first = skip_word(at, end, "foldmill snapshot 1\n");
    char *second = skip_word(at, end, "foldmill snapshot 2\nshares ");
    at = second ? parse_shares(second, end, share, &text->shares) : first;
    if (at) at = skip_word(at, end, "chains ");
    return at ? parse_u32(at, end, '\n', &text->n_line) : NULL;
}

/* Each chain is of a dataset with a share, and each such dataset can be drawn. */
static fm_status check_shares(const fm_snapshot_text *text, fm_error *reterr) {
    uint64_t sum[FM_LIMIT_N_SHARE] = {0};
    for (uint32_t i = 0; i < text->n_line && text->shares.n; i++) {
        uint32_t k = fm_shares_find(&text->shares, text->line[i].name);
        if (k == FM_NO_SHARE) {
            return fm_fail_at(reterr, FM_ERR_CORRUPT, fm_snapshot_line_number(text, i), 0, 0,
                              "the chain's dataset has no share");
        }
        sum[k] += text->line[i].weight;
    }
    for (uint32_t k = 0; k < text->shares.n; k++) {
        if (sum[k]) continue;
        return fm_fail_at(reterr, FM_ERR_CORRUPT, k + 3, 0, 0,
                          "the dataset has no chain with a weight");
    }
    return FM_OK;
}

static fm_status parse_lines(char *at, const char *end, fm_snapshot_text *text,
                             fm_snapshot_line *line, fm_error *reterr) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < text->n_line; i++) {
        at = parse_line(at, end, &line[i]);
        if (!at) {
            return fm_fail_at(reterr, FM_ERR_CORRUPT, fm_snapshot_line_number(text, i), 0, 0,
                              "the line is not 'weight hash name'");
        }
        if (i > 0 && strcmp(line[i - 1].name, line[i].name) >= 0) {
            return fm_fail_at(reterr, FM_ERR_CORRUPT, fm_snapshot_line_number(text, i), 0, 0,
                              "chains are not sorted");
        }
        sum += line[i].weight;
    }
    if (at == end && sum) return FM_OK;
    return fm_fail_at(reterr, FM_ERR_CORRUPT, fm_snapshot_line_number(text, text->n_line), 0, 0,
                      "lines beyond the %u chains, or no chain with a weight", text->n_line);
}

fm_status fm_snapshot_decode(fm_bytes bytes, fm_arena *arena, fm_snapshot_text *ret_text,
                             fm_error *reterr) {
    char *copy = fm_arena_alloc(arena, bytes.size + 1);
    fm_share *share = fm_arena_alloc_array(arena, FM_LIMIT_N_SHARE, sizeof *share);
    if (!copy || !share) return fm_arena_full(arena, reterr);
    if (bytes.size) memcpy(copy, bytes.data, bytes.size);
    char *end = copy + bytes.size;
    fm_snapshot_text text = {0};
    char *at = parse_head(copy, end, share, &text);
    if (!at || text.n_line < 1 || text.n_line > FM_LIMIT_N_CHAIN ||
        text.n_line > bytes.size / FM_SHA256_HEX) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 1, 0, 0,
                          "not a snapshot of format 1 or 2 with chains");
    }
    fm_snapshot_line *line = fm_arena_alloc_array(arena, text.n_line, sizeof *line);
    if (!line) return fm_arena_full(arena, reterr);
    text.line = line;
    fm_status status = parse_lines(at, end, &text, line, reterr);
    if (!status) status = check_shares(&text, reterr);
    if (!status) *ret_text = text;
    return status;
}

fm_status fm_snapshot_encode(const fm_snapshot_text *text, fm_arena *arena, fm_bytes *ret_bytes,
                             fm_error *reterr) {
    const fm_shares *shares = &text->shares;
    assert(fm_shares_are_canonical(shares));
    size_t capacity = HEAD_BYTES;
    for (uint32_t i = 0; i < shares->n; i++)
        capacity += HEAD_BYTES + strlen(shares->share[i].dataset);
    for (uint32_t i = 0; i < text->n_line; i++)
        capacity += WEIGHT_DIGITS + 1 + FM_SHA256_HEX + strlen(text->line[i].name) + 1;
    char *out = fm_arena_alloc(arena, capacity);
    if (!out) return fm_arena_full(arena, reterr);
    size_t at = (size_t)snprintf(out, capacity, "foldmill snapshot %d\n", shares->n ? 2 : 1);
    if (shares->n) at += (size_t)snprintf(out + at, capacity - at, "shares %u\n", shares->n);
    for (uint32_t i = 0; i < shares->n; i++) {
        const fm_share *share = &shares->share[i];
        at += (size_t)snprintf(out + at, capacity - at, "share %u%s%s\n", share->billionths,
                               share->dataset[0] ? " " : "", share->dataset);
    }
    at += (size_t)snprintf(out + at, capacity - at, "chains %u\n", text->n_line);
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
