/* asym_alternatives.c: chooses one alternative location for each residue; see asym.h.
 *
 * Residues with alternatives that follow one another in a chain are a group, which should take one
 * id together: that of the highest mean occupancy among the ids that all of them have. */
#include "featurizer/complex/asym.h"

typedef struct alternative {
    uint32_t id;
    uint32_t n;   /* residues that have it */
    double total; /* occupancy, of each of these the first atom's */
} alternative;

typedef struct alternatives {
    alternative items[FM_LIMIT_ALTERNATIVE + 1];
    uint32_t n;
} alternatives;

/* Atoms of one number of a chain, whatever their components. */
typedef struct position {
    uint32_t first_atom, end_atom;
    bool has_any; /* an alternative id */
} position;

static position position_at(const fm_asym *asym, uint32_t *residue) {
    const fm_asym_residue *first = &asym->residues[*residue];
    position at = {.first_atom = first->first_atom};
    while (*residue < asym->n_residue && asym->residues[*residue].label == first->label &&
           asym->residues[*residue].number == first->number)
        (*residue)++;
    at.end_atom = *residue < asym->n_residue ? asym->residues[*residue].first_atom : asym->n_atom;
    for (uint32_t k = at.first_atom; k < at.end_atom; k++)
        at.has_any |= asym->atoms[k].alt != 0;
    return at;
}

static fm_status fail_many(fm_asym *asym, uint32_t atom) {
    return fm_asym_fail(asym, FM_ERR_LIMIT, asym->atoms[atom].at,
                        "neighbouring residues have more than %u alternatives",
                        FM_LIMIT_ALTERNATIVE);
}

/* Lists the ids of a position in byte order, each with its first atom's occupancy. */
static fm_status list_ids(fm_asym *asym, const position *at, alternatives *ret) {
    ret->n = 0;
    for (uint32_t k = at->first_atom; k < at->end_atom; k++) {
        uint32_t id = asym->atoms[k].alt, place = 0;
        while (place < ret->n && ret->items[place].id < id)
            place++;
        if (place < ret->n && ret->items[place].id == id) continue;
        if (ret->n > FM_LIMIT_ALTERNATIVE) return fail_many(asym, k);
        memmove(ret->items + place + 1, ret->items + place, (ret->n - place) * sizeof *ret->items);
        ret->items[place] =
            (alternative){.id = id, .n = 1, .total = (double)asym->atoms[k].occupancy};
        ret->n++;
    }
    return FM_OK;
}

static fm_status add_position(fm_asym *asym, const position *at, alternatives *group) {
    alternatives own;
    fm_status status = list_ids(asym, at, &own);
    for (uint32_t i = 0; i < own.n && !status; i++) {
        uint32_t place = 0;
        while (place < group->n && group->items[place].id != own.items[i].id)
            place++;
        if (place < group->n) {
            group->items[place].n++;
            group->items[place].total += own.items[i].total;
        } else if (group->n > FM_LIMIT_ALTERNATIVE) {
            status = fail_many(asym, at->first_atom);
        } else {
            group->items[group->n++] = own.items[i];
        }
    }
    return status;
}

/* Sorts by mean occupancy downwards; of equal ones the first stays first. */
static void rank(alternatives *group) {
    for (uint32_t i = 1; i < group->n; i++) {
        alternative item = group->items[i];
        double mean = item.total / item.n;
        uint32_t k = i;
        for (; k > 0 && group->items[k - 1].total / group->items[k - 1].n < mean; k--)
            group->items[k] = group->items[k - 1];
        group->items[k] = item;
    }
}

static void keep_best(const fm_asym *asym, const position *at, const alternatives *group,
                      uint32_t n_position, bool *keep) {
    bool any_common = false;
    for (uint32_t i = 0; i < group->n; i++)
        any_common |= group->items[i].id != 0 && group->items[i].n == n_position;
    for (uint32_t i = 0; i < group->n; i++) {
        uint32_t id = group->items[i].id;
        if (id == 0 || (any_common && group->items[i].n != n_position)) continue;
        bool has_it = false;
        for (uint32_t k = at->first_atom; k < at->end_atom; k++)
            has_it |= asym->atoms[k].alt == id;
        if (!has_it) continue;
        for (uint32_t k = at->first_atom; k < at->end_atom; k++)
            keep[k] = asym->atoms[k].alt == id || asym->atoms[k].alt == 0;
        return;
    }
}

fm_status fm_asym_choose_alternatives(fm_asym *asym) {
    bool *keep = fm_arena_alloc(asym->arena, asym->n_atom);
    if (!keep) return fm_asym_full(asym);
    memset(keep, 1, asym->n_atom);
    for (uint32_t i = 0; i < asym->n_residue;) {
        uint32_t next = i, label = asym->residues[i].label, n_position = 0, end = i;
        alternatives group = {.n = 0};
        for (;;) {
            position at = position_at(asym, &next);
            if (!at.has_any) break;
            fm_status status = add_position(asym, &at, &group);
            if (status) return status;
            n_position++;
            end = next;
            if (next == asym->n_residue || asym->residues[next].label != label) break;
        }
        rank(&group);
        for (uint32_t k = i; k < end;) {
            position at = position_at(asym, &k);
            keep_best(asym, &at, &group, n_position, keep);
        }
        i = next;
    }
    return fm_asym_compact(asym, keep, "other alternatives go");
}
