/* paired_rows.c: see paired_rows.h. */
#include "featurizer/complex/paired_rows.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SPECIES_ROWS = 600 /* of one species that are paired; AlphaFold-Multimer's code */ };

/* A row that names its species. */
typedef struct named_row {
    uint64_t key; /* first eight bytes of the species: in order as they are, zeros behind */
    fm_bytes species;
    uint32_t chain, row;
    uint32_t n; /* in the first row of a species and chain: how many rows they have */
} named_row;

/* The rows of one species: named[first .. first + n), by chain and row. */
typedef struct group {
    const named_row *named;
    uint32_t n, n_chain;
    uint32_t n_row; /* paired rows that it gives: the least of its chains has, at most 600 */
} group;

/* One paired row before all are sorted. */
typedef struct candidate {
    float rank;
    uint32_t index; /* among all candidates, so that sorting is stable */
    uint32_t group, place;
} candidate;

typedef struct pairing {
    const fm_paired_chain *chains;
    uint32_t n_chain;
    fm_arena *arena;
    uint32_t max_paired;
    group *groups;
    uint32_t n_group;
    int32_t **row; /* [n_chain][max_paired] */
    uint32_t n;
} pairing;

static int compare_bytes(fm_bytes a, fm_bytes b) {
    size_t n = a.size < b.size ? a.size : b.size;
    int order = n ? memcmp(a.data, b.data, n) : 0;
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

static uint64_t key_of(fm_bytes species) {
    uint64_t key = 0;
    for (size_t i = 0; i < sizeof key; i++)
        key = key << 8 | (i < species.size ? species.data[i] : 0);
    return key;
}

/* The same order as that of the bytes. */
static int compare_species(const named_row *a, const named_row *b) {
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return compare_bytes(a->species, b->species);
}

static int compare_named(const void *left, const void *right) {
    const named_row *a = left, *b = right;
    int order = compare_species(a, b);
    if (order) return order;
    if (a->chain != b->chain) return a->chain < b->chain ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

/* By the first chain that has the species, then by name. */
static int compare_groups(const void *left, const void *right) {
    const named_row *a = ((const group *)left)->named, *b = ((const group *)right)->named;
    if (a->chain != b->chain) return a->chain < b->chain ? -1 : 1;
    return compare_bytes(a->species, b->species);
}

static int compare_candidates(const void *left, const void *right) {
    const candidate *a = left, *b = right;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

static bool takes_part(const fm_paired_chain *chain) {
    const fm_sequence_rows *rows = chain->paired;
    return chain->polymer == FM_POLYMER_PEPTIDE_L && (rows->n_row > 1 || rows->species[0].size > 0);
}

/* Fills a group with the rows from `first` on that have its species, and their `n`. */
static group group_at(named_row *named, uint32_t first, uint32_t n_named) {
    group found = {.named = named + first, .n_row = SPECIES_ROWS};
    for (uint32_t i = first; i < n_named;) {
        uint32_t chain = named[i].chain, n = 0, start = i;
        if (compare_species(&named[i], &named[first]) != 0) break;
        while (i < n_named && named[i].chain == chain &&
               compare_species(&named[i], &named[first]) == 0) {
            i++;
            n++;
        }
        named[start].n = n;
        found.n += n;
        found.n_chain++;
        if (n < found.n_row) found.n_row = n;
    }
    return found;
}

/* Finds the species that at least two chains have. */
static fm_status group_species(pairing *p, fm_error *reterr) {
    size_t most = 0;
    uint32_t n = 0;
    for (uint32_t c = 0; c < p->n_chain; c++)
        most += takes_part(&p->chains[c]) ? p->chains[c].paired->n_row : 0;
    named_row *named = fm_arena_alloc_array(p->arena, most, sizeof *named);
    p->groups = fm_arena_alloc_array(p->arena, most, sizeof *p->groups);
    if (!named || !p->groups) return fm_arena_full(p->arena, reterr);
    for (uint32_t c = 0; c < p->n_chain; c++) {
        const fm_sequence_rows *rows = p->chains[c].paired;
        if (!takes_part(&p->chains[c])) continue;
        for (uint32_t i = 0; i < rows->n_row; i++) {
            if (rows->species[i].size == 0) continue;
            named[n++] = (named_row){key_of(rows->species[i]), rows->species[i], c, i, 0};
        }
    }
    if (n > 0) qsort(named, n, sizeof *named, compare_named);
    for (uint32_t i = 0; i < n;) {
        group found = group_at(named, i, n);
        if (found.n_chain > 1) p->groups[p->n_group++] = found;
        i += found.n;
    }
    if (p->n_group > 0) qsort(p->groups, p->n_group, sizeof *p->groups, compare_groups);
    return FM_OK;
}

/* Writes the rows of the chains that stand beside each other in paired row `place` of a group. */
static void rows_of(const pairing *p, const group *from, uint32_t place, int32_t *rows) {
    for (uint32_t c = 0; c < p->n_chain; c++)
        rows[c] = FM_ROW_GAP;
    for (uint32_t i = 0; i < from->n; i += from->named[i].n)
        rows[from->named[i].chain] = (int32_t)from->named[i + place].row;
}

/* The order in which NumPy adds up to 128 float32 numbers: one after the other, and from eight on
 * in eight sums. */
static float sum_as_numpy(const float *value, uint32_t n) {
    float sum = 0;
    if (n < 8 || n > 128) {
        for (uint32_t i = 0; i < n; i++)
            sum += value[i];
        return sum;
    }
    float part[8];
    memcpy(part, value, sizeof part);
    uint32_t i = 8;
    for (; i + 8 <= n; i += 8) {
        for (uint32_t k = 0; k < 8; k++)
            part[k] += value[i + k];
    }
    sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    for (; i < n; i++)
        sum += value[i];
    return sum;
}

/* A row's rank: rows near the top of their alignments, which are most like the query, come first. A
 * chain without the species counts as row 1. */
static float rank_of(const int32_t *rows, uint32_t n_chain, float *scratch) {
    for (uint32_t c = 0; c < n_chain; c++) {
        float distance = fabsf((float)rows[c]) + 1e-10f;
        scratch[c] = (float)log((double)distance);
    }
    return sum_as_numpy(scratch, n_chain);
}

/* Appends the paired rows of all species that exactly `n_chain` chains have. */
static fm_status pair_among(pairing *p, uint32_t n_chain, fm_error *reterr) {
    size_t most = 0, mark = fm_arena_mark(p->arena);
    uint32_t n = 0;
    for (uint32_t g = 0; g < p->n_group; g++)
        most += p->groups[g].n_chain == n_chain ? p->groups[g].n_row : 0;
    candidate *found = fm_arena_alloc_array(p->arena, most, sizeof *found);
    int32_t *rows = fm_arena_alloc_array(p->arena, p->n_chain, sizeof *rows);
    float *scratch = fm_arena_alloc_array(p->arena, p->n_chain, sizeof *scratch);
    if (!found || !rows || !scratch) return fm_arena_full(p->arena, reterr);
    for (uint32_t g = 0; g < p->n_group; g++) {
        if (p->groups[g].n_chain != n_chain) continue;
        for (uint32_t place = 0; place < p->groups[g].n_row; place++, n++) {
            rows_of(p, &p->groups[g], place, rows);
            found[n] = (candidate){rank_of(rows, p->n_chain, scratch), n, g, place};
        }
    }
    if (n > 0) qsort(found, n, sizeof *found, compare_candidates);
    for (uint32_t i = 0; i < n && p->n < p->max_paired; i++, p->n++) {
        rows_of(p, &p->groups[found[i].group], found[i].place, rows);
        for (uint32_t c = 0; c < p->n_chain; c++)
            p->row[c][p->n] = rows[c];
    }
    fm_arena_rewind(p->arena, mark);
    return FM_OK;
}

/* Returns whether the chains have more than one distinct protein sequence. */
static bool has_two_proteins(const fm_paired_chain *chains, uint32_t n_chain) {
    const fm_paired_chain *first = NULL;
    for (uint32_t c = 0; c < n_chain; c++) {
        if (chains[c].polymer != FM_POLYMER_PEPTIDE_L) continue;
        if (!first) first = &chains[c];
        if (compare_bytes(first->sequence, chains[c].sequence) != 0) return true;
    }
    return false;
}

/* -- unpaired rows */

static bool is_all_gaps(const fm_sequence_rows *rows, int32_t row) {
    if (row == FM_ROW_GAP) return true;
    const uint8_t *ids = rows->ids + (size_t)row * rows->n_col;
    for (uint32_t k = 0; k < rows->n_col; k++)
        if (ids[k] != FM_RESTYPE32_GAP) return false;
    return true;
}

static bool equals_row(const fm_sequence_rows *a, uint32_t i, const fm_sequence_rows *b,
                       uint32_t j) {
    return a->hash[i] == b->hash[j] &&
           memcmp(a->ids + (size_t)i * a->n_col, b->ids + (size_t)j * b->n_col, a->n_col) == 0;
}

/* A set of the rows of one chain that are in its paired block. Slots are row + 1, 0 when free. */
typedef struct row_set {
    const fm_sequence_rows *rows;
    uint32_t *slots;
    size_t mask;
    bool has_gaps; /* a row of gaps alone is in it */
} row_set;

static fm_status init_set(row_set *set, const fm_sequence_rows *rows, const int32_t *paired,
                          uint32_t n, fm_arena *arena, fm_error *reterr) {
    size_t n_slot = 16;
    while (n_slot < (size_t)n * 2)
        n_slot *= 2;
    *set = (row_set){rows, fm_arena_calloc(arena, n_slot, sizeof *set->slots), n_slot - 1, false};
    if (!set->slots) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < n; i++) {
        if (paired[i] == FM_ROW_GAP) {
            set->has_gaps = true;
            continue;
        }
        size_t at = rows->hash[paired[i]] & set->mask;
        while (set->slots[at])
            at = (at + 1) & set->mask;
        set->slots[at] = (uint32_t)paired[i] + 1;
    }
    return FM_OK;
}

static bool set_has(const row_set *set, const fm_sequence_rows *rows, uint32_t row) {
    size_t at = rows->hash[row] & set->mask;
    for (; set->slots[at]; at = (at + 1) & set->mask) {
        if (equals_row(set->rows, set->slots[at] - 1, rows, row)) return true;
    }
    return false;
}

/* Lists the chain's unpaired rows that are not in its paired block, at most `most`. Returns through
 * ret_n how many there are in all. A row of gaps alone is FM_ROW_GAP. */
static fm_status list_unpaired(const fm_paired_chain *chain, const int32_t *paired,
                               uint32_t n_paired, bool keeps_all, uint32_t most, int32_t *row,
                               uint32_t *ret_n, fm_arena *arena, fm_error *reterr) {
    size_t mark = fm_arena_mark(arena);
    row_set set;
    fm_status status = init_set(&set, chain->paired, paired, n_paired, arena, reterr);
    if (status) return status;
    uint32_t n = 0;
    for (uint32_t i = 0; i < chain->unpaired->n_row; i++) {
        bool is_gaps = is_all_gaps(chain->unpaired, (int32_t)i);
        bool is_paired = (is_gaps && set.has_gaps) || set_has(&set, chain->unpaired, i);
        if (is_paired && !keeps_all) continue;
        if (n < most) row[n] = is_gaps ? FM_ROW_GAP : (int32_t)i;
        n++;
    }
    for (uint32_t i = n; i < most; i++)
        row[i] = FM_ROW_GAP;
    *ret_n = n < most ? n : most;
    fm_arena_rewind(arena, mark);
    return FM_OK;
}

/* -- everything */

static fm_status allocate(pairing *p, uint32_t max_row, fm_error *reterr) {
    p->row = fm_arena_alloc_array(p->arena, p->n_chain, sizeof *p->row);
    if (!p->row) return fm_arena_full(p->arena, reterr);
    for (uint32_t c = 0; c < p->n_chain; c++) {
        p->row[c] = fm_arena_alloc_array(p->arena, max_row, sizeof **p->row);
        if (!p->row[c]) return fm_arena_full(p->arena, reterr);
        p->row[c][0] = 0;
    }
    p->n = 1;
    return FM_OK;
}

/* Drops the paired rows that have no letter in any chain. */
static void drop_empty(pairing *p) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        bool has_letter = false;
        for (uint32_t c = 0; c < p->n_chain && !has_letter; c++)
            has_letter = !is_all_gaps(p->chains[c].paired, p->row[c][i]);
        if (!has_letter) continue;
        for (uint32_t c = 0; c < p->n_chain; c++)
            p->row[c][n] = p->row[c][i];
        n++;
    }
    p->n = n;
}

