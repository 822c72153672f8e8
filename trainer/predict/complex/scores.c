/* scores.c: see scores.h. Sums over tokens run in the order of tokens. */
#include "trainer/predict/complex/scores.h"

#include <math.h>
#include <string.h>

/* The references add it to counts that may be 0. */
#define TINY 1e-8

/* -- sums of pairs.h over the rows of a chain */

/* The larger of two scores; a NAN stays. */
static double larger(double a, double b) {
    return isnan(a) || isnan(b) ? (double)NAN : a > b ? a : b;
}

/* The best of value [N] among the tokens with a frame; *ret_any: whether there is one. */
static double best_row(const fm_complex_layout *l, const double *value, bool *ret_any) {
    double best = 0;
    *ret_any = false;
    for (uint32_t i = 0; i < l->n_token; i++) {
        if (!l->token_has_frame[i]) continue;
        best = *ret_any ? larger(best, value[i]) : value[i];
        *ret_any = true;
    }
    return best;
}

/* Writes the best row with a frame of each chain for the columns of all chains, [K, K], and whether
 * each chain has a frame, [K]. */
static void best_rows_by_chain(const fm_complex_layout *l, const double *tm, double *best,
                               bool *has_frame) {
    const size_t n_chain = l->n_chain;
    memset(has_frame, 0, n_chain * sizeof *has_frame);
    for (uint32_t i = 0; i < l->n_token; i++) {
        if (!l->token_has_frame[i]) continue;
        const size_t chain = (size_t)l->token_chain[i];
        double *to = best + chain * n_chain;
        const double *from = tm + (size_t)i * n_chain;
        for (size_t k = 0; k < n_chain; k++)
            to[k] = has_frame[chain] ? larger(to[k], from[k]) : from[k];
        has_frame[chain] = true;
    }
}

/* The ipTM of two chains: the best row of either, over the tokens of the other. NAN if neither has
 * a frame. best is [K, K] of best_rows_by_chain. */
static double pair_iptm(const fm_complex_layout *l, const double *best, const bool *has_frame,
                        uint32_t a, uint32_t b) {
    const size_t n_chain = l->n_chain;
    double of_a = best[a * n_chain + b] / (TINY + l->chain_tokens[b]);
    double of_b = best[b * n_chain + a] / (TINY + l->chain_tokens[a]);
    if (has_frame[a] && has_frame[b]) return larger(of_a, of_b);
    return has_frame[a] ? of_a : has_frame[b] ? of_b : (double)NAN;
}

/* The ipTM of a complex: the best row with a frame, over the tokens of other chains. */
static double whole_iptm(const fm_complex_layout *l, const double *tm_other) {
    double best = (double)NAN;
    bool is_first = true;
    for (uint32_t i = 0; i < l->n_token; i++) {
        if (!l->token_has_frame[i]) continue;
        uint32_t others = l->n_token - l->chain_tokens[l->token_chain[i]];
        double term = tm_other[i] / (TINY + others);
        best = is_first ? term : larger(best, term);
        is_first = false;
    }
    return best;
}

static double mean_plddt(const double *plddt, uint32_t n_atom) {
    double sum = 0;
    for (uint32_t a = 0; a < n_atom; a++)
        sum += plddt[a];
    return sum / n_atom;
}

/* -- AlphaFold 3 */

static void find_least_pae(const fm_complex_layout *l, const double *pae_least,
                           const bool *has_frame, double *least) {
    const size_t n_chain = l->n_chain;
    for (size_t k = 0; k < n_chain * n_chain; k++)
        least[k] = has_frame[k / n_chain] ? (double)INFINITY : (double)NAN;
    for (uint32_t i = 0; i < l->n_token; i++) {
        if (!l->token_has_frame[i]) continue;
        double *to = least + (size_t)l->token_chain[i] * n_chain;
        const double *from = pae_least + (size_t)i * n_chain;
        for (size_t k = 0; k < n_chain; k++)
            to[k] = isnan(to[k]) || isnan(from[k]) ? (double)NAN : fmin(to[k], from[k]);
    }
}

/* The mean over the other chains that have a score with chain k; NAN if none has. The matrix is
 * symmetric, so that the mean of its column is that of its row. */
static double mean_of_others(const double *matrix, uint32_t n_chain, uint32_t k) {
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t other = 0; other < n_chain; other++) {
        double term = matrix[(size_t)other * n_chain + k];
        if (other == k || isnan(term)) continue;
        sum += term;
        n++;
    }
    return n ? sum / n : (double)NAN;
}

