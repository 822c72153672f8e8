/* score.c: see score.h. */
#include "trainer/step/score.h"

#include <assert.h>

fm_status fm_trainer_score(fm_trainer *t, const fm_features *f, fm_structure_scores *ret_scores,
                           fm_error *reterr) {
    assert(t->cycles.atoms != FM_TENSOR_NONE);
    size_t mark = fm_arena_mark(&t->recording.arena), n_atom = (size_t)f->n_res * FM_N_ATOM14;
    /* The truth that the losses used is still in the host's copy of the state. */
    const float *exists =
        (const void *)(t->cycles.host + t->recording.state.offset[t->cycles.truth.exists]);
    const float *truth =
        (const void *)(t->cycles.host + t->recording.state.offset[t->cycles.truth.positions]);
    uint8_t *mask = fm_arena_alloc(&t->recording.arena, n_atom);
    float *atoms = NULL;
    fm_status status =
        mask ? fm_recording_download(&t->recording, FM_TRAINER_LAST, t->cycles.atoms, 0, 3 * n_atom,
                                     &t->recording.arena, &atoms, reterr)
             : fm_arena_full(&t->recording.arena, reterr);
    if (!status) {
        for (size_t i = 0; i < n_atom; i++)
            mask[i] = exists[i] > 0;
        const fm_structure_pair pair = {f->n_res, f->aatype, atoms, truth, mask};
        status = fm_structure_score(&pair, &t->recording.arena, ret_scores, reterr);
    }
    fm_arena_rewind(&t->recording.arena, mark);
    return status;
}