/* Chains that are no proteins repeat their first row where they would have gaps. */
static void fill_others(const pairing *p, uint32_t n_row) {
    for (uint32_t c = 0; c < p->n_chain; c++) {
        if (p->chains[c].polymer == FM_POLYMER_PEPTIDE_L) continue;
        const fm_sequence_rows *paired = p->chains[c].paired;
        for (uint32_t i = 0; i < n_row; i++) {
            bool is_paired = i < p->n;
            if (is_paired ? is_all_gaps(paired, p->row[c][i]) : p->row[c][i] == FM_ROW_GAP) {
                p->row[c][i] = 0;
            }
        }
    }
}

static fm_status add_unpaired(pairing *p, bool keeps_all, uint32_t max_row,
                              fm_paired_rows *ret_rows, fm_error *reterr) {
    uint32_t most = max_row - p->n, deepest = 0, protein = 0, rna = 0;
    for (uint32_t c = 0; c < p->n_chain; c++) {
        uint32_t n;
        fm_status status = list_unpaired(&p->chains[c], p->row[c], p->n, keeps_all, most,
                                         p->row[c] + p->n, &n, p->arena, reterr);
        if (status) return status;
        if (n > deepest) deepest = n;
        if (p->chains[c].polymer == FM_POLYMER_PEPTIDE_L && n > protein) protein = n;
        if (p->chains[c].polymer == FM_POLYMER_RNA && n > rna) rna = n;
    }
    ret_rows->n_row = p->n + deepest;
    ret_rows->n_unpaired_protein = protein ? protein : 1;
    ret_rows->n_unpaired_rna = rna ? rna : 1;
    return FM_OK;
}

