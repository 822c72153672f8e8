/* records.c: lists and weighs the chains and interfaces that training draws; see records.h. */
#include "featurizer/complex/records.h"

#include "featurizer/complex/glycans.h"

#include <stdlib.h>
#include <string.h>

enum { CLUSTERED_RESIDUES = 10 };
static const char no_cluster[] = "NotInClusterTxt";

const char *fm_record_kind_name(fm_record_kind kind) {
    static const char *const names[FM_N_RECORD_KIND] = {"prot", "nuc", "ligand", "ions"};
    return names[kind];
}

/* -- records */

static uint32_t end_of_residues(const fm_assembly *assembly, uint32_t chain) {
    return chain + 1 < assembly->n_chain ? assembly->chains[chain + 1].first_residue
                                         : assembly->n_residue;
}

static bool is_ion(const fm_assembly *assembly, uint32_t chain, bool compat_protenix) {
    uint32_t first = assembly->chains[chain].first_residue;
    if (!compat_protenix) {
        return fm_assembly_chain_end_atom(assembly, chain) - assembly->chains[chain].first_atom ==
               1;
    }
    for (uint32_t r = first; r < end_of_residues(assembly, chain); r++) {
        if (!fm_component_is_glycan(assembly->residues[r].name)) return false;
    }
    return true;
}

static fm_record_kind kind_of(const fm_assembly *assembly, uint32_t chain, bool compat_protenix) {
    switch ((fm_polymer)assembly->entities[assembly->chains[chain].entity].polymer) {
    case FM_POLYMER_PEPTIDE_L:
    case FM_POLYMER_PEPTIDE_D: return FM_RECORD_PROTEIN;
    case FM_POLYMER_RNA:
    case FM_POLYMER_DNA:
    case FM_POLYMER_HYBRID: return FM_RECORD_NUCLEIC;
    default: return is_ion(assembly, chain, compat_protenix) ? FM_RECORD_IONS : FM_RECORD_LIGAND;
    }
}

/* Joins the names of a chain's components by "_". */
static const char *join_components(const fm_assembly *assembly, uint32_t chain, fm_arena *arena) {
    uint32_t first = assembly->chains[chain].first_residue;
    uint32_t end = end_of_residues(assembly, chain);
    char *text = fm_arena_alloc_array(arena, (size_t)(end - first) + 1, FM_COMPONENT_ID);
    size_t n = 0;
    if (!text) return NULL;
    for (uint32_t r = first; r < end; r++) {
        size_t size = strnlen(assembly->residues[r].name, FM_COMPONENT_ID);
        if (r > first) text[n++] = '_';
        memcpy(text + n, assembly->residues[r].name, size);
        n += size;
    }
    text[n] = '\0';
    return text;
}

bool fm_complex_record_is_clustered(const fm_assembly_entity *entity) {
    return entity->polymer == FM_POLYMER_PEPTIDE_L && entity->sequence &&
           entity->n_residue >= CLUSTERED_RESIDUES;
}

/* Returns NULL when the arena is full. */
static const char *cluster_of(const fm_assembly *assembly, uint32_t chain, fm_record_kind kind,
                              const fm_record_options *options, fm_arena *arena) {
    const fm_assembly_entity *entity = &assembly->entities[assembly->chains[chain].entity];
    if (kind == FM_RECORD_LIGAND || kind == FM_RECORD_IONS || !entity->sequence) {
        return join_components(assembly, chain, arena);
    }
    bool is_unknown = options->compat_protenix && fm_complex_record_is_clustered(entity);
    return is_unknown ? no_cluster : entity->sequence;
}

/* Returns both texts in order, joined by ":"; NULL when the arena is full. */
static const char *join_clusters(const char *a, const char *b, fm_arena *arena) {
    if (strcmp(a, b) > 0) {
        const char *kept = a;
        a = b;
        b = kept;
    }
    size_t n_a = strlen(a), n_b = strlen(b);
    char *text = fm_arena_alloc(arena, n_a + n_b + 2);
    if (!text) return NULL;
    memcpy(text, a, n_a);
    text[n_a] = ':';
    memcpy(text + n_a + 1, b, n_b + 1);
    return text;
}

static bool is_resolved(const fm_assembly *assembly, uint32_t chain) {
    uint32_t end = fm_assembly_chain_end_atom(assembly, chain);
    for (uint32_t a = assembly->chains[chain].first_atom; a < end; a++) {
        if (assembly->atoms[a].is_centre && assembly->atoms[a].is_resolved) return true;
    }
    return false;
}

/* Returns whether an earlier interface is between the same entities. */
static bool is_known(const fm_assembly *assembly, const fm_complex_record *records, uint32_t n,
                     const fm_assembly_pair *pair) {
    uint32_t a = assembly->chains[pair->a].entity, b = assembly->chains[pair->b].entity;
    for (uint32_t i = 0; i < n; i++) {
        if (records[i].is_interface && assembly->chains[records[i].chain[0]].entity == a &&
            assembly->chains[records[i].chain[1]].entity == b) {
            return true;
        }
    }
    return false;
}

/* Fills one side of a record. */
static void set_side(const fm_assembly *assembly, uint32_t side, uint32_t chain,
                     const uint8_t *kinds, const char *const *clusters, fm_complex_record *record) {
    record->chain[side] = chain;
    record->side[side] = clusters[chain];
    record->entity[side] = assembly->entities[assembly->chains[chain].entity].id;
    record->kind[side] = kinds[chain];
}

