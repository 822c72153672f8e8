/* test_batch.c: a sample's bytes: round trips, canonical form, and refusal of every kind of
 * damage. */
#include "proto/base/hash.h"
#include "tests/testing/sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { ARENA_BYTES = 16 << 20 };

typedef struct fixture {
    fm_arena arena;
    fm_sample sample;
    fm_bytes bytes;
    uint8_t *copy; /* 64-byte aligned, for damaging */
} fixture;

static void setup(fixture *f, fm_test_shape shape) {
    assert_int_equal(fm_arena_init(&f->arena, ARENA_BYTES, NULL), FM_OK);
    fm_test_sample(&shape, 42, 1234567, 8, &f->arena, &f->sample);
    f->bytes = fm_test_sample_bytes(&f->sample, &f->arena);
    f->copy = fm_arena_alloc(&f->arena, f->bytes.size + 64);
    assert_non_null(f->copy);
    memcpy(f->copy, f->bytes.data, f->bytes.size);
}

static fm_status decode(fixture *f, size_t size, fm_sample *ret_sample, fm_error *reterr) {
    size_t mark = fm_arena_mark(&f->arena);
    fm_status status =
        fm_sample_decode((fm_bytes){f->copy, size}, true, &f->arena, ret_sample, reterr);
    if (status) fm_arena_rewind(&f->arena, mark);
    return status;
}

/* Corrects a damaged header's checksum, so that the damage itself must be found. The table's end is
 * where the undamaged one was. */
static void seal(fixture *f) {
    size_t name = strlen(f->sample.name);
    size_t end = ((88 + name + 7) & ~(size_t)7) + (size_t)f->sample.n_tensor * 56;
    uint64_t check = fm_xxh3(f->copy + 24, end - 24);
    memcpy(f->copy + 16, &check, 8);
}

static void samples_survive_a_round_trip(void **state) {
    (void)state;
    fixture f;
    setup(&f, (fm_test_shape){.n_res = 13, .n_clust = 5, .n_extra = 3, .n_cycle = 2, .n_templ = 3});
    fm_sample got;
    assert_int_equal(decode(&f, f.bytes.size, &got, NULL), FM_OK);
    assert_int_equal(got.n_tensor, 9 + 2 * 9);
    assert_int_equal(got.index, 1234567);
    assert_int_equal(got.slot, 1234567 % 8);
    assert_string_equal(got.name, f.sample.name);
    for (uint32_t i = 0; i < got.n_tensor; i++) {
        const fm_tensor_view *a = &f.sample.tensor[i], *b = &got.tensor[i];
        assert_int_equal(a->id, b->id);
        assert_int_equal(a->cycle, b->cycle);
        assert_memory_equal(a->shape, b->shape, sizeof a->shape);
        assert_int_equal((uintptr_t)b->data % 64, 0);
        assert_memory_equal(a->data, b->data, a->bytes);
    }
    const fm_tensor_view *profile = fm_sample_find(&got, FM_T_CLUSTER_PROFILE, 1);
    assert_non_null(profile);
    assert_int_equal(profile->shape[2], FM_N_MSA_CLASS);
    assert_null(fm_sample_find(&got, FM_T_MSA, 2));
    fm_bytes again = fm_test_sample_bytes(&got, &f.arena);
    assert_int_equal(again.size, f.bytes.size);
    assert_memory_equal(again.data, f.bytes.data, again.size);
    fm_arena_fini(&f.arena);
}

enum { COMPLEX_SHARED = 41, COMPLEX_TENSORS = COMPLEX_SHARED + 2 * 2 };
static const fm_test_shape complex_shape = {
    .n_res = 5, .n_clust = 3, .n_cycle = 2, .n_templ = 2, .n_atom = 9};

