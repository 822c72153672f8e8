/* asym_symmetry.c: takes away bonds between chains that only some copies of the entities have; see
 * assemble.h.
 *
 * A site is an atom of a polymer: its entity, number, component and name. Bonds are taken from a
 * polymer's end, the site, to the other entity. If m is the smaller number of chains that either
 * entity has in bonds of this pair, a site must be bonded to exactly m chains of the other. */
#include "featurizer/complex/assemble.h"

#include <stdlib.h>

typedef struct link {
    uint32_t bond;
    uint32_t entity, other_entity;
    uint32_t chain, other_chain;
    int32_t number;
    char component[FM_COMPONENT_ID], name[FM_COMPONENT_NAME];
} link;

static int compare(uint32_t a, uint32_t b) {
    return a < b ? -1 : a > b;
}

static int compare_pairs(const link *a, const link *b) {
    int order = compare(a->entity, b->entity);
    return order ? order : compare(a->other_entity, b->other_entity);
}

static int compare_sites(const link *a, const link *b) {
    int order = compare_pairs(a, b);
    if (!order) order = a->number < b->number ? -1 : a->number > b->number;
    if (!order) order = memcmp(a->component, b->component, sizeof a->component);
    return order ? order : memcmp(a->name, b->name, sizeof a->name);
}

static int by_chain(const void *x, const void *y) {
    const link *a = x, *b = y;
    int order = compare_pairs(a, b);
    return order ? order : compare(a->chain, b->chain);
}

static int by_other_chain(const void *x, const void *y) {
    const link *a = x, *b = y;
    int order = compare_pairs(a, b);
    return order ? order : compare(a->other_chain, b->other_chain);
}

static int by_site(const void *x, const void *y) {
    const link *a = x, *b = y;
    int order = compare_sites(a, b);
    return order ? order : compare(a->other_chain, b->other_chain);
}

static link link_of(const fm_asym *asym, uint32_t bond, uint32_t a, uint32_t b) {
    const fm_asym_residue *residue = &asym->residues[asym->atoms[a].residue];
    const fm_asym_residue *other = &asym->residues[asym->atoms[b].residue];
    link item = {.bond = bond,
                 .entity = asym->chains[residue->label].entity,
                 .other_entity = asym->chains[other->label].entity,
                 .chain = residue->label,
                 .other_chain = other->label,
                 .number = residue->number};
    memcpy(item.component, residue->name, sizeof item.component);
    memcpy(item.name, asym->atoms[a].name, sizeof item.name);
    return item;
}

static uint32_t list_links(const fm_asym *asym, link *links) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < asym->n_bond; i++) {
        uint32_t a = asym->bonds[i].a, b = asym->bonds[i].b;
        uint32_t one = asym->atoms[a].residue, two = asym->atoms[b].residue;
        if (asym->residues[one].label == asym->residues[two].label) continue;
        bool is_polymer = fm_asym_is_polymer(asym, one);
        if (!is_polymer && !fm_asym_is_polymer(asym, two)) continue;
        if (links) links[n] = is_polymer ? link_of(asym, i, a, b) : link_of(asym, i, b, a);
        n++;
    }
    return n;
}

/* Marks the bonds of one pair of entities: links[0 .. n - 1], sorted by site. */
static void mark_pair(const link *links, uint32_t n, uint32_t m, bool *is_out) {
    for (uint32_t i = 0; i < n;) {
        uint32_t end = i, n_chain = 0;
        for (; end < n && compare_sites(&links[i], &links[end]) == 0; end++)
            n_chain += end == i || links[end].other_chain != links[end - 1].other_chain;
        for (; i < end; i++)
            if (n_chain != m) is_out[links[i].bond] = true;
    }
}

static void mark_asymmetric(link *links, uint32_t n, bool *is_out) {
    for (uint32_t i = 0; i < n;) {
        uint32_t end = i, n_chain = 0, n_other = 0;
        for (; end < n && compare_pairs(&links[i], &links[end]) == 0; end++)
            n_chain += end == i || links[end].chain != links[end - 1].chain;
        qsort(links + i, end - i, sizeof *links, by_other_chain);
        for (uint32_t k = i; k < end; k++)
            n_other += k == i || links[k].other_chain != links[k - 1].other_chain;
        qsort(links + i, end - i, sizeof *links, by_site);
        mark_pair(links + i, end - i, n_chain < n_other ? n_chain : n_other, is_out);
        i = end;
    }
}

fm_status fm_asym_drop_asymmetric(fm_asym *asym) {
    uint32_t n = list_links(asym, NULL);
    if (n == 0) return FM_OK;
    link *links = fm_arena_alloc_array(asym->arena, n, sizeof *links);
    bool *is_out = fm_arena_calloc(asym->arena, asym->n_bond, 1);
    if (!links || !is_out) return fm_asym_full(asym);
    list_links(asym, links);
    qsort(links, n, sizeof *links, by_chain);
    mark_asymmetric(links, n, is_out);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < asym->n_bond; i++)
        if (!is_out[i]) asym->bonds[kept++] = asym->bonds[i];
    asym->n_bond = kept;
    return FM_OK;
}
