/* names.h: lists of chain names as users have them: words of a text, or strings in JSON.
 *
 * A name has 1 to FM_LIMIT_NAME_BYTES bytes without blanks and control bytes. Memory is the
 * arena's, about the size of the text. */
#ifndef FM_CACHE_NAMES_H
#define FM_CACHE_NAMES_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>

/* The words of a text, in order. */
typedef struct fm_name_words {
    char *text; /* a copy, in which each word gets a terminator */
    size_t size, at;
    uint64_t line;  /* line of the last word, from 1 */
    uint32_t n_max; /* an upper bound on the number of words */
    uint64_t next_line;
} fm_name_words;

FM_MUST_USE fm_status fm_name_words_begin(fm_name_words *words, fm_bytes text, fm_arena *arena,
                                          fm_error *reterr);
/* *ret_name = the next word, or NULL at the end. FM_ERR_FORMAT, with the line, for a word that
 * cannot be a name. */
FM_MUST_USE fm_status fm_name_words_next(fm_name_words *words, const char **ret_name,
                                         fm_error *reterr);

/* A set of names, sorted, without duplicates. */
typedef struct fm_names {
    uint32_t n;
    const char *const *name; /* [n] */
} fm_names;

/* Reads the words of a text. A text that begins with '[' or '{' is JSON: the strings of an array,
 * or the keys of an object. FM_ERR_FORMAT with the place. */
FM_MUST_USE fm_status fm_names_parse(fm_bytes text, fm_arena *arena, fm_names *ret_names,
                                     fm_error *reterr);
#define FM_NO_NAME UINT32_MAX
/* The position of a name in the list, or FM_NO_NAME. */
uint32_t fm_names_find(const fm_names *names, const char *name);
bool fm_names_has(const fm_names *names, const char *name);

/* "1abc_A" of "pdb:1abc_A": a chain's name without its dataset's prefix (source.h), borrowed. A
 * name without a prefix is returned as it is. */
const char *fm_name_in_dataset(const char *name);

/* True when the `bytes` bytes at `name` can be the name of a dataset: 1 to FM_SOURCE_DATASET_BYTES
 * of A-Z a-z 0-9 . _ - */
bool fm_name_is_dataset(const char *name, size_t bytes);

#endif
