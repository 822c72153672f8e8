/* test_record.c: parts of a record: values survive, bytes are canonical, every damage is found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "proto/base/rng.h"
#include "proto/limits.h"
#include "proto/record.h"

#include <math.h>
#include <string.h>

typedef struct fixture {
    fm_arena arena;
    fm_error error;
} fixture;

static int setup(void **state) {
    static fixture fixed;
    fixed = (fixture){0};
    *state = &fixed;
    return (int)fm_arena_init(&fixed.arena, (size_t)1 << 30, &fixed.error);
}

static int teardown(void **state) {
    fm_arena_fini(&((fixture *)*state)->arena);
    return 0;
}

static uint32_t draw(uint32_t n, uint32_t below) {
    fm_philox_counter counter = fm_philox(7, (fm_philox_counter){{n, 1, 2, 3}});
    return fm_uniform_below((uint64_t)counter.word[0] << 32 | counter.word[1], below);
}

static fm_part_msa make_msa(fm_arena *arena, uint32_t n_seq, uint32_t n_res, uint32_t rarity) {
    uint8_t *msa = fm_arena_alloc(arena, (size_t)n_seq * n_res);
    uint16_t *deletion = fm_arena_calloc(arena, (size_t)n_seq * n_res, 2);
    uint32_t *profile = fm_arena_calloc(arena, (size_t)n_res * FM_N_HHBLITS, 4);
    uint32_t *species_end = fm_arena_alloc_array(arena, n_seq, 4);
    fm_msa_source *source = fm_arena_alloc_array(arena, 2, sizeof *source);
    assert_true(msa && deletion && profile && species_end && source);
    for (uint32_t row = 0, end = 0; row < n_seq; row++) {
        species_end[row] = end += row % 3 ? 5 : 0;
        for (uint32_t i = 0; i < n_res; i++) {
            uint32_t cell = row * n_res + i;
            msa[cell] = (uint8_t)draw(cell, FM_N_HHBLITS);
            profile[i * FM_N_HHBLITS + msa[cell]]++;
            if (draw(cell + 1000000, rarity) == 0) deletion[cell] = (uint16_t)draw(cell, 65536);
            if (draw(cell + 2000000, rarity) == 0) deletion[cell] = (uint16_t)draw(cell, 300);
        }
    }
    char *species = fm_arena_alloc(arena, (size_t)n_seq * 5);
    assert_non_null(species);
    memset(species, 'S', (size_t)n_seq * 5);
    source[0] = (fm_msa_source){"uniref90_hits.sto", 1};
    source[1] = (fm_msa_source){"bfd hits.a3m", n_seq - 1};
    return (fm_part_msa){n_seq, n_res, msa, deletion, profile, species, species_end, 2, source};
}

static void assert_same_msa(const fm_part_msa *a, const fm_part_msa *b) {
    size_t n_cell = (size_t)a->n_seq * a->n_res;
    assert_int_equal(a->n_seq, b->n_seq);
    assert_int_equal(a->n_res, b->n_res);
    assert_memory_equal(a->msa, b->msa, n_cell);
    assert_memory_equal(a->deletion_matrix, b->deletion_matrix, n_cell * 2);
    assert_memory_equal(a->profile, b->profile, (size_t)a->n_res * FM_N_HHBLITS * 4);
    assert_memory_equal(a->species_end, b->species_end, (size_t)a->n_seq * 4);
    assert_memory_equal(a->species, b->species, a->species_end[a->n_seq - 1]);
    assert_int_equal(a->n_source, b->n_source);
    for (uint32_t i = 0; i < a->n_source; i++) {
        assert_string_equal(a->source[i].name, b->source[i].name);
        assert_int_equal(a->source[i].n_row, b->source[i].n_row);
    }
}

static void test_sequence(void **state) {
    fixture *fixed = *state;
    const fm_part_sequence part = {5, "ACDXY"};
    fm_bytes bytes;
    fm_part_sequence again;
    assert_int_equal(fm_part_sequence_encode(&part, &fixed->arena, &bytes, &fixed->error), FM_OK);
    assert_int_equal(bytes.size, 64 + 5);
    assert_int_equal(fm_part_sequence_decode(bytes, &fixed->arena, &again, &fixed->error), FM_OK);
    assert_int_equal(again.n_res, 5);
    assert_memory_equal(again.sequence, "ACDXY", 5);
    fm_part_kind kind;
    assert_int_equal(fm_part_peek(bytes, &kind, &fixed->error), FM_OK);
    assert_int_equal(kind, FM_PART_SEQUENCE);

    const fm_part_sequence lower = {2, "Ac"}, empty = {0, ""};
    assert_int_equal(fm_part_sequence_encode(&lower, &fixed->arena, &bytes, &fixed->error),
                     FM_ERR_DATA);
    assert_int_equal(fm_part_sequence_encode(&empty, &fixed->arena, &bytes, &fixed->error),
                     FM_ERR_LIMIT);
}

static void test_msa(void **state) {
    fixture *fixed = *state;
    const struct {
        uint32_t n_seq, n_res, rarity;
    } shapes[] = {{1, 1, 2}, {1, 70, 3}, {31, 38, 50}, {700, 301, 90}, {90, 2000, 100000}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        fm_part_msa part =
            make_msa(&fixed->arena, shapes[i].n_seq, shapes[i].n_res, shapes[i].rarity);
        fm_bytes bytes, bytes2;
        fm_part_msa again;
        assert_int_equal(fm_part_msa_encode(&part, &fixed->arena, &bytes, &fixed->error), FM_OK);
        assert_int_equal(fm_part_msa_decode(bytes, &fixed->arena, &again, &fixed->error), FM_OK);
        assert_same_msa(&part, &again);
        assert_ptr_equal(again.msa, bytes.data + 64); /* borrowed in place */
        assert_int_equal(fm_part_msa_check_profile(&again, &fixed->arena, &fixed->error), FM_OK);
        assert_int_equal(fm_part_msa_encode(&again, &fixed->arena, &bytes2, &fixed->error), FM_OK);
        assert_int_equal(bytes.size, bytes2.size);
        assert_memory_equal(bytes.data, bytes2.data, bytes.size);
    }
}

