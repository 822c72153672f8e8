/* alignment_index.h: the index of an alignment database: which bytes of which .db file are which
 * alignment file of which chain.
 *
 *     sharded   {"1abc_A": {"db": "alignment_db_0.db", "files": [["x.a3m", 0, 1234], ...]}, ...}
 *     legacy    {"1abc_A": [["x.a3m", 0, 1234], ...], ...}      of one .db beside the index
 *
 * Both are read entry by entry (an index may mix them), in memory of about 8 times the index at
 * most, 3 times as they are. Several chains may name the same bytes. What an entry says is trusted
 * in nothing: an entry that cannot be gets a fault, which refuses its chain and no other; a text
 * that is not JSON is refused whole. Docs: docs/formats/inputs.md. */
#ifndef FM_CACHE_ALIGNMENT_INDEX_H
#define FM_CACHE_ALIGNMENT_INDEX_H

#include "cache/source/json_reader.h"
#include "proto/base/arena.h"

typedef struct fm_index_file {
    const char *name; /* "uniref90_hits.a3m"; no '/', not "." or ".." */
    uint64_t offset, bytes;
} fm_index_file;

typedef struct fm_index_entry {
    const char *name; /* of the chain, as the index has it */
    uint32_t db;      /* position in dbs; 0 with a fault that hides it */
    uint32_t n_file;
    const fm_index_file *file; /* [n_file] */
    const char *refusal;       /* NULL, or why the entry is refused, in a sentence */
    uint64_t line;             /* of the index */
} fm_index_entry;

typedef struct fm_alignment_index {
    uint32_t n_entry, n_db;
    uint64_t n_file;
    fm_index_entry *entry; /* [n_entry] in the order of the index */
    const char **db;       /* [n_db] file names; no '/' */
} fm_alignment_index;

/* Reads an index of `input_bytes` bytes (its size at least; more is refused). own_db: name of the
 * .db file that entries of the legacy form speak of. FM_ERR_FORMAT, FM_ERR_LIMIT with the place;
 * memory is the arena's. */
FM_MUST_USE fm_status fm_alignment_index_parse(fm_json_input input, uint64_t input_bytes,
                                               const char *own_db, fm_arena *arena,
                                               fm_alignment_index *ret_index, fm_error *reterr);

/* Gives a fault to every entry whose ranges pass the end of their file or overlap others without
 * being the same. db_bytes[n_db]: sizes of the files, UINT64_MAX = there is none. */
FM_MUST_USE fm_status fm_alignment_index_check(fm_alignment_index *index, const uint64_t *db_bytes,
                                               fm_arena *arena, fm_error *reterr);

#endif
