/* af3_scores.c: compares the scores of complexes with those of the references.
 *
 *     af3_scores CONFIDENCE.npz DISORDER.npz
 *
 * The first file has cases CASE/in/ with logits and positions, CASE/protenix64/ with Protenix's
 * scores in double precision, and CASE/af3/ with those of AlphaFold 3's functions. The second has
 * chains with DSSP's surfaces. Prints a line for each group of numbers with its worst error and its
 * gate, and `parity: ok` or `parity: FAIL` last. */
#include "proto/base/file.h"
#include "tests/testing/testing.h"
#include "trainer/predict/complex/disorder.h"
#include "trainer/predict/complex/scores.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 256, MOST_GROUPS = 64, ROWS_AT_ONCE = 7 };
#define EXACT 0.0
#define DOUBLE 1e-12
#define STORED_F32 1e-7

typedef struct group {
    char name[KEY_BYTES];
    double worst, gate;
    uint64_t n;
} group;

static group groups[MOST_GROUPS];
static size_t n_group;
static const fm_npz *file;
static char scope[KEY_BYTES]; /* of the case: "mixed" */

/* -- comparing */

static group *find_group(const char *name, double gate) {
    for (size_t i = 0; i < n_group; i++) {
        if (strcmp(groups[i].name, name) == 0) return &groups[i];
    }
    assert(n_group < MOST_GROUPS);
    group *added = &groups[n_group++];
    snprintf(added->name, sizeof added->name, "%s", name);
    added->gate = gate;
    return added;
}

static const fm_npy *get(const char *key) {
    char text[2 * KEY_BYTES];
    snprintf(text, sizeof text, "%s/%s", scope, key);
    const fm_npy *array = fm_npz_find(file, text);
    if (!array) {
        fprintf(stderr, "af3_scores: the file has no array %s\n", text);
        exit(1);
    }
    return array;
}

static double value(const fm_npy *array, uint64_t i) {
    assert(i < array->count);
    if (!strcmp(array->dtype, "<i8")) return (double)((const int64_t *)array->data)[i];
    if (!strcmp(array->dtype, "<f8")) return ((const double *)array->data)[i];
    if (!strcmp(array->dtype, "<f4")) return (double)((const float *)array->data)[i];
    return ((const uint8_t *)array->data)[i];
}

/* Notes the norm of the difference from n numbers of the file, from `first` on, over the norm of
 * these numbers. NAN must be where NAN is. */
static void compare(const char *key, double gate, uint64_t first, const double *found, uint64_t n) {
    const fm_npy *array = get(key);
    double difference = 0, norm = 0;
    for (uint64_t i = 0; i < n; i++) {
        double expected = value(array, first + i);
        if (isnan(expected) || isnan(found[i])) {
            if (isnan(expected) != isnan(found[i])) difference = (double)INFINITY;
        } else {
            difference += (found[i] - expected) * (found[i] - expected);
            norm += expected * expected;
        }
    }
    group *to = find_group(key, gate);
    double error = norm > 0 ? sqrt(difference / norm) : sqrt(difference);
    to->worst = error > to->worst ? error : to->worst;
    to->n += n;
}

static void compare_f32(const char *key, uint64_t first, const float *found, uint64_t n) {
    double *copy = calloc(n ? n : 1, sizeof *copy);
    assert(copy);
    for (uint64_t i = 0; i < n; i++)
        copy[i] = (double)found[i];
    compare(key, STORED_F32, first, copy, n);
    free(copy);
}

static void compare_one(const char *key, double gate, uint64_t at, double found) {
    compare(key, gate, at, &found, 1);
}

static bool has(const char *key) {
    char text[2 * KEY_BYTES];
    snprintf(text, sizeof text, "%s/%s", scope, key);
    return fm_npz_find(file, text) != NULL;
}

/* -- a case of scores */

static void *allocate(fm_arena *arena, size_t n, size_t size) {
    void *data = fm_arena_calloc(arena, n, size);
    assert(data);
    return data;
}