/* Cycles of complexes may have different numbers of rows. */
static void complexes_survive_a_round_trip(void **state) {
    (void)state;
    fixture f;
    setup(&f, complex_shape);
    fm_sample got;
    fm_error error = {.message = ""};
    if (decode(&f, f.bytes.size, &got, &error)) fail_msg("%s", error.message);
    assert_int_equal(got.n_tensor, COMPLEX_TENSORS);
    assert_int_equal(fm_sample_find(&got, FM_T_COMPLEX_MSA, 0)->shape[0], 3);
    assert_int_equal(fm_sample_find(&got, FM_T_COMPLEX_MSA, 1)->shape[0], 4);
    fm_bytes again = fm_test_sample_bytes(&got, &f.arena);
    assert_int_equal(again.size, f.bytes.size);
    assert_memory_equal(again.data, f.bytes.data, again.size);
    assert_true(fm_sample_max_complex_bytes(5, 9, 4, 2, 2) >= f.bytes.size);
    fm_arena_fini(&f.arena);
}

/* The place of a tensor's descriptor in the bytes of the fixture, whose name is "test_567". */
static size_t descriptor(const fixture *f, fm_tensor_id id, uint32_t cycle) {
    const fm_tensor_view *view = fm_sample_find(&f->sample, id, cycle);
    assert_non_null(view);
    return 96 + (size_t)(view - f->sample.tensor) * 56;
}

static void tensors_of_complexes_agree(void **state) {
    (void)state;
    static const struct {
        fm_tensor_id id;
        uint32_t cycle;
        size_t at; /* within the descriptor */
        uint32_t width, value;
        const char *words;
    } lies[] = {
        {FM_T_ASYM_ID, FM_SHARED, 8, 4, 6,
         "dimension 0 of asym_id is 6 of rank 1, expected [N_token]"},
        {FM_T_REF_CHARGE, FM_SHARED, 8, 4, 8,
         "dimension 0 of ref_charge is 8 of rank 1, expected [N_atom]"},
        {FM_T_ATOM_TO_TOKEN_IDX, FM_SHARED, 8, 4, 0,
         "dimension 0 of atom_to_token_idx is 0 of rank 1, expected [N_atom]"},
        {FM_T_REF_CHARGE, FM_SHARED, 3, 1, FM_U8, "ref_charge cannot have dtype 1 (u8)"},
        {FM_T_REF_CHARGE, FM_SHARED, 3, 1, FM_N_DTYPE, "ref_charge cannot have dtype 9 (?)"},
        {FM_T_ATOM_PERM_COUNT, FM_SHARED, 8, 4, 6,
         "dimension 0 of atom_perm/count is 6 of rank 1, expected [N_group]"},
        {FM_T_ATOM_PERM_FIRST_ATOM, FM_SHARED, 8, 4, 0,
         "dimension 0 of atom_perm/first_atom is 0 of rank 1, expected [N_group+1]"},
        {FM_T_COMPLEX_TEMPLATE_ATOMS, FM_SHARED, 16, 4, 5,
         "dimension 2 of template_atoms is 5 of rank 4, expected [N_templ N_token 4 3]"},
        {FM_T_COMPLEX_DELETION, 1, 8, 4, 3,
         "dimension 0 of deletion is 3 of rank 2, expected [N_row N_token]"},
        {FM_T_COMPLEX_MSA, 0, 8, 4, 0,
         "dimension 0 of msa is 0 of rank 2, expected [N_row N_token]"},
        {FM_T_TOKEN_INDEX, FM_SHARED, 0, 2, FM_T_RESIDUE_INDEX,
         "found residue_index (id 33) after id 2: a sample is of a chain or of a complex"},
    };
    fixture f;
    setup(&f, complex_shape);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        fm_sample got;
        fm_error error = {.message = ""};
        memcpy(f.copy, f.bytes.data, f.bytes.size);
        memcpy(f.copy + descriptor(&f, lies[i].id, lies[i].cycle) + lies[i].at, &lies[i].value,
               lies[i].width);
        seal(&f);
        assert_int_equal(decode(&f, f.bytes.size, &got, &error), FM_ERR_CORRUPT);
        assert_string_equal(error.message, lies[i].words);
    }
    fm_arena_fini(&f.arena);
}

