/* test_synth.c: tests the synthetic dataset: the same bytes every time, and structures with bonds
 * and without clashes. Our parsers read back from the files the chain that they were made for. */
#include "featurizer/msa.h"
#include "featurizer/parse/a3m.h"
#include "featurizer/parse/hhr.h"
#include "featurizer/parse/mmcif.h"
#include "featurizer/parse/stockholm.h"
#include "featurizer/synth/model.h"
#include "featurizer/synth/synth.h"
#include "proto/base/hash.h"
#include "proto/chem/residue.h"

#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { N_ENTRY = 16 };

static double distance(fm_vec3 a, fm_vec3 b) {
    fm_vec3 d = fm_vec3_sub(a, b);
    return sqrt(fm_vec3_dot(d, d));
}

/* Makes the letters of the sequence that entity_poly_seq and row 0 of every alignment hold. */
static fm_status sequence_of(fm_arena *arena, const fm_synth_options *options,
                             const fm_synth_entry *entry, uint32_t slot, fm_bytes *ret_letters,
                             fm_error *reterr) {
    fm_synth_family family;
    fm_synth_chain chain;
    fm_status status = fm_synth_family_make(arena, options, entry->family[slot], &family, reterr);
    if (status) return status;
    status = fm_synth_chain_make(arena, options, entry, slot, &family, &chain, reterr);
    if (status) return status;
    uint8_t *letters = fm_arena_alloc(arena, chain.n_res);
    if (!letters) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < chain.n_res; i++)
        letters[i] = (uint8_t)fm_synth_letter(chain.residues[i].aatype);
    *ret_letters = (fm_bytes){letters, chain.n_res};
    return FM_OK;
}

static fm_synth_options small_options(uint64_t seed) {
    fm_synth_options options = fm_synth_default_options();
    options.seed = seed;
    options.max_length = 140;
    options.max_depth = 80;
    return options;
}

static int make_arena(void **state) {
    static fm_arena arena;
    *state = &arena;
    return fm_arena_init(&arena, (size_t)1 << 30, NULL);
}

static int drop_arena(void **state) {
    fm_arena_fini(*state);
    return 0;
}

/* Computes the SHA-256 over every file of the first entries, including names and sizes. */
static void digest_dataset(fm_arena *arena, const fm_synth_options *options, uint32_t n_entry,
                           char hex[FM_SHA256_HEX]) {
    fm_sha256_state *hash = fm_sha256_create();
    for (uint32_t e = 0; e < n_entry; e++) {
        fm_arena_reset(arena);
        fm_synth_entry entry = fm_synth_entry_of(options, e);
        fm_bytes cif;
        assert_int_equal(fm_synth_mmcif(arena, options, &entry, &cif, NULL), FM_OK);
        fm_sha256_update(hash, entry.id, sizeof entry.id);
        fm_sha256_update(hash, cif.data, cif.size);
        for (uint32_t slot = 0; slot < entry.n_chain; slot++) {
            fm_synth_file files[FM_SYNTH_MAX_FILES];
            uint32_t n_file;
            assert_int_equal(
                fm_synth_alignments(arena, options, &entry, slot, files, &n_file, NULL), FM_OK);
            for (uint32_t i = 0; i < n_file; i++) {
                fm_sha256_update(hash, files[i].name, strlen(files[i].name));
                fm_sha256_update(hash, files[i].content.data, files[i].content.size);
            }
        }
    }
    fm_sha256 digest = fm_sha256_digest(hash);
    fm_sha256_destroy(hash);
    fm_sha256_format(&digest, hex);
}

static void the_same_seed_gives_the_same_bytes(void **state) {
    char first[FM_SHA256_HEX], again[FM_SHA256_HEX], other[FM_SHA256_HEX];
    fm_synth_options options = small_options(7);
    digest_dataset(*state, &options, 6, first);
    digest_dataset(*state, &options, 6, again);
    assert_string_equal(first, again);
    options.seed = 8;
    digest_dataset(*state, &options, 6, other);
    assert_string_not_equal(first, other);
}

