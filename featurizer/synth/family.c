/* family.c: makes families and their chains; see family.h.
 *
 * A fold is built piece by piece: a loop and the rigid helix or strand behind it. For each piece,
 * fold_unit() draws the loop's torsions several times and keeps the draw with the fewest clashes
 * and the most compact result. When a clash remains, fold() starts again with fewer draws per loop,
 * which packs less tightly. Sites in contact in the finished fold become partners. */
#include "featurizer/synth/family.h"

#include "proto/chem/residue.h"

#include <assert.h>
#include <string.h>

enum { GLY = 7, ASN = 2, PRO = 14, FREE_ENDS = 6 };

/* Frequencies of residues in known proteins, rounded parts per thousand, in restype order. */
static const uint16_t frequency[FM_SYNTH_N_AA] = {83, 55, 41, 55, 14, 39, 67, 71, 23, 59,
                                                  97, 58, 24, 39, 47, 66, 53, 11, 29, 69};

/* Weights of ancestral residues by place, [secondary structure][buried], in restype order. */
/* clang-format off */
static const uint16_t place_weight[3][2][FM_SYNTH_N_AA] = {
    [FM_SYNTH_LOOP] = {
        /* A   R   N   D   C   Q   E   G   H   I   L   K   M   F   P   S   T   W   Y   V */
        { 30, 30, 60, 60,  4, 25, 40, 90, 20, 12, 20, 45,  8, 12, 60, 60, 45,  5, 16, 20},
        { 50,  8, 20, 20, 15,  8,  8, 60, 10, 40, 60,  8, 15, 30, 50, 40, 40, 10, 25, 50},
    },
    [FM_SYNTH_HELIX] = {
        { 60, 60, 25, 40,  3, 55,100, 10, 15, 10, 25, 75, 10,  5,  0, 30, 20,  4, 10, 10},
        { 90,  4,  3,  2, 15,  5,  4,  8,  4, 70,120,  4, 40, 50,  0,  8, 12, 15, 25, 55},
    },
    [FM_SYNTH_STRAND] = {
        { 15, 45, 20, 20,  5, 40, 50, 10, 25, 30, 20, 55, 10, 15,  0, 45, 80,  8, 35, 45},
        { 30,  3,  2,  1, 20,  3,  2, 10,  5,100, 70,  2, 25, 60,  0, 10, 30, 20, 50,120},
    },
};
/* clang-format on */

/* Groups of residues that replace each other: 0 small, 1 aliphatic, 2 aromatic, 3 positive, 4
 * negative and amide, 5 proline. */
static const uint8_t group[FM_SYNTH_N_AA] = {0, 3, 4, 4, 0, 4, 4, 0, 3, 1,
                                             1, 3, 1, 2, 5, 0, 0, 2, 2, 1};
static const uint8_t group_affinity[6][6] = {
    {12, 2, 1, 2, 3, 0}, {2, 14, 4, 1, 1, 0}, {1, 4, 14, 1, 1, 0},
    {2, 1, 1, 14, 4, 0}, {3, 1, 1, 4, 12, 0}, {2, 1, 1, 1, 2, 0},
};
/* The fitness of each residue at an exposed and at a buried site. */
static const uint8_t burial_affinity[2][FM_SYNTH_N_AA] = {
    {2, 3, 3, 3, 1, 3, 3, 2, 3, 1, 1, 3, 1, 1, 0, 3, 3, 1, 2, 1},
    {4, 1, 1, 1, 4, 1, 1, 2, 1, 4, 4, 1, 4, 4, 0, 2, 2, 3, 3, 4},
};
/* The residue that the other side of a contact tends to change to, by restype: charges answer
 * charges, large residues answer small ones. */
static const char complement[] = "LESRVTKFDVAEAAPNQASI";

char fm_synth_letter(uint8_t aatype) {
    assert(aatype < FM_SYNTH_N_AA);
    return fm_restype_letters[aatype];
}

uint8_t fm_synth_draw_insertion(fm_synth_draws *draws) {
    static const char pool[] = "GGSSNNDDKKEETTAQRLV";
    return fm_restype_from_letter(pool[fm_synth_draw_below(draws, sizeof pool - 1)]);
}

