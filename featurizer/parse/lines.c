/* lines.c: see lines.h. */
#include "featurizer/parse/lines.h"

#include "proto/base/utf8.h"

#include <emmintrin.h>
#include <string.h>
#include <strings.h>

/* Returns the length of the UTF-8 blank that starts at p, among those that Python strips; 0 when
 * there is none. `left` bytes remain. */
static size_t wide_blank(const uint8_t *p, size_t left) {
    if (left >= 2 && p[0] == 0xC2 && (p[1] == 0x85 || p[1] == 0xA0)) return 2;
    if (left < 3) return 0;
    uint32_t code = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
    bool blank = code == 0xE19A80 ||                                         /* U+1680 */
                 (code >= 0xE28080 && code <= 0xE2808A) ||                   /* U+2000 .. U+200A */
                 code == 0xE280A8 || code == 0xE280A9 || code == 0xE280AF || /* U+2028 2029 202F */
                 code == 0xE2819F || code == 0xE38080;                       /* U+205F U+3000 */
    return blank ? 3 : 0;
}

static bool is_plain_blank(uint8_t c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

size_t fm_blank_at(fm_bytes text, size_t at, size_t end, bool python) {
    if (at >= end) return 0;
    uint8_t c = text.data[at];
    if (is_plain_blank(c)) return 1;
    if (!python) return 0;
    if (c >= 0x1C && c <= 0x1F) return 1;
    return c < 0x80 ? 0 : wide_blank(text.data + at, end - at);
}

/* The number of bytes of the blank that ends at `at`; 0 when there is no blank. */
static size_t blank_before(fm_bytes text, size_t begin, size_t at, bool python) {
    if (at <= begin) return 0;
    uint8_t c = text.data[at - 1];
    if (is_plain_blank(c)) return 1;
    if (!python) return 0;
    if (c >= 0x1C && c <= 0x1F) return 1;
    if (c < 0x80) return 0;
    for (size_t n = 2; n <= 3 && n <= at - begin; n++) {
        if (wide_blank(text.data + at - n, n) == n) return n;
    }
    return 0;
}

/* Returns a bit for each of 16 bytes that is graphic: above the space and ASCII. The comparison is
 * signed, so bytes from 0x80 on are below the space too. */
static inline unsigned graphic_bits(const uint8_t *p) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (unsigned)_mm_movemask_epi8(_mm_cmpgt_epi8(bytes, _mm_set1_epi8(' ')));
}

size_t fm_graphic_end(fm_bytes text, size_t at, size_t end) {
    const uint8_t *data = text.data;
    for (; end - at >= 64; at += 64) {
        uint64_t low = graphic_bits(data + at) | graphic_bits(data + at + 16) << 16;
        uint64_t high = graphic_bits(data + at + 32) | graphic_bits(data + at + 48) << 16;
        uint64_t others = ~(low | high << 32);
        if (others) return at + (unsigned)__builtin_ctzll(others);
    }
    while (at < end && data[at] > ' ' && data[at] < 0x80)
        at++;
    return at;
}

size_t fm_space_end(fm_bytes text, size_t at, size_t end) {
    const __m128i space = _mm_set1_epi8(' ');
    for (; end - at >= sizeof space; at += sizeof space) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(text.data + at));
        unsigned spaces = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, space));
        if (spaces != 0xFFFF) return at + (unsigned)__builtin_ctz(~spaces);
    }
    while (at < end && text.data[at] == ' ')
        at++;
    return at;
}

size_t fm_blank_find(fm_bytes text, size_t at, size_t end, bool python) {
    for (; (at = fm_graphic_end(text, at, end)) < end; at++) {
        if (fm_blank_at(text, at, end, python)) break;
    }
    return at;
}

/* Returns the length of the line end at p, other than \n; 0 when there is none. */
static size_t odd_break(const uint8_t *p, size_t left, bool python) {
    if (p[0] == '\r') return left >= 2 && p[1] == '\n' ? 2 : 1;
    if (!python) return 0;
    if (p[0] == '\v' || p[0] == '\f' || (p[0] >= 0x1C && p[0] <= 0x1E)) return 1;
    if (left >= 2 && p[0] == 0xC2 && p[1] == 0x85) return 2;
    return left >= 3 && p[0] == 0xE2 && p[1] == 0x80 && (p[2] == 0xA8 || p[2] == 0xA9) ? 3 : 0;
}

/* Returns whether any line ends other than by \n or \r\n. */
static bool has_odd_break(fm_bytes text, size_t at, bool python) {
    if (!python) {
        const uint8_t *p = text.data + at, *end = text.data + text.size;
        while (p < end && (p = memchr(p, '\r', (size_t)(end - p)))) {
            if (p + 1 == end || p[1] != '\n') return true;
            p++;
        }
        return false;
    }
    for (size_t i = at; i < text.size; i++) {
        uint8_t c = text.data[i];
        if (c >= ' ' && c < 0x80) continue;
        size_t n = odd_break(text.data + i, text.size - i, true);
        if (n && !(c == '\r' && n == 2)) return true;
    }
    return false;
}

