/* alignment_index.h: the index of an alignment database: it says which bytes of which .db file are
 * which alignment file of which chain.
 *
 *     sharded   {"1abc_A": {"db": "alignment_db_0.db", "files": [["x.a3m", 0, 1234], ...]}, ...}
 *     legacy    {"1abc_A": [["x.a3m", 0, 1234], ...], ...}      of the one .db beside the index
 *
 * An index may mix the two forms, because it is read entry by entry. Memory is about 3 times the
 * size of usual indices, and at most about 8 times. Several chains may name the same bytes. No
 * value is trusted. An invalid entry is refused with a reason, and so is its chain, but no other. A
 * text that is not JSON is refused as a whole. docs/reference/inputs.md. */
#ifndef FM_CACHE_ALIGNMENT_INDEX_H
#define FM_CACHE_ALIGNMENT_INDEX_H

#include "cache/source/json_reader.h"
#include "proto/base/arena.h"

typedef struct fm_index_file {
    const char *name; /* "uniref90_hits.a3m"; no '/', no dot in front */
    uint64_t offset, bytes;
} fm_index_file;

typedef struct fm_index_entry {
    const char *name; /* the chain's name, as the index spells it */
    uint32_t db;      /* position in `db`; 0 when a refused entry names none */
    uint32_t n_file;
    const fm_index_file *file; /* [n_file] */
    const char *refusal;       /* NULL, or the reason why the entry is refused, in a sentence */
    uint64_t line;             /* line of the index */
} fm_index_entry;

typedef struct fm_alignment_index {
    uint32_t n_entry, n_db;
    uint64_t n_file;
    fm_index_entry *entry; /* [n_entry] in the order of the index */
    const char **db;       /* [n_db] file names without '/' */
} fm_alignment_index;

/* Reads an index of `input_bytes` bytes; a longer input is refused. own_db: name of the .db file
 * that entries of the legacy form mean. Memory is the arena's. FM_ERR_FORMAT and FM_ERR_LIMIT with
 * the place; errors of the input. */
FM_MUST_USE fm_status fm_alignment_index_parse(fm_json_input input, uint64_t input_bytes,
                                               const char *own_db, fm_arena *arena,
                                               fm_alignment_index *ret_index, fm_error *reterr);

/* Refuses each entry whose ranges pass the end of their file, or overlap other ranges without being
 * equal to them. db_bytes[n_db] has the sizes of the files, UINT64_MAX for a missing file.
 * FM_ERR_NOMEM.
 */
FM_MUST_USE fm_status fm_alignment_index_check(fm_alignment_index *index, const uint64_t *db_bytes,
                                               fm_arena *arena, fm_error *reterr);

#endif
