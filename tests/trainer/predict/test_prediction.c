/* test_prediction.c: tests the files of a prediction. The project's parsers read them back with
 * equal coordinates, and chains that do not fit into a format are refused. FM_TEST_PICTURES=DIR
 * keeps the pictures. */
#include "trainer/predict/chain_file.h"
#include "trainer/predict/page.h"
#include "trainer/predict/pictures.h"
#include "trainer/predict/prediction.h"
#include "trainer/predict/results.h"
#include "trainer/predict/text_file.h"

#include "featurizer/parse/mmcif.h"
#include "featurizer/parse/pdb.h"
#include "proto/base/file.h"
#include "proto/chem/atom14.h"
#include "tests/testing/testing.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 173 };

static char folder[512];
static fm_arena arena;
static uint8_t aatype[N];
static float atoms[N * FM_N_ATOM14 * 3], plddt[N], pae[N * N];

/* Helices on a bent path, confident but for a loop and the ends; two domains. */
static fm_prediction make(void) {
    for (int i = 0; i < N; i++) {
        double turn = i * 100 * 3.14159265358979 / 180, bend = i * 0.045;
        aatype[i] = (uint8_t)((i * 7 + i / 5) % 20);
        plddt[i] = (float)(92 - (i < 6 || i > N - 8 ? 45 : 0) - (i > 80 && i < 95 ? 30 : 0) +
                           5 * sin(i * 0.6));
        for (int a = 0; a < FM_N_ATOM14; a++) {
            float *at = atoms + ((size_t)i * FM_N_ATOM14 + (size_t)a) * 3;
            at[0] = (float)(2.3 * cos(turn) + 26 * cos(bend) + 0.9 * (a - 1));
            at[1] = (float)(2.3 * sin(turn) + 18 * sin(1.7 * bend) - 0.4 * (a - 1));
            at[2] = (float)(-12.3456 + 9 * sin(2.3 * bend) + 0.11 * (a - 1));
        }
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            pae[i * N + j] = (float)fmin(31, abs(i - j) * 0.05 + ((i < 88) != (j < 88) ? 18 : 1) +
                                                 3 * fabs(sin(0.05 * i * j)));
    return (fm_prediction){.chain = "it's_a",
                           .model = "model_1 & friends",
                           .software = "0.1.0",
                           .seed = 3,
                           .n_res = N,
                           .aatype = aatype,
                           .atoms = atoms,
                           .plddt = plddt,
                           .pae = pae,
                           .ptm = 0.7123,
                           .max_pae = 31.75,
                           .mean_plddt = 85.5,
                           .n_templ = 2,
                           .templ = {{"1abc", "A"}, {"2xyz", "B"}}};
}

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    return fm_arena_init(&arena, (size_t)1 << 30, NULL) ? -1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_arena_fini(&arena);
    fm_test_remove_tree(folder);
    return 0;
}

