/* structure.h: one chain of a parsed structure file as the record's parts.
 *
 * The heavy work is the parser's (parse/mmcif.h): coordinates are placed in the atom37 order there.
 * Here a chain is chosen, checked and handed over. Parts borrow the parsed file's memory. */
#ifndef FM_STRUCTURE_H
#define FM_STRUCTURE_H

#include "featurizer/parse/mmcif.h"
#include "featurizer/parse/pdb.h"
#include "proto/record.h"

/* The parts of the chain with that author id (auth_asym_id). FM_ERR_NOT_FOUND names the chains
 * there are. With compat_openfold FM_ERR_DATA for what the reference makes no features of: a file
 * without release date, a chain with a fault. Both outputs borrow from `mmcif`'s arena. */
FM_MUST_USE fm_status fm_structure_from_mmcif(const fm_mmcif *mmcif,
                                              const fm_mmcif_options *options,
                                              const char *author_id, fm_part_sequence *ret_sequence,
                                              fm_part_structure *ret_structure, fm_error *reterr);

/* The parts of a predicted structure (is_distillation 1, with confidence, no resolution and no
 * date). chain_id: column 22 of the chain; NULL: the only chain there is, or, with
 * compat_openfold, the residues of all chains as one chain. FM_ERR_NOT_FOUND and FM_ERR_DATA name
 * the chains there are. Both outputs borrow from `pdb`'s arena. */
FM_MUST_USE fm_status fm_structure_from_pdb(const fm_pdb *pdb, const fm_pdb_options *options,
                                            const char *chain_id, fm_part_sequence *ret_sequence,
                                            fm_part_structure *ret_structure, fm_error *reterr);

/* pLDDT: what is at most this is taken for unfolded or wrong (Jumper et al. 2021, supplementary
 * 1.3). */
#define FM_CONFIDENCE_FLOOR 50.0f

/* Whether a residue's atoms count: in a predicted structure with confidence those above the floor.
 */
static inline bool fm_structure_is_sure(const fm_part_structure *structure, size_t residue) {
    return !structure->is_distillation || !structure->confidence ||
           structure->confidence[residue] > FM_CONFIDENCE_FLOOR;
}

/* all_atom_mask [N_res, 37] as features have it: residues that fm_structure_is_sure is false of
 * count as not there. Their coordinates stay. */
void fm_structure_list_mask(const fm_part_structure *structure, uint8_t *ret_mask);

/* An array under the reference's name, ready to be written as .npy. Strings are uint8. */
typedef struct fm_structure_array {
    const char *key;
    const char *dtype; /* NumPy's: "<i4", "<f4", "|u1" */
    size_t rank;
    uint64_t shape[3];
    const void *data;
} fm_structure_array;

enum { FM_STRUCTURE_N_ARRAY = 11 };

/* The sequence and structure features of a chain as the reference names and shapes them: aatype,
 * between_segment_residues, domain_name, residue_index, seq_length, sequence, all_atom_positions,
 * all_atom_mask, resolution, release_date (left out when not known), is_distillation. domain_name
 * is
 * "<file id>_<chain>" and, as the parts, is borrowed; the rest lies in the arena. */
FM_MUST_USE fm_status fm_structure_list_arrays(const fm_part_sequence *sequence,
                                               const fm_part_structure *structure,
                                               const char *domain_name, fm_arena *arena,
                                               fm_structure_array ret_arrays[FM_STRUCTURE_N_ARRAY],
                                               size_t *ret_n, fm_error *reterr);

#endif
