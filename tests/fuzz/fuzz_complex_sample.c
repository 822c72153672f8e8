/* fuzz_complex_sample.c: arbitrary bytes as a sample of a complex: as a stored one, and as one from
 * the wire. The checksums of an archive stop most mutations, so the bytes are also changes of a
 * good sample: each change of 11 bytes names an array, an element and its new bits. What is
 * accepted is used: bonds are counted, and every index that a step follows is followed. */
#include "proto/complex_sample.h"
#include "tests/fuzz/seal_sample.h"
#include "tests/testing/complex_sample.h"
#include "trainer/step/af3/stored.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHANGE_BYTES = 11, MOST_CHANGES = 64 };

/* Follows the indices as the writers of features and labels do. */
static void use(const fm_af3_features *f) {
    const fm_af3_sample *s = &f->sample;
    int64_t n_slot = FM_STORED_SLOTS * s->n_token;
    assert(s->n_token >= 1 && s->n_token <= FM_STORED_TOKENS);
    assert(fm_complex_count_bonds(&f->labels) <= s->n_atom * s->n_atom);
    for (int64_t l = 0; l < s->n_atom; l++) {
        assert(s->atom_to_token_idx[l] >= 0 && s->atom_to_token_idx[l] < s->n_token);
        int64_t row = s->atom_to_tokatom_idx[l] * s->n_token + s->atom_to_token_idx[l];
        assert(row >= 0 && row < n_slot);
    }
    for (int64_t i = 0; i < 3 * s->n_token; i++) {
        int64_t atom = f->labels.frame_atom_index[i];
        assert(!f->labels.has_frame[i / 3] || (atom >= 0 && atom < s->n_atom));
    }
    for (int64_t g = 0; g < f->n_orders; g++) {
        const fm_atom_orders *o = &f->orders[g];
        for (int64_t i = 0; i < o->n * o->n_order; i++)
            assert(o->first + o->order[i] >= 0 && o->first + o->order[i] < s->n_atom);
    }
}

static void check(const fm_npz *npz) {
    fm_arena arena;
    fm_af3_features features;
    fm_error error = {.message = ""};
    if (fm_arena_init(&arena, (size_t)1 << 20, NULL)) abort();
    if (!fm_stored_sample_check(npz, &arena, &features, &error)) {
        use(&features);
    } else {
        assert(error.message[0] != '\0');
    }
    fm_arena_fini(&arena);
}

/* The compact form's arrays of a sample as a server sends it, without checksums. */
static void check_encoded(const uint8_t *data, size_t size) {
    fm_arena arena;
    fm_sample sample;
    fm_npz compact;
    uint32_t first_row[FM_LIMIT_N_CYCLE + 1];
    fm_error error = {.message = ""};
    if (fm_arena_init(&arena, (size_t)4 << 20, NULL)) abort();
    uint8_t *bytes = aligned_alloc(64, (size + 64) & ~(size_t)63);
    if (!bytes) abort();
    memcpy(bytes, data, size);
    if (fm_fuzz_seal_sample(bytes, size) &&
        !fm_sample_decode((fm_bytes){bytes, size}, false, &arena, &sample, NULL)) {
        if (!fm_complex_sample_list(&sample, sample.n_cycle, &arena, &compact, first_row, &error)) {
            assert(first_row[sample.n_cycle] >= sample.n_cycle);
            check(&compact);
        } else {
            assert(error.message[0] != '\0');
        }
    }
    free(bytes);
    fm_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fm_stored_sample sample;
    fm_error error = {.message = ""};
    if (!fm_stored_sample_parse((fm_bytes){data, size}, &sample, &error)) {
        use(&sample.features);
        fm_stored_sample_release(&sample);
    }
    check_encoded(data, size);
    fm_test_complex good;
    fm_test_complex_make(&good, 1);
    for (size_t at = 0, n = 0; at + CHANGE_BYTES <= size && n < MOST_CHANGES; n++) {
        const fm_npy *array = &good.array[data[at] % good.npz.n_array];
        uint64_t element = ((uint64_t)data[at + 1] << 8 | data[at + 2]) % array->count;
        uint8_t *to = (uint8_t *)(uintptr_t)array->data + element * array->item_bytes;
        memcpy(to, data + at + 3, array->item_bytes);
        at += CHANGE_BYTES;
    }
    check(&good.npz);
    fm_test_complex_free(&good);
    return 0;
}
