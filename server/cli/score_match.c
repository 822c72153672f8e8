/* score_match.c: see score_match.h. */
#include "server/cli/score_match.h"

#include "featurizer/complex/features.h"
#include "proto/base/plural.h"
#include "server/cli/score_align.h"

#include <assert.h>
#include <string.h>

static const uint32_t NONE = UINT32_MAX;

static uint32_t end_residue(const fm_assembly *assembly, uint32_t chain) {
    return chain + 1 < assembly->n_chain ? assembly->chains[chain + 1].first_residue
                                         : assembly->n_residue;
}
static uint32_t end_token(const fm_assembly *assembly, uint32_t chain) {
    return chain + 1 < assembly->n_chain ? assembly->chains[chain + 1].first_token
                                         : assembly->n_token;
}
static uint32_t count_residues(const fm_assembly *assembly, uint32_t chain) {
    return end_residue(assembly, chain) - assembly->chains[chain].first_residue;
}
static uint8_t polymer_of(const fm_assembly *assembly, uint32_t chain) {
    return assembly->entities[assembly->chains[chain].entity].polymer;
}

/* -- chains that correspond */

/* Returns the number of residues from the first one on that two chains have in common. */
static uint32_t count_common(const fm_assembly *a, uint32_t one, const fm_assembly *b,
                             uint32_t two) {
    const fm_assembly_residue *x = a->residues + a->chains[one].first_residue;
    const fm_assembly_residue *y = b->residues + b->chains[two].first_residue;
    uint32_t n = count_residues(a, one), other = count_residues(b, two), i = 0;
    if (other < n) n = other;
    while (i < n && x[i].number == y[i].number && strncmp(x[i].name, y[i].name, 8) == 0)
        i++;
    return i;
}

static bool corresponds(const fm_assembly *a, uint32_t one, const fm_assembly *b, uint32_t two) {
    const uint32_t n = count_residues(a, one);
    bool is_polymer = polymer_of(a, one) != FM_POLYMER_NONE;
    return is_polymer == (polymer_of(b, two) != FM_POLYMER_NONE) && n == count_residues(b, two) &&
           n == count_common(a, one, b, two);
}

/* Returns the first chain of `among` that corresponds to a chain, or NONE. */
static uint32_t find_first(const fm_assembly *assembly, uint32_t chain, const fm_assembly *among) {
    for (uint32_t c = 0; c < among->n_chain; c++)
        if (corresponds(assembly, chain, among, c)) return c;
    return NONE;
}

/* Fails for a polymer without a true chain, with the place where the most similar one differs. */
static fm_status fail_alone(const fm_assembly *predicted, uint32_t chain, const fm_assembly *truth,
                            fm_error *reterr) {
    uint32_t best = NONE, common = 0;
    for (uint32_t c = 0; c < truth->n_chain; c++) {
        const uint32_t n = count_common(predicted, chain, truth, c);
        if (polymer_of(truth, c) == FM_POLYMER_NONE || (best != NONE && n <= common)) continue;
        best = c;
        common = n;
    }
    const char *id = predicted->chains[chain].id;
    if (best == NONE) {
        return fm_fail(reterr, FM_ERR_DATA,
                       "chain %s is a polymer, and the true structure has none", id);
    }
    const uint32_t n = count_residues(predicted, chain), other = count_residues(truth, best);
    if (common == n || common == other) {
        return fm_fail(reterr, FM_ERR_DATA,
                       "chain %s has %u residue%s and no true chain with the same ones; the first "
                       "%u are those of true chain %s, which has %u",
                       id, n, fm_plural(n), common, truth->chains[best].id, other);
    }
    const fm_assembly_residue *residue =
        &predicted->residues[predicted->chains[chain].first_residue + common];
    return fm_fail(reterr, FM_ERR_DATA,
                   "chain %s has no true chain with the same residues; the nearest is %s: found "
                   "%.8s at residue %d, expected %.8s",
                   id, truth->chains[best].id, residue->name, residue->number,
                   truth->residues[truth->chains[best].first_residue + common].name);
}