static const char *path_of(const char *name) {
    static char path[640];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static fm_bytes read_back(const char *name) {
    fm_bytes text;
    assert_int_equal(fm_file_read(&arena, path_of(name), (size_t)64 << 20, &text, NULL), FM_OK);
    return text;
}

/* Every atom of the prediction is in the parsed structure, where it was to 0.0005 Å. */
static void assert_atoms(const float *positions, const uint8_t *mask, const float *confidence) {
    size_t n_atom = 0, n_found = 0;
    for (size_t i = 0; i < N; i++) {
        assert_true(fabs((double)confidence[i] - (double)plddt[i]) <= 0.0051);
        for (size_t a = 0; a < FM_N_ATOM14; a++) {
            uint8_t atom37 = fm_atom14_to_atom37[aatype[i]][a];
            if (atom37 == FM_ATOM37_NONE) continue;
            size_t at = i * FM_N_ATOM37 + atom37;
            n_atom++;
            assert_int_equal(mask[at], 1);
            for (size_t k = 0; k < 3; k++) {
                double want = (double)atoms[(i * FM_N_ATOM14 + a) * 3 + k];
                assert_true(fabs((double)positions[at * 3 + k] - want) <= 0.00051);
            }
        }
    }
    for (size_t at = 0; at < (size_t)N * FM_N_ATOM37; at++)
        n_found += mask[at];
    assert_int_equal(n_found, n_atom);
}

static void mmcif_is_read_back(void **state) {
    (void)state;
    const fm_prediction p = make();
    const fm_mmcif_options options = {.is_predicted = true};
    fm_mmcif mmcif;
    fm_error error;
    assert_int_equal(fm_prediction_write_cif(path_of("a.cif"), &p, &error), FM_OK);
    fm_bytes text = read_back("a.cif");
    if (fm_mmcif_parse(text, &options, &arena, &mmcif, &error)) {
        fail_msg("%llu: %s", (unsigned long long)error.line, error.message);
    }
    assert_int_equal(mmcif.n_chain, 1);
    assert_int_equal(mmcif.chains[0].n_res, N);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(mmcif.chains[0].sequence[i], fm_restype_letters[aatype[i]]);
    assert_atoms(mmcif.chains[0].all_atom_positions, mmcif.chains[0].all_atom_mask,
                 mmcif.chains[0].confidence);
    static const char *const categories[] = {"_ma_qa_metric_local.metric_value",
                                             "_ma_qa_metric_global.metric_value",
                                             "_ma_template_ref_db_details.db_accession_code",
                                             "_software.name",
                                             "_ma_model_list.model_id",
                                             "_entity_poly.pdbx_seq_one_letter_code",
                                             "PDB '2xyz'",
                                             "2 1 3 0.7123"};
    for (size_t i = 0; i < sizeof categories / sizeof categories[0]; i++)
        assert_non_null(memmem(text.data, text.size, categories[i], strlen(categories[i])));
}

static void pdb_is_read_back(void **state) {
    (void)state;
    fm_prediction p = make();
    const fm_pdb_options options = {.compat_openfold = false};
    fm_pdb pdb;
    fm_error error;
    assert_int_equal(fm_prediction_write_pdb(path_of("a.pdb"), &p, &error), FM_OK);
    if (fm_pdb_parse(read_back("a.pdb"), &options, &arena, &pdb, &error)) {
        fail_msg("%llu: %s", (unsigned long long)error.line, error.message);
    }
    assert_int_equal(pdb.n_res, N);
    assert_atoms(pdb.all_atom_positions, pdb.all_atom_mask, pdb.confidence);
    /* What has no room in the format is refused, and no file is left. */
    float kept = atoms[30];
    atoms[30] = -1000;
    assert_int_equal(fm_prediction_write_pdb(path_of("b.pdb"), &p, &error), FM_ERR_LIMIT);
    assert_non_null(strstr(error.message, "mmCIF"));
    atoms[30] = kept;
    p.n_res = 10000;
    assert_int_equal(fm_prediction_write_pdb(path_of("b.pdb"), &p, &error), FM_ERR_LIMIT);
    fm_bytes unused;
    assert_int_equal(fm_file_read(&arena, path_of("b.pdb"), 100, &unused, NULL), FM_ERR_NOT_FOUND);
}

/* Residues without a type have no atoms; their places in the sequence stay. */
static void unknown_residues_have_no_atoms(void **state) {
    (void)state;
    const fm_prediction p = make();
    const fm_mmcif_options options = {.is_predicted = true};
    fm_mmcif mmcif;
    fm_error error;
    aatype[40] = FM_RESTYPE_X;
    assert_int_equal(fm_prediction_write_cif(path_of("x.cif"), &p, &error), FM_OK);
    assert_int_equal(fm_mmcif_parse(read_back("x.cif"), &options, &arena, &mmcif, &error), FM_OK);
    assert_int_equal(mmcif.chains[0].n_res, N);
    assert_int_equal(mmcif.chains[0].sequence[40], 'X');
    assert_int_equal(mmcif.chains[0].is_missing[40], 1);
}

static void rankings_are_by_plddt(void **state) {
    (void)state;
    fm_results r;
    uint32_t order[4];
    assert_int_equal(fm_results_make(&r, 1, 4, NULL), FM_OK);
    for (uint32_t k = 0; k < 4; k++) {
        static const double values[] = {70, 80, 70, 0};
        fm_results_name_run(&r, k, "m", k);
        r.chain[0].result[k] = (fm_result){.is_done = true,
                                           .status = k == 3 ? FM_ERR_LIMIT : FM_OK,
                                           .mean_plddt = values[k],
                                           .ptm = NAN,
                                           .max_pae = NAN,
                                           .ca_change = NAN};
        snprintf(r.chain[0].result[k].why, sizeof r.chain[0].result[k].why, "too \"long\", it is");
    }
    assert_int_equal(fm_results_name_chain(&r.chain[0], "c", NULL), FM_OK);
    assert_int_equal(fm_results_rank(&r, &r.chain[0], order), 3);
    assert_int_equal(order[0], 1);
    assert_int_equal(order[1], 0);
    assert_int_equal(order[2], 2);
    assert_int_equal(fm_results_n_failed(&r), 1);
    assert_int_equal(fm_results_find_best(&r, &r.chain[0]), 1);
    char name[] = "d", why[] = "d.fasta:1:2: found 'J'";
    const fm_refused_input refused = {name, why};
    assert_int_equal(fm_results_write_summary(&r, &refused, 1, path_of("s.csv"), NULL), FM_OK);
    fm_bytes text = read_back("s.csv");
    static const char row[] = "c,0,0,0,m,3,,,,,,,,,\"too \"\"long\"\", it is\"\n";
    assert_non_null(memmem(text.data, text.size, row, sizeof row - 1));
    static const char last[] = "\nd,,,,,,,,,,,,,,d.fasta:1:2: found 'J'\n";
    assert_non_null(memmem(text.data, text.size, last, sizeof last - 1));
    r.chain[0].result[0].status = r.chain[0].result[1].status = FM_ERR_LIMIT;
    r.chain[0].result[2].is_done = false;
    assert_int_equal(fm_results_find_best(&r, &r.chain[0]), UINT32_MAX);
    fm_results_release(&r);
}

/* Different chains have different files, which stay in the folder and fit into its names. */
static void names_of_files_are_different(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {"1abc_A", "1abc_A"},         {"a/b", "a%2Fb"},      {"a_b", "a_b"},
        {"a%2Fb", "a%252Fb"},         {"../x", "%2E.%2Fx"},  {".", "%2E"},
        {"lock", "%6Cock"},           {"locks", "locks"},    {"summary.csv", "%73ummary.csv"},
        {"pdb:1abc_A", "pdb:1abc_A"}, {"a b\n", "a%20b%0A"}, {"", ""}};
    char out[FM_CHAIN_FILE_MOST + 1], other[FM_CHAIN_FILE_MOST + 1], text[300];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fm_chain_file_name(names[i][0], out);
        assert_string_equal(out, names[i][1]);
    }
    /* One more byte than there is room for, of each kind, and two names with the same beginning. */
    for (size_t kind = 0; kind < 2; kind++) {
        size_t most = kind ? FM_CHAIN_FILE_MOST / 3 : FM_CHAIN_FILE_MOST;
        memset(text, kind ? '/' : 'x', sizeof text);
        text[most] = '\0';
        fm_chain_file_name(text, out);
        assert_int_equal(strlen(out), FM_CHAIN_FILE_MOST);
        assert_null(strstr(out, "%~"));
        memcpy(text + most, "y", 2);
        fm_chain_file_name(text, out);
        memcpy(text + most, "z", 2);
        fm_chain_file_name(text, other);
        assert_true(strlen(out) <= FM_CHAIN_FILE_MOST && strlen(out) > FM_CHAIN_FILE_MOST - 3);
        assert_non_null(strstr(out, "%~"));
        assert_string_not_equal(out, other);
    }
    size_t bytes;
    assert_string_equal(fm_chain_in_dataset("pdb:1abc_A", &bytes), "1abc_A");
    assert_int_equal(bytes, 3);
    assert_string_equal(fm_chain_in_dataset("1abc_A", &bytes), "1abc_A");
    assert_int_equal(bytes, 0);
    assert_string_equal(fm_chain_in_dataset("a/b:c", &bytes), "a/b:c");
    assert_string_equal(fm_chain_in_dataset("a:", &bytes), "a:");
}

