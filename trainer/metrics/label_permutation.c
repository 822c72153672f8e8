/* label_permutation.c: see label_permutation.h.
 *
 * A chain is a range of tokens; a copy is a true chain. match_tokens finds for a predicted chain
 * and a copy of the same entity the true token of each predicted token. Everything else works on
 * the centre atoms of such pairs of tokens. choose_copies matches chains, and order_group then
 * exchanges atoms. */
#include "trainer/metrics/label_permutation.h"

#include <assert.h>
#include <math.h>
#include <string.h>

typedef struct chain {
    int64_t first, end; /* tokens */
    int64_t entity;
} chain;

typedef struct permutation {
    const fm_labelled_complex *predicted, *truth;
    const float *resolved;
    int64_t n_chain, n_copy; /* of the prediction, of the truth */
    chain *chain, *copy;
    int64_t *order;         /* [n_chain]: the longest first */
    int64_t *token;         /* [tokens of a chain] the true token of each predicted token, or -1 */
    double *moving, *fixed; /* [tokens or atoms, 3] */
    bool *taken;            /* [n_copy] */
    int64_t *choice, *best; /* [n_chain]: copies */
} permutation;

/* -- chains */

static int64_t find_chains(const fm_labelled_complex *c, chain *chains) {
    int64_t n = 0;
    for (int64_t i = 0; i < c->n_token; i++) {
        if (i == 0 || c->asym_id[i] != c->asym_id[i - 1]) {
            chains[n++] = (chain){.first = i, .entity = c->entity_id[i]};
        }
        chains[n - 1].end = i + 1;
    }
    return n;
}

/* Writes to token[i - first], for each token i of a predicted chain, the copy's token with the same
 * number, or -1. */
static void match_tokens(const permutation *p, const chain *of, const chain *copy) {
    int64_t k = copy->first;
    for (int64_t i = of->first; i < of->end; i++) {
        int64_t number = p->predicted->number[i];
        while (k < copy->end && p->truth->number[k] < number)
            k++;
        bool found = k < copy->end && p->truth->number[k] == number;
        p->token[i - of->first] = found ? k : -1;
    }
}

static void load(const float *position, int64_t atom, double *out) {
    for (int axis = 0; axis < 3; axis++)
        out[axis] = (double)position[3 * atom + axis];
}

/* Collects the resolved centre atoms that the chain and the copy share: `moving` from the truth,
 * `fixed` from the prediction. Returns their number. */
static size_t shared_centres(const permutation *p, const chain *of, const chain *copy) {
    size_t n = 0;
    match_tokens(p, of, copy);
    for (int64_t i = of->first; i < of->end; i++) {
        int64_t k = p->token[i - of->first];
        if (k < 0 || p->predicted->centre[i] < 0 || p->truth->centre[k] < 0) continue;
        if (p->resolved[p->truth->centre[k]] == 0) continue;
        load(p->truth->position, p->truth->centre[k], p->moving + 3 * n);
        load(p->predicted->position, p->predicted->centre[i], p->fixed + 3 * n);
        n++;
    }
    return n;
}

static int64_t count_copies(const permutation *p, int64_t entity) {
    int64_t n = 0;
    for (int64_t k = 0; k < p->n_copy; k++)
        n += p->copy[k].entity == entity;
    return n;
}

/* Returns the largest number of centre atoms that a chain shares with one of its copies. */
static size_t most_shared(const permutation *p, const chain *of) {
    size_t most = 0;
    for (int64_t k = 0; k < p->n_copy; k++) {
        if (p->copy[k].entity != of->entity) continue;
        size_t n = shared_centres(p, of, &p->copy[k]);
        most = n > most ? n : most;
    }
    return most;
}

enum { LEAST_ANCHOR = 3 }; /* points that fix a rotation */

/* Returns -1 if no chain has enough resolved atoms for a superposition. */
static int64_t choose_anchor(const permutation *p) {
    int64_t anchor = -1, fewest = 0;
    size_t most = 0;
    for (int64_t c = 0; c < p->n_chain; c++) {
        size_t shared = most_shared(p, &p->chain[c]);
        int64_t copies = count_copies(p, p->chain[c].entity);
        if (shared < LEAST_ANCHOR) continue;
        if (anchor < 0 || copies < fewest || (copies == fewest && shared > most)) {
            anchor = c;
            fewest = copies;
            most = shared;
        }
    }
    return anchor;
}

/* Returns the RMSD of the shared centres after the motion, or infinity if there are none. */
static double distance_after(const permutation *p, const fm_motion *motion, const chain *of,
                             const chain *copy) {
    size_t n = shared_centres(p, of, copy);
    double square = 0;
    for (size_t i = 0; i < n; i++) {
        double moved[3];
        fm_motion_apply(motion, p->moving + 3 * i, moved);
        for (int axis = 0; axis < 3; axis++) {
            double d = moved[axis] - p->fixed[3 * i + (size_t)axis];
            square += d * d;
        }
    }
    return n ? sqrt(square / (double)n) : INFINITY;
}