/* Chains of one kind: `first` is the first true chain that corresponds to them. */
typedef struct chain_kinds {
    uint32_t *of_predicted; /* [chains of the prediction]: the kind's first true chain, or NONE */
    uint32_t *of_true;      /* [chains of the truth]: the same */
    uint32_t *model; /* [chains of the truth], of a kind: its first predicted chain, or NONE */
    /* [chains of the truth], of a kind that was aligned: the place in it of each residue of the
     * model, or NONE; NULL where all places are equal. */
    const uint32_t **place;
    uint32_t *n_same; /* [chains of the prediction]: as in fm_score_match */
} chain_kinds;

static fm_status check_counts(const fm_assembly *predicted, const fm_assembly *truth,
                              const chain_kinds *kinds, fm_error *reterr) {
    for (uint32_t c = 0; c < predicted->n_chain; c++) {
        const uint32_t kind = kinds->of_predicted[c];
        uint32_t n = 0, n_true = 0;
        if (kind == NONE || polymer_of(predicted, c) == FM_POLYMER_NONE) continue;
        for (uint32_t k = 0; k <= c; k++)
            n += kinds->of_predicted[k] == kind;
        for (uint32_t k = 0; k < truth->n_chain; k++)
            n_true += kinds->of_true[k] == kind;
        if (n > n_true) {
            return fm_fail(reterr, FM_ERR_DATA,
                           "chain %s is number %u with the residues of true chain %s, expected "
                           "at most %u",
                           predicted->chains[c].id, n, truth->chains[kind].id, n_true);
        }
    }
    return FM_OK;
}

/* Finds the true chain that is nearest to a polymer without a chain of the same residues. */
static fm_status find_nearest(const fm_assembly *predicted, uint32_t chain,
                              const fm_assembly *truth, fm_arena *arena, const chain_kinds *kinds,
                              uint32_t *ret_kind, fm_chain_alignment *ret_alignment,
                              fm_error *reterr) {
    *ret_kind = NONE;
    const uint32_t n = count_residues(predicted, chain);
    for (uint32_t c = 0; c < truth->n_chain; c++) {
        const uint32_t n_true = count_residues(truth, c), shorter = n < n_true ? n : n_true;
        fm_chain_alignment found;
        const bool is_of_kind = polymer_of(truth, c) == polymer_of(predicted, chain);
        if (kinds->of_true[c] != c || !is_of_kind) continue;
        fm_status status = fm_chain_align(predicted, chain, truth, c, arena, &found, reterr);
        if (status) return status;
        const bool is_near = found.n_same > 0 && 2 * found.n_same >= shorter;
        if (!is_near || (*ret_kind != NONE && found.score <= ret_alignment->score)) continue;
        *ret_kind = c;
        *ret_alignment = found;
    }
    return FM_OK;
}

/* Aligns a polymer. Others of the same residues take the alignment of the first. */
static fm_status align(const fm_assembly *predicted, uint32_t chain, const fm_assembly *truth,
                       fm_arena *arena, chain_kinds *kinds, fm_error *reterr) {
    fm_chain_alignment found;
    uint32_t kind;
    fm_status status = find_nearest(predicted, chain, truth, arena, kinds, &kind, &found, reterr);
    if (status) return status;
    if (kind == NONE) return fail_alone(predicted, chain, truth, reterr);
    const uint32_t model = kinds->model[kind];
    if (model != NONE && !corresponds(predicted, chain, predicted, model)) {
        return fm_fail(reterr, FM_ERR_DATA,
                       "chains %s and %s have different residues and are both nearest to true "
                       "chain %s, expected one of them",
                       predicted->chains[model].id, predicted->chains[chain].id,
                       truth->chains[kind].id);
    }
    kinds->of_predicted[chain] = kind;
    kinds->n_same[chain] = found.n_same;
    kinds->place[kind] = found.place;
    return FM_OK;
}