fm_status fm_complex_score(const fm_complex_layout *l, const fm_complex_pairs *pairs,
                           const double *plddt, const float *position, double fraction_disordered,
                           fm_arena *arena, fm_complex_scores *ret_scores, fm_error *reterr) {
    const size_t n_chain = l->n_chain;
    fm_complex_scores s = {
        .fraction_disordered = fraction_disordered,
        .mean_plddt = 100 * mean_plddt(plddt, l->n_atom),
        .chain_pair_iptm = fm_arena_calloc(arena, n_chain * n_chain, sizeof(double)),
        .chain_pair_pae_min = fm_arena_calloc(arena, n_chain * n_chain, sizeof(double)),
        .chain_ptm = fm_arena_calloc(arena, n_chain, sizeof(double)),
        .chain_iptm = fm_arena_calloc(arena, n_chain, sizeof(double)),
    };
    double *best = fm_arena_calloc(arena, n_chain * n_chain, sizeof *best);
    bool *has_frame = fm_arena_calloc(arena, n_chain, sizeof *has_frame), any, unused;
    if (!s.chain_pair_iptm || !s.chain_pair_pae_min || !s.chain_ptm || !s.chain_iptm || !best ||
        !has_frame) {
        return fm_arena_full(arena, reterr);
    }
    fm_status status = fm_complex_find_clashes(l, position, &s.has_clash, &unused, reterr);
    if (status) return status;
    best_rows_by_chain(l, pairs->tm_by_chain, best, has_frame);
    for (uint32_t a = 0; a < n_chain; a++) {
        double ptm = best[a * n_chain + a] / (TINY + l->chain_tokens[a]);
        s.chain_ptm[a] = s.chain_pair_iptm[a * n_chain + a] = has_frame[a] ? ptm : (double)NAN;
        for (uint32_t b = a + 1; b < n_chain; b++) {
            s.chain_pair_iptm[a * n_chain + b] = s.chain_pair_iptm[b * n_chain + a] =
                pair_iptm(l, best, has_frame, a, b);
        }
    }
    for (uint32_t k = 0; k < n_chain; k++)
        s.chain_iptm[k] = mean_of_others(s.chain_pair_iptm, l->n_chain, k);
    find_least_pae(l, pairs->pae_least, has_frame, s.chain_pair_pae_min);
    s.ptm = best_row(l, pairs->tm_all, &any) / (TINY + l->n_token);
    if (!any) s.ptm = (double)NAN;
    s.iptm = n_chain > 1 ? whole_iptm(l, pairs->tm_other) : (double)NAN;
    s.ranking_score = (isnan(s.iptm) ? s.ptm : 0.8 * s.iptm + 0.2 * s.ptm) +
                      0.5 * fraction_disordered - 100 * (double)s.has_clash;
    *ret_scores = s;
    return FM_OK;
}

/* -- Protenix */

/* A weighted mean of PDE over the blocks of pairs of chains. Sums [K, K]. */
static void score_gpde(const fm_complex_layout *l, const fm_complex_contacts *contacts,
                       const fm_complex_pairs *pairs, double *above, double *below,
                       fm_protenix_scores *s) {
    const size_t n_chain = l->n_chain;
    double all_above = 0, all_below = 0;
    for (uint32_t i = 0; i < l->n_token; i++) {
        const size_t row = (size_t)i * n_chain, to = (size_t)l->token_chain[i] * n_chain;
        for (size_t k = 0; k < n_chain; k++) {
            above[to + k] += pairs->pde_in_contact[row + k];
            below[to + k] += contacts->by_chain[row + k];
            all_above += pairs->pde_in_contact[row + k];
            all_below += contacts->by_chain[row + k];
        }
    }
    s->gpde = all_above / all_below;
    for (size_t a = 0; a < n_chain; a++) {
        s->chain_gpde[a] = above[a * n_chain + a] / (below[a * n_chain + a] + TINY);
        for (size_t b = a + 1; b < n_chain; b++) {
            s->chain_pair_gpde[a * n_chain + b] = s->chain_pair_gpde[b * n_chain + a] =
                above[a * n_chain + b] / (below[a * n_chain + b] + TINY);
        }
    }
}

/* The means of pLDDT over the atoms of chains; `sum` [K] is zeros. */
static void score_plddt(const fm_complex_layout *l, const double *plddt, double *sum,
                        fm_protenix_scores *s) {
    const size_t n_chain = l->n_chain;
    for (uint32_t atom = 0; atom < l->n_atom; atom++)
        sum[l->token_chain[l->atom_token[atom]]] += plddt[atom];
    for (size_t a = 0; a < n_chain; a++) {
        s->chain_plddt[a] = sum[a] / l->chain_atoms[a];
        for (size_t b = a + 1; b < n_chain; b++) {
            s->chain_pair_plddt[a * n_chain + b] = s->chain_pair_plddt[b * n_chain + a] =
                (sum[a] + sum[b]) / (l->chain_atoms[a] + l->chain_atoms[b]);
        }
    }
}

/* The mean of chain_pair_iptm over the ordered pairs with this chain whose first chain has a
 * frame. */
