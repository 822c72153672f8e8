/* synthetic_record.h: a chain computed by a formula, for tests that must know every value without a
 * file. sampling_reference.py contains the same formula. */
#ifndef FM_TESTS_SYNTHETIC_RECORD_H
#define FM_TESTS_SYNTHETIC_RECORD_H

#include "proto/record.h"

#include <assert.h>

typedef struct fm_synthetic_record {
    fm_part_sequence sequence;
    fm_part_msa msa;
    fm_part_structure structure;
    fm_record record;
} fm_synthetic_record;

/* Fills *out for n_seq x n_res; its memory is in the arena. */
static inline void fm_synthetic_record_make(fm_synthetic_record *out, uint32_t n_seq,
                                            uint32_t n_res, uint8_t is_distillation,
                                            fm_arena *arena) {
    static const char order[] = "ACDEFGHIKLMNPQRSTVWYX-";
    size_t n = (size_t)n_seq * n_res;
    uint8_t *msa = fm_arena_alloc(arena, n);
    uint16_t *deletions = fm_arena_alloc_array(arena, n, sizeof *deletions);
    uint32_t *profile = fm_arena_calloc(arena, n_res, FM_N_HHBLITS * sizeof *profile);
    char *sequence = fm_arena_alloc(arena, n_res);
    float *positions = fm_arena_calloc(arena, n_res, FM_N_ATOM37 * 3 * sizeof *positions);
    uint8_t *mask = fm_arena_calloc(arena, n_res, FM_N_ATOM37);
    assert(msa && deletions && profile && sequence && positions && mask);
    for (uint32_t r = 0; r < n_seq; r++) {
        for (uint32_t i = 0; i < n_res; i++) {
            uint8_t id =
                r == 0 ? (uint8_t)(i * 3 % 20) : (uint8_t)((r * 7 + i * 3 + r * i % 5) % 22);
            msa[(size_t)r * n_res + i] = id;
            deletions[(size_t)r * n_res + i] = r * i % 11 == 1 ? (uint16_t)((r + i) % 300) : 0;
            profile[(size_t)i * FM_N_HHBLITS + id]++;
        }
    }
    for (uint32_t i = 0; i < n_res; i++) {
        sequence[i] = order[msa[i]];
        mask[(size_t)i * FM_N_ATOM37 + 1] = 1;
        positions[((size_t)i * FM_N_ATOM37 + 1) * 3] = (float)i * 3.8f;
    }
    out->sequence = (fm_part_sequence){.n_res = n_res, .sequence = sequence};
    out->msa = (fm_part_msa){.n_seq = n_seq,
                             .n_res = n_res,
                             .msa = msa,
                             .deletion_matrix = deletions,
                             .profile = profile};
    out->structure = (fm_part_structure){.n_res = n_res,
                                         .all_atom_positions = positions,
                                         .all_atom_mask = mask,
                                         .resolution = 2.0f,
                                         .is_distillation = is_distillation};
    out->record = (fm_record){.name = "1syn_A",
                              .sequence = &out->sequence,
                              .msa = &out->msa,
                              .structure = &out->structure};
}

#endif