/* These digests change only when the generator is changed on purpose; the demo's figures change
 * with them. */
static void the_bytes_are_the_ones_we_know(void **state) {
    char hex[FM_SHA256_HEX];
    fm_synth_options options = small_options(7);
    digest_dataset(*state, &options, 6, hex);
    assert_string_equal(hex, "53689b362ca2009bdabe91193a5f6413e76a577a6b835cff57462a19a4616b8a");
    options.stockholm = true;
    digest_dataset(*state, &options, 6, hex);
    assert_string_equal(hex, "f9c2e6c13727d9a6df032eff48e3eb1b5427df9862c9d105a0b89582646a73fe");
}

static void ids_are_unique_and_start_with_a_digit(void **state) {
    (void)state;
    static uint8_t seen[9][36 * 36 * 36];
    fm_synth_options options = small_options(0);
    for (uint32_t e = 0; e < FM_SYNTH_MAX_ENTRIES; e += e < 40000 || e > 410000 ? 1 : 97) {
        fm_synth_entry entry = fm_synth_entry_of(&options, e);
        uint32_t number = 0;
        assert_true(entry.id[0] >= '1' && entry.id[0] <= '9');
        for (int i = 1; i < 4; i++) {
            unsigned char c = (unsigned char)entry.id[i];
            assert_true(isdigit(c) || islower(c));
            number = number * 36 + (uint32_t)(isdigit(c) ? c - '0' : c - 'a' + 10);
        }
        assert_int_equal(seen[entry.id[0] - '1'][number]++, 0);
    }
}

static void assert_near(double value, double expected, double tolerance) {
    if (fabs(value - expected) > tolerance) {
        fail_msg("found %.4f, expected %.4f within %.4f", value, expected, tolerance);
    }
}

static void check_bonds(const fm_synth_placed *residues, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const fm_vec3 *here = residues[i].atoms;
        assert_near(distance(here[0], here[1]), 1.458, 1e-9);
        assert_near(distance(here[1], here[2]), 1.525, 1e-9);
        assert_near(distance(here[2], here[3]), 1.231, 1e-9);
        /* N-CA-C by the law of cosines */
        assert_near(distance(here[0], here[2]), 2.4619, 1e-3);
        if (i + 1 == n) break;
        const fm_vec3 *next = residues[i + 1].atoms;
        assert_near(distance(here[2], next[0]), 1.329, 1e-9);
        assert_near(distance(here[1], next[1]), 3.80, 0.03);
        assert_near(distance(here[3], next[0]), 2.25, 0.02); /* O opposite to CA */
    }
}

static uint32_t count_close_pairs(const fm_synth_placed *residues, uint32_t n) {
    uint32_t close = 0;
    for (uint32_t i = 2; i < n; i++) {
        for (uint32_t j = 0; j + 2 <= i; j++)
            close += distance(residues[i].atoms[1], residues[j].atoms[1]) < 3.8;
    }
    return close;
}

static void structures_bond_and_do_not_clash(void **state) {
    fm_arena *arena = *state;
    fm_synth_options options = small_options(1);
    uint32_t missing = 0, selenium = 0, alternates = 0, renumbered = 0, inserted = 0;
    for (uint32_t e = 0; e < N_ENTRY; e++) {
        fm_arena_reset(arena);
        fm_synth_entry entry = fm_synth_entry_of(&options, e);
        fm_synth_model model;
        assert_int_equal(fm_synth_model_make(arena, &options, &entry, &model, NULL), FM_OK);
        for (uint32_t slot = 0; slot < entry.n_chain; slot++) {
            const fm_synth_placed *residues = model.residues[slot];
            uint32_t n = model.chains[slot].n_res;
            assert_in_range(n, options.min_length, options.max_length);
            check_bonds(residues, n);
            assert_int_equal(count_close_pairs(residues, n), 0);
            for (uint32_t i = 0; i < n; i++) {
                missing += residues[i].missing;
                alternates += residues[i].alternate;
                selenium += residues[i].type == FM_IDEAL_MSE;
                renumbered += residues[i].auth_number != (int32_t)i + 1;
                inserted += residues[i].insert_code != '?';
            }
        }
    }
    /* The dataset contains what makes real files hard. */
    assert_true(missing > 20 && alternates > 20 && renumbered > 1000);
    assert_true(selenium > 0 && inserted > 0);
}

