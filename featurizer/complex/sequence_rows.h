/* sequence_rows.h: the alignments of one sequence of a complex, as rows of AlphaFold 3's classes.
 *
 *     files of one set, in order  ->  rows without duplicates  ->  classes, deletions, species,
 *                                                                  profile over the rows
 *
 * A protein has two sets: rows that can stand beside rows of other chains of the same species, and
 * all its rows. RNA has one. Everything else has its own sequence as the only row. A row is a
 * duplicate when an earlier row of the set has the same letters and gaps; deletions are not
 * compared, so those of the first occurrence stay.
 *
 * Source: AlphaFold 3, supplementary 2.2 and 2.3; docs/reference/complexes.md. Pure: bytes in, a
 * value in the caller's arena out. */
#ifndef FM_COMPLEX_SEQUENCE_ROWS_H
#define FM_COMPLEX_SEQUENCE_ROWS_H

#include "featurizer/complex/tokens.h"
#include "featurizer/msa.h"

enum {
    FM_DELETION_LIMIT = 127,   /* largest count of deletions that features tell apart */
    FM_SHORTEST_SEARCHED = 5,  /* residues of the shortest chain with alignments and templates */
    FM_LIMIT_RNA_ROWS = 30000, /* of a file; AlphaFold 3, supplementary table 2 */
};

typedef struct fm_sequence_rows {
    uint32_t n_row, n_col;
    const uint8_t *ids;      /* [n_row, n_col] classes 0..31 */
    const uint8_t *deletion; /* [n_row, n_col] letters deleted before, at most FM_DELETION_LIMIT */
    const uint64_t *hash;    /* [n_row] XXH3 of the row's ids */
    const fm_bytes *species; /* [n_row] size 0 where the description names none */
    const float *profile;    /* [n_col, 32] share of the rows that have each class */
    const double *deletion_mean; /* [n_col] mean of the whole counts */
} fm_sequence_rows;

typedef struct fm_sequence_rows_options {
    bool compat_protenix; /* rows of any length: cut, or filled with class 0 */
    /* As predictions take them: rows that are equal to earlier ones stay. */
    bool keeps_duplicates;
    bool has_no_limit; /* RNA takes all rows of a file */
} fm_sequence_rows_options;

/* Reads the alignments of one set; `sequence` has one letter for each residue. Proteins and RNA of
 * FM_SHORTEST_SEARCHED letters and more read `inputs`; for all others, and without inputs, the
 * sequence is the only row. RNA takes at most FM_LIMIT_RNA_ROWS rows of a file.
 *
 * Everything is in the arena, which needs about 4 times the texts' bytes of address space. Except
 * with compat_protenix, every row must have the sequence's length and the first row of a file must
 * be the sequence, where X and N match any letter. Returns FM_ERR_FORMAT with the file's name, line
 * and column, FM_ERR_DATA for an alignment of another sequence, FM_ERR_UNSUPPORTED for a file that
 * is no A3M or Stockholm alignment, and FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_sequence_rows_read(const fm_msa_input *inputs, size_t n_input,
                                            fm_bytes sequence, fm_polymer polymer,
                                            const fm_sequence_rows_options *options,
                                            fm_arena *arena, fm_sequence_rows *ret_rows,
                                            fm_error *reterr);

/* Returns the class of a letter in a chain of this kind: proteins, RNA and DNA have their own;
 * everything else is read as protein. Gaps are '-'. */
uint8_t fm_class_of_letter(char letter, fm_polymer polymer);

/* Returns the species in the description of a row: UniProt's `tr|ACC|NAME_SPECIES`, or the second
 * part of `UniRef100_ACC_SPECIES/...`. The result is borrowed; its size is 0 when there is none. */
fm_bytes fm_sequence_species(fm_bytes description);

#endif