/* Pictures are XML without links; the page holds them. */
static void pictures_and_pages_are_whole(void **state) {
    (void)state;
    const fm_prediction p = make();
    fm_text_file file;
    float other[N];
    char letters[N];
    for (int i = 0; i < N; i++) {
        other[i] = plddt[i] - 12 + (float)(6 * cos(0.2 * i));
        letters[i] = fm_restype_letters[aatype[i]];
    }
    const fm_plddt_curve curves[] = {{"model_1 & friends_seed-3", plddt, 85.5},
                                     {"model_2_seed-3", other, 73.1}};
    fm_bytes pictures[4];
    assert_int_equal(fm_text_file_open(&file, NULL), FM_OK);
    assert_true(fm_picture_trace(file.out, &p));
    assert_int_equal(fm_text_file_commit(&file, path_of("trace.svg"), NULL), FM_OK);
    pictures[0] = read_back("trace.svg");
    assert_int_equal(fm_text_file_open(&file, NULL), FM_OK);
    fm_picture_plddt(file.out, p.chain, N, curves, 2, NULL);
    assert_int_equal(fm_text_file_commit(&file, path_of("plddt.svg"), NULL), FM_OK);
    pictures[1] = read_back("plddt.svg");
    assert_int_equal(fm_text_file_open(&file, NULL), FM_OK);
    fm_picture_pae(file.out, &p);
    assert_int_equal(fm_text_file_commit(&file, path_of("pae.svg"), NULL), FM_OK);
    pictures[2] = read_back("pae.svg");
    const fm_page_row rows[] = {
        {"model_1 & friends_seed-3", "model_1 & friends", 3, 85.5, 0.7123, 4, 12.5,
         "it's_a_model 1.cif", "a_scores.json"},
        {"model_2_seed-3", "model_2", 3, 73.1, NAN, 3, 9.1, "b.cif", "b_scores.json"}};
    const fm_page page = {p.chain, "0.1.0", N,    1234, "1abc_A, 2xyz_B", letters,
                          plddt,   2,       rows, 3,    pictures};
    assert_int_equal(fm_page_write(path_of("page.html"), &page, NULL), FM_OK);
    assert_int_equal(fm_test_shell(folder, "python3 -c 'import glob, xml.etree.ElementTree as e; "
                                           "[e.parse(f) for f in glob.glob(\"*.svg\")]' && ! grep "
                                           "-lE 'href|<script' *.svg && grep -qF "
                                           "'href=\"./it%27s_a_model%201.cif\"' page.html && grep "
                                           "-qF 'model_1 &amp; friends' page.html"),
                     0);
    const char *keep = getenv("FM_TEST_PICTURES");
    if (keep) assert_int_equal(fm_test_shell_format(folder, "cp *.svg page.html '%s'", keep), 0);
    const char bad[] = "{\"columns\": [1, 2], \"bands\": [{\"rows\": 2}]}";
    fm_json *tree = fm_json_parse(bad, sizeof bad - 1);
    assert_false(fm_picture_coverage(stdout, "c", 3, tree));
    fm_json_free(tree);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mmcif_is_read_back),
        cmocka_unit_test(pdb_is_read_back),
        cmocka_unit_test(unknown_residues_have_no_atoms),
        cmocka_unit_test(rankings_are_by_plddt),
        cmocka_unit_test(names_of_files_are_different),
        cmocka_unit_test(pictures_and_pages_are_whole),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
