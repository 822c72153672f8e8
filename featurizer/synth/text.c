/* text.c: see text.h. */
#include "featurizer/synth/text.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

fm_status fm_synth_text_begin(fm_synth_text *text, fm_arena *arena, size_t max_bytes,
                              fm_error *reterr) {
    char *data = fm_arena_alloc(arena, max_bytes);
    if (!data) return fm_arena_full(arena, reterr);
    *text = (fm_synth_text){arena, data, 0, max_bytes};
    return FM_OK;
}

void fm_synth_text_bytes(fm_synth_text *text, const void *data, size_t size) {
    assert(size <= text->capacity - text->size);
    memcpy(text->data + text->size, data, size);
    text->size += size;
}

void fm_synth_text_char(fm_synth_text *text, char c) {
    fm_synth_text_bytes(text, &c, 1);
}

void fm_synth_text_fill(fm_synth_text *text, char c, size_t count) {
    assert(count <= text->capacity - text->size);
    memset(text->data + text->size, c, count);
    text->size += count;
}

void fm_synth_text_string(fm_synth_text *text, const char *string) {
    fm_synth_text_bytes(text, string, strlen(string));
}

void fm_synth_text_format(fm_synth_text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    size_t room = text->capacity - text->size;
    int n = vsnprintf(text->data + text->size, room, format, arguments);
    va_end(arguments);
    assert(n >= 0 && (size_t)n < room);
    text->size += (size_t)n;
}

void fm_synth_text_fixed3(fm_synth_text *text, int64_t thousandths, unsigned width) {
    uint64_t size = thousandths < 0 ? (uint64_t)-thousandths : (uint64_t)thousandths;
    char digits[32];
    unsigned n = 0;
    do {
        digits[n++] = (char)('0' + size % 10);
        size /= 10;
        if (n == 3) digits[n++] = '.';
    } while (size > 0 || n < 5);
    if (thousandths < 0) digits[n++] = '-';
    for (unsigned i = n; i-- > 0;)
        fm_synth_text_char(text, digits[i]);
    if (n < width) fm_synth_text_fill(text, ' ', width - n);
}

fm_bytes fm_synth_text_end(fm_synth_text *text) {
    fm_arena_trim(text->arena, text->data, text->size);
    return (fm_bytes){(const uint8_t *)text->data, text->size};
}
