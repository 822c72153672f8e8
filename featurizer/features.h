/* features.h: turns the parsed inputs of a chain into its record's parts.
 *
 *     structure file -> fm_structure_file (once for all chains)  ->  sequence part, structure part
 *     alignment files + sequence part                            ->  msa part
 *     template search files, structures + sequence part          ->  hits part (templates.h)
 *
 * All functions are pure: the same bytes and options give the same parts. Their results may change
 * only together with the stage's version, which is part of the key under which a build stores a
 * part. */
#ifndef FM_FEATURIZER_FEATURES_H
#define FM_FEATURIZER_FEATURES_H

#include "featurizer/msa.h"
#include "featurizer/parse/mmcif.h"
#include "featurizer/parse/pdb.h"
#include "proto/record.h"

/* Versions of the stages. Raise one whenever its stage returns another value for some input, so
 * that caches compute the part again. */
enum {
    FM_STAGE_STRUCTURE = 2, /* mmCIF to sequence and structure */
    FM_STAGE_MSA = 3,       /* alignments to msa */
    FM_STAGE_HITS = 2,      /* template search results and structures to hits */
    FM_STAGE_COMPLEX = 2,   /* mmCIF and components to an assembly and its records */
};

typedef struct fm_features_options {
    bool compat_openfold; /* reproduce the reference bit for bit, quirks included */
    /* mmCIF files are predictions, so their B factors are confidences (pLDDT). PDB files are always
     * predictions. With compat_openfold, predictions must be PDB files. */
    bool is_predicted;
} fm_features_options;

/* Makes one chain's parts from a parsed structure. Returns FM_ERR_NOT_FOUND when the file has no
 * such chain and FM_ERR_DATA when the chain has no features. The parts are in the arena or borrow
 * from `mmcif`. */
FM_MUST_USE fm_status fm_features_structure(const fm_mmcif *mmcif, const char *author_id,
                                            const fm_features_options *options, fm_arena *arena,
                                            fm_part_sequence *ret_sequence,
                                            fm_part_structure *ret_structure, fm_error *reterr);

/* A parsed structure file of either format. */
typedef struct fm_structure_file {
    bool is_pdb;
    fm_mmcif mmcif; /* valid unless is_pdb */
    fm_pdb pdb;     /* valid if is_pdb */
} fm_structure_file;

/* Parses the text into the arena. Returns the errors of fm_mmcif_parse or fm_pdb_parse, and
 * FM_ERR_UNSUPPORTED for a predicted mmCIF file with compat_openfold. */
FM_MUST_USE fm_status fm_structure_file_parse(fm_bytes text, bool is_pdb,
                                              const fm_features_options *options, fm_arena *arena,
                                              fm_structure_file *ret_file, fm_error *reterr);

/* The number of the file's chains, and the author id of one; the string is borrowed from the
 * file. */
uint32_t fm_structure_file_n_chain(const fm_structure_file *file);
const char *fm_structure_file_chain_id(const fm_structure_file *file, uint32_t chain);

/* Like fm_features_structure, for either format. When author_id is NULL, the file must have exactly
 * one chain, else FM_ERR_DATA. Exception: a PDB file with compat_openfold gives the residues of all
 * its chains as one chain. */
FM_MUST_USE fm_status fm_structure_file_features(const fm_structure_file *file,
                                                 const char *author_id,
                                                 const fm_features_options *options,
                                                 fm_arena *arena, fm_part_sequence *ret_sequence,
                                                 fm_part_structure *ret_structure,
                                                 fm_error *reterr);

/* Makes a chain's msa part from its alignment files, whose order does not matter. Without any, the
 * msa is the sequence alone. ret_report may be NULL.
 *
 * The first row of each file must be the chain's sequence: same length and same letters, where an X
 * on either side matches any letter. The reading compat_openfold takes alignments as they are and
 * skips the comparison of letters. Otherwise returns FM_ERR_DATA, or FM_ERR_FORMAT with the place
 * in the file. */
FM_MUST_USE fm_status fm_features_msa(const fm_part_sequence *sequence, const fm_msa_input *inputs,
                                      size_t n_input, const fm_features_options *options,
                                      fm_arena *arena, fm_part_msa *ret_msa,
                                      fm_msa_report *ret_report, fm_error *reterr);

#endif