/* Chains are numbered in the order of their asym_id, which may have gaps. */
static fm_complex_layout read_layout(fm_arena *arena) {
    const fm_npy *asym = get("in/asym_id"), *frame = get("in/has_frame");
    const fm_npy *polymer = get("in/atom_is_polymer"), *token = get("in/atom_to_token_idx");
    const fm_npy *residue = get("in/atom_res_id");
    const uint32_t n_token = (uint32_t)asym->count, n_atom = (uint32_t)token->count;
    int32_t *chain = allocate(arena, n_token, sizeof *chain);
    uint8_t *has_frame = allocate(arena, n_token, 1), *is_polymer = allocate(arena, n_token, 1);
    int32_t *atom_token = allocate(arena, n_atom, sizeof *atom_token);
    int32_t *atom_residue = allocate(arena, n_atom, sizeof *atom_residue);
    for (uint32_t i = 0; i < n_token; i++) {
        bool is_new = i > 0 && value(asym, i) != value(asym, i - 1);
        chain[i] = i == 0 ? 0 : chain[i - 1] + is_new;
        has_frame[i] = (uint8_t)value(frame, i);
    }
    for (uint32_t a = 0; a < n_atom; a++) {
        atom_token[a] = (int32_t)value(token, a);
        atom_residue[a] = (int32_t)value(residue, a);
        is_polymer[chain[atom_token[a]]] = (uint8_t)value(polymer, a);
    }
    fm_complex_layout layout = {.n_token = n_token,
                                .n_atom = n_atom,
                                .n_chain = (uint32_t)chain[n_token - 1] + 1,
                                .token_chain = chain,
                                .token_has_frame = has_frame,
                                .atom_token = atom_token,
                                .atom_residue = atom_residue,
                                .chain_is_polymer = is_polymer};
    if (fm_complex_layout_complete(&layout, arena, NULL)) abort();
    return layout;
}

static void compare_af3(const fm_complex_scores *s, uint64_t at, uint64_t k) {
    compare_one("af3/ptm", DOUBLE, at, s->ptm);
    compare_one("af3/iptm", DOUBLE, at, s->iptm);
    compare("af3/chain_pair_iptm", STORED_F32, at * k * k, s->chain_pair_iptm, k * k);
    compare("af3/chain_ptm", STORED_F32, at * k, s->chain_ptm, k);
    if (has("af3/chain_iptm")) compare("af3/chain_iptm", STORED_F32, at * k, s->chain_iptm, k);
    compare("af3/chain_pair_pae_min", STORED_F32, at * k * k, s->chain_pair_pae_min, k * k);
    compare_one("af3/has_clash", EXACT, at, s->has_clash);
    compare_one("af3/ranking_score", DOUBLE, at, s->ranking_score);
}

static void compare_protenix(const fm_protenix_scores *s, uint64_t at, uint64_t k) {
#define KEY(name) "protenix64/summary/" name
    compare_one(KEY("plddt"), DOUBLE, at, s->plddt);
    compare_one(KEY("gpde"), DOUBLE, at, s->gpde);
    compare_one(KEY("ptm"), DOUBLE, at, s->ptm);
    compare_one(KEY("iptm"), DOUBLE, at, s->iptm);
    compare_one(KEY("has_clash"), EXACT, at, s->has_clash);
    compare_one(KEY("ranking_score"), DOUBLE, at, s->ranking_score);
    compare(KEY("chain_ptm"), DOUBLE, at * k, s->chain_ptm, k);
    compare(KEY("chain_iptm"), DOUBLE, at * k, s->chain_iptm, k);
    compare(KEY("chain_gpde"), DOUBLE, at * k, s->chain_gpde, k);
    compare(KEY("chain_plddt"), DOUBLE, at * k, s->chain_plddt, k);
    compare(KEY("chain_pair_iptm"), DOUBLE, at * k * k, s->chain_pair_iptm, k * k);
    compare(KEY("chain_pair_iptm_global"), DOUBLE, at * k * k, s->chain_pair_iptm_global, k * k);
    compare(KEY("chain_pair_gpde"), DOUBLE, at * k * k, s->chain_pair_gpde, k * k);
    compare(KEY("chain_pair_plddt"), DOUBLE, at * k * k, s->chain_pair_plddt, k * k);
#undef KEY
}

