/* names.c: see names.h. */
#include "cache/source/names.h"

#include "cache/source/json_reader.h"
#include "cache/source/source.h"
#include "featurizer/parse/lines.h"
#include "proto/base/utf8.h"
#include "proto/limits.h"

#include <stdlib.h>
#include <string.h>

static bool is_name(const char *name, size_t length) {
    if (length < 1 || length > FM_LIMIT_NAME_BYTES) return false;
    for (size_t i = 0; i < length; i++) {
        if ((uint8_t)name[i] <= 0x20 || name[i] == 0x7f) return false;
    }
    return true;
}

fm_status fm_name_words_begin(fm_name_words *words, fm_bytes text, fm_arena *arena,
                              fm_error *reterr) {
    fm_status status = fm_text_check_kind(text, reterr);
    if (status) return status;
    while (text.size > 0 && text.data[text.size - 1] == 0)
        text.size--;
    char *copy = fm_arena_alloc(arena, text.size + 1);
    if (!copy) return fm_arena_full(arena, reterr);
    if (text.size) memcpy(copy, text.data, text.size);
    copy[text.size] = '\0';
    size_t n_max = text.size / 2 + 1;
    *words =
        (fm_name_words){.text = copy,
                        .size = text.size,
                        .at = fm_utf8_mark(text.data, text.size),
                        .next_line = 1,
                        .n_max = n_max < FM_LIMIT_N_CHAIN ? (uint32_t)n_max : FM_LIMIT_N_CHAIN};
    return FM_OK;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Whether a line ends at this byte: LF, CR LF or CR. The text ends with a NUL. */
static bool ends_line(const char *text, size_t at) {
    return text[at] == '\n' || (text[at] == '\r' && text[at + 1] != '\n');
}

fm_status fm_name_words_next(fm_name_words *words, const char **ret_name, fm_error *reterr) {
    while (words->at < words->size && is_blank(words->text[words->at]))
        words->next_line += ends_line(words->text, words->at++);
    words->line = words->next_line;
    size_t begin = words->at;
    while (words->at < words->size && !is_blank(words->text[words->at]))
        words->at++;
    *ret_name = NULL;
    if (words->at == begin) return FM_OK;
    size_t length = words->at - begin;
    if (!is_name(words->text + begin, length)) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, words->line, 0, 0,
                          "a word of %zu bytes is no name of a chain: names have 1 to %u bytes "
                          "without control bytes",
                          length, FM_LIMIT_NAME_BYTES);
    }
    if (words->n_max == 0) {
        return fm_fail_at(reterr, FM_ERR_LIMIT, words->line, 0, 0, "more than %u names",
                          FM_LIMIT_N_CHAIN);
    }
    words->n_max--;
    if (words->at < words->size) {
        words->next_line += ends_line(words->text, words->at);
        words->text[words->at++] = '\0';
    }
    *ret_name = words->text + begin;
    return FM_OK;
}

/* -- sets */

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static fm_names sort_names(const char **name, uint32_t n) {
    uint32_t kept = 0;
    if (n) qsort(name, n, sizeof *name, compare_names);
    for (uint32_t i = 0; i < n; i++) {
        if (!kept || strcmp(name[i], name[kept - 1]) != 0) name[kept++] = name[i];
    }
    return (fm_names){kept, name};
}

/* Strings of an array, or keys of an object; deeper values are skipped. */
static fm_status read_json(fm_bytes text, fm_arena *arena, const char **name, char *pool,
                           uint32_t n_max, uint32_t *ret_n, fm_error *reterr) {
    fm_json_bytes bytes = {text.data, text.size, 0};
    fm_json_reader *json = fm_arena_alloc(arena, sizeof *json);
    fm_json_token token, wanted;
    uint32_t n = 0;
    if (!json) return fm_arena_full(arena, reterr);
    fm_json_init(json, fm_json_of_bytes(&bytes));
    fm_status status = fm_json_next(json, &token, reterr);
    if (status) return status;
    wanted = token == FM_JSON_OBJECT ? FM_JSON_KEY : FM_JSON_STRING;
    while (!(status = fm_json_next(json, &token, reterr)) && json->depth) {
        bool is_value = json->depth == 1 || token == FM_JSON_OBJECT || token == FM_JSON_ARRAY;
        if (token == wanted && json->depth == 1) {
            if (!is_name(json->text, json->text_bytes) || n == n_max) {
                return fm_json_fail(json, FM_ERR_FORMAT, "not a name of a chain", reterr);
            }
            memcpy(pool, json->text, json->text_bytes + 1);
            name[n++] = pool;
            pool += json->text_bytes + 1;
        } else if (wanted == FM_JSON_STRING && is_value) {
            return fm_json_fail(json, FM_ERR_FORMAT, "expected the name of a chain", reterr);
        }
    }
    if (!status) status = fm_json_next(json, &token, reterr);
    if (!status) *ret_n = n;
    return status;
}

fm_status fm_names_parse(fm_bytes text, fm_arena *arena, fm_names *ret_names, fm_error *reterr) {
    const size_t mark = fm_utf8_mark(text.data, text.size);
    size_t at = 0;
    uint32_t n = 0;
    fm_name_words words;
    if (mark) text = (fm_bytes){text.data + mark, text.size - mark};
    while (at < text.size && is_blank((char)text.data[at]))
        at++;
    bool is_json = at < text.size && (text.data[at] == '[' || text.data[at] == '{');
    fm_status status = fm_name_words_begin(&words, text, arena, reterr);
    const char **name = status ? NULL : fm_arena_alloc_array(arena, words.n_max, sizeof *name);
    if (!name) return status ? status : fm_arena_full(arena, reterr);
    if (is_json) {
        /* A name in JSON has two quotes, so with terminators the names fit into the text's size. */
        status = read_json(text, arena, name, words.text, words.n_max, &n, reterr);
    } else {
        const char *word;
        while (!(status = fm_name_words_next(&words, &word, reterr)) && word)
            name[n++] = word;
    }
    if (!status) *ret_names = sort_names(name, n);
    return status;
}

static int compare_to_name(const void *wanted, const void *name) {
    return strcmp(wanted, *(const char *const *)name);
}

uint32_t fm_names_find(const fm_names *names, const char *name) {
    const char *const *found =
        names->n ? bsearch(name, names->name, names->n, sizeof *names->name, compare_to_name)
                 : NULL;
    return found ? (uint32_t)(found - names->name) : FM_NO_NAME;
}

bool fm_names_has(const fm_names *names, const char *name) {
    return fm_names_find(names, name) != FM_NO_NAME;
}

static const char dataset_letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                      "0123456789._-";

bool fm_name_is_dataset(const char *name, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (!name[i] || !strchr(dataset_letters, name[i])) return false;
    }
    return bytes >= 1 && bytes <= FM_SOURCE_DATASET_BYTES;
}

const char *fm_name_in_dataset(const char *name) {
    size_t length = strspn(name, dataset_letters);
    return length && name[length] == ':' && name[length + 1] ? name + length + 1 : name;
}
