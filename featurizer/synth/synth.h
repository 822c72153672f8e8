/* synth.h: a synthetic dataset: protein families, their structures and alignments, as the bytes of
 * the files an OpenFold user has. For demos, tests, benchmarks and users without data.
 *
 * Entry e (0, 1, 2 ...) is one structure file with one or two chains. Every chain belongs to a
 * family; families return in later entries. A family has an ancestor sequence, substitution rates
 * and one fold; a chain is a descendant of the ancestor on that fold; its alignments are the
 * family's evolved rows seen from the chain; its template hits are the chains of the same family in
 * earlier entries. docs/synth.md says it exactly.
 *
 * Pure functions of (seed, entry): draws are Philox4x32-10 by purpose and index, entry e never
 * depends on how many entries are made, and the same bytes come out on every machine (choices are
 * integers; coordinates are IEEE sums, products and square roots, printed through integers).
 * All memory lies in the caller's arena. The only failure is a full arena (FM_ERR_LIMIT or
 * FM_ERR_NOMEM as fm_arena_full says). */
#ifndef FM_SYNTH_SYNTH_H
#define FM_SYNTH_SYNTH_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    FM_SYNTH_MAX_CHAINS = 2,      /* of one entry */
    FM_SYNTH_MAX_FILES = 4,       /* of one chain's alignment folder */
    FM_SYNTH_MAX_ENTRIES = 419904 /* ids "1000".."9zzz" */
};

typedef struct fm_synth_options {
    uint64_t seed;
    uint32_t min_length, max_length; /* residues of a chain: 12 <= min <= max <= 2000 */
    uint32_t max_depth;              /* homologues of a family, 1..100000 */
    uint32_t min_depth;              /* no family has fewer; 0 = as drawn, <= max_depth */
    bool stockholm; /* uniref90 and mgnify as Stockholm (AlphaFold's layout), else all as A3M */
} fm_synth_options;

typedef struct fm_synth_entry {
    uint32_t index;
    uint32_t n_chain;                     /* 1 or 2 */
    bool same;                            /* both chains are the same molecule */
    char id[5];                           /* lower case, "9a0x" */
    char auth_chain[FM_SYNTH_MAX_CHAINS]; /* author chain ids */
    uint32_t family[FM_SYNTH_MAX_CHAINS]; /* family numbers */
} fm_synth_entry;

typedef struct fm_synth_file {
    const char *name; /* "bfd_uniclust_hits.a3m"; static */
    fm_bytes content; /* in the arena */
} fm_synth_file;

/* The defaults: seed 0, 30..220 residues, depth 2000, A3M. */
fm_synth_options fm_synth_default_options(void);

/* Entry `index` < FM_SYNTH_MAX_ENTRIES. */
fm_synth_entry fm_synth_entry_of(const fm_synth_options *options, uint32_t index);

/* The entry's mmCIF file. */
FM_MUST_USE fm_status fm_synth_mmcif(fm_arena *arena, const fm_synth_options *options,
                                     const fm_synth_entry *entry, fm_bytes *ret_content,
                                     fm_error *reterr);

/* The alignment folder of chain `slot` < entry->n_chain: its files in the order of their names. */
FM_MUST_USE fm_status fm_synth_alignments(fm_arena *arena, const fm_synth_options *options,
                                          const fm_synth_entry *entry, uint32_t slot,
                                          fm_synth_file ret_files[FM_SYNTH_MAX_FILES],
                                          uint32_t *ret_n_file, fm_error *reterr);

/* The chain's sequence as one-letter codes, in the arena: what entity_poly_seq spells and what row
 * 0 of every alignment holds. */
FM_MUST_USE fm_status fm_synth_sequence(fm_arena *arena, const fm_synth_options *options,
                                        const fm_synth_entry *entry, uint32_t slot,
                                        fm_bytes *ret_letters, fm_error *reterr);

#endif
