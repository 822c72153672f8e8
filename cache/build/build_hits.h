/* build_hits.h: the hits part of a chain in a build: its template search files, the structures that
 * they name, and which of those the part needs. For cache/build*.c only.
 *
 * A structure is found by many chains, so what mapping needs of it (sequences, numbers of atoms,
 * dates) is read once a build and kept for all workers: about two bytes a residue. Its coordinates
 * are not kept; a worker that needs the structure part of a chain which the cache does not have
 * reads the file again. */
#ifndef FM_CACHE_BUILD_HITS_H
#define FM_CACHE_BUILD_HITS_H

#include "cache/build/build_state.h"
#include "featurizer/templates.h"

/* All structures of the source that a hit has named so far. */
typedef struct fm_build_templates fm_build_templates;

/* FM_ERR_NOMEM. NULL is fine to destroy. */
FM_MUST_USE fm_status fm_build_templates_create(fm_build_state *state, fm_build_templates **ret,
                                                fm_error *reterr);
void fm_build_templates_destroy(fm_build_templates *templates);

/* A worker's view: the structure file it parsed last. */
typedef struct fm_build_reader {
    fm_build_templates *templates;
    fm_build_state *state;
    fm_arena arena;      /* the file and what was parsed of it */
    fm_arena *temporary; /* set by fm_build_hits_map */
    char id[16];         /* "" = none */
    fm_mmcif mmcif;
} fm_build_reader;

FM_MUST_USE fm_status fm_build_reader_init(fm_build_reader *reader, fm_build_state *state,
                                           fm_build_templates *templates, fm_error *reterr);
void fm_build_reader_fini(fm_build_reader *reader);

/* A chain's template search files, in the order of their names. */
typedef struct fm_build_search {
    const char *name; /* without ".gz" */
    fm_bytes text;
} fm_build_search;

/* Adds to the key what the part is made of, but the chain's sequence: the files' contents and those
 * of all structures they name. Errors of the files as the parsers give them, with the name. */
FM_MUST_USE fm_status fm_build_hits_key(fm_build_reader *reader, const fm_build_search *search,
                                        size_t n_search, fm_arena *arena, fm_sha256_state *key,
                                        fm_error *reterr);

/* The part, in the arena. The structure parts that it names are brought into the cache. */
FM_MUST_USE fm_status fm_build_hits_map(fm_build_reader *reader, const fm_part_sequence *sequence,
                                        const fm_build_search *search, size_t n_search,
                                        fm_arena *arena, fm_part_hits *ret_hits, fm_error *reterr);

#endif