/* Reduces rows a few at a time, as predictions do. */
static void reduce(const fm_complex_layout *l, uint64_t at, const fm_complex_contacts *contacts,
                   fm_complex_pairs *pairs) {
    const float *pae = get("in/pae_logits")->data, *pde = get("in/pde_logits")->data;
    const size_t row = (size_t)l->n_token * FM_COMPLEX_ERROR_BINS;
    pae += at * l->n_token * row;
    pde += at * l->n_token * row;
    for (uint32_t first = 0; first < l->n_token; first += ROWS_AT_ONCE) {
        uint32_t left = l->n_token - first, n = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
        fm_complex_reduce_pae(l, pae + first * row, first, n, pairs);
        fm_complex_reduce_pde(l, pde + first * row, contacts, first, n, pairs);
    }
}

static void score_structure(fm_arena *arena, const fm_complex_layout *l,
                            const fm_complex_contacts *contacts, fm_complex_pairs *pairs,
                            uint64_t at, double *ret_ranking_score) {
    const uint64_t n2 = (uint64_t)l->n_token * l->n_token, a = l->n_atom;
    const uint32_t bins = (uint32_t)get("in/plddt_logits")->shape[2];
    double *plddt = allocate(arena, a, sizeof *plddt);
    const float *position = (const float *)get("in/coordinate")->data + at * a * 3;
    fm_complex_scores af3;
    fm_protenix_scores protenix;
    fm_complex_reduce_plddt((const float *)get("in/plddt_logits")->data + at * a * bins, l->n_atom,
                            bins, plddt);
    compare("protenix64/atom_plddt", DOUBLE, at * a, plddt, a);
    reduce(l, at, contacts, pairs);
    compare_f32("protenix64/token_pair_pae", at * n2, pairs->pae, n2);
    compare_f32("protenix64/token_pair_pde", at * n2, pairs->pde, n2);
    compare_f32("af3/full_pae", at * n2, pairs->pae, n2);
    compare_f32("af3/full_pde", at * n2, pairs->pde, n2);
    if (fm_complex_score(l, pairs, plddt, position, value(get("in/fraction_disordered"), at), arena,
                         &af3, NULL)) {
        abort();
    }
    compare_af3(&af3, at, l->n_chain);
    if (fm_complex_score_protenix(l, contacts, pairs, plddt, position, arena, &protenix, NULL)) {
        abort();
    }
    compare_protenix(&protenix, at, l->n_chain);
    *ret_ranking_score = protenix.ranking_score;
}

static void score_case(fm_arena *arena) {
    const size_t mark = fm_arena_mark(arena);
    const fm_complex_layout l = read_layout(arena);
    const uint64_t n2 = (uint64_t)l.n_token * l.n_token;
    const uint32_t n = (uint32_t)get("in/pae_logits")->shape[0];
    double *ranking = allocate(arena, n, sizeof *ranking),
           *place = allocate(arena, n, sizeof *place);
    uint32_t *order = allocate(arena, n, sizeof *order);
    fm_complex_contacts contacts;
    fm_complex_pairs pairs;
    if (fm_complex_contacts_make(&l, &contacts, NULL)) abort();
    if (fm_complex_pairs_make(&l, &pairs, NULL)) abort();
    fm_complex_reduce_contacts(&l, get("in/distogram_logits")->data, 0, l.n_token, &contacts);
    compare("protenix64/contact_probs", DOUBLE, 0, contacts.probability, n2);
    compare("af3/contact_probs", STORED_F32, 0, contacts.probability, n2);
    for (uint32_t at = 0; at < n; at++)
        score_structure(arena, &l, &contacts, &pairs, at, &ranking[at]);
    /* Protenix's rank is the place of each structure. */
    fm_complex_rank(ranking, n, order);
    for (uint32_t i = 0; i < n; i++)
        place[order[i]] = i;
    compare("protenix64/rank", EXACT, 0, place, n);
    fm_complex_pairs_release(&pairs);
    fm_complex_contacts_release(&contacts);
    fm_arena_rewind(arena, mark);
}

/* -- a case of disorder */