/* Zeros of deletions take no room, so their number follows from the rows of msa. */
static void packed_rows_are_checked(void **state) {
    (void)state;
    fixture f;
    fm_sample got;
    fm_error error = {.message = ""};
    setup(&f, complex_shape);
    for (uint32_t i = 0; i < COMPLEX_TENSORS; i++) {
        size_t at = 96 + (size_t)i * 56;
        const fm_tensor_view *view = &f.sample.tensor[i];
        uint64_t offset, bytes, check;
        if (!fm_schema_packing(view->id)) continue;
        memcpy(f.copy, f.bytes.data, f.bytes.size);
        memcpy(&offset, f.copy + at + 32, 8);
        memcpy(&bytes, f.copy + at + 40, 8);
        assert_true(bytes < view->bytes + view->bytes / 4);
        f.copy[offset + bytes - 1] = view->id == FM_T_COMPLEX_MSA ? 0xff : 0;
        check = fm_xxh3(f.copy + offset, bytes);
        memcpy(f.copy + at + 48, &check, 8);
        seal(&f);
        assert_int_equal(decode(&f, f.bytes.size, &got, &error), FM_ERR_CORRUPT);
        assert_non_null(strstr(error.message, " packed values"));
    }
    memcpy(f.copy, f.bytes.data, f.bytes.size);
    memcpy(f.copy + 96 + 56 * COMPLEX_SHARED, f.copy + 96 + 56 * (COMPLEX_SHARED + 1), 32);
    seal(&f);
    assert_int_equal(decode(&f, f.bytes.size, &got, &error), FM_ERR_CORRUPT);
    assert_string_equal(error.message, "deletion of cycle 0 comes without the rows of msa");
    fm_arena_fini(&f.arena);
}

static void empty_extra_rows_are_lawful(void **state) {
    (void)state;
    fixture f;
    setup(&f, (fm_test_shape){.n_res = 1, .n_clust = 1, .n_extra = 0, .n_cycle = 1});
    fm_sample got;
    assert_int_equal(decode(&f, f.bytes.size, &got, NULL), FM_OK);
    assert_int_equal(fm_sample_find(&got, FM_T_EXTRA_MSA, 0)->bytes, 0);
    fm_arena_fini(&f.arena);
}

/* The bound exceeds the true bytes of samples with narrow and wide dtypes, but only by what names
 * and the width of cluster_profile can explain. */