fm_lines fm_lines_of(fm_bytes text, bool python, size_t at, uint64_t number) {
    /* The reference keeps the mark, as the first character of the first line. */
    size_t mark = at == 0 && !python ? fm_utf8_mark(text.data, text.size) : 0;
    while (!python && text.size > at && text.data[text.size - 1] == 0)
        text.size--;
    return (fm_lines){.text = text,
                      .at = at + mark,
                      .number = number,
                      .python = python,
                      .has_odd_breaks = at < text.size && has_odd_break(text, at, python)};
}

/* Finds the line's end and the next line's begin. Each byte is read once. */
static void find_end(const fm_lines *lines, size_t *ret_end, size_t *ret_next) {
    fm_bytes text = lines->text;
    size_t i = lines->at, n = 0;
    if (!lines->has_odd_breaks) {
        const uint8_t *newline = memchr(text.data + i, '\n', text.size - i);
        *ret_end = newline ? (size_t)(newline - text.data) : text.size;
        *ret_next = newline ? *ret_end + 1 : text.size;
        *ret_end -= newline && newline > text.data + i && newline[-1] == '\r';
        return;
    }
    for (; i < text.size; i++) {
        n = text.data[i] == '\n' ? 1 : odd_break(text.data + i, text.size - i, lines->python);
        if (n) break;
    }
    *ret_end = i;
    *ret_next = i + n;
}

bool fm_lines_next(fm_lines *lines, fm_line *ret_line) {
    fm_bytes text = lines->text;
    if (lines->at >= text.size) return false;
    size_t begin = lines->at, end, next, blank;
    find_end(lines, &end, &next);
    ret_line->start = begin;
    ret_line->stop = end;
    ret_line->number = lines->number++;
    lines->at = next;
    while ((blank = blank_before(text, begin, end, lines->python)))
        end -= blank;
    while ((blank = fm_blank_at(text, begin, end, lines->python)))
        begin += blank;
    ret_line->begin = begin;
    ret_line->end = end;
    return true;
}

/* UTF-16 is what a redirection in Windows PowerShell writes. ASCII text has a NUL byte in it for
 * each letter. */
static bool is_utf16(fm_bytes text) {
    const uint8_t *c = text.data;
    if (text.size < 2) return false;
    if ((c[0] == 0xff && c[1] == 0xfe) || (c[0] == 0xfe && c[1] == 0xff)) return true;
    return text.size >= 4 && text.size % 2 == 0 && (c[0] == 0) != (c[1] == 0) &&
           (c[0] == 0) == (c[2] == 0) && (c[1] == 0) == (c[3] == 0);
}

static bool begins_with(fm_bytes text, size_t at, const char *words) {
    size_t n = strlen(words);
    return text.size - at >= n && strncasecmp((const char *)text.data + at, words, n) == 0;
}

/* Names a compression that is not read, or returns NULL. */
static const char *packed_by(fm_bytes text) {
    static const struct {
        const char *magic, *name;
        size_t bytes;
    } kinds[] = {{"BZh", "bzip2", 3},        {"\x04\x22\x4d\x18", "lz4", 4},
                 {"\x5d\0\0", "lzma", 3},    {"\x1f\x9d", "compress (.Z)", 2},
                 {"PK\x03\x04", "zip", 4},   {"LZIP", "lzip", 4},
                 {"7z\xbc\xaf", "7-Zip", 4}, {"Rar!", "rar", 4}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (text.size > kinds[i].bytes && memcmp(text.data, kinds[i].magic, kinds[i].bytes) == 0) {
            return kinds[i].name;
        }
    }
    return NULL;
}

fm_status fm_text_check_kind(fm_bytes text, fm_error *reterr) {
    if (text.size == 0) return FM_OK;
    if (is_utf16(text)) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, 1, 1, 0,
                          "found text in UTF-16, expected ASCII or UTF-8; convert the file, for "
                          "example with iconv -f UTF-16 -t UTF-8");
    }
    const char *packed = packed_by(text);
    if (packed) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, 1, 1, 0,
                          "found a file compressed as %s, expected text, gzip, xz or zstd; unpack "
                          "it first",
                          packed);
    }
    size_t at = fm_utf8_mark(text.data, text.size);
    while (at < text.size && is_plain_blank(text.data[at]))
        at++;
    if (begins_with(text, at, "version https://git-lfs.")) {
        return fm_fail_at(
            reterr, FM_ERR_FORMAT, 1, 1, 0,
            "found a pointer of Git LFS, expected the file for which it stands; fetch "
            "it, for example with git lfs pull");
    }
    if (begins_with(text, at, "<!doctype") || begins_with(text, at, "<html") ||
        begins_with(text, at, "<?xml")) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, 1, 1, 0,
                          "found a web page or an XML message, expected a data file; download it "
                          "again");
    }
    return FM_OK;
}

fm_status fm_text_check_utf8(fm_bytes text, fm_error *reterr) {
    uint64_t line = 1;
    size_t start = 0;
    for (size_t i = 0, n; i < text.size; i += n) {
        n = fm_utf8_size(text.data + i, text.size - i);
        if (!n) {
            return fm_fail_at(reterr, FM_ERR_FORMAT, line, i - start + 1, i,
                              "byte 0x%02x is not UTF-8 text", text.data[i]);
        }
        if (text.data[i] != '\n') continue;
        line++;
        start = i + 1;
    }
    return FM_OK;
}
