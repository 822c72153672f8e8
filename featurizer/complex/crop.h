/* crop.h: chooses the tokens of an assembly that one sample of training has.
 *
 * Three ways, of which sampling draws one: stretches of the chains in random order (contiguous),
 * the tokens nearest to one of the sample's chains (spatial), and the tokens nearest to one at an
 * interface. docs/reference/complexes.md has the rules. Each random choice is a draw of draws.h. */
#ifndef FM_COMPLEX_CROP_H
#define FM_COMPLEX_CROP_H

#include "featurizer/complex/assembly.h"
#include "featurizer/sample/draws.h"

/* The numbers are those of stored crops. */
typedef enum fm_crop_method {
    FM_CROP_CONTIGUOUS,
    FM_CROP_SPATIAL,
    FM_CROP_INTERFACE,
    FM_N_CROP_METHOD,
} fm_crop_method;

typedef struct fm_crop_request {
    fm_crop_method method;
    uint32_t size;      /* most tokens, at least 1 */
    uint32_t max_atoms; /* most atoms; 0: no limit */
    bool is_complete;   /* whole residues only, and no metals in contiguous crops */
    /* The sample's chain or its two chains (asym_id); contiguous crops do not read them. */
    uint32_t n_reference;
    int32_t reference[2];
} fm_crop_request;

typedef struct fm_complex_crop {
    uint32_t n_token, n_full;
    const uint32_t *tokens; /* ascending */
    int32_t reference;      /* the token that spatial crops surround; -1 for others */
    /* Atoms, ascending, that labels must have: those that can change places with an atom of the
     * crop, because their molecule is alike. After a spatial crop, only of molecules in the crop.
     */
    const uint32_t *full;
} fm_complex_crop;

/* Crops a tokenized assembly. The result is in the arena. Returns FM_ERR_DATA when the crop fails
 * (a contiguous one with fewer than 5 resolved atoms, a spatial one without a resolved token to
 * start from, or into which no residue fits): a sampler then takes another sample. Returns
 * FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_complex_crop_make(const fm_assembly *assembly,
                                           const fm_crop_request *request, const fm_draws *draws,
                                           fm_arena *arena, fm_complex_crop *ret_crop,
                                           fm_error *reterr);

/* A recorded draw: a whole number, low <= value < high. */
typedef struct fm_crop_draw {
    int32_t kind; /* 0: one number; 1: the next element of a permutation of high numbers */
    int32_t low, high, value;
} fm_crop_draw;

/* Answers with recorded draws, in their order. */
typedef struct fm_crop_replay {
    const fm_crop_draw *draws; /* [n] borrowed */
    uint32_t n, at;
    bool has_failed; /* a question was not the recorded one; the answers are then 0 */
} fm_crop_replay;

/* Returns draws that read `replay`, which must outlive them. */
fm_draws fm_crop_replay_draws(fm_crop_replay *replay);

/* Returns whether all recorded draws were asked for, and no others. */
bool fm_crop_replay_is_whole(const fm_crop_replay *replay);

#endif