fm_status fm_complex_records_list(const fm_assembly *assembly, const fm_record_options *options,
                                  fm_arena *arena, const fm_complex_record **ret_records,
                                  uint32_t *ret_n, fm_error *reterr) {
    uint32_t n = 0, n_chain = assembly->n_chain;
    fm_complex_record *records =
        fm_arena_calloc(arena, (size_t)n_chain + assembly->n_pair, sizeof *records);
    uint8_t *kinds = fm_arena_alloc(arena, n_chain);
    const char **clusters = fm_arena_alloc_array(arena, n_chain, sizeof *clusters);
    if (!records || !kinds || !clusters) return fm_arena_full(arena, reterr);
    for (uint32_t c = 0; c < n_chain; c++) {
        kinds[c] = (uint8_t)kind_of(assembly, c, options->compat_protenix);
        clusters[c] = cluster_of(assembly, c, (fm_record_kind)kinds[c], options, arena);
        if (!clusters[c]) return fm_arena_full(arena, reterr);
        if (assembly->chains[c].is_expanded || !is_resolved(assembly, c)) continue;
        set_side(assembly, 0, c, kinds, clusters, &records[n]);
        records[n].entity[1] = records[n].side[1] = "";
        records[n++].cluster = clusters[c];
    }
    for (uint32_t p = 0; p < assembly->n_pair; p++) {
        const fm_assembly_pair *pair = &assembly->pairs[p];
        if (is_known(assembly, records, n, pair)) continue;
        records[n].is_interface = true;
        set_side(assembly, 0, pair->a, kinds, clusters, &records[n]);
        set_side(assembly, 1, pair->b, kinds, clusters, &records[n]);
        records[n].cluster = join_clusters(clusters[pair->a], clusters[pair->b], arena);
        if (!records[n++].cluster) return fm_arena_full(arena, reterr);
    }
    *ret_records = records;
    *ret_n = n;
    return FM_OK;
}

bool fm_complex_record_is_drawn(const fm_complex_record *record) {
    return record->kind[0] != FM_RECORD_IONS &&
           !(record->is_interface && record->kind[1] == FM_RECORD_IONS);
}

/* -- weights */

uint32_t fm_complex_record_share(bool is_interface, const uint8_t kind[2]) {
    static const uint32_t shares[FM_N_RECORD_KIND] = {3, 3, 1, 0};
    return is_interface ? 2 * (shares[kind[0]] + shares[kind[1]]) : shares[kind[0]];
}

/* Compares entry and entities; the two entities of an interface count in either order. */
static int compare_members(const fm_weighted_record *a, const fm_weighted_record *b) {
    const char *ids[2][2];
    if (a->record->is_interface != b->record->is_interface) return a->record->is_interface ? 1 : -1;
    int order = strcmp(a->entry, b->entry);
    for (int k = 0; k < 2; k++) {
        const fm_complex_record *record = k ? b->record : a->record;
        bool is_swapped = record->is_interface && strcmp(record->entity[0], record->entity[1]) > 0;
        ids[k][0] = record->entity[is_swapped];
        ids[k][1] = record->entity[!is_swapped];
    }
    if (!order) order = strcmp(ids[0][0], ids[1][0]);
    return order ? order : strcmp(ids[0][1], ids[1][1]);
}

static int by_member(const void *left, const void *right) {
    const fm_weighted_record *const *a = left, *const *b = right;
    return compare_members(*a, *b);
}

static int by_cluster(const void *left, const void *right) {
    const fm_weighted_record *const *a = left, *const *b = right;
    bool is_interface = (*a)->record->is_interface;
    if (is_interface != (*b)->record->is_interface) return is_interface ? 1 : -1;
    int order = strcmp((*a)->record->cluster, (*b)->record->cluster);
    return order ? order : compare_members(*a, *b);
}

static bool is_same_cluster(const fm_weighted_record *a, const fm_weighted_record *b) {
    return a->record->is_interface == b->record->is_interface &&
           strcmp(a->record->cluster, b->record->cluster) == 0;
}

static double weight_of(const fm_weighted_record *row) {
    double share = fm_complex_record_share(row->record->is_interface, row->record->kind);
    return share / 2 / ((double)row->cluster_size + 1e-9) / (double)row->n_member;
}

fm_status fm_complex_records_weigh(fm_weighted_record *rows, uint32_t n, fm_arena *arena,
                                   fm_error *reterr) {
    size_t mark = fm_arena_mark(arena);
    fm_weighted_record **sorted = fm_arena_alloc_array(arena, n, sizeof *sorted);
    if (!sorted) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < n; i++)
        sorted[i] = &rows[i];
    qsort(sorted, n, sizeof *sorted, by_member);
    for (uint32_t first = 0, end; first < n; first = end) {
        end = first + 1;
        while (end < n && compare_members(sorted[first], sorted[end]) == 0)
            end++;
        for (uint32_t i = first; i < end; i++)
            sorted[i]->n_member = end - first;
    }
    qsort(sorted, n, sizeof *sorted, by_cluster);
    for (uint32_t first = 0, end; first < n; first = end) {
        uint32_t size = 1;
        for (end = first + 1; end < n && is_same_cluster(sorted[first], sorted[end]); end++)
            size += compare_members(sorted[end - 1], sorted[end]) != 0;
        for (uint32_t i = first; i < end; i++)
            sorted[i]->cluster_size = size;
    }
    for (uint32_t i = 0; i < n; i++)
        rows[i].weight = weight_of(&rows[i]);
    fm_arena_rewind(arena, mark);
    return FM_OK;
}
