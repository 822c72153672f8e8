/* layout.c: see layout.h. */
#include "trainer/predict/complex/layout.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Half the width of a class of errors (Å), and the least number of tokens of which d0 is made. */
#define HALF_BIN 0.25
enum { LEAST_TOKENS = 19 };

static void fill_weights(double *weight, uint32_t n_token) {
    for (uint32_t n = 0; n <= n_token; n++) {
        double d0 = 1.24 * cbrt((double)(n < LEAST_TOKENS ? LEAST_TOKENS : n) - 15) - 1.8;
        for (int bin = 0; bin < FM_COMPLEX_ERROR_BINS; bin++) {
            double ratio = HALF_BIN * (2 * bin + 1) / d0;
            weight[(size_t)n * FM_COMPLEX_ERROR_BINS + (size_t)bin] = 1 / (1 + ratio * ratio);
        }
    }
}

fm_status fm_complex_layout_complete(fm_complex_layout *layout, fm_arena *arena, fm_error *reterr) {
    uint32_t *tokens = fm_arena_calloc(arena, layout->n_chain, sizeof *tokens);
    uint32_t *atoms = fm_arena_calloc(arena, layout->n_chain, sizeof *atoms);
    double *weight = fm_arena_alloc_array(arena, (size_t)layout->n_token + 1,
                                          FM_COMPLEX_ERROR_BINS * sizeof *weight);
    if (!tokens || !atoms || !weight) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < layout->n_token; i++) {
        assert(layout->token_chain[i] >= 0 && (uint32_t)layout->token_chain[i] < layout->n_chain);
        tokens[layout->token_chain[i]]++;
    }
    for (uint32_t a = 0; a < layout->n_atom; a++) {
        assert(layout->atom_token[a] >= 0 && (uint32_t)layout->atom_token[a] < layout->n_token);
        atoms[layout->token_chain[layout->atom_token[a]]]++;
    }
    fill_weights(weight, layout->n_token);
    layout->chain_tokens = tokens;
    layout->chain_atoms = atoms;
    layout->tm_weight = weight;
    return FM_OK;
}

fm_status fm_complex_layout_make(const fm_complex_atoms *atoms, uint32_t n_token,
                                 const int32_t *atom_token, const uint8_t *has_frame,
                                 fm_arena *arena, fm_complex_layout *ret_layout, fm_error *reterr) {
    int32_t *token_chain = fm_arena_alloc_array(arena, n_token, sizeof *token_chain);
    int32_t *residue = fm_arena_alloc_array(arena, atoms->n_atom, sizeof *residue);
    uint8_t *is_polymer = fm_arena_alloc(arena, atoms->n_chain);
    if (!token_chain || !residue || !is_polymer) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < n_token; i++)
        token_chain[i] = -1;
    for (uint32_t a = 0; a < atoms->n_atom; a++) {
        int32_t token = atom_token[a], chain = atoms->residue_chain[atoms->atom_residue[a]];
        if (token < 0 || (uint32_t)token >= n_token) {
            return fm_fail(reterr, FM_ERR_DATA, "atom %u: found token %d, expected 0 to %u", a,
                           token, n_token ? n_token - 1 : 0);
        }
        if (token_chain[token] >= 0 && token_chain[token] != chain) {
            return fm_fail(reterr, FM_ERR_DATA,
                           "token %d: found atoms of the chains %.200s and %.200s, expected one",
                           token, atoms->chain_id[token_chain[token]], atoms->chain_id[chain]);
        }
        token_chain[token] = chain;
        residue[a] = atoms->residue_number[atoms->atom_residue[a]];
    }
    for (uint32_t i = 0; i < n_token; i++) {
        if (token_chain[i] >= 0) continue;
        return fm_fail(reterr, FM_ERR_DATA, "token %u: found no atoms, expected some", i);
    }
    for (uint32_t k = 0; k < atoms->n_chain; k++)
        is_polymer[k] = fm_complex_is_polymer(atoms, k);
    *ret_layout = (fm_complex_layout){
        .n_token = n_token,
        .n_atom = atoms->n_atom,
        .n_chain = atoms->n_chain,
        .token_chain = token_chain,
        .token_has_frame = has_frame,
        .atom_token = atom_token,
        .atom_residue = residue,
        .chain_is_polymer = is_polymer,
    };
    return fm_complex_layout_complete(ret_layout, arena, reterr);
}