/* Draws the torsions of a loop residue; only glycine and asparagine may turn left-handed. */
static fm_synth_torsions draw_loop_torsions(fm_synth_draws *draws, uint8_t aatype) {
    static const double basin[4][2] = {{-66, -38}, {-75, 145}, {-115, 130}, {57, 42}};
    uint16_t left = aatype == GLY ? 50 : aatype == ASN ? 12 : 0;
    const uint16_t weight[4] = {32, 36, aatype == PRO ? 0 : 30, left};
    const double *center = basin[fm_synth_draw_weighted(draws, weight, 4)];
    fm_synth_torsions torsions;
    torsions.omega = 180 + fm_synth_draw_spread(draws, 4);
    torsions.phi = aatype == PRO ? -66 : center[0] + fm_synth_draw_spread(draws, 18);
    torsions.psi = center[1] + fm_synth_draw_spread(draws, 18);
    return torsions;
}

static fm_synth_torsions draw_regular_torsions(fm_synth_draws *draws, unsigned ss) {
    fm_synth_torsions torsions;
    torsions.omega = 180 + fm_synth_draw_spread(draws, 2);
    torsions.phi = (ss == FM_SYNTH_HELIX ? -63 : -118) + fm_synth_draw_spread(draws, 5);
    torsions.psi = (ss == FM_SYNTH_HELIX ? -42 : 132) + fm_synth_draw_spread(draws, 5);
    return torsions;
}

/* Lays out loop, helix or strand, loop, ... along the sites and decides which sites point
 * inwards. */
static void draw_segments(fm_synth_family *family, fm_synth_draws *draws) {
    static const uint32_t helix_chance[3] = {9, 5, 1}; /* all-alpha, mixed, mostly-beta */
    uint32_t chance = helix_chance[fm_synth_draw_below(draws, 3)];
    uint32_t at = 0, end = fm_synth_draw_between(draws, 2, 4);
    unsigned ss = FM_SYNTH_LOOP;
    while (at < family->n_site) {
        uint32_t phase = fm_synth_draw_below(draws, 7), start = at;
        for (; at < end && at < family->n_site; at++) {
            /* An amphipathic helix shows one face every 3.5 residues, a strand every second
             * residue. */
            uint32_t turn = ((at - start) * 2 + phase) % 7;
            bool buried = ss == FM_SYNTH_HELIX    ? turn < 3
                          : ss == FM_SYNTH_STRAND ? (at + phase) % 2 == 0
                                                  : fm_synth_draw_chance(draws, 1, 6);
            family->sites[at].ss = (uint8_t)ss;
            family->sites[at].buried = buried;
        }
        if (ss == FM_SYNTH_LOOP) {
            ss = fm_synth_draw_chance(draws, chance, 10) ? FM_SYNTH_HELIX : FM_SYNTH_STRAND;
            end = at + (ss == FM_SYNTH_HELIX ? fm_synth_draw_between(draws, 8, 18)
                                             : fm_synth_draw_between(draws, 4, 8));
        } else {
            ss = FM_SYNTH_LOOP;
            end = at + fm_synth_draw_between(draws, 3, 6);
        }
    }
}

static void draw_sites(fm_synth_family *family, fm_synth_draws *draws) {
    static const uint8_t rates[4] = {1, 4, 10, 24};
    static const uint16_t rate_weight[2][4] = {{1, 3, 4, 3}, {5, 4, 1, 0}};
    draw_segments(family, draws);
    uint32_t sum = 0;
    for (uint32_t i = 0; i < family->n_site; i++) {
        fm_synth_site *site = &family->sites[i];
        const uint16_t *weight = place_weight[site->ss][site->buried];
        site->ancestor = (uint8_t)fm_synth_draw_weighted(draws, weight, FM_SYNTH_N_AA);
        site->rate = rates[fm_synth_draw_weighted(draws, rate_weight[site->buried], 4)];
        site->partner = FM_SYNTH_NO_SITE;
        family->torsions[i] = site->ss == FM_SYNTH_LOOP ? draw_loop_torsions(draws, site->ancestor)
                                                        : draw_regular_torsions(draws, site->ss);
        /* Proline and the glycines in loops never change, because the fold depends on them. */
        if (site->ancestor == PRO || (site->ancestor == GLY && site->ss == FM_SYNTH_LOOP)) {
            site->rate = 0;
        }
        sum += site->rate;
        family->rate_sum[i] = sum;
    }
    if (sum == 0) { /* a very short family of nothing but turns */
        family->sites[family->n_site - 1].rate = 1;
        family->rate_sum[family->n_site - 1] = 1;
    }
}