/* Gaps of exactly 65,534 .. 131,070 zeros, and a last deletion in the last cell. */
static void test_msa_long_gaps(void **state) {
    fixture *fixed = *state;
    const uint32_t gaps[] = {65534, 65535, 65536, 131069, 131070, 131071};
    for (size_t i = 0; i < sizeof gaps / sizeof gaps[0]; i++) {
        fm_part_msa part = make_msa(&fixed->arena, 4, 40000, 1u << 31);
        uint16_t *deletion = fm_arena_calloc(&fixed->arena, (size_t)4 * 40000, 2);
        assert_non_null(deletion);
        deletion[gaps[i]] = 254;
        deletion[4 * 40000 - 1] = 255;
        part.deletion_matrix = deletion;
        fm_bytes bytes;
        fm_part_msa again;
        assert_int_equal(fm_part_msa_encode(&part, &fixed->arena, &bytes, &fixed->error), FM_OK);
        assert_int_equal(fm_part_msa_decode(bytes, &fixed->arena, &again, &fixed->error), FM_OK);
        assert_same_msa(&part, &again);
        fm_arena_reset(&fixed->arena);
    }
}

static fm_part_structure make_structure(fm_arena *arena, uint32_t n_res, bool confident) {
    float *positions = fm_arena_calloc(arena, (size_t)n_res * FM_N_ATOM37 * 3, sizeof(float));
    uint8_t *mask = fm_arena_calloc(arena, (size_t)n_res * FM_N_ATOM37, 1);
    float *confidence = fm_arena_alloc_array(arena, n_res, sizeof(float));
    assert_true(positions && mask && confidence);
    for (uint32_t i = 0; i < n_res * FM_N_ATOM37; i++) {
        mask[i] = draw(i, 5) == 0;
        for (uint32_t axis = 0; mask[i] && axis < 3; axis++) {
            uint32_t k = draw(3 * i + axis, 200000);
            positions[3 * i + axis] = (float)(((double)k - 100000) / 1000.0);
            if (k % 97 == 0) positions[3 * i + axis] = (float)k / 7.0f;
        }
    }
    for (uint32_t i = 0; i < n_res; i++)
        confidence[i] = (float)draw(i, 10001) / 100.0f;
    return (fm_part_structure){n_res,
                               positions,
                               mask,
                               1.75f,
                               "1995-02-07",
                               (uint8_t)confident,
                               confident ? confidence : NULL};
}

