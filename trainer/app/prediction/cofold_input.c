/* cofold_input.c: see cofold_input.h. */
#include "trainer/app/prediction/cofold_input.h"

#include "proto/base/file.h"

static const size_t ARENA_BYTES = (size_t)1 << 37; /* address space: the whole form is large */

/* Fills the layout up to chain_is_polymer. Tokens of a chain are neighbours, and every token has an
 * atom: the reader of samples has checked both. */
static fm_status make_layout(fm_cofold_input *input, fm_error *reterr) {
    const fm_af3_sample *s = &input->features.sample;
    const fm_complex_labels *labels = &input->features.labels;
    const size_t n = (size_t)s->n_token, n_atom = (size_t)s->n_atom;
    int32_t *chain = fm_arena_alloc_array(&input->arena, n, sizeof *chain);
    uint8_t *has_frame = fm_arena_alloc(&input->arena, n);
    int32_t *token = fm_arena_alloc_array(&input->arena, n_atom, sizeof *token);
    int32_t *residue = fm_arena_alloc_array(&input->arena, n_atom, sizeof *residue);
    uint8_t *is_polymer = fm_arena_calloc(&input->arena, n, 1);
    if (!chain || !has_frame || !token || !residue || !is_polymer) {
        return fm_arena_full(&input->arena, reterr);
    }
    int32_t n_chain = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || s->asym_id[i] != s->asym_id[i - 1]) n_chain++;
        chain[i] = n_chain - 1;
        has_frame[i] = labels->has_frame[i] != 0;
    }
    for (size_t l = 0; l < n_atom; l++) {
        token[l] = (int32_t)s->atom_to_token_idx[l];
        residue[l] = (int32_t)s->residue_index[token[l]];
        is_polymer[chain[token[l]]] |= !labels->is_ligand[l];
    }
    input->layout = (fm_complex_layout){.n_token = (uint32_t)n,
                                        .n_atom = (uint32_t)n_atom,
                                        .n_chain = (uint32_t)n_chain,
                                        .token_chain = chain,
                                        .token_has_frame = has_frame,
                                        .atom_token = token,
                                        .atom_residue = residue,
                                        .chain_is_polymer = is_polymer};
    return fm_complex_layout_complete(&input->layout, &input->arena, reterr);
}

fm_status fm_cofold_input_read(const char *path, fm_cofold_input *ret_input, fm_error *reterr) {
    fm_cofold_input *input = ret_input;
    fm_bytes content;
    fm_npz npz;
    *input = (fm_cofold_input){.layout = {0}};
    fm_status status = fm_arena_init(&input->arena, ARENA_BYTES, reterr);
    if (status) return status;
    status = fm_file_read(&input->arena, path, FM_STORED_FILE_BYTES, &content, reterr);
    if (status) return status;
    status = fm_npz_parse(&input->arena, content, &npz, reterr);
    if (!status) status = fm_stored_sample_check(&npz, &input->arena, &input->features, reterr);
    if (!status) status = make_layout(input, reterr);
    if (status) fm_error_in(reterr, path);
    return status;
}

void fm_cofold_input_release(fm_cofold_input *input) {
    fm_arena_fini(&input->arena);
}
