/* token.c: see token.h. */
#include "proto/token.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { TOKEN_BITS = FM_LIMIT_TOKEN_BYTES * 8 };

bool fm_token_has(const fm_token *token, uint64_t index) {
    if (index < token->watermark) return true;
    uint64_t bit = index - token->watermark;
    return bit / 8 < token->bitmap_bytes && (token->bitmap[bit / 8] >> (bit % 8) & 1);
}

uint64_t fm_token_count(const fm_token *token) {
    uint64_t n = token->watermark;
    for (uint32_t i = 0; i < token->bitmap_bytes; i++)
        n += (uint64_t)__builtin_popcount(token->bitmap[i]);
    return n;
}

bool fm_token_is_canonical(const fm_token *token) {
    if (token->bitmap_bytes > FM_LIMIT_TOKEN_BYTES) return false;
    if (token->bitmap_bytes == 0) return true;
    return !(token->bitmap[0] & 1) && token->bitmap[token->bitmap_bytes - 1] != 0;
}

/* Moves the bitmap down by `shift` bits. */
static void shift_down(fm_token *token, uint32_t shift) {
    uint32_t whole = shift / 8, part = shift % 8;
    for (uint32_t i = 0; i < token->bitmap_bytes; i++) {
        uint32_t low = i + whole < token->bitmap_bytes ? token->bitmap[i + whole] : 0;
        uint32_t high = i + whole + 1 < token->bitmap_bytes ? token->bitmap[i + whole + 1] : 0;
        token->bitmap[i] = (uint8_t)((low | high << 8) >> part);
    }
    while (token->bitmap_bytes && !token->bitmap[token->bitmap_bytes - 1])
        token->bitmap_bytes--;
}

fm_status fm_token_deliver(fm_token *token, uint64_t index, fm_error *reterr) {
    if (fm_token_has(token, index)) {
        return fm_fail(reterr, FM_ERR_EXISTS, "sample %llu was delivered twice",
                       (unsigned long long)index);
    }
    uint64_t bit = index - token->watermark;
    if (bit >= TOKEN_BITS) {
        return fm_fail(reterr, FM_ERR_LIMIT,
                       "sample %llu is %llu beyond the watermark, at most %d are kept",
                       (unsigned long long)index, (unsigned long long)bit, TOKEN_BITS);
    }
    while (token->bitmap_bytes <= bit / 8)
        token->bitmap[token->bitmap_bytes++] = 0;
    token->bitmap[bit / 8] |= (uint8_t)(1u << (bit % 8));
    uint32_t complete = 0;
    while (complete / 8 < token->bitmap_bytes && token->bitmap[complete / 8] >> (complete % 8) & 1)
        complete++;
    if (complete) {
        token->watermark += complete;
        shift_down(token, complete);
    }
    return FM_OK;
}

void fm_token_advance(fm_token *token, uint64_t watermark) {
    assert(watermark >= token->watermark && !fm_token_has(token, watermark));
    uint64_t shift = watermark - token->watermark;
    if (shift >= TOKEN_BITS) token->bitmap_bytes = 0;
    shift_down(token, (uint32_t)(shift % TOKEN_BITS));
    token->watermark = watermark;
}

void fm_token_format(const fm_token *token, char out[FM_TOKEN_TEXT_BYTES]) {
    int n = snprintf(out, FM_TOKEN_TEXT_BYTES, "%u %llu %s", token->epoch,
                     (unsigned long long)token->watermark, token->bitmap_bytes ? "" : "-");
    for (uint32_t i = 0; i < token->bitmap_bytes; i++)
        n += snprintf(out + n, (size_t)(FM_TOKEN_TEXT_BYTES - n), "%02x", token->bitmap[i]);
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads the hex digits of the bitmap; false unless they are whole bytes that fit. */
static bool parse_bitmap(const char *hex, fm_token *token) {
    if (strcmp(hex, "-") == 0) return true;
    size_t n = strlen(hex);
    if (n == 0 || n % 2 || n / 2 > FM_LIMIT_TOKEN_BYTES) return false;
    for (size_t i = 0; i < n / 2; i++) {
        int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        token->bitmap[i] = (uint8_t)(high << 4 | low);
    }
    token->bitmap_bytes = (uint32_t)(n / 2);
    return true;
}

fm_status fm_token_parse(const char *text, fm_token *ret_token, fm_error *reterr) {
    fm_token token = {0};
    unsigned long long watermark;
    int bitmap_at = 0;
    bool lawful =
        sscanf(text, "%10u %20llu %n", &token.epoch, &watermark, &bitmap_at) == 2 && bitmap_at > 0;
    token.watermark = lawful ? watermark : 0;
    lawful = lawful && parse_bitmap(text + bitmap_at, &token) && fm_token_is_canonical(&token);
    if (!lawful) {
        return fm_fail(reterr, FM_ERR_FORMAT, "'%.40s' is not the text of a resume token", text);
    }
    *ret_token = token;
    return FM_OK;
}