/* Chains with the same residues come first, so that an alignment cannot take their true chain. */
static fm_status find_predicted(const fm_assembly *predicted, const fm_assembly *truth,
                                fm_arena *arena, chain_kinds *kinds, fm_error *reterr) {
    for (uint32_t c = 0; c < predicted->n_chain; c++) {
        const uint32_t kind = find_first(predicted, c, truth);
        kinds->of_predicted[c] = kind;
        kinds->n_same[c] = NONE;
        if (kind != NONE && kinds->model[kind] == NONE) kinds->model[kind] = c;
    }
    fm_status status = FM_OK;
    for (uint32_t c = 0; c < predicted->n_chain && !status; c++) {
        if (kinds->of_predicted[c] != NONE || polymer_of(predicted, c) == FM_POLYMER_NONE) continue;
        status = align(predicted, c, truth, arena, kinds, reterr);
        const uint32_t kind = kinds->of_predicted[c];
        if (!status && kinds->model[kind] == NONE) kinds->model[kind] = c;
    }
    return status;
}

static fm_status find_kinds(const fm_assembly *predicted, const fm_assembly *truth, fm_arena *arena,
                            chain_kinds *kinds, fm_error *reterr) {
    kinds->of_predicted = fm_arena_alloc_array(arena, predicted->n_chain, sizeof(uint32_t));
    kinds->of_true = fm_arena_alloc_array(arena, truth->n_chain, sizeof(uint32_t));
    kinds->model = fm_arena_alloc_array(arena, truth->n_chain, sizeof(uint32_t));
    kinds->place = fm_arena_calloc(arena, truth->n_chain, sizeof(uint32_t *));
    kinds->n_same = fm_arena_alloc_array(arena, predicted->n_chain, sizeof(uint32_t));
    if (!kinds->of_predicted || !kinds->of_true || !kinds->model || !kinds->place ||
        !kinds->n_same) {
        return fm_arena_full(arena, reterr);
    }
    for (uint32_t c = 0; c < truth->n_chain; c++) {
        kinds->of_true[c] = find_first(truth, c, truth);
        kinds->model[c] = NONE;
    }
    fm_status status = find_predicted(predicted, truth, arena, kinds, reterr);
    return status ? status : check_counts(predicted, truth, kinds, reterr);
}

/* -- atoms that count */

/* Returns the atom of a residue that is this one of its component, or NONE. */
static uint32_t find_atom(const fm_assembly *assembly, uint32_t residue, int32_t in_component) {
    const uint32_t end = fm_assembly_residue_end_atom(assembly, residue);
    for (uint32_t atom = assembly->residues[residue].first_atom; atom < end; atom++)
        if (assembly->atoms[atom].in_component == in_component) return atom;
    return NONE;
}

/* Returns the atom of a chain that corresponds to one of the model, a chain of the prediction, or
 * NONE where it is not there or not resolved. `places`: of the model's residues in the chain, or
 * NULL. */
static uint32_t find_resolved(const fm_assembly *predicted, uint32_t model, uint32_t atom,
                              const fm_assembly *assembly, uint32_t chain, const uint32_t *places) {
    const fm_assembly_atom *own = &predicted->atoms[atom];
    uint32_t place = own->residue - predicted->chains[model].first_residue;
    if (places) place = places[place];
    if (place == NONE) return NONE;
    const uint32_t found =
        find_atom(assembly, assembly->chains[chain].first_residue + place, own->in_component);
    return found != NONE && assembly->atoms[found].is_resolved ? found : NONE;
}

/* Marks the atoms of the models that all predicted chains of their kind have. */
static void mark_counted(const fm_assembly *predicted, const chain_kinds *kinds, bool *is_counted) {
    memset(is_counted, 0, predicted->n_atom);
    for (uint32_t c = 0; c < predicted->n_chain; c++) {
        const uint32_t kind = kinds->of_predicted[c];
        if (kind == NONE) continue;
        const uint32_t model = kinds->model[kind];
        const uint32_t end = fm_assembly_chain_end_atom(predicted, model);
        for (uint32_t atom = predicted->chains[model].first_atom; atom < end; atom++) {
            if (predicted->atoms[atom].in_component < 0) continue;
            bool has = find_resolved(predicted, model, atom, predicted, c, NULL) != NONE;
            is_counted[atom] = (c == model || is_counted[atom]) && has;
        }
    }
}

