/* made_complex.h: a complex with invented content, for tests of drawing and their second
 * implementation: two chains of one protein, one of another, sugars and an ion, with alignments
 * of which each number follows from a formula. Everything is in an arena. */
#ifndef FM_TESTS_MADE_COMPLEX_H
#define FM_TESTS_MADE_COMPLEX_H

#include "featurizer/complex/complex.h"
#include "featurizer/complex/read.h"
#include "featurizer/complex/records.h"
#include "proto/base/hash.h"
#include "proto/complex_rows.h"
#include "tests/featurizer/complex_text.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The entities that the text names, in its order. */
enum { MADE_PROTEIN, MADE_OTHER_PROTEIN };

typedef struct made_shape {
    uint32_t n_residue[2]; /* of the two proteins */
    uint32_t n_row[2];     /* of their alignments; 0: none */
    uint32_t n_sugar;
} made_shape;

typedef struct made_complex {
    fm_complex complex;
    fm_complex_row *rows;
    uint32_t n_row;
} made_complex;

static inline void made_must(fm_status status, const fm_error *error) {
    if (!status) return;
    fprintf(stderr, "%llu:%llu: %s\n", (unsigned long long)error->line,
            (unsigned long long)error->column, error->message);
    abort();
}

static inline const char *made_residue(uint32_t entity, uint32_t number) {
    return number * (entity + 2) % 3 == 0 ? "MET" : "GLY";
}

static inline size_t made_chain(char *text, size_t n, size_t room, uint32_t entity, char chain,
                                uint32_t n_residue, double y) {
    static const char *const atoms[] = {"N", "CA", "C", "O"};
    for (uint32_t r = 1; r <= n_residue; r++) {
        for (int k = 0; k < 4; k++) {
            n += (size_t)snprintf(text + n, room - n,
                                  "%c %s . %s %c %u %u %c %u %.2f %.2f %.2f 1\n", atoms[k][0],
                                  atoms[k], made_residue(entity, r), chain, entity + 1, r, chain, r,
                                  3.8 * r + 1.2 * (k < 3 ? k : 2), y + (k == 3), 0.1 * (r % 7));
        }
    }
    return n;
}

static inline fm_bytes made_text(const made_shape *shape, fm_arena *arena) {
    const size_t room =
        8192 + 400 * ((size_t)shape->n_residue[0] * 2 + shape->n_residue[1] + shape->n_sugar);
    char *text = fm_arena_alloc(arena, room);
    assert(text);
    size_t n = (size_t)snprintf(
        text, room,
        COMPLEX_HEAD "loop_\n_entity_poly.entity_id\n_entity_poly.type\n1 'polypeptide(L)'\n"
                     "2 'polypeptide(L)'\nloop_\n_entity_poly_seq.entity_id\n"
                     "_entity_poly_seq.num\n_entity_poly_seq.mon_id\n");
    for (uint32_t e = 0; e < 2; e++) {
        for (uint32_t r = 1; r <= shape->n_residue[e]; r++)
            n += (size_t)snprintf(text + n, room - n, "%u %u %s\n", e + 1, r, made_residue(e, r));
    }
    n += (size_t)snprintf(text + n, room - n, COMPLEX_SITE);
    n = made_chain(text, n, room, 0, 'A', shape->n_residue[0], 0);
    n = made_chain(text, n, room, 0, 'B', shape->n_residue[0], 4.5);
    n = made_chain(text, n, room, 1, 'C', shape->n_residue[1], 9);
    for (uint32_t s = 0; s < shape->n_sugar; s++) {
        char id = (char)('D' + s);
        n += (size_t)snprintf(text + n, room - n,
                              "C C1 . SUG %c 3 . %c 1 %.1f -4 0 1\nC C2 . SUG %c 3 . %c 1 %.1f -5 "
                              "0 1\n",
                              id, id, 4.0 * (s + 1), id, id, 4.0 * (s + 1));
    }
    n += (size_t)snprintf(text + n, room - n, "ZN ZN . ZN Z 4 . Z 1 3 -3 3 1\n");
    assert(n < room);
    return (fm_bytes){(const uint8_t *)text, n};
}

/* Cell (row, column) is the query's class, unless the formula says another or a gap; row r has the
 * species r % 40, if r % 3 is not 0. */
