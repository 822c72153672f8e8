/* clashes.c: finds the clashes of polymers; see scores.h. */
#include "trainer/predict/complex/near_atoms.h"
#include "trainer/predict/complex/scores.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CLASHES = 100 };

typedef struct clashes {
    const fm_complex_layout *layout;
    const float *position;
    uint32_t atom;   /* that is looked at */
    bool clashes;    /* in AlphaFold 3's sense */
    uint32_t *pairs; /* [K] atoms nearer than the limit, of each chain after the atom's */
} clashes;

static int32_t chain_of(const fm_complex_layout *l, uint32_t atom) {
    return l->token_chain[l->atom_token[atom]];
}

static int look_at(void *context, uint32_t other) {
    clashes *c = context;
    const fm_complex_layout *l = c->layout;
    const float *a = c->position + (size_t)c->atom * 3, *b = c->position + (size_t)other * 3;
    double square = 0;
    for (int axis = 0; axis < 3; axis++)
        square += ((double)a[axis] - (double)b[axis]) * ((double)a[axis] - (double)b[axis]);
    double distance = sqrt(square);
    if (distance > FM_COMPLEX_CLASH) return 0;
    const int32_t of_atom = chain_of(l, c->atom), of_other = chain_of(l, other);
    if (of_other > of_atom && distance < FM_COMPLEX_CLASH) c->pairs[of_other]++;
    if (of_atom != of_other || abs(l->atom_residue[c->atom] - l->atom_residue[other]) > 1) {
        c->clashes = true;
    }
    return 0;
}

/* Lists the atoms of polymers, chain after chain, in list [A]; returns how many. */
static uint32_t list_polymer_atoms(const fm_complex_layout *l, uint32_t *list) {
    uint32_t n = 0;
    for (uint32_t a = 0; a < l->n_atom; a++) {
        if (l->chain_is_polymer[chain_of(l, a)]) list[n++] = a;
    }
    return n;
}

static bool is_clash(uint32_t n, uint32_t n_atom) {
    return n > MOST_CLASHES || 2 * (uint64_t)n > n_atom;
}

/* Counts the pairs of the chain whose atoms were all looked at, and forgets them. */
static bool has_many_pairs(const fm_complex_layout *l, uint32_t *pairs, int32_t chain) {
    bool many = false;
    for (uint32_t k = 0; k < l->n_chain; k++) {
        uint32_t a = l->chain_atoms[chain], b = l->chain_atoms[k];
        many = many || is_clash(pairs[k], a < b ? a : b);
        pairs[k] = 0;
    }
    return many;
}

fm_status fm_complex_find_clashes(const fm_complex_layout *layout, const float *position,
                                  bool *ret_has_clash, bool *ret_has_clash_protenix,
                                  fm_error *reterr) {
    uint32_t *list = calloc((size_t)layout->n_atom + 1, sizeof *list);
    uint32_t *pairs = calloc((size_t)layout->n_chain + 1, sizeof *pairs);
    fm_near_atoms *near = NULL;
    fm_status status =
        list && pairs ? FM_OK
                      : fm_fail(reterr, FM_ERR_NOMEM, "no memory for %u atoms", layout->n_atom);
    uint32_t n = status ? 0 : list_polymer_atoms(layout, list);
    if (!status) status = fm_near_atoms_make(list, n, position, FM_COMPLEX_CLASH, &near, reterr);
    clashes c = {.layout = layout, .position = position, .pairs = pairs};
    bool has_clash = false, has_pairs = false;
    /* Atoms of a chain are neighbours, because those of a token and the tokens of a chain are. */
    for (uint32_t i = 0, in_chain = 0; !status && i < n; i++) {
        c.atom = list[i];
        c.clashes = false;
        const float *at = position + (size_t)c.atom * 3;
        if (isfinite(at[0]) && isfinite(at[1]) && isfinite(at[2])) {
            fm_near_atoms_visit(near, c.atom, look_at, &c);
        }
        const int32_t chain = chain_of(layout, c.atom);
        in_chain += c.clashes;
        if (i + 1 < n && chain_of(layout, list[i + 1]) == chain) continue;
        has_clash = has_clash || is_clash(in_chain, layout->chain_atoms[chain]);
        has_pairs = has_many_pairs(layout, pairs, chain) || has_pairs;
        in_chain = 0;
    }
    fm_near_atoms_free(near);
    free(list);
    free(pairs);
    if (status) return status;
    *ret_has_clash = has_clash;
    *ret_has_clash_protenix = has_pairs;
    return FM_OK;
}