/* -- equal layouts */

typedef struct layout {
    const fm_assembly *predicted; /* of the models */
    const bool *is_counted;
    int64_t n_token, n_atom;
    int64_t *asym_id, *entity_id, *number, *first_atom, *centre, *residue;
    uint8_t *kind, *is_backbone;
    float *position, *resolved;
} layout;

static bool make_layout(layout *out, size_t n_token, size_t n_atom, fm_arena *arena) {
    int64_t *ids = fm_arena_alloc_array(arena, n_token + 1, 6 * sizeof *ids);
    out->kind = fm_arena_alloc_array(arena, n_token, 1);
    out->is_backbone = fm_arena_alloc_array(arena, n_atom, 1);
    out->position = fm_arena_alloc_array(arena, n_atom, 3 * sizeof *out->position);
    out->resolved = fm_arena_alloc_array(arena, n_atom, sizeof *out->resolved);
    if (!ids || !out->kind || !out->is_backbone || !out->position || !out->resolved) return false;
    out->asym_id = ids;
    out->entity_id = ids + (n_token + 1);
    out->number = ids + 2 * (n_token + 1);
    out->first_atom = ids + 3 * (n_token + 1);
    out->centre = ids + 4 * (n_token + 1);
    out->residue = ids + 5 * (n_token + 1);
    out->first_atom[0] = 0;
    return true;
}

static bool is_backbone(const fm_assembly *assembly, const fm_assembly_atom *atom) {
    static const char *const names[] = {"N", "CA", "C", "O"};
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        found |= strncmp(atom->name, names[i], FM_COMPONENT_NAME) == 0;
    return found && assembly->residues[atom->residue].molecule == FM_MOLECULE_PROTEIN;
}

/* Appends an atom of the model, with the position that `chain` of `from` has. */
static void append_atom(layout *out, uint32_t model, uint32_t atom, const fm_assembly *from,
                        uint32_t chain, const uint32_t *places) {
    static const float nowhere[3];
    const uint32_t found = find_resolved(out->predicted, model, atom, from, chain, places);
    const float *position = found == NONE ? nowhere : from->atoms[found].position;
    memcpy(out->position + 3 * out->n_atom, position, sizeof nowhere);
    out->resolved[out->n_atom] = found == NONE ? 0 : 1;
    out->is_backbone[out->n_atom] = is_backbone(out->predicted, &out->predicted->atoms[atom]);
    out->n_atom++;
}

/* Appends the tokens of a chain, which are those of its model that have atoms that count. */
static void append_chain(layout *out, uint32_t model, const fm_assembly *from, uint32_t chain,
                         const uint32_t *places, int64_t asym_id, int64_t entity_id) {
    const fm_assembly *p = out->predicted;
    for (uint32_t t = p->chains[model].first_token; t < end_token(p, model); t++) {
        const fm_assembly_token *token = &p->tokens[t];
        const int64_t first = out->n_atom;
        int64_t centre = -1;
        for (uint32_t atom = token->first_atom; atom < token->first_atom + token->n_atom; atom++) {
            if (!out->is_counted[atom]) continue;
            if (atom == token->centre) centre = out->n_atom;
            append_atom(out, model, atom, from, chain, places);
        }
        if (out->n_atom == first) continue;
        out->asym_id[out->n_token] = asym_id;
        out->entity_id[out->n_token] = entity_id;
        out->number[out->n_token] = t - p->chains[model].first_token;
        out->centre[out->n_token] = centre;
        out->residue[out->n_token] = token->residue - p->chains[model].first_residue;
        out->kind[out->n_token] = p->chains[model].molecule;
        out->first_atom[++out->n_token] = out->n_atom;
    }
}

/* -- symmetric atoms */

