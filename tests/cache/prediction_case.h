/* prediction_case.h: predicted structures for the cache's tests: writes the chains of a cache as
 * PDB files, with confidence, beside their alignments. */
#ifndef FM_TESTS_PREDICTION_CASE_H
#define FM_TESTS_PREDICTION_CASE_H

#include "tests/cache/cache_case.h"

#include "proto/chem/residue.h"

/* The confidence of residue i: 30, 40, ... 90. */
static inline float made_confidence(uint32_t i) {
    return 30.0f + 10.0f * (float)(i % 7);
}

static inline void write_atom(FILE *out, uint32_t *serial, const char *atom, char letter,
                              uint32_t residue, const float *x) {
    fprintf(out, "ATOM  %5u %-4s %3s A%4u    %8.3f%8.3f%8.3f%6.2f%6.2f\n", ++*serial, atom,
            fm_restype_names[fm_restype_from_letter(letter)], residue + 1, (double)x[0],
            (double)x[1], (double)x[2], 1.0, (double)made_confidence(residue));
}

/* A residue without atoms gets one, so that the sequence is that of the chain. */
static inline void write_pdb(const fm_record *record, const char *path) {
    FILE *out = fopen(path, "w");
    uint32_t serial = 0;
    assert_non_null(out);
    const fm_part_structure *structure = record->structure;
    for (uint32_t i = 0; i < structure->n_res; i++) {
        const uint8_t *mask = structure->all_atom_mask + (size_t)i * FM_N_ATOM37;
        const float *x = structure->all_atom_positions + (size_t)i * FM_N_ATOM37 * 3;
        uint32_t before = serial;
        for (int atom = 0; atom < FM_N_ATOM37; atom++) {
            if (!mask[atom]) continue;
            write_atom(out, &serial, fm_atom37_names[atom], record->sequence->sequence[i], i,
                       x + (size_t)atom * 3);
        }
        if (serial == before) write_atom(out, &serial, "CA", record->sequence->sequence[i], i, x);
    }
    fputs("TER\nEND\n", out);
    assert_int_equal(fclose(out), 0);
}

/* Makes FOLDER/predicted with data/P<i>.pdb and alignments/P<i>/ for each chain of test->cache,
 * which must be built. Makes the same as FOLDER/nested/uniclust30/P<i>/{a3m,pdb}/. Returns the
 * number of chains. */
static inline uint32_t make_predictions(cache_case *test) {
    fm_store *store;
    fm_arena arena;
    assert_int_equal(fm_store_open(test->cache, &store, &test->error), FM_OK);
    assert_int_equal(fm_arena_init(&arena, (size_t)1 << 30, NULL), FM_OK);
    uint32_t n = fm_store_get_info(store)->n_chain;
    assert_int_equal(
        run_shell("cd %s && mkdir -p predicted/data predicted/alignments", test->folder), 0);
    for (uint32_t i = 0; i < n; i++) {
        fm_record record;
        char path[200];
        fm_arena_reset(&arena);
        assert_int_equal(fm_store_load(store, i, &arena, &record, &test->error), FM_OK);
        snprintf(path, sizeof path, "%s/predicted/data/P%u.pdb", test->folder, i);
        write_pdb(&record, path);
        assert_int_equal(
            run_shell("cd %s && cp -r data/alignments/%s predicted/alignments/P%u && "
                      "mkdir -p nested/uniclust30/P%u/a3m nested/uniclust30/P%u/pdb "
                      "nested/uniclust30/P%u/hhr && cp predicted/data/P%u.pdb "
                      "nested/uniclust30/P%u/pdb/model.pdb && cd predicted/alignments/P%u "
                      "&& cp *.a3m ../../../nested/uniclust30/P%u/a3m && "
                      "{ cp *.hhr ../../../nested/uniclust30/P%u/hhr 2>/dev/null || :; }",
                      test->folder, record.name, i, i, i, i, i, i, i, i, i),
            0);
    }
    fm_arena_fini(&arena);
    fm_store_close(store);
    return n;
}

#endif