static void check_structure(fixture *fixed, const fm_part_structure *part) {
    fm_bytes bytes, bytes2;
    fm_part_structure again;
    size_t n_cell = (size_t)part->n_res * FM_N_ATOM37;
    assert_int_equal(fm_part_structure_encode(part, &fixed->arena, &bytes, &fixed->error), FM_OK);
    assert_int_equal(fm_part_structure_decode(bytes, &fixed->arena, &again, &fixed->error), FM_OK);
    assert_int_equal(part->n_res, again.n_res);
    assert_memory_equal(part->all_atom_positions, again.all_atom_positions, n_cell * 3 * 4);
    assert_memory_equal(part->all_atom_mask, again.all_atom_mask, n_cell);
    assert_memory_equal(&part->resolution, &again.resolution, 4);
    assert_string_equal(part->release_date, again.release_date);
    assert_int_equal(part->is_distillation, again.is_distillation);
    assert_int_equal(!part->confidence, !again.confidence);
    if (part->confidence) assert_memory_equal(part->confidence, again.confidence, part->n_res * 4);
    assert_int_equal(fm_part_structure_encode(&again, &fixed->arena, &bytes2, &fixed->error),
                     FM_OK);
    assert_int_equal(bytes.size, bytes2.size);
    assert_memory_equal(bytes.data, bytes2.data, bytes.size);
}

static void test_structure(void **state) {
    fixture *fixed = *state;
    for (uint32_t n_res = 1; n_res < 300; n_res += 60) {
        fm_part_structure plain = make_structure(&fixed->arena, n_res, false);
        fm_part_structure predicted = make_structure(&fixed->arena, n_res, true);
        predicted.release_date[0] = '\0';
        memset(predicted.release_date, 0, sizeof predicted.release_date);
        predicted.resolution = 0.0f;
        check_structure(fixed, &plain);
        check_structure(fixed, &predicted);
    }
}

/* Floats that are not decimals of three places, or whose thousandths are not unique. */
static void test_structure_odd_floats(void **state) {
    fixture *fixed = *state;
    const float odd[] = {-0.0f,      1e-30f,  20000.001f, 16777.217f, 2147483.5f, 2147484.0f,
                         -2147484.f, 3.4e38f, 0.0005f,    -1234.567f, 33554.434f, 1e-45f};
    fm_part_structure part = make_structure(&fixed->arena, 1, false);
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        float positions[FM_N_ATOM37 * 3] = {0};
        uint8_t mask[FM_N_ATOM37] = {0};
        for (size_t j = 0; j < 3; j++) {
            mask[3 * j] = 1;
            positions[9 * j] = odd[i];
            positions[9 * j + 1] = (float)j;
        }
        part.all_atom_positions = positions;
        part.all_atom_mask = mask;
        check_structure(fixed, &part);
    }
}

static void test_structure_refuses(void **state) {
    fixture *fixed = *state;
    fm_bytes bytes;
    fm_part_structure part = make_structure(&fixed->arena, 2, false);
    float *positions = fm_arena_calloc(&fixed->arena, 2 * FM_N_ATOM37 * 3, 4);
    uint8_t *mask = fm_arena_calloc(&fixed->arena, 2 * FM_N_ATOM37, 1);
    assert_true(positions && mask);
    part.all_atom_positions = positions;
    part.all_atom_mask = mask;
    positions[5] = 1.0f; /* not present */
    assert_int_equal(fm_part_structure_encode(&part, &fixed->arena, &bytes, &fixed->error),
                     FM_ERR_DATA);
    mask[1] = 1;
    assert_int_equal(fm_part_structure_encode(&part, &fixed->arena, &bytes, &fixed->error), FM_OK);
    positions[5] = 1.0f / 0.0f;
    assert_int_equal(fm_part_structure_encode(&part, &fixed->arena, &bytes, &fixed->error),
                     FM_ERR_DATA);
    positions[5] = 0.0f;
    strcpy(part.release_date, "1995-2-7");
    assert_int_equal(fm_part_structure_encode(&part, &fixed->arena, &bytes, &fixed->error),
                     FM_ERR_DATA);
    strcpy(part.release_date, "1995-02-07");
    part.resolution = -1.0f;
    assert_int_equal(fm_part_structure_encode(&part, &fixed->arena, &bytes, &fixed->error),
                     FM_ERR_DATA);
}

