/* structure.h: hands over one chain of a parsed structure file as the record's sequence and
 * structure parts.
 *
 * The parser (parse/mmcif.h, parse/pdb.h) has already placed coordinates in atom37 order. The
 * functions here choose a chain, check it and return it. Parts borrow the parsed file's memory. */
#ifndef FM_STRUCTURE_H
#define FM_STRUCTURE_H

#include "featurizer/parse/mmcif.h"
#include "featurizer/parse/pdb.h"
#include "proto/record.h"

/* Returns the parts of the chain whose author id (auth_asym_id) is author_id. FM_ERR_NOT_FOUND's
 * message lists the file's chains. A chain for which the parser stored a reason of refusal gives
 * FM_ERR_DATA. With compat_openfold, so does a file without a release date, from which the
 * reference makes no features. Both outputs borrow from `mmcif`'s arena. */
FM_MUST_USE fm_status fm_structure_from_mmcif(const fm_mmcif *mmcif,
                                              const fm_mmcif_options *options,
                                              const char *author_id, fm_part_sequence *ret_sequence,
                                              fm_part_structure *ret_structure, fm_error *reterr);

/* Returns the parts of a predicted structure: is_distillation is 1, confidence is set, resolution
 * and release date are not. chain_id is the character in column 22. With NULL, the file must have
 * one chain only; with compat_openfold it then gives the residues of all chains as one chain.
 * Returns FM_ERR_NOT_FOUND for an unknown chain and FM_ERR_DATA when the choice is ambiguous; both
 * messages list the file's chains. Both outputs borrow from `pdb`'s arena. */
FM_MUST_USE fm_status fm_structure_from_pdb(const fm_pdb *pdb, const fm_pdb_options *options,
                                            const char *chain_id, fm_part_sequence *ret_sequence,
                                            fm_part_structure *ret_structure, fm_error *reterr);

/* Residues with at most this pLDDT count as unfolded or wrong (Jumper et al. 2021, supplementary
 * 1.3). */
#define FM_CONFIDENCE_FLOOR 50.0f

/* Returns whether a residue's atoms count. In a predicted structure with confidences these are the
 * residues above the floor; in others, all. */
static inline bool fm_structure_is_sure(const fm_part_structure *structure, size_t residue) {
    return !structure->is_distillation || !structure->confidence ||
           structure->confidence[residue] > FM_CONFIDENCE_FLOOR;
}

/* Writes all_atom_mask [N_res, 37] as features have it: the atoms of residues for which
 * fm_structure_is_sure is false are masked out. Their coordinates stay. */
void fm_structure_list_mask(const fm_part_structure *structure, uint8_t *ret_mask);

/* An array named as the reference names it, ready to be written as .npy. Strings are uint8. */
typedef struct fm_structure_array {
    const char *key;
    const char *dtype; /* NumPy's: "<i4", "<f4", "|u1" */
    size_t rank;
    uint64_t shape[3];
    const void *data;
} fm_structure_array;

enum { FM_STRUCTURE_N_ARRAY = 11 };

/* Lists the sequence and structure features of a chain with the reference's names and shapes:
 * aatype, between_segment_residues, domain_name, residue_index, seq_length, sequence,
 * all_atom_positions, all_atom_mask, resolution, release_date (omitted when not known) and
 * is_distillation. The value of domain_name is "<file id>_<chain>". It and the parts are borrowed;
 * everything else is in the arena. Returns FM_ERR_FORMAT for a sequence byte that is not A-Z and
 * FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_structure_list_arrays(const fm_part_sequence *sequence,
                                               const fm_part_structure *structure,
                                               const char *domain_name, fm_arena *arena,
                                               fm_structure_array ret_arrays[FM_STRUCTURE_N_ARRAY],
                                               size_t *ret_n, fm_error *reterr);

#endif