static inline const fm_sequence_rows *made_rows(const fm_assembly_entity *entity, uint32_t n_row,
                                                fm_arena *arena) {
    const uint32_t n_col = entity->n_residue;
    uint8_t *ids = fm_arena_alloc(arena, (size_t)n_row * n_col);
    uint8_t *deletion = fm_arena_calloc(arena, n_row, n_col);
    uint64_t *hash = fm_arena_calloc(arena, n_row, sizeof *hash);
    fm_bytes *species = fm_arena_calloc(arena, n_row, sizeof *species);
    float *profile = fm_arena_calloc(arena, n_col, FM_N_RESTYPE32 * sizeof *profile);
    double *mean = fm_arena_calloc(arena, n_col, sizeof *mean);
    fm_sequence_rows *rows = fm_arena_alloc(arena, sizeof *rows);
    assert(ids && deletion && hash && species && profile && mean && rows);
    for (uint32_t r = 0; r < n_row; r++) {
        for (uint32_t c = 0; c < n_col; c++) {
            uint32_t x = (r * 7919 + c * 104729 + r * c + r / 97 * (c * c + 1)) % 97;
            size_t at = (size_t)r * n_col + c;
            ids[at] = fm_class_of_letter(entity->sequence[c], FM_POLYMER_PEPTIDE_L);
            if (r > 0 && x < 50) ids[at] = (uint8_t)(x < 15 ? 31 : x % 20);
            if (r > 0 && x == 60) deletion[at] = (uint8_t)(1 + r % 100);
            profile[(size_t)c * FM_N_RESTYPE32 + ids[at]] += 1.0f / (float)n_row;
            mean[c] += (double)deletion[at] / n_row;
        }
        hash[r] = fm_xxh3(ids + (size_t)r * n_col, n_col);
        if (r == 0 || r % 3 == 0) continue;
        char *name = fm_arena_alloc(arena, 8);
        assert(name);
        species[r] = (fm_bytes){(uint8_t *)name, (size_t)snprintf(name, 8, "SP%u", r % 40)};
    }
    *rows = (fm_sequence_rows){.n_row = n_row,
                               .n_col = n_col,
                               .ids = ids,
                               .deletion = deletion,
                               .hash = hash,
                               .species = species,
                               .profile = profile,
                               .deletion_mean = mean};
    return rows;
}

/* The records of an assembly as rows of the table of item `item`. */
static inline fm_complex_row *made_records(const fm_assembly *a, uint32_t item, fm_arena *arena,
                                           uint32_t *ret_n) {
    const fm_record_options options = {.compat_protenix = false};
    const fm_complex_record *records;
    fm_error error = {0};
    uint32_t n;
    made_must(fm_complex_records_list(a, &options, arena, &records, &n, &error), &error);
    fm_complex_row *rows = fm_arena_calloc(arena, n, sizeof *rows);
    assert(rows);
    for (uint32_t i = 0; i < n; i++) {
        const fm_complex_record *r = &records[i];
        const fm_assembly_chain *x = &a->chains[r->chain[0]], *y = &a->chains[r->chain[1]];
        bool two = r->is_interface, is_swapped = two && y->entity < x->entity;
        rows[i] = (fm_complex_row){
            .item = item,
            .is_interface = two,
            .kind = {r->kind[0], two ? r->kind[1] : 0},
            .chain = {r->chain[0], two ? r->chain[1] : 0},
            .asym_id = {x->asym_id, two ? y->asym_id : -1},
            .entity = {is_swapped ? y->entity : x->entity, !two         ? UINT32_MAX
                                                           : is_swapped ? x->entity
                                                                        : y->entity},
            .cluster = fm_xxh3(r->cluster, strlen(r->cluster)),
        };
    }
    *ret_n = n;
    return rows;
}

static inline void made_components(fm_arena *arena, fm_components *ret_components) {
    static const char text[] = COMPLEX_COMPONENTS;
    fm_error error = {0};
    made_must(fm_components_parse((fm_bytes){(const uint8_t *)text, sizeof text - 1}, arena,
                                  ret_components, &error),
              &error);
}

static inline void made_complex_make(const made_shape *shape, uint32_t item,
                                     const fm_components *components, fm_arena *arena,
                                     made_complex *ret_made) {
    const fm_assembly_options options = {.compat_protenix = false};
    fm_error error = {0};
    fm_complex *complex = &ret_made->complex;
    complex->name = "made";
    made_must(fm_assembly_read(made_text(shape, arena), components, &options, arena,
                               &complex->assembly, &error),
              &error);
    const fm_assembly *a = &complex->assembly;
    fm_complex_entity *entities = fm_arena_calloc(arena, a->n_entity, sizeof *entities);
    assert(entities);
    for (uint32_t e = 0; e < 2; e++) {
        if (shape->n_row[e] == 0) continue;
        entities[e].paired = entities[e].unpaired =
            made_rows(&a->entities[e], shape->n_row[e], arena);
    }
    complex->entities = entities;
    ret_made->rows = made_records(a, item, arena, &ret_made->n_row);
}

#endif
