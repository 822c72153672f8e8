/* modulation.c: see modulation.h. */
#include "trainer/model/af3/modulation.h"

fm_af3_modulations fm_af3_declare_modulations(fm_state *state, const fm_af3_config *c,
                                              fm_element element, int32_t n_step) {
    const int64_t of_blocks = (int64_t)FM_AF3_TOKEN_MODULATIONS * c->n_diffusion_block;
    const int64_t tokens[] = {of_blocks + 1, n_step, c->n_token, c->c_token};
    const int64_t atoms[] = {(int64_t)FM_AF3_ATOM_MODULATIONS * 2 * c->n_atom_block, c->n_atom,
                             c->c_atom};
    return (fm_af3_modulations){
        .tokens = fm_state_add_to_room(state, "token modulations", element, 4, tokens),
        .atoms = fm_state_add_to_room(state, "atom modulations", element, 3, atoms)};
}

/* Returns the next part of a tensor, or its row. */
static fm_tensor_ref next(fm_tape *tape, int32_t tensor, int64_t *part, bool row) {
    fm_tensor_ref ref = fm_tape_state_part(tape, tensor, (*part)++);
    return row ? fm_tape_state_row(tape, ref) : ref;
}

static fm_adaln_signal next_signal(fm_tape *tape, int32_t tensor, int64_t *part, bool row) {
    fm_adaln_signal signal;
    signal.gate = next(tape, tensor, part, row);
    signal.shift = next(tape, tensor, part, row);
    return signal;
}

static fm_af3_modulation next_sublayer(fm_tape *tape, int32_t tensor, int64_t *part, bool has_kv,
                                       bool row) {
    fm_af3_modulation m = {.norm_kv = {FM_TENSOR_NONE, FM_TENSOR_NONE}};
    m.norm = next_signal(tape, tensor, part, row);
    if (has_kv) m.norm_kv = next_signal(tape, tensor, part, row);
    m.last = next(tape, tensor, part, row);
    return m;
}

fm_af3_block_modulation fm_af3_atom_modulation(fm_tape *tape, const fm_af3_modulations *of,
                                               int32_t block) {
    int64_t part = (int64_t)FM_AF3_ATOM_MODULATIONS * block;
    fm_af3_block_modulation m;
    m.attention = next_sublayer(tape, of->atoms, &part, true, false);
    m.transition = next_sublayer(tape, of->atoms, &part, false, false);
    return m;
}

fm_af3_block_modulation fm_af3_token_modulation(fm_tape *tape, const fm_af3_modulations *of,
                                                int32_t block, bool row) {
    int64_t part = (int64_t)FM_AF3_TOKEN_MODULATIONS * block;
    fm_af3_block_modulation m;
    m.attention = next_sublayer(tape, of->tokens, &part, false, row);
    m.transition = next_sublayer(tape, of->tokens, &part, false, row);
    return m;
}

fm_tensor_ref fm_af3_added_single(fm_tape *tape, const fm_af3_config *c,
                                  const fm_af3_modulations *of, bool row) {
    int64_t part = (int64_t)FM_AF3_TOKEN_MODULATIONS * c->n_diffusion_block;
    return next(tape, of->tokens, &part, row);
}