/* Returns the mean squared distance of the CA atoms of [from, to) from `center`. */
static double spread_around(const fm_synth_backbone *backbone, uint32_t from, uint32_t to,
                            fm_vec3 center) {
    double sum = 0;
    for (uint32_t i = from; i < to; i++) {
        fm_vec3 apart = fm_vec3_sub(backbone[i].ca, center);
        sum += fm_vec3_dot(apart, apart);
    }
    return sum / (double)(to - from);
}

/* Draws the loop [from, loop_end) repeatedly, each time with the rigid piece up to `to` behind it.
 * Of at least `tries` draws it keeps the one with the fewest clashes, and among these the one
 * packed closest around `center`. Returns the number of clashes left. */
static uint32_t fold_unit(fm_synth_family *family, fm_synth_draws *draws,
                          fm_synth_backbone *backbone, uint32_t from, uint32_t loop_end,
                          uint32_t to, fm_vec3 center, uint32_t tries) {
    enum { MORE_TRIES = 96, MAX_LOOP = 8 };
    fm_synth_torsions best[MAX_LOOP];
    uint32_t fewest = UINT32_MAX;
    double closest = 0;
    assert(loop_end - from <= MAX_LOOP);
    for (uint32_t i = 0; i < MORE_TRIES && (i < tries || fewest > 0); i++) {
        for (uint32_t k = from; k < loop_end; k++)
            family->torsions[k] = draw_loop_torsions(draws, family->sites[k].ancestor);
        fm_synth_backbone_extend(backbone, family->torsions, from, to);
        uint32_t clashes = fm_synth_backbone_clashes(backbone, from, to);
        double spread = spread_around(backbone, from, to, center);
        if (clashes < fewest || (clashes == fewest && spread < closest)) {
            fewest = clashes;
            closest = spread;
            memcpy(best, family->torsions + from, (loop_end - from) * sizeof best[0]);
        }
    }
    memcpy(family->torsions + from, best, (loop_end - from) * sizeof best[0]);
    fm_synth_backbone_extend(backbone, family->torsions, from, to);
    return fewest;
}

static uint32_t end_of_run(const fm_synth_family *family, uint32_t from, bool loop) {
    while (from < family->n_site && (family->sites[from].ss == FM_SYNTH_LOOP) == loop)
        from++;
    return from;
}

/* Attempts the whole fold, one loop and the piece behind it at a time. Returns false when it
 * stopped at a clash; with `to_the_end` it never stops. */
static bool fold_once(fm_synth_family *family, uint64_t seed, uint32_t attempt, uint32_t tries,
                      bool to_the_end, fm_synth_backbone *backbone) {
    enum { MAX_UNITS = 1 << 16 };
    fm_vec3 sum = {0, 0, 0};
    uint32_t at = 0;
    for (uint32_t unit = 0; at < family->n_site; unit++) {
        fm_synth_draws draws =
            fm_synth_draws_of(seed, FM_SYNTH_DRAW_FOLD, family->number, attempt * MAX_UNITS + unit);
        uint32_t loop_end = end_of_run(family, at, true);
        uint32_t to = end_of_run(family, loop_end, false);
        fm_vec3 center = fm_vec3_scale(sum, at ? 1.0 / at : 0);
        uint32_t left = fold_unit(family, &draws, backbone, at, loop_end, to, center, tries);
        if (left > 0 && !to_the_end) return false;
        for (; at < to; at++)
            sum = fm_vec3_add(sum, backbone[at].ca);
    }
    return true;
}

/* Tries compact folds first; a chain that keeps running into itself is packed less and less
 * tightly. The last attempt is kept even with clashes. */
static void fold(fm_synth_family *family, uint64_t seed, fm_synth_backbone *backbone) {
    static const uint8_t tries[] = {24, 24, 24, 12, 12, 6, 6, 4, 4, 3, 2, 1};
    for (uint32_t attempt = 0; attempt < sizeof tries; attempt++) {
        bool last = attempt + 1 == sizeof tries;
        if (fold_once(family, seed, attempt, tries[attempt], last, backbone)) return;
    }
}

/* Returns the nearest CA within 7.5 Å that is at least six residues away, or FM_SYNTH_NO_SITE. */
static int32_t nearest_contact(const fm_synth_backbone *backbone, uint32_t n, uint32_t i) {
    double best = 7.5 * 7.5;
    int32_t found = FM_SYNTH_NO_SITE;
    for (uint32_t j = 0; j < n; j++) {
        if (j + 6 > i && i + 6 > j) continue;
        fm_vec3 apart = fm_vec3_sub(backbone[i].ca, backbone[j].ca);
        double square = fm_vec3_dot(apart, apart);
        if (square < best) {
            best = square;
            found = (int32_t)j;
        }
    }
    return found;
}

