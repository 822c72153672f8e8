/* score.c: see score.h. */
#include "trainer/step/score.h"

#include <assert.h>
#include <string.h>

static float f32_of(uint16_t bf16) {
    uint32_t bits = (uint32_t)bf16 << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Downloads the last cycle's atoms of the first n residues, as f32. */
static fm_status download_atoms(fm_trainer *t, size_t n, float **ret_atoms, fm_error *reterr) {
    const fm_kernels *kernels = t->recording.params.kernels;
    size_t count = n * 3 * FM_N_ATOM14;
    fm_element element =
        fm_tape_tensor(&t->recording.tape[FM_TRAINER_LAST], t->cycles.atoms)->element;
    size_t bytes = count * fm_element_bytes(element);
    float *atoms = fm_arena_alloc_array(&t->recording.arena, count, sizeof *atoms);
    void *raw = fm_arena_alloc_array(&t->recording.arena, count, sizeof(double));
    if (!atoms || !raw) return fm_arena_full(&t->recording.arena, reterr);
    kernels->download(NULL, raw, fm_tape_data(&t->recording.tape[FM_TRAINER_LAST], t->cycles.atoms),
                      bytes);
    kernels->synchronize(NULL);
    for (size_t i = 0; i < count; i++) {
        switch (element) {
        case FM_ELEMENT_F64: atoms[i] = (float)((const double *)raw)[i]; break;
        case FM_ELEMENT_BF16: atoms[i] = f32_of(((const uint16_t *)raw)[i]); break;
        default: atoms[i] = ((const float *)raw)[i];
        }
    }
    *ret_atoms = atoms;
    return FM_OK;
}

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
    fm_status status = mask ? download_atoms(t, f->n_res, &atoms, reterr)
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