/* A structure file reads back to its chain: the sequence, the missing residues, the number of
 * atoms, and CA coordinates to the last digit. */
static void check_structure(const fm_mmcif_chain *chain, const fm_synth_model *model,
                            uint32_t slot) {
    const fm_synth_chain *made = &model->chains[slot];
    assert_int_equal(chain->n_res, made->n_res);
    for (uint32_t i = 0; i < chain->n_res; i++) {
        const fm_synth_placed *placed = &model->residues[slot][i];
        const fm_ideal_residue *ideal = fm_ideal_residue_of(placed->type);
        assert_int_equal(chain->sequence[i], ideal->letter);
        assert_int_equal(chain->is_missing[i], placed->missing);
        uint32_t expected = placed->missing                      ? 0
                            : placed->stub && placed->n_atom > 5 ? 5
                                                                 : placed->n_atom;
        uint32_t found = 0;
        for (uint32_t k = 0; k < FM_N_ATOM37; k++)
            found += chain->all_atom_mask[i * FM_N_ATOM37 + k];
        assert_int_equal(found, expected);
        if (placed->missing || model->n_model > 1) continue;
        const float *ca = chain->all_atom_positions + ((size_t)i * FM_N_ATOM37 + FM_ATOM37_CA) * 3;
        assert_near(ca[0], placed->atoms[1].x, 0.000505);
        assert_near(ca[1], placed->atoms[1].y, 0.000505);
        assert_near(ca[2], placed->atoms[1].z, 0.000505);
    }
}

static void the_parser_reads_back_structures(void **state) {
    fm_arena *arena = *state;
    fm_synth_options options = small_options(1);
    for (uint32_t k = 0; k < 2 * N_ENTRY; k++) {
        fm_mmcif_options reading = {.compat_openfold = k % 2};
        fm_arena_reset(arena);
        fm_synth_entry entry = fm_synth_entry_of(&options, k / 2);
        fm_synth_model model;
        fm_bytes cif;
        fm_mmcif parsed;
        fm_error error;
        assert_int_equal(fm_synth_model_make(arena, &options, &entry, &model, NULL), FM_OK);
        assert_int_equal(fm_synth_mmcif(arena, &options, &entry, &cif, NULL), FM_OK);
        if (fm_mmcif_parse(cif, &reading, arena, &parsed, &error)) {
            fail_msg("%s:%llu: %s", entry.id, (unsigned long long)error.line, error.message);
        }
        assert_int_equal(parsed.n_chain, entry.n_chain);
        assert_near(parsed.resolution, model.resolution / 100.0, 1e-9);
        assert_int_equal(strlen(parsed.release_date), 10);
        for (uint32_t slot = 0; slot < entry.n_chain; slot++) {
            const fm_mmcif_chain *chain;
            const char id[2] = {entry.auth_chain[slot], '\0'};
            assert_int_equal(fm_mmcif_find_chain(&parsed, id, &chain, NULL), FM_OK);
            assert_null(chain->fault);
            check_structure(chain, &model, slot);
        }
    }
}

static bool is_a3m(const char *name) {
    return strcmp(name + strlen(name) - 4, ".a3m") == 0;
}

/* Checks all A3M files of a chain: query first, every row equally long. Counts the rows and the
 * exact repetitions among them. */
