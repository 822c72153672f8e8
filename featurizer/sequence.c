/* sequence.c: see sequence.h. */
#include "featurizer/sequence.h"

#include "proto/chem/residue.h"

fm_status fm_sequence_featurize(const fm_part_sequence *sequence, fm_arena *arena,
                                fm_sequence_features *ret_features, fm_error *reterr) {
    uint32_t n_res = sequence->n_res;
    int32_t *aatype = fm_arena_calloc(arena, (size_t)n_res * FM_N_AATYPE, sizeof *aatype);
    int32_t *between = fm_arena_calloc(arena, n_res, sizeof *between);
    int32_t *index = fm_arena_alloc_array(arena, n_res, sizeof *index);
    int32_t *length = fm_arena_alloc_array(arena, n_res, sizeof *length);
    if (!aatype || !between || !index || !length) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < n_res; i++) {
        uint8_t restype = fm_restype_from_letter(sequence->sequence[i]);
        if (restype == FM_HHBLITS_NONE) {
            return fm_fail_at(reterr, FM_ERR_FORMAT, 1, i + 1, i,
                              "the sequence has byte 0x%02x, expected a letter A-Z",
                              (uint8_t)sequence->sequence[i]);
        }
        aatype[(size_t)i * FM_N_AATYPE + restype] = 1;
        index[i] = (int32_t)i;
        length[i] = (int32_t)n_res;
    }
    *ret_features = (fm_sequence_features){.n_res = n_res,
                                           .aatype = aatype,
                                           .between_segment_residues = between,
                                           .residue_index = index,
                                           .seq_length = length};
    return FM_OK;
}