static double mean_with_frames(const fm_protenix_scores *s, const bool *has_frame, size_t n_chain,
                               size_t chain) {
    double sum = 0;
    uint32_t n = 0;
    for (size_t other = 0; other < n_chain; other++) {
        if (other == chain) continue;
        uint32_t times = (uint32_t)has_frame[chain] + (uint32_t)has_frame[other];
        sum += times * s->chain_pair_iptm[chain * n_chain + other];
        n += times;
    }
    return n ? sum / n : 0;
}

static void score_chains(const fm_complex_layout *l, const double *best, const bool *has_frame,
                         fm_protenix_scores *s) {
    const size_t n_chain = l->n_chain;
    for (uint32_t a = 0; a < n_chain; a++) {
        s->chain_ptm[a] = has_frame[a] ? best[a * n_chain + a] / l->chain_tokens[a] : 0;
        for (uint32_t b = a + 1; b < n_chain; b++) {
            bool any = has_frame[a] || has_frame[b];
            s->chain_pair_iptm[a * n_chain + b] = s->chain_pair_iptm[b * n_chain + a] =
                any ? pair_iptm(l, best, has_frame, a, b) : 0;
        }
    }
    for (size_t a = 0; a < n_chain; a++)
        s->chain_iptm[a] = mean_with_frames(s, has_frame, n_chain, a);
    for (size_t a = 0; a < n_chain; a++) {
        /* A chain of one token counts as a ligand there. */
        bool is_a = !l->chain_is_polymer[a] || l->chain_tokens[a] == 1;
        for (size_t b = 0; b < n_chain; b++) {
            bool is_b = !l->chain_is_polymer[b] || l->chain_tokens[b] == 1;
            double both = (s->chain_iptm[a] + s->chain_iptm[b]) / 2;
            if (a == b) continue;
            s->chain_pair_iptm_global[a * n_chain + b] = is_a   ? s->chain_iptm[a]
                                                         : is_b ? s->chain_iptm[b]
                                                                : both;
        }
    }
}

fm_status fm_complex_score_protenix(const fm_complex_layout *l, const fm_complex_contacts *contacts,
                                    const fm_complex_pairs *pairs, const double *plddt,
                                    const float *position, fm_arena *arena,
                                    fm_protenix_scores *ret_scores, fm_error *reterr) {
    const size_t n_chain = l->n_chain;
    enum { OF_CHAINS = 5, OF_PAIRS = 7 };
    double *of_chains = fm_arena_calloc(arena, OF_CHAINS * n_chain, sizeof *of_chains);
    double *of_pairs = fm_arena_calloc(arena, OF_PAIRS * n_chain * n_chain, sizeof *of_pairs);
    bool *has_frame = fm_arena_calloc(arena, n_chain, sizeof *has_frame), any, unused;
    if (!of_chains || !of_pairs || !has_frame) return fm_arena_full(arena, reterr);
    fm_protenix_scores s = {
        .chain_ptm = of_chains,
        .chain_iptm = of_chains + n_chain,
        .chain_gpde = of_chains + 2 * n_chain,
        .chain_plddt = of_chains + 3 * n_chain,
        .chain_pair_iptm = of_pairs,
        .chain_pair_iptm_global = of_pairs + n_chain * n_chain,
        .chain_pair_gpde = of_pairs + 2 * n_chain * n_chain,
        .chain_pair_plddt = of_pairs + 3 * n_chain * n_chain,
    };
    double *sum = of_chains + 4 * n_chain, *best = of_pairs + 4 * n_chain * n_chain;
    double *above = of_pairs + 5 * n_chain * n_chain, *below = of_pairs + 6 * n_chain * n_chain;
    fm_status status = fm_complex_find_clashes(l, position, &unused, &s.has_clash, reterr);
    if (status) return status;
    best_rows_by_chain(l, pairs->tm_by_chain, best, has_frame);
    score_chains(l, best, has_frame, &s);
    score_gpde(l, contacts, pairs, above, below, &s);
    score_plddt(l, plddt, sum, &s);
    s.plddt = 100 * mean_plddt(plddt, l->n_atom);
    s.ptm = best_row(l, pairs->tm_all, &any) / l->n_token;
    s.iptm = n_chain > 1 && any ? whole_iptm(l, pairs->tm_other) : 0;
    s.ranking_score = 0.8 * s.iptm + 0.2 * s.ptm - 100 * (double)s.has_clash;
    *ret_scores = s;
    return FM_OK;
}

/* -- ranks */

/* Whether score a comes before an equal or worse b. */
static bool is_better(double a, double b) {
    return a > b || (isnan(b) && !isnan(a));
}

void fm_complex_rank(const double *ranking_score, uint32_t n, uint32_t *ret_order) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at > 0 && is_better(ranking_score[i], ranking_score[ret_order[at - 1]]); at--)
            ret_order[at] = ret_order[at - 1];
        ret_order[at] = i;
    }
}
