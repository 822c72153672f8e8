/* features.h: the parsed inputs of a chain become its parts.
 *
 *     structure file -> fm_structure_file (once for all its chains) -> sequence part, structure
 * part alignment files + sequence part                      -> msa part template search files,
 * structures + sequence part    -> hits part (templates.h)
 *
 * Pure functions: the same bytes and options give the same parts. What they give may change with a
 * stage's version only, which is part of the key under which a build keeps a part. */
#ifndef FM_FEATURIZER_FEATURES_H
#define FM_FEATURIZER_FEATURES_H

#include "featurizer/msa.h"
#include "featurizer/parse/mmcif.h"
#include "featurizer/parse/pdb.h"
#include "proto/record.h"

/* Raised whenever a stage gives another value for some input, so that caches make it again. */
enum {
    FM_STAGE_STRUCTURE = 1, /* mmCIF to sequence and structure */
    FM_STAGE_MSA = 2,       /* alignments to msa */
    FM_STAGE_HITS = 1,      /* template search results and structures to hits */
};

typedef struct fm_features_options {
    bool compat_openfold; /* the reference's result bit for bit, its quirks among them */
    bool is_predicted;    /* mmCIF files are predictions: their B factors are confidence. PDB files
                             always are. compat_openfold knows predictions as PDB files only */
} fm_features_options;

/* One chain's parts from a parsed structure. FM_ERR_NOT_FOUND when it has no such chain;
 * FM_ERR_DATA when the chain has no features. The parts lie in the arena or borrow from `mmcif`. */
FM_MUST_USE fm_status fm_features_structure(const fm_mmcif *mmcif, const char *author_id,
                                            const fm_features_options *options, fm_arena *arena,
                                            fm_part_sequence *ret_sequence,
                                            fm_part_structure *ret_structure, fm_error *reterr);

/* A parsed structure file of either format. */
typedef struct fm_structure_file {
    bool is_pdb;
    fm_mmcif mmcif; /* unless is_pdb */
    fm_pdb pdb;     /* is_pdb */
} fm_structure_file;

/* Parses the text in the arena. What fm_mmcif_parse and fm_pdb_parse fail with. */
FM_MUST_USE fm_status fm_structure_file_parse(fm_bytes text, bool is_pdb,
                                              const fm_features_options *options, fm_arena *arena,
                                              fm_structure_file *ret_file, fm_error *reterr);

/* Its chains, and what they are called; borrowed from the file. */
uint32_t fm_structure_file_n_chain(const fm_structure_file *file);
const char *fm_structure_file_chain_id(const fm_structure_file *file, uint32_t chain);

/* As fm_features_structure. author_id NULL: the only chain there is, else FM_ERR_DATA (but for a
 * PDB file with compat_openfold, of which it is the residues of all chains). */
FM_MUST_USE fm_status fm_structure_file_features(const fm_structure_file *file,
                                                 const char *author_id,
                                                 const fm_features_options *options,
                                                 fm_arena *arena, fm_part_sequence *ret_sequence,
                                                 fm_part_structure *ret_structure,
                                                 fm_error *reterr);

/* The msa part of a chain from its alignment files, in any order; with none, the sequence alone.
 * The first row of each must be the chain's sequence: of its length, and (but in compat_openfold,
 * which takes alignments as they are) with its letters, an X on either side standing for any. Else
 * FM_ERR_DATA, or FM_ERR_FORMAT with the place in the file. */
FM_MUST_USE fm_status fm_features_msa(const fm_part_sequence *sequence, const fm_msa_input *inputs,
                                      size_t n_input, const fm_features_options *options,
                                      fm_arena *arena, fm_part_msa *ret_msa, fm_error *reterr);

#endif