/* Makes two hits: one mapped by two runs, one without a file. */
static void make_hits(fm_template_hit hit[2], fm_part_hits *part) {
    static const uint16_t query[] = {1, 5}, template[] = {0, 9}, size[] = {3, 2};
    hit[0] = (fm_template_hit){.name = "1abc_A",
                               .release_date = "1995-02-07",
                               .sum_probs = 12.5,
                               .aligned_cols = 5,
                               .n_letter = 6,
                               .in_query = true,
                               .structure = fm_sha256_of("x", 1),
                               .n_run = 2,
                               .run_query = query,
                               .run_template = template,
                               .run_size = size,
                               .letters = "ACDEF"};
    hit[1] = (fm_template_hit){.name = "2xyz_B",
                               .listed_date = "2001-12-31",
                               .sum_probs = (double)NAN,
                               .aligned_cols = -1,
                               .fault = FM_HIT_NO_FILE};
    *part = (fm_part_hits){.n_res = 7, .n_hit = 2, .hit = hit};
}

static void test_hits(void **state) {
    fixture *fixed = *state;
    fm_template_hit hit[2];
    fm_part_hits part, again;
    fm_bytes bytes;
    make_hits(hit, &part);
    assert_int_equal(fm_part_hits_encode(&part, &fixed->arena, &bytes, &fixed->error), FM_OK);
    assert_int_equal(fm_part_hits_decode(bytes, &fixed->arena, &again, &fixed->error), FM_OK);
    assert_int_equal(again.n_res, 7);
    assert_int_equal(again.n_hit, 2);
    for (int i = 0; i < 2; i++) {
        const fm_template_hit *a = &hit[i], *b = &again.hit[i];
        assert_string_equal(a->name, b->name);
        assert_string_equal(a->release_date, b->release_date);
        assert_string_equal(a->listed_date, b->listed_date);
        assert_int_equal(a->aligned_cols, b->aligned_cols);
        assert_int_equal(a->n_letter, b->n_letter);
        assert_int_equal(a->in_query, b->in_query);
        assert_int_equal(a->fault, b->fault);
        assert_memory_equal(&a->structure, &b->structure, sizeof a->structure);
        assert_int_equal(a->n_run, b->n_run);
    }
    assert_true(again.hit[0].sum_probs == 12.5 && isnan(again.hit[1].sum_probs));
    assert_memory_equal(again.hit[0].run_query, hit[0].run_query, 4);
    assert_memory_equal(again.hit[0].run_template, hit[0].run_template, 4);
    assert_memory_equal(again.hit[0].run_size, hit[0].run_size, 4);
    assert_memory_equal(again.hit[0].letters, "ACDEF", 5);
    const fm_part_hits none = {.n_res = 7};
    assert_int_equal(fm_part_hits_encode(&none, &fixed->arena, &bytes, &fixed->error), FM_OK);
    assert_int_equal(fm_part_hits_decode(bytes, &fixed->arena, &again, &fixed->error), FM_OK);
    assert_int_equal(again.n_hit, 0);
}

static void test_hits_refuses(void **state) {
    fixture *fixed = *state;
    fm_template_hit hit[2];
    fm_part_hits part;
    fm_bytes bytes;
    const uint16_t overlap[] = {1, 3}, past[] = {1, 6}, joined[] = {1, 4}, empty[] = {3, 0};
    const uint16_t next[] = {0, 3};
    for (int i = 0; i < 8; i++) {
        make_hits(hit, &part);
        if (i == 0) hit[0].run_query = overlap;
        if (i == 1) hit[0].run_query = past;
        if (i == 2) hit[0].run_query = joined, hit[0].run_template = next;
        if (i == 3) hit[0].run_size = empty;
        if (i == 4) hit[0].letters = "AC-EF";
        if (i == 5) hit[0].name = "";
        if (i == 6) strcpy(hit[1].listed_date, "2001-12-3");
        if (i == 7) hit[1].fault = FM_HIT_MAPPED;
        assert_int_equal(fm_part_hits_encode(&part, &fixed->arena, &bytes, &fixed->error),
                         FM_ERR_DATA);
    }
}

