/* hits.h: template hits: the results of a search of a structure database for a chain. The HHR and
 * hmmsearch parsers return the same type. */
#ifndef FM_PARSE_HITS_H
#define FM_PARSE_HITS_H

#include "featurizer/arrays.h"
#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

/* One hit: an alignment of the query with a template. Pointers are in the parser's arena or borrow
 * from its input. */
typedef struct fm_hit {
    int32_t index;        /* the file's own number of the hit, from 1 */
    fm_bytes name;        /* the whole description line, "3ZEE_A real chain ..." */
    int32_t aligned_cols; /* pairs of match states */
    double sum_probs;     /* sum of posterior probabilities; NaN when the format has none */
    /* Letters of the query and of the template with '-' at gaps. The indices give, for each column
     * of the alignment, the position in the sequence, from 0, or -1 at a gap. In HHR all four
     * arrays have the same length. In hmmsearch's alignments the query is the whole chain, and the
     * template's letters between two columns have no entry in indices_hit, so n_column <= n_hit. */
    uint32_t n_query, n_hit, n_column;
    const char *query;            /* [n_query] */
    const char *hit;              /* [n_hit] upper case */
    const int32_t *indices_query; /* [n_query] */
    const int32_t *indices_hit;   /* [n_column] */
} fm_hit;

typedef struct fm_hits {
    uint32_t n_hit;
    const fm_hit *hit; /* [n_hit] in the file's order */
} fm_hits;

enum { FM_HITS_N_ARRAY = 11 };

/* Lists the hits as arrays: index, name, aligned_cols, sum_probs, col_off, query, hit, hit_len_off,
 * indices_query, indices_hit, indices_hit_off. The columns of all hits are concatenated. The arrays
 * that end in _off [n_hit + 1] hold each hit's start: col_off in query and indices_query,
 * hit_len_off in hit, indices_hit_off in indices_hit. The arrays are in the arena. Returns
 * FM_ERR_LIMIT when it is full or a count exceeds int32. */
FM_MUST_USE fm_status fm_hits_list_arrays(const fm_hits *hits, fm_arena *arena,
                                          fm_array ret_arrays[FM_HITS_N_ARRAY], fm_error *reterr);

#endif