static void the_bound_holds(void **state) {
    (void)state;
    static const fm_test_shape shapes[] = {
        {1, 1, 0, 1, 0, 0}, {13, 5, 3, 2, 1, 0}, {64, 32, 64, 4, 4, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        fixture f;
        setup(&f, shapes[i]);
        size_t bound = fm_sample_max_bytes(shapes[i].n_res, shapes[i].n_clust, shapes[i].n_extra,
                                           shapes[i].n_templ, shapes[i].n_cycle);
        size_t profile = (size_t)shapes[i].n_cycle * shapes[i].n_clust * shapes[i].n_res * 23;
        assert_true(bound >= f.bytes.size + profile * 3);
        assert_true(bound <=
                    f.bytes.size + profile * 3 + 255 + 64 * (size_t)(f.sample.n_tensor + 2));
        fm_arena_fini(&f.arena);
    }
}

static void a_full_arena_is_reported(void **state) {
    (void)state;
    fixture f;
    setup(&f, (fm_test_shape){.n_res = 2, .n_clust = 1, .n_extra = 1, .n_cycle = 1});
    fm_arena small;
    assert_int_equal(fm_arena_init(&small, 64, NULL), FM_OK);
    fm_sample got;
    assert_int_equal(fm_sample_decode(f.bytes, true, &small, &got, NULL), FM_ERR_LIMIT);
    fm_arena_fini(&small);
    fm_arena_fini(&f.arena);
}

static void every_cut_is_refused(void **state) {
    (void)state;
    fixture f;
    setup(&f, (fm_test_shape){.n_res = 4, .n_clust = 2, .n_extra = 2, .n_cycle = 1});
    for (size_t size = 0; size < f.bytes.size; size++) {
        fm_sample got;
        fm_error error = {0};
        assert_int_not_equal(decode(&f, size, &got, &error), FM_OK);
        assert_true(error.message[0] != '\0');
        uint64_t declared = size; /* a true size does not complete it */
        if (size < 16) continue;
        memcpy(f.copy + 8, &declared, 8);
        assert_int_not_equal(decode(&f, size, &got, &error), FM_OK);
        memcpy(f.copy, f.bytes.data, 16);
    }
    fm_arena_fini(&f.arena);
}

static void every_flipped_bit_is_refused(void **state) {
    (void)state;
    fixture f;
    setup(&f, (fm_test_shape){.n_res = 4, .n_clust = 2, .n_extra = 2, .n_cycle = 1});
    for (size_t bit = 0; bit < f.bytes.size * 8; bit++) {
        f.copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
        fm_sample got;
        assert_int_not_equal(decode(&f, f.bytes.size, &got, NULL), FM_OK);
        f.copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    fm_arena_fini(&f.arena);
}

/* Each field in turn, with corrected checksums. The name is "test_567", so the table starts at
 * 96. */
static void false_declarations_are_refused_with_a_reason(void **state) {
    (void)state;
    static const struct {
        size_t at;
        size_t width;
        uint64_t value;
        fm_status status;
        const char *words;
    } lies[] = {
        {4, 2, 2, FM_ERR_UNSUPPORTED, "the sample has version 2, expected 1"},
        {6, 2, 513, FM_ERR_LIMIT, "the sample has 513 tensors, the limit is 512"},
        {60, 4, 0, FM_ERR_CORRUPT, "the sample has 0 cycles, expected 1 to 48"},
        {60, 4, 49, FM_ERR_CORRUPT, "the sample has 49 cycles, expected 1 to 48"},
        {68, 4, 8, FM_ERR_CORRUPT, "the crop of 4 residues from 8 is not inside the chain of 11"},
        {72, 4, 0, FM_ERR_CORRUPT, "the crop of 0 residues from 3 is not inside the chain of 11"},
        {72, 4, 5, FM_ERR_CORRUPT, "dimension 0 of aatype is 4 of rank 1, expected [N_res]"},
        {80, 4, 0x7fc00000, FM_ERR_CORRUPT, "the resolution is not a finite number of at least 0"},
        {84, 1, 2, FM_ERR_CORRUPT, "is_distillation or use_clamped_fape is neither 0 nor 1"},
        {90, 1, 0x1b, FM_ERR_CORRUPT,
         "the chain's name is cut, padded with other than zeros, or has control bytes"},
        {96, 2, 99, FM_ERR_CORRUPT, "found the unknown tensor id 99"},
        {98, 1, 0, FM_ERR_CORRUPT, "aatype has cycle 0 in a sample of 1 cycles"},
        {99, 1, FM_U16, FM_ERR_CORRUPT, "aatype cannot have dtype 2 (u16)"},
        {99, 1, 200, FM_ERR_CORRUPT, "aatype cannot have dtype 200 (?)"},
        {108, 4, 1, FM_ERR_CORRUPT, "aatype has sizes past its rank 1"},
    };
    fixture f;
    setup(&f, (fm_test_shape){.n_res = 4, .n_clust = 2, .n_extra = 2, .n_cycle = 1});
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        memcpy(f.copy, f.bytes.data, f.bytes.size);
        memcpy(f.copy + lies[i].at, &lies[i].value, lies[i].width);
        seal(&f);
        fm_sample got;
        fm_error error = {0};
        assert_int_equal(decode(&f, f.bytes.size, &got, &error), lies[i].status);
        assert_string_equal(error.message, lies[i].words);
    }
    fm_arena_fini(&f.arena);
}

static void order_and_shape_are_checked_across_tensors(void **state) {
    (void)state;
    fixture f;
    setup(&f, (fm_test_shape){.n_res = 4, .n_clust = 2, .n_extra = 2, .n_cycle = 1});
    fm_sample got;
    fm_error error = {0};
    uint16_t id = FM_T_AATYPE; /* two aatype: the second was residue_index, i32 */
    memcpy(f.copy + 96 + 56, &id, 2);
    f.copy[96 + 56 + 3] = FM_U8;
    seal(&f);
    assert_int_equal(decode(&f, f.bytes.size, &got, &error), FM_ERR_CORRUPT);
    assert_string_equal(error.message,
                        "aatype of cycle 255 is out of order: shared first, then cycle, then id");

    memcpy(f.copy, f.bytes.data, f.bytes.size);
    uint32_t rows = 3; /* true_msa [3, 4] beside msa [2, 4] */
    memcpy(f.copy + 96 + 56 * 6 + 8, &rows, 4);
    seal(&f);
    assert_int_equal(decode(&f, f.bytes.size, &got, &error), FM_ERR_CORRUPT);
    assert_string_equal(error.message,
                        "dimension 0 of true_msa is 3 of rank 2, expected [N_clust N_res]");
    fm_arena_fini(&f.arena);
}

/* Without templates there are no template tensors, and those present agree on the number of
 * templates. */
static void template_tensors_are_all_present_or_absent(void **state) {
    (void)state;
    fixture f;
    setup(&f, (fm_test_shape){.n_res = 4, .n_clust = 2, .n_extra = 2, .n_cycle = 1, .n_templ = 2});
    fm_sample got;
    fm_error error = {0};
    assert_int_equal(decode(&f, f.bytes.size, &got, NULL), FM_OK);
    uint32_t rows = 0;
    memcpy(f.copy + 96 + 56 * 5 + 8, &rows, 4);
    seal(&f);
    assert_int_equal(decode(&f, f.bytes.size, &got, &error), FM_ERR_CORRUPT);
    assert_string_equal(error.message,
                        "dimension 0 of template_aatype is 0 of rank 2, expected [N_templ N_res]");
    memcpy(f.copy, f.bytes.data, f.bytes.size);
    rows = 3;
    memcpy(f.copy + 96 + 56 * 8 + 8, &rows, 4);
    seal(&f);
    assert_int_equal(decode(&f, f.bytes.size, &got, &error), FM_ERR_CORRUPT);
    assert_string_equal(error.message,
                        "dimension 0 of template_sum_probs is 3 of rank 1, expected [N_templ]");
    fm_arena_fini(&f.arena);
}

static void the_schema_is_in_order_and_known_by_hash(void **state) {
    (void)state;
    size_t n;
    const fm_tensor_rule *rules = fm_schema_rules(&n);
    for (size_t i = 0; i < n; i++) {
        if (i) assert_true(rules[i - 1].id < rules[i].id);
        assert_ptr_equal(fm_schema_find(rules[i].id), &rules[i]);
        uint32_t first =
            fm_schema_kind(rules[i].id) == FM_SAMPLE_OF_CHAIN ? FM_T_MSA : FM_T_COMPLEX_MSA;
        assert_int_equal(rules[i].per_cycle, rules[i].id >= first);
    }
    assert_null(fm_schema_find(0));
    /* docs/reference/wire.md states this value; it changes only with the table, and then on
     * purpose. */
    assert_int_equal(fm_schema_hash(), UINT64_C(0xb17a599d2b2c71a2));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_survive_a_round_trip),
        cmocka_unit_test(complexes_survive_a_round_trip),
        cmocka_unit_test(tensors_of_complexes_agree),
        cmocka_unit_test(packed_rows_are_checked),
        cmocka_unit_test(empty_extra_rows_are_lawful),
        cmocka_unit_test(the_bound_holds),
        cmocka_unit_test(a_full_arena_is_reported),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(every_flipped_bit_is_refused),
        cmocka_unit_test(false_declarations_are_refused_with_a_reason),
        cmocka_unit_test(order_and_shape_are_checked_across_tensors),
        cmocka_unit_test(template_tensors_are_all_present_or_absent),
        cmocka_unit_test(the_schema_is_in_order_and_known_by_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