/* Decodes `bytes` as the kind that they declare and encodes them again. */
static fm_status recode(fm_bytes bytes, fm_arena *arena, fm_bytes *ret_bytes) {
    fm_part_kind kind;
    fm_error error;
    fm_status status = fm_part_peek(bytes, &kind, &error);
    if (status) return status;
    if (kind == FM_PART_SEQUENCE) {
        fm_part_sequence part;
        status = fm_part_sequence_decode(bytes, arena, &part, &error);
        return status ? status : fm_part_sequence_encode(&part, arena, ret_bytes, &error);
    }
    if (kind == FM_PART_MSA) {
        fm_part_msa part;
        status = fm_part_msa_decode(bytes, arena, &part, &error);
        return status ? status : fm_part_msa_encode(&part, arena, ret_bytes, &error);
    }
    if (kind == FM_PART_HITS) {
        fm_part_hits part;
        status = fm_part_hits_decode(bytes, arena, &part, &error);
        return status ? status : fm_part_hits_encode(&part, arena, ret_bytes, &error);
    }
    fm_part_structure part;
    status = fm_part_structure_decode(bytes, arena, &part, &error);
    return status ? status : fm_part_structure_encode(&part, arena, ret_bytes, &error);
}

/* Every single-bit change and every length either fails or is another value's canonical
 * encoding. */
static void check_damage(fixture *fixed, fm_bytes bytes) {
    uint8_t *copy = fm_arena_alloc(&fixed->arena, bytes.size + 1);
    assert_non_null(copy);
    memcpy(copy, bytes.data, bytes.size);
    copy[bytes.size] = 0;
    size_t mark = fm_arena_mark(&fixed->arena);
    for (size_t bit = 0; bit < bytes.size * 8; bit++) {
        copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
        fm_bytes again;
        if (!recode((fm_bytes){copy, bytes.size}, &fixed->arena, &again)) {
            assert_int_equal(again.size, bytes.size);
            assert_memory_equal(again.data, copy, bytes.size);
        }
        copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
        fm_arena_rewind(&fixed->arena, mark);
    }
    for (size_t size = 0; size <= bytes.size + 1; size++) {
        fm_bytes again;
        if (size == bytes.size) continue;
        assert_int_not_equal(recode((fm_bytes){copy, size}, &fixed->arena, &again), FM_OK);
        fm_arena_rewind(&fixed->arena, mark);
    }
}

static void test_damage(void **state) {
    fixture *fixed = *state;
    fm_bytes bytes;
    const fm_part_sequence sequence = {5, "ACDXY"};
    assert_int_equal(fm_part_sequence_encode(&sequence, &fixed->arena, &bytes, &fixed->error),
                     FM_OK);
    check_damage(fixed, bytes);
    fm_part_msa msa = make_msa(&fixed->arena, 4, 9, 4);
    assert_int_equal(fm_part_msa_encode(&msa, &fixed->arena, &bytes, &fixed->error), FM_OK);
    check_damage(fixed, bytes);
    fm_part_structure structure = make_structure(&fixed->arena, 3, true);
    assert_int_equal(fm_part_structure_encode(&structure, &fixed->arena, &bytes, &fixed->error),
                     FM_OK);
    check_damage(fixed, bytes);
    fm_template_hit hit[2];
    fm_part_hits hits;
    make_hits(hit, &hits);
    assert_int_equal(fm_part_hits_encode(&hits, &fixed->arena, &bytes, &fixed->error), FM_OK);
    check_damage(fixed, bytes);
}

static void test_profile_lie(void **state) {
    fixture *fixed = *state;
    fm_part_msa msa = make_msa(&fixed->arena, 4, 9, 4);
    uint32_t *profile = fm_arena_calloc(&fixed->arena, 9 * FM_N_HHBLITS, 4);
    assert_non_null(profile);
    for (int i = 0; i < 9; i++)
        profile[i * FM_N_HHBLITS] = 4;
    msa.profile = profile;
    assert_int_equal(fm_part_msa_check_profile(&msa, &fixed->arena, &fixed->error), FM_ERR_CORRUPT);
    profile[0] = 5;
    fm_bytes bytes;
    assert_int_equal(fm_part_msa_encode(&msa, &fixed->arena, &bytes, &fixed->error), FM_ERR_DATA);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sequence, setup, teardown),
        cmocka_unit_test_setup_teardown(test_msa, setup, teardown),
        cmocka_unit_test_setup_teardown(test_msa_long_gaps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_structure, setup, teardown),
        cmocka_unit_test_setup_teardown(test_structure_odd_floats, setup, teardown),
        cmocka_unit_test_setup_teardown(test_structure_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hits_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_profile_lie, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
