/* fuzz_mmcif.c: the CIF rows and the mmCIF reader on arbitrary bytes.
 *
 * Properties: the fast and the slow way of reading rows give the same rows. Refused input has a
 * place and a message (a full arena has no place). Accepted input has sequences of known letters,
 * masks of 0 and 1, zeros where the mask is 0, finite coordinates in the default reading, and
 * chains that are found by their names. */
#include "featurizer/parse/cif.h"
#include "featurizer/structure.h"
#include "proto/chem/residue.h"

#include <assert.h>
#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_rows(fm_bytes bytes, uint32_t n_column) {
    static fm_cif_row fast_row, slow_row;
    fm_cif fast, slow;
    fm_error error;
    if (fm_cif_init(&fast, bytes, false, &error)) return;
    slow = fast;
    for (;;) {
        uint32_t n_fast, n_slow;
        slow.n_slow = 1;
        fm_status status = fm_cif_next_row(&fast, n_column, &fast_row, &n_fast, &error);
        fm_status other = fm_cif_next_row(&slow, n_column, &slow_row, &n_slow, &error);
        assert(status == other);
        if (status) return;
        assert(n_fast == n_slow && fast.at == slow.at);
        for (uint32_t i = 0; i < n_fast; i++) {
            assert(fast_row.start[i] == slow_row.start[i] && fast_row.end[i] == slow_row.end[i]);
            assert(fast_row.start[i] <= fast_row.end[i] && fast_row.end[i] <= fast.size);
        }
        if (n_fast < n_column) return;
        if (n_fast > 1 && fast_row.end[0] % 3 == 0) fast.n_slow = 0; /* mix the ways */
    }
}

static void check_chain(const fm_mmcif *mmcif, const fm_mmcif_chain *chain, bool compat) {
    const fm_mmcif_chain *found;
    assert(chain->n_res > 0 && strlen(chain->sequence) == chain->n_res);
    for (uint32_t i = 0; i < chain->n_res; i++) {
        assert(!chain->confidence || (chain->confidence[i] >= 0 && chain->confidence[i] <= 100));
        assert(fm_restype_from_letter(chain->sequence[i]) <= FM_RESTYPE_X);
        assert(chain->is_missing[i] <= 1);
    }
    for (size_t i = 0; i < (size_t)chain->n_res * FM_N_ATOM37; i++) {
        assert(chain->all_atom_mask[i] <= 1);
        assert(!chain->all_atom_mask[i] || !chain->is_missing[i / FM_N_ATOM37]);
        for (size_t axis = 0; axis < 3; axis++) {
            float value = chain->all_atom_positions[i * 3 + axis];
            assert(compat || isfinite(value));
            assert(chain->all_atom_mask[i] || value == 0.0f);
        }
    }
    if (strlen(chain->author_id) == 0) return;
    fm_status status = fm_mmcif_find_chain(mmcif, chain->author_id, &found, NULL);
    assert(!status && strcmp(found->author_id, chain->author_id) == 0);
    (void)status;
}

static void check_parse(fm_bytes bytes, bool compat, bool is_predicted) {
    const fm_mmcif_options options = {.compat_openfold = compat, .is_predicted = is_predicted};
    fm_arena arena;
    fm_error error = {0};
    fm_mmcif mmcif;
    fm_status status = fm_arena_init(&arena, (size_t)64 << 20, NULL);
    assert(!status);
    status = fm_mmcif_parse(bytes, &options, &arena, &mmcif, &error);
    if (status) {
        assert(error.status == status && error.message[0]);
        assert(error.line >= 1 || status == FM_ERR_LIMIT);
        assert(error.offset <= bytes.size);
    } else {
        assert(mmcif.n_chain > 0);
        for (uint32_t i = 0; i < mmcif.n_chain; i++)
            check_chain(&mmcif, &mmcif.chains[i], compat);
    }
    fm_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fm_bytes bytes = {data, size};
    if (size == 0) return 0;
    check_rows(bytes, 1 + data[size / 2] % 24u);
    check_parse(bytes, false, false);
    check_parse(bytes, false, true);
    check_parse(bytes, true, false);
    return 0;
}