fm_status fm_paired_rows_plan(const fm_paired_chain *chains, uint32_t n_chain,
                              const fm_paired_options *options, fm_arena *arena,
                              fm_paired_rows *ret_rows, fm_error *reterr) {
    assert(n_chain > 0 && options->max_row > 1);
    pairing p = {
        .chains = chains, .n_chain = n_chain, .arena = arena, .max_paired = options->max_row / 2};
    bool pairs = has_two_proteins(chains, n_chain);
    fm_status status = allocate(&p, options->max_row, reterr);
    size_t mark = fm_arena_mark(arena);
    if (!status && pairs) {
        status = group_species(&p, reterr);
        for (uint32_t k = n_chain; k > 1 && !status && p.n < p.max_paired; k--)
            status = pair_among(&p, k, reterr);
        drop_empty(&p);
        fm_arena_rewind(arena, mark);
    }
    if (!status) {
        bool keeps_all = !pairs && options->repeats_query;
        status = add_unpaired(&p, keeps_all, options->max_row, ret_rows, reterr);
    }
    if (status) return status;
    ret_rows->n_paired = p.n;
    ret_rows->n_chain = n_chain;
    ret_rows->row = p.row;
    fill_others(&p, ret_rows->n_row);
    return FM_OK;
}

void fm_paired_rows_gather(const fm_paired_rows *rows, const fm_paired_chain *chains, uint32_t row,
                           const fm_paired_column *columns, uint32_t n_column, uint8_t *ret_ids,
                           uint8_t *ret_deletion) {
    bool is_paired = row < rows->n_paired;
    for (uint32_t i = 0; i < n_column;) {
        uint32_t c = columns[i].chain;
        int32_t from = rows->row[c][row];
        const fm_sequence_rows *source = is_paired ? chains[c].paired : chains[c].unpaired;
        size_t first = from == FM_ROW_GAP ? 0 : (size_t)from * source->n_col;
        for (; i < n_column && columns[i].chain == c; i++) {
            size_t at = first + columns[i].column;
            ret_ids[i] = from == FM_ROW_GAP ? FM_RESTYPE32_GAP : source->ids[at];
            ret_deletion[i] = from == FM_ROW_GAP ? 0 : source->deletion[at];
        }
    }
}