static void check_alignments(fm_arena *arena, const fm_synth_file *files, uint32_t n_file,
                             fm_bytes letters, uint32_t *rows, uint32_t *same_as_query) {
    for (uint32_t i = 0; i < n_file; i++) {
        if (!is_a3m(files[i].name)) continue;
        fm_alignment alignment;
        fm_error error;
        if (fm_a3m_parse(files[i].content, NULL, arena, &alignment, &error)) {
            fail_msg("%s:%llu: %s", files[i].name, (unsigned long long)error.line, error.message);
        }
        assert_int_equal(alignment.n_col, letters.size);
        assert_memory_equal(alignment.letters, letters.data, letters.size);
        for (uint32_t r = 1; r < alignment.n_seq; r++) {
            const uint8_t *row = alignment.letters + (size_t)r * alignment.n_col;
            for (uint32_t k = 0; k < alignment.n_col; k++)
                *same_as_query += row[k] == letters.data[k];
        }
        *rows += (alignment.n_seq - 1) * alignment.n_col;
    }
}

static void alignments_have_the_chains_columns(void **state) {
    fm_arena *arena = *state;
    fm_synth_options options = small_options(2);
    uint32_t cells = 0, same = 0;
    for (uint32_t e = 0; e < N_ENTRY; e++) {
        fm_synth_entry entry = fm_synth_entry_of(&options, e);
        for (uint32_t slot = 0; slot < entry.n_chain; slot++) {
            fm_arena_reset(arena);
            fm_synth_file files[FM_SYNTH_MAX_FILES];
            uint32_t n_file;
            fm_bytes letters;
            assert_int_equal(
                fm_synth_alignments(arena, &options, &entry, slot, files, &n_file, NULL), FM_OK);
            assert_int_equal(sequence_of(arena, &options, &entry, slot, &letters, NULL), FM_OK);
            check_alignments(arena, files, n_file, letters, &cells, &same);
        }
    }
    /* Rows are conserved enough to learn from and varied enough to need learning. */
    assert_true(same > cells * 0.35 && same < cells * 0.85);
}

/* The two formats of the same rows give the same letters and deletions. */
static void stockholm_and_a3m_say_the_same(void **state) {
    fm_arena *arena = *state;
    fm_synth_options options = small_options(6), other = options;
    other.stockholm = true;
    uint32_t deleted = 0;
    for (uint32_t e = 0; e < 8; e++) {
        fm_arena_reset(arena);
        fm_synth_entry entry = fm_synth_entry_of(&options, e);
        fm_synth_file a3m[FM_SYNTH_MAX_FILES], sto[FM_SYNTH_MAX_FILES];
        uint32_t n_file;
        assert_int_equal(fm_synth_alignments(arena, &options, &entry, 0, a3m, &n_file, NULL),
                         FM_OK);
        assert_int_equal(fm_synth_alignments(arena, &other, &entry, 0, sto, &n_file, NULL), FM_OK);
        for (uint32_t i = 1; i < n_file; i += 2) { /* mgnify, uniref90 */
            fm_alignment one, two;
            assert_int_equal(fm_a3m_parse(a3m[i].content, NULL, arena, &one, NULL), FM_OK);
            assert_int_equal(fm_stockholm_parse(sto[i].content, NULL, arena, &two, NULL), FM_OK);
            assert_int_equal(one.n_seq, two.n_seq);
            assert_int_equal(one.n_col, two.n_col);
            size_t cells = (size_t)one.n_seq * one.n_col;
            assert_memory_equal(one.letters, two.letters, cells);
            assert_memory_equal(one.deletion, two.deletion, cells * sizeof one.deletion[0]);
            for (size_t k = 0; k < cells; k++)
                deleted += one.deletion[k];
        }
    }
    assert_true(deleted > 100);
}

/* In the chain's MSA features, rows of several files repeat each other and some rows name a
 * species. */