/* Returns the nearest copy that is not taken, or -1. */
static int64_t nearest_copy(const permutation *p, const fm_motion *motion, const chain *of,
                            double *ret_rmsd) {
    int64_t best = -1;
    *ret_rmsd = INFINITY;
    for (int64_t k = 0; k < p->n_copy; k++) {
        if (p->taken[k] || p->copy[k].entity != of->entity) continue;
        double rmsd = distance_after(p, motion, of, &p->copy[k]);
        if (best < 0 || rmsd < *ret_rmsd) {
            best = k;
            *ret_rmsd = rmsd;
        }
    }
    return best;
}

/* Matches all chains with the anchor on `copy`. Returns the mean RMSD of the chains that have
 * one. */
static double match_chains(const permutation *p, int64_t anchor, int64_t copy) {
    size_t n = shared_centres(p, &p->chain[anchor], &p->copy[copy]);
    if (n < LEAST_ANCHOR) return INFINITY;
    fm_motion motion = fm_superpose(n, p->moving, p->fixed);
    double total = distance_after(p, &motion, &p->chain[anchor], &p->copy[copy]);
    int64_t count = 1;
    memset(p->taken, 0, (size_t)p->n_copy * sizeof *p->taken);
    p->taken[copy] = true;
    p->choice[anchor] = copy;
    for (int64_t i = 0; i < p->n_chain; i++) {
        int64_t c = p->order[i];
        double rmsd;
        if (c == anchor) continue;
        p->choice[c] = nearest_copy(p, &motion, &p->chain[c], &rmsd);
        if (p->choice[c] < 0) continue;
        p->taken[p->choice[c]] = true;
        if (!isfinite(rmsd)) continue;
        total += rmsd;
        count++;
    }
    return total / (double)count;
}

/* Gives each chain the copy with its id, or else the first free one of its entity. */
static void keep_names(const permutation *p) {
    memset(p->taken, 0, (size_t)p->n_copy * sizeof *p->taken);
    for (int64_t c = 0; c < p->n_chain; c++) {
        p->best[c] = -1;
        for (int64_t k = 0; k < p->n_copy; k++) {
            bool same =
                p->truth->asym_id[p->copy[k].first] == p->predicted->asym_id[p->chain[c].first];
            if (same && p->copy[k].entity == p->chain[c].entity) p->best[c] = k;
        }
        if (p->best[c] >= 0) p->taken[p->best[c]] = true;
    }
    for (int64_t c = 0; c < p->n_chain; c++) {
        for (int64_t k = 0; k < p->n_copy && p->best[c] < 0; k++) {
            if (!p->taken[k] && p->copy[k].entity == p->chain[c].entity) p->best[c] = k;
        }
        if (p->best[c] >= 0) p->taken[p->best[c]] = true;
    }
}

static void choose_copies(const permutation *p) {
    int64_t anchor = choose_anchor(p);
    keep_names(p);
    if (anchor < 0) return;
    double least = INFINITY;
    for (int64_t pass = 0; pass < 2; pass++) { /* the given name first: it wins ties */
        int64_t own = pass == 0 ? p->best[anchor] : -1;
        for (int64_t k = 0; k < p->n_copy; k++) {
            bool is_turn = pass == 0 ? k == own : true;
            if (!is_turn || p->copy[k].entity != p->chain[anchor].entity) continue;
            double rmsd = match_chains(p, anchor, k);
            if (!(rmsd < least)) continue;
            least = rmsd;
            memcpy(p->best, p->choice, (size_t)p->n_chain * sizeof *p->best);
        }
    }
}

/* -- atoms */

static void label_atoms(const permutation *p, int64_t *label) {
    for (int64_t l = 0; l < p->predicted->n_atom; l++)
        label[l] = -1;
    for (int64_t c = 0; c < p->n_chain; c++) {
        if (p->best[c] < 0) continue;
        const chain *of = &p->chain[c];
        match_tokens(p, of, &p->copy[p->best[c]]);
        for (int64_t i = of->first; i < of->end; i++) {
            int64_t k = p->token[i - of->first], first = p->predicted->first_atom[i];
            if (k < 0) continue;
            int64_t n = p->predicted->first_atom[i + 1] - first;
            assert(n == p->truth->first_atom[k + 1] - p->truth->first_atom[k]);
            for (int64_t a = 0; a < n; a++)
                label[first + a] = p->truth->first_atom[k] + a;
        }
    }
}

/* Superposes all resolved labels on the prediction. Returns false if there are too few. */
static bool superpose_all(const permutation *p, const int64_t *label, fm_motion *ret_motion) {
    size_t n = 0;
    for (int64_t l = 0; l < p->predicted->n_atom; l++) {
        if (label[l] < 0 || p->resolved[label[l]] == 0) continue;
        load(p->truth->position, label[l], p->moving + 3 * n);
        load(p->predicted->position, l, p->fixed + 3 * n);
        n++;
    }
    if (n < LEAST_ANCHOR) return false;
    *ret_motion = fm_superpose(n, p->moving, p->fixed);
    return true;
}

