/* build_hits.h: makes the hits part of a chain in a build. It reads the chain's template search
 * files and the structures that they name, and lists the structure parts that the hits part needs.
 *
 * Many chains find the same structure. What mapping needs of it (sequences, numbers of atoms,
 * dates) is therefore read once per build and kept for all workers: about two bytes per residue.
 * Coordinates are not kept. A worker that needs a structure part which the cache does not have
 * reads the file again. */
#ifndef FM_CACHE_BUILD_HITS_H
#define FM_CACHE_BUILD_HITS_H

#include "cache/build/build_state.h"
#include "featurizer/templates.h"

/* All structures of the source that hits have named so far. */
typedef struct fm_build_templates fm_build_templates;

/* Create returns FM_ERR_NOMEM. Destroying NULL is fine. */
FM_MUST_USE fm_status fm_build_templates_create(fm_build_state *state, fm_build_templates **ret,
                                                fm_error *reterr);
void fm_build_templates_destroy(fm_build_templates *templates);

/* A worker's access: it keeps the structure file that it parsed last. */
typedef struct fm_build_reader {
    fm_build_templates *templates;
    fm_build_state *state;
    fm_arena arena;      /* the file and its parsed form */
    fm_arena *temporary; /* set by fm_build_hits_map */
    char id[16];         /* "" = none */
    fm_mmcif mmcif;
} fm_build_reader;

FM_MUST_USE fm_status fm_build_reader_init(fm_build_reader *reader, fm_build_state *state,
                                           fm_build_templates *templates, fm_error *reterr);
void fm_build_reader_fini(fm_build_reader *reader);

/* A chain's template search file; lists are in the order of names. */
typedef struct fm_build_search {
    const char *name; /* without .gz, .xz, .zst */
    fm_bytes text;
} fm_build_search;

/* Adds all inputs of the part to the key, except the chain's sequence: the contents of the files,
 * and of all structures that they name. Errors of the parsers, with the file's name. */
FM_MUST_USE fm_status fm_build_hits_key(fm_build_reader *reader, const fm_build_search *search,
                                        size_t n_search, fm_arena *arena, fm_sha256_state *key,
                                        fm_error *reterr);

/* Makes the part, in the arena, and brings the structure parts that it names into the cache. */
FM_MUST_USE fm_status fm_build_hits_map(fm_build_reader *reader, const fm_part_sequence *sequence,
                                        const fm_build_search *search, size_t n_search,
                                        fm_arena *arena, fm_part_hits *ret_hits, fm_error *reterr);

#endif
