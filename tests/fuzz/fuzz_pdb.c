/* fuzz_pdb.c: the PDB reader on arbitrary bytes, in both readings.
 *
 * Properties: refused input has a line and a message (except for a full arena). Accepted input has
 * known letters, residues with at least one atom, zeros for absent atoms, a confidence of 0 to 100,
 * and contiguous chains. Written as PDB again, it reads as the same value. */
#include "featurizer/structure.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_residues(const fm_pdb *pdb, bool compat) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < pdb->n_chain; i++) {
        assert(pdb->chains[i].first == n && pdb->chains[i].n_res > 0);
        n += pdb->chains[i].n_res;
    }
    assert(n == pdb->n_res && n > 0 && strlen(pdb->sequence) == n);
    for (size_t i = 0; i < pdb->n_res; i++) {
        unsigned n_atom = 0;
        assert(fm_restype_from_letter(pdb->sequence[i]) <= FM_RESTYPE_X);
        assert(pdb->confidence[i] >= 0 && pdb->confidence[i] <= 100);
        for (size_t atom = 0; atom < FM_N_ATOM37; atom++) {
            size_t cell = i * FM_N_ATOM37 + atom;
            n_atom += pdb->all_atom_mask[cell];
            assert(pdb->all_atom_mask[cell] <= 1);
            for (size_t axis = 0; axis < 3; axis++) {
                float value = pdb->all_atom_positions[cell * 3 + axis];
                assert(compat || isfinite(value));
                assert(pdb->all_atom_mask[cell] || value == 0.0f);
            }
        }
        assert(n_atom > 0);
    }
}

/* Returns whether a coordinate can be written in eight columns without loss. */
static bool is_short(float value) {
    char text[32];
    return snprintf(text, sizeof text, "%8.3f", (double)value) == 8 &&
           fabsf(value - strtof(text, NULL)) == 0.0f;
}

/* Writes the first chain's residues; returns 0 when they do not fit the columns. */
static size_t write_chain(const fm_pdb *pdb, char *out, size_t out_bytes) {
    size_t n = 0;
    for (uint32_t i = 0; i < pdb->chains[0].n_res; i++) {
        uint8_t restype = fm_restype_from_letter(pdb->sequence[i]);
        for (size_t atom = 0; atom < FM_N_ATOM37; atom++) {
            size_t cell = i * FM_N_ATOM37 + atom;
            const float *xyz = pdb->all_atom_positions + cell * 3;
            if (!pdb->all_atom_mask[cell]) continue;
            if (n + 100 > out_bytes || i > 9998) return 0;
            if (!is_short(xyz[0]) || !is_short(xyz[1]) || !is_short(xyz[2])) return 0;
            n += (size_t)snprintf(
                out + n, out_bytes - n, "ATOM      1  %-3s %s A%4u    %8.3f%8.3f%8.3f  1.00%6.2f\n",
                fm_atom37_names[atom], fm_restype_names[restype], i + 1, (double)xyz[0],
                (double)xyz[1], (double)xyz[2], (double)pdb->confidence[i]);
        }
    }
    return n;
}

static void check_again(const fm_pdb *pdb, const fm_pdb_options *options, fm_arena *arena) {
    static char text[1 << 20];
    size_t n_res = pdb->chains[0].n_res, n = write_chain(pdb, text, sizeof text);
    fm_pdb again;
    if (n == 0) return;
    fm_status status = fm_pdb_parse((fm_bytes){(uint8_t *)text, n}, options, arena, &again, NULL);
    assert(!status && again.n_res == n_res && again.n_chain == 1);
    assert(memcmp(again.sequence, pdb->sequence, n_res) == 0);
    assert(memcmp(again.all_atom_mask, pdb->all_atom_mask, n_res * FM_N_ATOM37) == 0);
    for (size_t i = 0; i < n_res * FM_N_ATOM37 * 3; i++)
        assert(again.all_atom_positions[i] == pdb->all_atom_positions[i]);
    (void)status;
}

static void check_parse(fm_bytes bytes, bool compat) {
    const fm_pdb_options options = {.compat_openfold = compat};
    fm_arena arena;
    fm_error error = {0};
    fm_pdb pdb;
    fm_status status = fm_arena_init(&arena, (size_t)64 << 20, NULL);
    assert(!status);
    status = fm_pdb_parse(bytes, &options, &arena, &pdb, &error);
    if (status) {
        assert(error.status == status && error.message[0]);
        assert(error.line >= 1 || status == FM_ERR_LIMIT);
        assert(error.offset <= bytes.size + 80);
    } else {
        check_residues(&pdb, compat);
        check_again(&pdb, &options, &arena);
    }
    fm_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check_parse((fm_bytes){data, size}, false);
    check_parse((fm_bytes){data, size}, true);
    return 0;
}
