/* complex_metrics.c: lists the atoms that are scored, and lDDT; see complex_metrics.h. */
#include "trainer/metrics/complex_metrics.h"

#include "trainer/metrics/complex_metrics_internal.h"
#include "trainer/metrics/structure_metrics.h"

#include <string.h>

static const double RADIUS = 15, RADIUS_NUCLEIC = 30; /* Å */

const char *fm_chain_kind_name(fm_chain_kind kind) {
    static const char *const names[FM_N_CHAIN_KIND] = {"protein", "RNA", "DNA", "ligand"};
    return names[kind];
}

/* -- what is scored */

static bool is_known(const compared *c, int64_t atom) {
    return c->label[atom] >= 0 && c->pair->resolved[c->label[atom]] != 0;
}

static void list_atom(compared *c, int64_t atom) {
    compared_atom *to = &c->atoms[c->n_atom++];
    for (int64_t axis = 0; axis < 3; axis++) {
        to->predicted[axis] = (double)c->pair->predicted->position[3 * atom + axis];
        to->truth[axis] = (double)c->pair->truth->position[3 * c->label[atom] + axis];
    }
    to->is_backbone = c->pair->is_backbone[atom];
}

/* Finds a ball around the true atoms of a residue. */
static void enclose(const compared *c, compared_residue *residue) {
    for (int axis = 0; axis < 3; axis++) {
        double sum = 0;
        for (int64_t i = residue->first; i < residue->end; i++)
            sum += c->atoms[i].truth[axis];
        residue->centre[axis] = sum / (double)(residue->end - residue->first);
    }
    residue->radius = 0;
    for (int64_t i = residue->first; i < residue->end; i++)
        residue->radius =
            fmax(residue->radius, compared_distance(residue->centre, c->atoms[i].truth));
}

/* Lists the tokens from `token` on that are one residue. Returns the token behind it. */
static int64_t list_residue(compared *c, int64_t token, int64_t end) {
    const fm_labelled_complex *p = c->pair->predicted;
    fm_compared_chain *chain = &c->chains[c->n_chain];
    compared_residue residue = {
        .first = c->n_atom, .first_label = p->first_atom[token], .chain = c->n_chain};
    const int64_t number = c->pair->residue[token];
    for (; token < end && c->pair->residue[token] == number; token++) {
        for (int64_t atom = p->first_atom[token]; atom < p->first_atom[token + 1]; atom++) {
            chain->n_atom++;
            if (!is_known(c, atom)) continue;
            chain->n_known++;
            list_atom(c, atom);
        }
    }
    residue.end = c->n_atom;
    residue.end_label = p->first_atom[token];
    if (residue.end == residue.first) return token;
    enclose(c, &residue);
    c->residues[c->n_residue++] = residue;
    return token;
}

/* Returns the asym_id of the true chain whose labels a chain's atoms have, or -1. */
static int64_t copy_of(const compared *c, const fm_compared_chain *chain) {
    const fm_labelled_complex *p = c->pair->predicted, *truth = c->pair->truth;
    for (int64_t atom = p->first_atom[chain->first_token]; atom < p->first_atom[chain->end_token];
         atom++) {
        if (c->label[atom] < 0) continue;
        int64_t token = 0, end = truth->n_token; /* first_atom[token] <= label < first_atom[end] */
        while (end - token > 1) {
            int64_t middle = token + (end - token) / 2;
            if (truth->first_atom[middle] <= c->label[atom]) {
                token = middle;
            } else {
                end = middle;
            }
        }
        return truth->asym_id[token];
    }
    return -1;
}

static void list_chains(compared *c) {
    const fm_labelled_complex *p = c->pair->predicted;
    c->n_chain = c->n_residue = c->n_atom = 0;
    for (int64_t token = 0; token < p->n_token; c->n_chain++) {
        fm_compared_chain *chain = &c->chains[c->n_chain];
        int64_t end = token;
        while (end < p->n_token && p->asym_id[end] == p->asym_id[token])
            end++;
        *chain = (fm_compared_chain){.kind = c->pair->kind[token],
                                     .first_token = token,
                                     .end_token = end,
                                     .lddt = NAN,
                                     .pocket_rmsd = NAN,
                                     .pocket_chain = -1};
        c->first_residue[c->n_chain] = c->n_residue;
        while (token < end)
            token = list_residue(c, token, end);
        chain->copy = copy_of(c, chain);
    }
    c->first_residue[c->n_chain] = c->n_residue;
}

/* -- symmetric atoms */

enum { WINDOW = 2 }; /* residues on either side that decide on the order of a residue's atoms */

/* Finds the groups of atoms of a chain: those from the returned number to *ret_end. */
static int64_t find_groups(const compared *c, const fm_compared_chain *chain, int64_t *ret_end) {
    const fm_compared_complex *pair = c->pair;
    int64_t first = 0;
    while (first < pair->n_orders &&
           pair->orders[first].first < pair->predicted->first_atom[chain->first_token])
        first++;
    *ret_end = first;
    while (*ret_end < pair->n_orders &&
           pair->orders[*ret_end].first < pair->predicted->first_atom[chain->end_token])
        ++*ret_end;
    return first;
}