static void pair_contacts(fm_synth_family *family, const fm_synth_backbone *backbone) {
    for (uint32_t i = 0; i < family->n_site; i++) {
        int32_t j = nearest_contact(backbone, family->n_site, i);
        if (j > (int32_t)i &&
            nearest_contact(backbone, family->n_site, (uint32_t)j) == (int32_t)i) {
            family->sites[i].partner = j;
            family->sites[j].partner = (int32_t)i;
        }
    }
}

/* Draws between 20 and max_depth rows, with every doubling equally likely: many shallow families
 * and few deep ones. */
static uint32_t draw_depth(fm_synth_draws *draws, uint32_t max_depth) {
    uint32_t low = max_depth < 20 ? max_depth : 20, doublings = 1;
    while ((uint64_t)low << doublings < max_depth)
        doublings++;
    low <<= fm_synth_draw_below(draws, doublings);
    uint32_t high = low < max_depth / 2 ? 2 * low : max_depth;
    return fm_synth_draw_between(draws, low, high);
}

fm_status fm_synth_family_make(fm_arena *arena, const fm_synth_options *options, uint32_t number,
                               fm_synth_family *ret_family, fm_error *reterr) {
    fm_synth_draws draws = fm_synth_draws_of(options->seed, FM_SYNTH_DRAW_SITES, number, 0);
    fm_synth_family family = {.number = number};
    family.n_site = fm_synth_draw_between(&draws, options->min_length, options->max_length);
    family.n_row = draw_depth(&draws, options->max_depth);
    if (family.n_row < options->min_depth) family.n_row = options->min_depth;
    uint32_t n = family.n_site;
    family.sites = fm_arena_calloc(arena, n, sizeof *family.sites);
    family.torsions = fm_arena_calloc(arena, n, sizeof *family.torsions);
    family.rate_sum = fm_arena_calloc(arena, n, sizeof *family.rate_sum);
    fm_synth_backbone *backbone = fm_arena_calloc(arena, n, sizeof *backbone);
    if (!family.sites || !family.torsions || !family.rate_sum || !backbone) {
        return fm_arena_full(arena, reterr);
    }
    draw_sites(&family, &draws);
    fold(&family, options->seed, backbone);
    pair_contacts(&family, backbone);
    *ret_family = family;
    return FM_OK;
}

static uint8_t draw_substitute(fm_synth_draws *draws, uint8_t from, uint8_t buried) {
    uint16_t weight[FM_SYNTH_N_AA];
    for (unsigned to = 0; to < FM_SYNTH_N_AA; to++) {
        weight[to] = (uint16_t)(frequency[to] * group_affinity[group[from]][group[to]] *
                                burial_affinity[buried][to]);
    }
    weight[from] = 0;
    return (uint8_t)fm_synth_draw_weighted(draws, weight, FM_SYNTH_N_AA);
}