static void msa_features_have_work_to_do(void **state) {
    fm_arena *arena = *state;
    fm_synth_options options = small_options(9);
    uint32_t before = 0, after = 0, species = 0;
    for (uint32_t e = 0; e < 8; e++) {
        fm_arena_reset(arena);
        fm_synth_entry entry = fm_synth_entry_of(&options, e);
        fm_synth_file files[FM_SYNTH_MAX_FILES];
        fm_msa_input inputs[FM_SYNTH_MAX_FILES];
        uint32_t n_file;
        fm_bytes letters;
        fm_part_msa part;
        fm_msa_report report;
        fm_error error;
        assert_int_equal(sequence_of(arena, &options, &entry, 0, &letters, NULL), FM_OK);
        assert_int_equal(fm_synth_alignments(arena, &options, &entry, 0, files, &n_file, NULL),
                         FM_OK);
        for (uint32_t i = 0; i < n_file; i++)
            inputs[i] = (fm_msa_input){.name = files[i].name, .content = files[i].content};
        if (fm_msa_build(inputs, n_file, letters, NULL, arena, &part, &report, &error)) {
            fail_msg("%s:%llu: %s", error.source, (unsigned long long)error.line, error.message);
        }
        assert_int_equal(report.n_file, 3);
        before += report.n_row;
        after += part.n_seq;
        for (uint32_t r = 0; r < part.n_seq; r++)
            species += part.species_end[r] > (r ? part.species_end[r - 1] : 0);
    }
    assert_true(after < before - before / 10 && after > before / 4);
    assert_true(species > after / 10 && species < after);
}

/* Finds "9A0X_A" among the entries up to `newest`. */
static fm_synth_entry find_entry(const fm_synth_options *options, fm_bytes name, uint32_t newest,
                                 uint32_t *ret_slot) {
    for (uint32_t e = 0; e <= newest; e++) {
        fm_synth_entry entry = fm_synth_entry_of(options, e);
        bool same = true;
        for (uint32_t i = 0; i < 4; i++)
            same = same && tolower(name.data[i]) == entry.id[i];
        for (uint32_t slot = 0; same && slot < entry.n_chain; slot++) {
            *ret_slot = slot;
            if ((uint8_t)entry.auth_chain[slot] == name.data[5]) return entry;
        }
    }
    fail_msg("the hit %.6s is no earlier entry", (const char *)name.data);
    return (fm_synth_entry){0};
}

static void check_columns(const char *columns, const int32_t *indices, uint32_t n,
                          fm_bytes letters) {
    for (uint32_t k = 0; k < n; k++) {
        if (indices[k] < 0) {
            assert_int_equal(columns[k], '-');
            continue;
        }
        assert_true((size_t)indices[k] < letters.size);
        assert_int_equal(columns[k], letters.data[indices[k]]);
    }
}

static void hits_name_earlier_entries_and_their_residues(void **state) {
    fm_arena *arena = *state;
    fm_synth_options options = small_options(3);
    uint32_t relatives = 0, gaps = 0;
    for (uint32_t e = 0; e < N_ENTRY; e++) {
        fm_arena_reset(arena);
        fm_synth_entry entry = fm_synth_entry_of(&options, e);
        fm_synth_file files[FM_SYNTH_MAX_FILES];
        uint32_t n_file, slot = entry.n_chain - 1;
        fm_bytes letters, other;
        fm_hits hits;
        assert_int_equal(fm_synth_alignments(arena, &options, &entry, slot, files, &n_file, NULL),
                         FM_OK);
        assert_int_equal(sequence_of(arena, &options, &entry, slot, &letters, NULL), FM_OK);
        assert_string_equal(files[2].name, "pdb70_hits.hhr");
        assert_int_equal(fm_hhr_parse(files[2].content, true, arena, &hits, NULL), FM_OK);
        assert_true(hits.n_hit >= 1);
        for (uint32_t i = 0; i < hits.n_hit; i++) {
            const fm_hit *hit = &hits.hit[i];
            uint32_t target_slot, pairs = 0;
            fm_synth_entry target = find_entry(&options, hit->name, e, &target_slot);
            assert_int_equal(sequence_of(arena, &options, &target, target_slot, &other, NULL),
                             FM_OK);
            check_columns(hit->query, hit->indices_query, hit->n_query, letters);
            check_columns(hit->hit, hit->indices_hit, hit->n_hit, other);
            for (uint32_t k = 0; k < hit->n_query; k++)
                pairs += hit->indices_query[k] >= 0 && hit->indices_hit[k] >= 0;
            assert_int_equal(pairs, hit->aligned_cols);
            assert_true(i == 0 || hit->sum_probs <= hits.hit[i - 1].sum_probs);
            relatives += target.family[target_slot] == entry.family[slot];
            gaps += hit->n_query - pairs;
        }
    }
    assert_true(relatives > N_ENTRY && gaps > 0); /* some besides themselves, some with indels */
}