static void order_groups(const compared *c, const fm_motion *motion, int64_t first, int64_t end,
                         int64_t *room) {
    const fm_compared_complex *pair = c->pair;
    fm_permute_atoms(pair->predicted, pair->truth, pair->resolved, motion, pair->orders + first,
                     end - first, c->label, room);
}

/* The order of a residue's atoms is that which fits after superposition of its neighbourhood, so
 * that no other part of the complex changes the scores of this one. */
static void order_polymer(const compared *c, int64_t a, int64_t *room) {
    int64_t end, r = c->first_residue[a];
    for (int64_t g = find_groups(c, &c->chains[a], &end); g < end; g++) {
        const int64_t at = c->pair->orders[g].first;
        while (r < c->first_residue[a + 1] && c->residues[r].end_label <= at)
            r++;
        if (r == c->first_residue[a + 1] || c->residues[r].first_label > at) continue;
        size_t n = 0;
        for (int64_t k = r - WINDOW; k <= r + WINDOW; k++) {
            if (k < c->first_residue[a] || k >= c->first_residue[a + 1]) continue;
            for (int64_t i = c->residues[k].first; i < c->residues[k].end; i++)
                n = compared_push(c, &c->atoms[i], n);
        }
        if (n < COMPARE_LEAST_POINTS) continue;
        const fm_motion motion = fm_superpose(n, c->fixed, c->moving);
        order_groups(c, &motion, g, g + 1, room);
    }
}

/* Exchanges the labels of symmetric atoms: of polymers first, which are the ligands' pockets. */
static void order_atoms(compared *c) {
    for (int64_t a = 0; a < c->n_chain; a++)
        if (c->chains[a].kind != FM_CHAIN_LIGAND) order_polymer(c, a, c->room);
    list_chains(c);
    for (int64_t a = 0; a < c->n_chain; a++) {
        fm_motion motion;
        int64_t end;
        if (c->chains[a].kind != FM_CHAIN_LIGAND) continue;
        if (fm_compared_find_pocket(c, a, c->is_pocket, &motion) < 0) continue;
        const int64_t first = find_groups(c, &c->chains[a], &end);
        order_groups(c, &motion, first, end, c->room);
    }
    list_chains(c);
}

static bool take_memory(compared *c, fm_arena *arena) {
    size_t n_token = (size_t)c->pair->predicted->n_token, n = (size_t)c->pair->predicted->n_atom;
    c->label = fm_arena_alloc_array(arena, n, sizeof *c->label);
    c->chains = fm_arena_alloc_array(arena, n_token, sizeof *c->chains);
    c->residues = fm_arena_alloc_array(arena, n_token, sizeof *c->residues);
    c->first_residue = fm_arena_alloc_array(arena, n_token + 1, sizeof *c->first_residue);
    c->atoms = fm_arena_alloc_array(arena, n, sizeof *c->atoms);
    c->moving = fm_arena_alloc_array(arena, n, 3 * sizeof *c->moving);
    c->fixed = fm_arena_alloc_array(arena, n, 3 * sizeof *c->fixed);
    c->room = fm_arena_alloc_array(arena, n, sizeof *c->room);
    c->is_pocket = fm_arena_alloc_array(arena, n, sizeof *c->is_pocket);
    return c->label && c->chains && c->residues && c->first_residue && c->atoms && c->moving &&
           c->fixed && c->room && c->is_pocket;
}

/* -- lDDT */

typedef struct tally {
    uint64_t kept, all; /* thresholds: four for each pair */
} tally;

static double share(const tally *t) {
    return t->all ? (double)t->kept / (double)t->all : NAN;
}

static bool is_nucleic(uint8_t kind) {
    return kind == FM_CHAIN_RNA || kind == FM_CHAIN_DNA;
}

static double radius_of(const compared *c, int64_t a, int64_t b) {
    bool is_wide = is_nucleic(c->chains[a].kind) || is_nucleic(c->chains[b].kind);
    return is_wide ? RADIUS_NUCLEIC : RADIUS;
}

static void tally_residues(const compared *c, const compared_residue *one,
                           const compared_residue *two, double radius, tally *t) {
    if (compared_is_far(one, two, radius)) return;
    for (int64_t i = one->first; i < one->end; i++) {
        const compared_atom *a = &c->atoms[i];
        for (int64_t k = two->first; k < two->end; k++) {
            const compared_atom *b = &c->atoms[k];
            double truth = compared_distance(a->truth, b->truth);
            if (!(truth < radius)) continue;
            t->kept += fm_lddt_kept(compared_distance(a->predicted, b->predicted), truth);
            t->all += 4;
        }
    }
}

