/* names.h: lists of names of chains, as users have them: words of a text, or strings of a JSON.
 *
 * A name has 1 to FM_LIMIT_NAME_BYTES bytes without blanks and control bytes. Memory is the
 * arena's: about the text once more. */
#ifndef FM_CACHE_NAMES_H
#define FM_CACHE_NAMES_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>

/* The words of a text, one after the other. */
typedef struct fm_name_words {
    char *text; /* a copy, in which words are ended */
    size_t size, at;
    uint64_t line;  /* of the word handed out last, from 1 */
    uint32_t n_max; /* there are no more words than this */
    uint64_t next_line;
} fm_name_words;

FM_MUST_USE fm_status fm_name_words_begin(fm_name_words *words, fm_bytes text, fm_arena *arena,
                                          fm_error *reterr);
/* The next word, or NULL at the end. FM_ERR_FORMAT for one that is no name, with its line. */
FM_MUST_USE fm_status fm_name_words_next(fm_name_words *words, const char **ret_name,
                                         fm_error *reterr);

/* A set of names, sorted, each once. */
typedef struct fm_names {
    uint32_t n;
    const char *const *name; /* [n] */
} fm_names;

/* Words of a text; or, when it begins with '[' or '{', the strings of a JSON array or the keys of a
 * JSON object. FM_ERR_FORMAT with the place. */
FM_MUST_USE fm_status fm_names_parse(fm_bytes text, fm_arena *arena, fm_names *ret_names,
                                     fm_error *reterr);
#define FM_NO_NAME UINT32_MAX
/* The place of a name in the list, or FM_NO_NAME. */
uint32_t fm_names_find(const fm_names *names, const char *name);
bool fm_names_has(const fm_names *names, const char *name);

/* "1abc_A" of "pdb:1abc_A": a chain's name without that of its dataset (source.h); borrowed. A name
 * that does not begin with a dataset's is returned as it is. */
const char *fm_name_in_dataset(const char *name);

#endif