/* Returns the sum of squared distances of a group in order k. */
static double group_error(const permutation *p, const fm_motion *motion, const fm_atom_orders *g,
                          int32_t k, const int64_t *label) {
    double square = 0;
    for (int64_t i = 0; i < g->n; i++) {
        int64_t from = label[g->first + g->order[k * g->n + i]];
        double x[3], moved[3], y[3];
        if (from < 0 || p->resolved[from] == 0) continue;
        load(p->truth->position, from, x);
        load(p->predicted->position, g->first + i, y);
        fm_motion_apply(motion, x, moved);
        for (int axis = 0; axis < 3; axis++)
            square += (moved[axis] - y[axis]) * (moved[axis] - y[axis]);
    }
    return square;
}

/* `old` has room for the labels of a group. */
static void order_group(const permutation *p, const fm_motion *motion, const fm_atom_orders *g,
                        int64_t *label, int64_t *old) {
    int32_t best = 0;
    double least = group_error(p, motion, g, 0, label);
    for (int32_t k = 1; k < g->n_order; k++) {
        double error = group_error(p, motion, g, k, label);
        if (error < least) {
            least = error;
            best = k;
        }
    }
    memcpy(old, label + g->first, (size_t)g->n * sizeof *old);
    for (int64_t i = 0; i < g->n; i++)
        label[g->first + i] = old[g->order[best * g->n + i]];
}

void fm_permute_atoms(const fm_labelled_complex *predicted, const fm_labelled_complex *truth,
                      const float *resolved, const fm_motion *motion, const fm_atom_orders *orders,
                      int64_t n_orders, int64_t *label, int64_t *room) {
    const permutation p = {.predicted = predicted, .truth = truth, .resolved = resolved};
    for (int64_t g = 0; g < n_orders; g++)
        order_group(&p, motion, &orders[g], label, room);
}

/* -- all */

static void order_chains(const permutation *p) {
    for (int64_t c = 0; c < p->n_chain; c++) {
        int64_t at = c, length = p->chain[c].end - p->chain[c].first;
        for (; at > 0; at--) {
            const chain *before = &p->chain[p->order[at - 1]];
            if (before->end - before->first >= length) break;
            p->order[at] = p->order[at - 1];
        }
        p->order[at] = c;
    }
}

static bool take_memory(permutation *p, fm_arena *scratch, int64_t **ret_old) {
    size_t tokens = (size_t)p->predicted->n_token, atoms = (size_t)p->predicted->n_atom;
    size_t most = tokens > atoms ? tokens : atoms;
    p->chain = fm_arena_alloc_array(scratch, tokens, sizeof *p->chain);
    p->copy = fm_arena_alloc_array(scratch, (size_t)p->truth->n_token, sizeof *p->copy);
    p->order = fm_arena_alloc_array(scratch, tokens, sizeof *p->order);
    p->token = fm_arena_alloc_array(scratch, tokens, sizeof *p->token);
    p->moving = fm_arena_alloc_array(scratch, 3 * most, sizeof *p->moving);
    p->fixed = fm_arena_alloc_array(scratch, 3 * most, sizeof *p->fixed);
    p->taken = fm_arena_alloc_array(scratch, (size_t)p->truth->n_token, sizeof *p->taken);
    p->choice = fm_arena_alloc_array(scratch, tokens, sizeof *p->choice);
    p->best = fm_arena_alloc_array(scratch, tokens, sizeof *p->best);
    *ret_old = fm_arena_alloc_array(scratch, atoms, sizeof **ret_old);
    return p->chain && p->copy && p->order && p->token && p->moving && p->fixed && p->taken &&
           p->choice && p->best && *ret_old;
}

fm_status fm_permute_labels(const fm_labelled_complex *predicted, const fm_labelled_complex *truth,
                            const float *resolved, const fm_atom_orders *orders, int64_t n_orders,
                            int64_t *label, fm_arena *scratch, fm_error *reterr) {
    permutation p = {.predicted = predicted, .truth = truth, .resolved = resolved};
    size_t mark = fm_arena_mark(scratch);
    int64_t *old;
    if (!take_memory(&p, scratch, &old)) {
        fm_arena_rewind(scratch, mark);
        return fm_arena_full(scratch, reterr);
    }
    p.n_chain = find_chains(predicted, p.chain);
    p.n_copy = find_chains(truth, p.copy);
    order_chains(&p);
    choose_copies(&p);
    label_atoms(&p, label);
    fm_motion motion;
    if (superpose_all(&p, label, &motion)) {
        fm_permute_atoms(predicted, truth, resolved, &motion, orders, n_orders, label, old);
    }
    fm_arena_rewind(scratch, mark);
    return FM_OK;
}