/* Counts the pairs of different residues of two chains, or of one (a == b). */
static tally tally_chains(const compared *c, int64_t a, int64_t b) {
    const double radius = radius_of(c, a, b);
    tally t = {0, 0};
    for (int64_t i = c->first_residue[a]; i < c->first_residue[a + 1]; i++) {
        int64_t k = a == b ? i + 1 : c->first_residue[b];
        for (; k < c->first_residue[b + 1]; k++)
            tally_residues(c, &c->residues[i], &c->residues[k], radius, &t);
    }
    return t;
}

/* -- all */

static void compare_interface(const compared *c, int64_t a, int64_t b, double lddt,
                              fm_compared_interface *to) {
    bool has_dockq = c->chains[a].kind == FM_CHAIN_PROTEIN && c->chains[b].kind == FM_CHAIN_PROTEIN;
    *to = (fm_compared_interface){.a = a, .b = b, .lddt = lddt, .has_dockq = has_dockq};
    if (has_dockq) to->dockq = fm_compared_dockq(c, a, b);
}

static fm_status compare_pairs(const compared *c, fm_arena *arena, fm_complex_comparison *out,
                               fm_error *reterr) {
    tally total = {0, 0};
    int64_t n = 0, room = 0;
    fm_compared_interface *interfaces = NULL;
    for (int64_t a = 0; a < c->n_chain; a++) {
        for (int64_t b = a; b < c->n_chain; b++) {
            tally own = tally_chains(c, a, b);
            total.kept += own.kept;
            total.all += own.all;
            if (a == b && c->chains[a].kind != FM_CHAIN_LIGAND) c->chains[a].lddt = share(&own);
            if (a == b || !fm_compared_touch(c, a, b)) continue;
            if (n == room) {
                fm_compared_interface *old = interfaces;
                room = room ? 2 * room : 16;
                interfaces = fm_arena_alloc_array(arena, (size_t)room, sizeof *interfaces);
                if (!interfaces) return fm_arena_full(arena, reterr);
                if (n) memcpy(interfaces, old, (size_t)n * sizeof *old);
            }
            compare_interface(c, a, b, share(&own), &interfaces[n++]);
        }
    }
    out->lddt = share(&total);
    out->n_interface = n;
    out->interfaces = interfaces;
    return FM_OK;
}

static void compare_ligands(const compared *c) {
    for (int64_t a = 0; a < c->n_chain; a++) {
        fm_compared_chain *chain = &c->chains[a];
        fm_motion motion;
        if (chain->kind != FM_CHAIN_LIGAND) continue;
        chain->pocket_chain = fm_compared_find_pocket(c, a, c->is_pocket, &motion);
        if (chain->pocket_chain >= 0) chain->pocket_rmsd = fm_compared_ligand_rmsd(c, a, &motion);
    }
}

fm_status fm_compare_complex(const fm_compared_complex *pair, fm_arena *arena,
                             fm_complex_comparison *ret_comparison, fm_error *reterr) {
    compared c = {.pair = pair};
    if (!take_memory(&c, arena)) return fm_arena_full(arena, reterr);
    fm_status status = fm_permute_labels(pair->predicted, pair->truth, pair->resolved, NULL, 0,
                                         c.label, arena, reterr);
    if (status) return status;
    list_chains(&c);
    order_atoms(&c);
    fm_complex_comparison out = {.n_chain = c.n_chain, .chains = c.chains, .label = c.label};
    status = compare_pairs(&c, arena, &out, reterr);
    if (status) return status;
    compare_ligands(&c);
    *ret_comparison = out;
    return FM_OK;
}

/* -- means */

static void add(fm_mean_score *to, double score) {
    if (!isfinite(score)) return;
    to->mean += score;
    to->n++;
}

static void finish(fm_mean_score *score) {
    score->mean = score->n ? score->mean / (double)score->n : NAN;
}

void fm_complex_means_of(const fm_complex_comparison *comparison, fm_complex_means *ret_means) {
    fm_complex_means means = {0};
    for (int64_t i = 0; i < comparison->n_chain; i++) {
        const fm_compared_chain *chain = &comparison->chains[i];
        add(&means.lddt[chain->kind], chain->lddt);
        add(&means.pocket_rmsd, chain->pocket_rmsd);
    }
    for (int64_t i = 0; i < comparison->n_interface; i++) {
        const fm_compared_interface *interface = &comparison->interfaces[i];
        uint8_t a = comparison->chains[interface->a].kind,
                b = comparison->chains[interface->b].kind;
        add(&means.interface_lddt[a < b ? a : b][a < b ? b : a], interface->lddt);
        if (interface->has_dockq) add(&means.dockq, interface->dockq.dockq);
    }
    for (int a = 0; a < FM_N_CHAIN_KIND; a++) {
        finish(&means.lddt[a]);
        for (int b = 0; b < FM_N_CHAIN_KIND; b++)
            finish(&means.interface_lddt[a][b]);
    }
    finish(&means.dockq);
    finish(&means.pocket_rmsd);
    *ret_means = means;
}