static void a_full_arena_is_an_error_not_a_crash(void **state) {
    (void)state;
    fm_synth_options options = small_options(4);
    fm_synth_entry entry = fm_synth_entry_of(&options, 3);
    for (size_t bytes = 64; bytes < 300000; bytes = bytes * 3 / 2) {
        fm_arena arena;
        fm_bytes cif;
        fm_synth_file files[FM_SYNTH_MAX_FILES];
        uint32_t n_file;
        fm_error error = {0};
        assert_int_equal(fm_arena_init(&arena, bytes, NULL), FM_OK);
        assert_int_equal(fm_synth_mmcif(&arena, &options, &entry, &cif, &error), FM_ERR_LIMIT);
        fm_arena_reset(&arena);
        (void)!fm_synth_alignments(&arena, &options, &entry, 0, files, &n_file, &error);
        fm_arena_fini(&arena);
    }
}

static void shortest_and_longest_chains_can_be_made(void **state) {
    static const uint32_t lengths[][2] = {{12, 12}, {12, 14}, {30, 31}, {600, 600}};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        fm_synth_options options = small_options(5);
        options.min_length = lengths[i][0];
        options.max_length = lengths[i][1];
        options.max_depth = 1 + (uint32_t)i;
        for (uint32_t e = 0; e < (options.max_length > 100 ? 1 : 4); e++) {
            fm_arena_reset(*state);
            fm_synth_entry entry = fm_synth_entry_of(&options, e);
            fm_bytes letters, cif;
            fm_synth_file files[FM_SYNTH_MAX_FILES];
            uint32_t n_file;
            assert_int_equal(sequence_of(*state, &options, &entry, 0, &letters, NULL), FM_OK);
            assert_in_range(letters.size, options.min_length, options.max_length);
            assert_int_equal(fm_synth_mmcif(*state, &options, &entry, &cif, NULL), FM_OK);
            assert_int_equal(fm_synth_alignments(*state, &options, &entry, 0, files, &n_file, NULL),
                             FM_OK);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_seed_gives_the_same_bytes),
        cmocka_unit_test(the_bytes_are_the_ones_we_know),
        cmocka_unit_test(ids_are_unique_and_start_with_a_digit),
        cmocka_unit_test(structures_bond_and_do_not_clash),
        cmocka_unit_test(the_parser_reads_back_structures),
        cmocka_unit_test(alignments_have_the_chains_columns),
        cmocka_unit_test(stockholm_and_a3m_say_the_same),
        cmocka_unit_test(msa_features_have_work_to_do),
        cmocka_unit_test(hits_name_earlier_entries_and_their_residues),
        cmocka_unit_test(a_full_arena_is_an_error_not_a_crash),
        cmocka_unit_test(shortest_and_longest_chains_can_be_made),
    };
    return cmocka_run_group_tests(tests, make_arena, drop_arena);
}