typedef struct order_list {
    const fm_assembly *predicted;
    const fm_complex_features *features;
    const bool *is_counted;
    fm_arena *arena;
    fm_atom_orders *items;
    int64_t n;
} order_list;

/* Writes column `c` of a residue's block [n, n_column] for the atoms that count: place[i] is the
 * number among them, or -1. Returns whether it keeps them among themselves. */
static bool write_order(const int16_t *block, int64_t n, int64_t n_column, int64_t c,
                        const int32_t *place, int32_t *order) {
    for (int64_t i = 0; i < n; i++) {
        if (place[i] < 0) continue;
        order[place[i]] = place[block[i * n_column + c]];
        if (order[place[i]] < 0) return false;
    }
    return true;
}

/* Appends the orders of a residue of a model, whose first atom has number `at` in the layout. Moves
 * `at` behind its atoms. */
static bool append_orders(order_list *list, uint32_t residue, const int16_t *block, int64_t *at) {
    const int64_t n_column = list->features->permutation_count[residue];
    const uint32_t first = list->predicted->residues[residue].first_atom;
    const int64_t n = fm_assembly_residue_end_atom(list->predicted, residue) - first;
    int32_t *place = fm_arena_alloc_array(list->arena, (size_t)n, sizeof *place), n_counted = 0;
    if (!place) return false;
    for (int64_t i = 0; i < n; i++)
        place[i] = list->is_counted[first + i] ? n_counted++ : -1;
    const int64_t own = *at;
    *at += n_counted;
    if (n_column < 2 || n_counted < 2) return true;
    int32_t *orders =
        fm_arena_alloc_array(list->arena, (size_t)(n_column * n_counted), sizeof *orders);
    if (!orders) return false;
    int32_t n_order = 0;
    for (int64_t c = 0; c < n_column; c++)
        n_order += write_order(block, n, n_column, c, place, orders + (int64_t)n_order * n_counted);
    list->items[list->n++] =
        (fm_atom_orders){.first = own, .n = n_counted, .n_order = n_order, .order = orders};
    return true;
}

/* Lists the orders of all chains of the layout, in their order. */
static fm_status list_orders(order_list *list, const chain_kinds *kinds, fm_error *reterr) {
    const fm_assembly *p = list->predicted;
    const int16_t **blocks = fm_arena_alloc_array(list->arena, p->n_residue, sizeof *blocks);
    uint64_t n = 0;
    for (uint32_t c = 0; c < p->n_chain; c++)
        n += count_residues(p, c);
    list->items = fm_arena_alloc_array(list->arena, n, sizeof *list->items);
    if (!blocks || !list->items) return fm_arena_full(list->arena, reterr);
    const int16_t *block = list->features->permutations;
    for (uint32_t r = 0; r < p->n_residue; r++) {
        blocks[r] = block;
        block += (size_t)list->features->permutation_count[r] *
                 (fm_assembly_residue_end_atom(p, r) - p->residues[r].first_atom);
    }
    int64_t at = 0;
    for (uint32_t c = 0; c < p->n_chain; c++) {
        if (kinds->of_predicted[c] == NONE) continue;
        const uint32_t model = kinds->model[kinds->of_predicted[c]];
        for (uint32_t r = p->chains[model].first_residue; r < end_residue(p, model); r++)
            if (!append_orders(list, r, blocks[r], &at)) return fm_arena_full(list->arena, reterr);
    }
    return FM_OK;
}

/* -- all */

/* Predicted chains have the number of the true chain of their name, so that equal fits keep it. */
static int64_t number_of_name(const fm_assembly *predicted, uint32_t chain,
                              const fm_assembly *truth) {
    for (uint32_t c = 0; c < truth->n_chain; c++)
        if (strcmp(truth->chains[c].id, predicted->chains[chain].id) == 0) return c;
    return (int64_t)truth->n_chain + chain;
}

