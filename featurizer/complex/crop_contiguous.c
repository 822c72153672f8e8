/* crop_contiguous.c: stretches of the chains in a random order; see crop.h. */
#include "featurizer/complex/crop_internal.h"

#include <assert.h>

/* A stretch of one chain, as tokens of the assembly. */
typedef struct stretch {
    uint32_t chain_first, chain_end;
    uint32_t first, end;
    uint32_t least, most; /* tokens that it may have */
} stretch;

static uint32_t residue_of(const crop_work *work, uint32_t token) {
    return work->assembly->tokens[token].residue;
}
static uint32_t left_edge(const crop_work *work, uint32_t token) {
    return work->assembly->residues[residue_of(work, token)].first_token;
}
static uint32_t right_edge(const crop_work *work, uint32_t token) {
    return fm_crop_residue_end(work->assembly, residue_of(work, token));
}

/* Returns whether a place between two tokens of the chain is within a residue. */
static bool is_inside(const crop_work *work, const stretch *s, uint32_t place) {
    return place > s->chain_first && place < s->chain_end &&
           residue_of(work, place - 1) == residue_of(work, place);
}

static bool fits(const stretch *s, uint32_t first, uint32_t end) {
    return first <= end && end - first >= s->least && end - first <= s->most;
}

/* Returns whether to take the left one of two edges that both fit. */
static bool draw_left(const crop_work *work, uint32_t number) {
    return work->draws->below(work->draws->context, FM_SAMPLE_DRAW_COMPLEX_EDGE, 0, number, 2) == 0;
}

static void move_end(const crop_work *work, stretch *s, uint32_t number) {
    uint32_t left = left_edge(work, s->end), right = right_edge(work, s->end);
    bool fits_left = fits(s, s->first, left), fits_right = fits(s, s->first, right);
    if (fits_left && fits_right) {
        s->end = draw_left(work, number) ? left : right;
    } else if (fits_left || fits_right) {
        s->end = fits_left ? left : right;
    } else {
        s->end = left;
        while (s->end - s->first > s->most)
            s->end = left_edge(work, s->end - 1);
    }
}

static void move_start(const crop_work *work, stretch *s, uint32_t number) {
    uint32_t left = left_edge(work, s->first), right = right_edge(work, s->first);
    bool fits_left = fits(s, left, s->end), fits_right = fits(s, right, s->end);
    if (fits_left && fits_right) {
        s->first = draw_left(work, number) ? left : right;
    } else {
        s->first = fits_left ? left : right;
    }
}

/* Moves the ends of a stretch that are within a residue to the residue's edges. */
static void complete(const crop_work *work, stretch *s, uint32_t number) {
    bool end_inside = is_inside(work, s, s->end), start_inside = is_inside(work, s, s->first);
    if (start_inside && end_inside) s->first = left_edge(work, s->first);
    if (end_inside) {
        move_end(work, s, number);
    } else if (start_inside) {
        move_start(work, s, number);
    }
    assert(s->first <= s->end);
}

/* Takes tokens off the end, whole residues if asked, until at most n_atom atoms are left. Returns
 * the stretch's atoms. */
static uint32_t stop_at_atoms(const crop_work *work, stretch *s, uint32_t n_atom) {
    uint32_t n = 0;
    for (uint32_t t = s->first; t < s->end; t++) {
        uint32_t more = work->assembly->tokens[t].n_atom;
        if (more > n_atom - n) {
            s->end = work->request->is_complete ? left_edge(work, t) : t;
            break;
        }
        n += more;
    }
    n = 0;
    for (uint32_t t = s->first; t < s->end; t++)
        n += work->assembly->tokens[t].n_atom;
    return n;
}

/* A metal is a chain of one atom. */
static bool is_left_out(const crop_work *work, uint32_t chain) {
    const fm_assembly *assembly = work->assembly;
    uint32_t first = assembly->chains[chain].first_token;
    return work->request->is_complete && fm_crop_chain_end(assembly, chain) - first == 1 &&
           assembly->tokens[first].n_atom == 1;
}

/* Draws a stretch of a chain of which `least` to `most` tokens may be taken. */
static stretch draw_stretch(const crop_work *work, uint32_t chain, uint32_t least, uint32_t most,
                            uint32_t number) {
    const fm_draws *draws = work->draws;
    stretch s = {.chain_first = work->assembly->chains[chain].first_token,
                 .chain_end = fm_crop_chain_end(work->assembly, chain),
                 .least = least,
                 .most = work->request->size - work->n_token};
    uint32_t length = s.chain_end - s.chain_first;
    uint32_t n = least + draws->below(draws->context, FM_SAMPLE_DRAW_COMPLEX_LENGTH, 0, number,
                                      most - least + 1);
    s.first = s.chain_first +
              draws->below(draws->context, FM_SAMPLE_DRAW_COMPLEX_START, 0, number, length - n + 1);
    s.end = s.first + n;
    if (work->request->is_complete && n > 0) complete(work, &s, number);
    return s;
}

/* Lists the chains in a random order: a shuffle of those with ascending asym_id. */
static uint32_t *order_chains(const crop_work *work) {
    const fm_assembly *assembly = work->assembly;
    uint32_t n = assembly->n_chain, *order = fm_arena_alloc_array(work->arena, n, sizeof *order);
    if (!order) return NULL;
    for (uint32_t c = 0; c < n; c++) {
        uint32_t at = c;
        for (; at > 0 && assembly->chains[order[at - 1]].asym_id > assembly->chains[c].asym_id;
             at--)
            order[at] = order[at - 1];
        order[at] = c;
    }
    work->draws->pick(work->draws->context, FM_SAMPLE_DRAW_COMPLEX_ORDER, 0, 0, order, n, n);
    return order;
}

fm_status fm_crop_contiguous(crop_work *work) {
    const fm_assembly *assembly = work->assembly;
    uint32_t size = work->request->size, remain = assembly->n_token;
    uint32_t n_atom_left = work->request->max_atoms ? work->request->max_atoms : UINT32_MAX;
    uint32_t *order = order_chains(work);
    if (!order) return fm_arena_full(work->arena, work->reterr);
    for (uint32_t c = 0; c < assembly->n_chain; c++)
        remain -= is_left_out(work, c);
    for (uint32_t i = 0; i < assembly->n_chain && work->n_token < size; i++) {
        uint32_t chain = order[i];
        if (is_left_out(work, chain)) continue;
        uint32_t length = fm_crop_chain_end(assembly, chain) - assembly->chains[chain].first_token;
        uint32_t room = size - work->n_token;
        remain -= length;
        uint32_t least = room > remain ? room - remain : 0;
        if (least > length) least = length;
        stretch s = draw_stretch(work, chain, least, room < length ? room : length, i);
        n_atom_left -= stop_at_atoms(work, &s, n_atom_left);
        for (uint32_t t = s.first; t < s.end; t++)
            work->tokens[work->n_token++] = t;
    }
    return FM_OK;
}