static void measure_case(fm_arena *arena) {
    const size_t mark = fm_arena_mark(arena);
    const fm_npy *xyz = get("xyz"), *residue = get("residue"), *letters = get("letters");
    const fm_npy *names = get("atom_name");
    const uint32_t n_atom = (uint32_t)residue->count, n_residue = (uint32_t)letters->count;
    const char **name = allocate(arena, n_atom, sizeof *name);
    char *text = allocate(arena, names->count + 1, 1);
    int32_t *of = allocate(arena, n_atom, sizeof *of);
    float *position = allocate(arena, (size_t)n_atom * 3, sizeof *position);
    memcpy(text, names->data, names->count); /* one name a line */
    for (uint32_t a = 0; a < n_atom; a++) {
        name[a] = text;
        text += strcspn(text, "\n");
        *text++ = '\0';
        of[a] = (int32_t)value(residue, a);
        for (uint32_t axis = 0; axis < 3; axis++)
            position[a * 3 + axis] = (float)value(xyz, (uint64_t)a * 3 + axis);
    }
    int32_t *surface = allocate(arena, n_residue, sizeof *surface);
    double *mean = allocate(arena, n_residue, sizeof *mean);
    uint32_t n;
    if (fm_disorder_measure(&(fm_disorder_chain){.n_atom = n_atom,
                                                 .n_residue = n_residue,
                                                 .atom_name = name,
                                                 .atom_residue = of,
                                                 .residue_letter = letters->data,
                                                 .position = position},
                            &n, surface, mean, NULL)) {
        abort();
    }
    /* A dot on the edge of a neighbour may be free in one program and covered in another. */
    group *acc = find_group("acc, largest difference", 1);
    uint32_t differing = 0;
    for (uint32_t r = 0; r < n; r++) {
        double difference = fabs(surface[r] - value(get("acc"), r));
        differing += difference > 0;
        acc->worst = difference > acc->worst ? difference : acc->worst;
    }
    if (n != n_residue) acc->worst = (double)INFINITY;
    acc->n += n;
    if (differing == 0) compare("rasa", DOUBLE, 0, mean, n);
    compare_one("fraction", EXACT, 0, (double)fm_disorder_count(mean, n) / n);
    fm_arena_rewind(arena, mark);
}

/* Runs a function for each case: a name before `key` in the file. */
static void run_cases(fm_arena *arena, const char *given, const char *key,
                      void (*run)(fm_arena *arena)) {
    char path[PATH_MAX];
    fm_bytes bytes;
    fm_npz npz;
    fm_error error = {.message = ""};
    if (!fm_test_find(path, sizeof path, given)) {
        fprintf(stderr, "af3_scores: %s: the reference data is not here; skipped\n", given);
        exit(FM_TEST_SKIPPED);
    }
    fm_status status = fm_file_read(arena, path, (size_t)1 << 30, &bytes, &error);
    if (!status) status = fm_npz_parse(arena, bytes, &npz, &error);
    if (status) exit(fm_test_report("af3_scores", &error));
    file = &npz;
    uint32_t n = 0;
    for (size_t i = 0; i < npz.n_array; i++) {
        const char *name = npz.arrays[i].name, *end = strchr(name, '/');
        if (!end || strcmp(end + 1, key) != 0) continue;
        snprintf(scope, sizeof scope, "%.*s", (int)(end - name), name);
        run(arena);
        n++;
    }
    printf("%s: %u cases\n", given, n);
    if (n == 0) exit(1);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: af3_scores CONFIDENCE.npz DISORDER.npz\n");
        return 2;
    }
    fm_arena arena;
    if (fm_arena_init(&arena, (size_t)4 << 30, NULL)) return 1;
    run_cases(&arena, argv[1], "in/asym_id", score_case);
    run_cases(&arena, argv[2], "xyz", measure_case);
    bool is_ok = true;
    for (size_t i = 0; i < n_group; i++) {
        const group *g = &groups[i];
        bool passes = g->worst <= g->gate;
        printf("%-44s %7llu numbers, worst %.2e, gate %.0e%s\n", g->name, (unsigned long long)g->n,
               g->worst, g->gate, passes ? "" : "  FAIL");
        is_ok = is_ok && passes;
    }
    printf("parity: %s\n", is_ok ? "ok" : "FAIL");
    fm_arena_fini(&arena);
    return is_ok ? 0 : 1;
}