static fm_status lay_out(const fm_assembly *predicted, const fm_assembly *truth,
                         const chain_kinds *kinds, fm_arena *arena, layout *made, layout *known,
                         fm_score_match *match, fm_error *reterr) {
    size_t n_token = 0, n_atom = 0;
    uint32_t *chain = fm_arena_alloc_array(arena, predicted->n_chain, sizeof *chain);
    for (uint32_t c = 0; c < truth->n_chain; c++) {
        const uint32_t model = kinds->model[kinds->of_true[c]];
        if (model == NONE) continue;
        n_token += end_token(predicted, model) - predicted->chains[model].first_token;
        n_atom +=
            fm_assembly_chain_end_atom(predicted, model) - predicted->chains[model].first_atom;
    }
    if (!chain || !make_layout(known, n_token, n_atom, arena) ||
        !make_layout(made, predicted->n_token, predicted->n_atom, arena)) {
        return fm_arena_full(arena, reterr);
    }
    for (uint32_t c = 0; c < truth->n_chain; c++) {
        const uint32_t kind = kinds->of_true[c], model = kinds->model[kind];
        if (model != NONE) append_chain(known, model, truth, c, kinds->place[kind], c, kind);
    }
    for (uint32_t c = 0; c < predicted->n_chain; c++) {
        const uint32_t kind = kinds->of_predicted[c];
        const int64_t before = made->n_token;
        if (kind == NONE) continue;
        append_chain(made, kinds->model[kind], predicted, c, NULL,
                     number_of_name(predicted, c, truth), kind);
        if (made->n_token > before) chain[match->n_chain++] = c;
    }
    match->chain = chain;
    return FM_OK;
}

static const fm_labelled_complex *describe(const layout *from, fm_arena *arena) {
    fm_labelled_complex *out = fm_arena_alloc(arena, sizeof *out);
    if (!out) return NULL;
    *out = (fm_labelled_complex){.n_token = from->n_token,
                                 .n_atom = from->n_atom,
                                 .asym_id = from->asym_id,
                                 .entity_id = from->entity_id,
                                 .number = from->number,
                                 .first_atom = from->first_atom,
                                 .centre = from->centre,
                                 .position = from->position};
    return out;
}

static_assert((int)FM_CHAIN_PROTEIN == FM_MOLECULE_PROTEIN &&
                  (int)FM_CHAIN_RNA == FM_MOLECULE_RNA && (int)FM_CHAIN_DNA == FM_MOLECULE_DNA &&
                  (int)FM_CHAIN_LIGAND == FM_MOLECULE_LIGAND,
              "kinds of chains are those of molecules");

fm_status fm_score_match_make(const fm_assembly *predicted, const fm_assembly *truth,
                              fm_arena *arena, fm_score_match *ret_match, fm_error *reterr) {
    chain_kinds kinds;
    fm_complex_features features;
    fm_score_match match = {.n_chain = 0};
    bool *is_counted = fm_arena_alloc(arena, predicted->n_atom);
    if (!is_counted) return fm_arena_full(arena, reterr);
    fm_status status = find_kinds(predicted, truth, arena, &kinds, reterr);
    if (status) return status;
    mark_counted(predicted, &kinds, is_counted);
    layout made = {.predicted = predicted, .is_counted = is_counted}, known = made;
    order_list orders = {
        .predicted = predicted, .features = &features, .is_counted = is_counted, .arena = arena};
    status = lay_out(predicted, truth, &kinds, arena, &made, &known, &match, reterr);
    if (!status) {
        status = fm_complex_features_make(predicted, NULL, 0, NULL, arena, &features, reterr);
    }
    if (!status) status = list_orders(&orders, &kinds, reterr);
    if (status) return status;
    match.pair = (fm_compared_complex){.predicted = describe(&made, arena),
                                       .truth = describe(&known, arena),
                                       .resolved = known.resolved,
                                       .orders = orders.items,
                                       .n_orders = orders.n,
                                       .kind = made.kind,
                                       .residue = made.residue,
                                       .is_backbone = made.is_backbone};
    match.n_same = kinds.n_same;
    if (!match.pair.predicted || !match.pair.truth) return fm_arena_full(arena, reterr);
    *ret_match = match;
    return FM_OK;
}