void fm_synth_family_mutate(const fm_synth_family *family, fm_synth_draws *draws, uint8_t *states) {
    uint32_t at = fm_synth_draw_below(draws, family->rate_sum[family->n_site - 1]);
    uint32_t low = 0, high = family->n_site - 1;
    while (low < high) { /* the first site whose sum exceeds `at` */
        uint32_t middle = (low + high) / 2;
        if (family->rate_sum[middle] > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    const fm_synth_site *site = &family->sites[low];
    if (states[low] >= FM_SYNTH_N_AA) return; /* deleted here */
    states[low] = draw_substitute(draws, states[low], site->buried);
    bool coupled = site->partner != FM_SYNTH_NO_SITE && fm_synth_draw_chance(draws, 1, 2);
    if (coupled && family->sites[site->partner].rate > 0 && states[site->partner] < FM_SYNTH_N_AA) {
        states[site->partner] = fm_restype_from_letter(complement[states[low]]);
    }
}

/* Moves residues [at, n) by `shift`. */
static void shift_tail(fm_synth_chain *chain, uint32_t at, int32_t shift) {
    uint32_t count = chain->n_res - at;
    uint32_t to = (uint32_t)((int32_t)at + shift);
    memmove(chain->residues + to, chain->residues + at, count * sizeof chain->residues[0]);
    memmove(chain->torsions + to, chain->torsions + at, count * sizeof chain->torsions[0]);
    chain->n_res = (uint32_t)((int32_t)chain->n_res + shift);
}

/* Makes one deletion (1-3 residues) or insertion (1-4) inside a loop, away from the ends. Returns
 * where it begins, or 0 when the place drawn is not in a loop. */
static uint32_t draw_indel(fm_synth_chain *chain, fm_synth_draws *draws) {
    uint32_t at = fm_synth_draw_between(draws, FREE_ENDS, chain->n_res - FREE_ENDS - 4);
    bool insert = fm_synth_draw_chance(draws, 1, 2);
    uint32_t length = fm_synth_draw_between(draws, 1, insert ? 4 : 3);
    for (uint32_t i = at; i < at + (insert ? 1 : length); i++) {
        if (chain->family->sites[chain->residues[i].site].ss != FM_SYNTH_LOOP) return 0;
    }
    if (!insert) {
        shift_tail(chain, at + length, -(int32_t)length);
        return at;
    }
    shift_tail(chain, at, (int32_t)length);
    for (uint32_t i = at; i < at + length; i++) {
        uint8_t aatype = fm_synth_draw_insertion(draws);
        chain->residues[i] = (fm_synth_residue){aatype, FM_SYNTH_NO_SITE};
        chain->torsions[i] = draw_loop_torsions(draws, aatype);
    }
    return at;
}

/* Tries indels until one leaves a chain without clashes and within the requested lengths; otherwise
 * the chain has none. Each try starts again from the family's sites, so nothing needs undoing. */
static void place_residues(const fm_synth_options *options, const uint8_t *states, uint32_t first,
                           uint32_t last, fm_synth_draws *draws, fm_synth_chain *chain) {
    enum { TRIES = 12 };
    bool indel = last - first > 2 * FREE_ENDS + 8 && fm_synth_draw_chance(draws, 1, 3);
    for (uint32_t i = indel ? 0 : TRIES; i <= TRIES; i++) {
        chain->n_res = last - first;
        for (uint32_t k = first; k < last; k++) {
            chain->residues[k - first] = (fm_synth_residue){states[k], (int32_t)k};
            chain->torsions[k - first] = chain->family->torsions[k];
        }
        bool changed = i < TRIES && draw_indel(chain, draws) > 0;
        if (i < TRIES && !changed) continue;
        if (chain->n_res < options->min_length || chain->n_res > options->max_length) continue;
        fm_synth_backbone_extend(chain->backbone, chain->torsions, 0, chain->n_res);
        if (i == TRIES || fm_synth_backbone_clashes(chain->backbone, 0, chain->n_res) == 0) return;
    }
}

fm_status fm_synth_chain_make(fm_arena *arena, const fm_synth_options *options,
                              const fm_synth_entry *entry, uint32_t slot,
                              const fm_synth_family *family, fm_synth_chain *ret_chain,
                              fm_error *reterr) {
    assert(slot < entry->n_chain && family->number == entry->family[slot]);
    fm_synth_draws draws =
        fm_synth_draws_of(options->seed, FM_SYNTH_DRAW_CHAIN, entry->index, entry->same ? 0 : slot);
    uint32_t capacity = family->n_site + 4;
    fm_synth_chain chain = {.family = family};
    chain.residues = fm_arena_calloc(arena, capacity, sizeof *chain.residues);
    chain.torsions = fm_arena_calloc(arena, capacity, sizeof *chain.torsions);
    chain.backbone = fm_arena_calloc(arena, capacity, sizeof *chain.backbone);
    uint8_t *states = fm_arena_alloc(arena, family->n_site);
    if (!chain.residues || !chain.torsions || !chain.backbone || !states) {
        return fm_arena_full(arena, reterr);
    }
    for (uint32_t i = 0; i < family->n_site; i++)
        states[i] = family->sites[i].ancestor;
    uint32_t n_change = fm_synth_draw_below(&draws, family->n_site * 3 / 10 + 1);
    for (uint32_t i = 0; i < n_change; i++)
        fm_synth_family_mutate(family, &draws, states);
    uint32_t first = fm_synth_draw_below(&draws, 4);
    uint32_t last = family->n_site - fm_synth_draw_below(&draws, 4);
    if (last - first < options->min_length) first = 0, last = family->n_site;
    place_residues(options, states, first, last, &draws, &chain);
    *ret_chain = chain;
    return FM_OK;
}
