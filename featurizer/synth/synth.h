/* synth.h: a synthetic dataset of protein families, with their structures and alignments as the
 * bytes of the files that an OpenFold user has. It serves demos, tests, benchmarks and users
 * without data.
 *
 * Entry e (0, 1, 2 ...) is one structure file with one or two chains. Every chain belongs to a
 * family, and families recur in later entries. A family has an ancestor sequence, substitution
 * rates and one fold. A chain is a descendant of the ancestor on that fold. Its alignments are the
 * family's evolved rows aligned with the chain, and its template hits are the chains of the same
 * family in earlier entries. docs/reference/synth.md has the exact definition.
 *
 * These are pure functions of (seed, entry). Draws are Philox4x32-10 by purpose and index, and
 * entry e never depends on the number of entries. Every machine gives the same bytes: choices are
 * integers, and coordinates are IEEE sums, products and square roots, printed through integers.
 *
 * All memory is in the caller's arena. The only failure is a full arena (FM_ERR_LIMIT, see
 * fm_arena_full). */
#ifndef FM_SYNTH_SYNTH_H
#define FM_SYNTH_SYNTH_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    FM_SYNTH_MAX_CHAINS = 2,      /* proteins per entry */
    FM_SYNTH_MAX_STRANDS = 2,     /* nucleic acids per entry */
    FM_SYNTH_MAX_FILES = 5,       /* in one chain's alignment folder */
    FM_SYNTH_MAX_ENTRIES = 419904 /* ids "1000".."9zzz" */
};

typedef struct fm_synth_options {
    uint64_t seed;
    uint32_t min_length, max_length; /* residues per chain: 12 <= min <= max <= 2000 */
    uint32_t max_depth;              /* homologues per family, 1..100000 */
    uint32_t min_depth;              /* no family has fewer; 0 = no bound; <= max_depth */
    /* uniref90 and mgnify as Stockholm (AlphaFold's layout); otherwise all as A3M. */
    bool stockholm;
    bool complexes; /* entries are complexes, with rows to pair and alignments of RNA */
} fm_synth_options;

/* What a complex has beside water and sulfate. Ligands are of one kind. */
typedef struct fm_synth_recipe {
    uint8_t n_chain; /* proteins */
    bool same;       /* they are the same molecule */
    uint8_t n_strand;
    bool is_rna;      /* the strands are RNA, otherwise DNA */
    bool same_strand; /* two strands have one sequence, which pairs with itself */
    uint8_t n_sugar;  /* residues of a glycan on a protein */
    uint8_t n_ligand, n_ion;
    uint8_t n_copy; /* of everything, in the assembly */
} fm_synth_recipe;

typedef struct fm_synth_entry {
    uint32_t index;
    uint32_t n_chain;                     /* 1 or 2 */
    bool same;                            /* both chains are the same molecule */
    char id[5];                           /* lower case, "9a0x" */
    char auth_chain[FM_SYNTH_MAX_CHAINS]; /* author chain ids */
    uint32_t family[FM_SYNTH_MAX_CHAINS]; /* family numbers */
    const fm_synth_recipe *recipe;        /* of a complex; NULL for other entries; static */
    char auth_strand[FM_SYNTH_MAX_STRANDS];
} fm_synth_entry;

typedef struct fm_synth_file {
    const char *name; /* "bfd_uniclust_hits.a3m"; static */
    fm_bytes content; /* in the arena */
} fm_synth_file;

/* Returns the defaults: seed 0, 30..220 residues, depth 2000, A3M. */
fm_synth_options fm_synth_default_options(void);

/* Returns entry `index` < FM_SYNTH_MAX_ENTRIES. */
fm_synth_entry fm_synth_entry_of(const fm_synth_options *options, uint32_t index);

/* Writes the entry's mmCIF file. */
FM_MUST_USE fm_status fm_synth_mmcif(fm_arena *arena, const fm_synth_options *options,
                                     const fm_synth_entry *entry, fm_bytes *ret_content,
                                     fm_error *reterr);

/* Writes the alignment folder of chain `slot` < entry->n_chain: its files in the order of their
 * names. */
FM_MUST_USE fm_status fm_synth_alignments(fm_arena *arena, const fm_synth_options *options,
                                          const fm_synth_entry *entry, uint32_t slot,
                                          fm_synth_file ret_files[FM_SYNTH_MAX_FILES],
                                          uint32_t *ret_n_file, fm_error *reterr);

/* Writes the only file of the alignment folder of a strand of RNA. The entry's recipe has one;
 * strands of one sequence have equal files. */
FM_MUST_USE fm_status fm_synth_rna_alignment(fm_arena *arena, const fm_synth_options *options,
                                             const fm_synth_entry *entry, fm_synth_file *ret_file,
                                             fm_error *reterr);

#endif
