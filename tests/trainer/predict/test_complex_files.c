/* test_complex_files.c: the files of a small predicted complex (complex_names.h) have the rows,
 * numbers and words that other programs read. */
#include "proto/base/file.h"
#include "proto/base/json_tree.h"
#include "tests/testing/complex_names.h"
#include "tests/testing/testing.h"
#include "trainer/predict/complex/files.h"
#include "trainer/predict/complex/index_page.h"
#include "trainer/predict/complex/page.h"
#include "trainer/predict/complex/scene.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 10, A = FM_TEST_NAMES_ATOMS, K = 3 };

static char folder[512], path[600];
static fm_arena arena;
static fm_complex_atoms atoms;
static fm_complex_layout layout;
static float position[A * 3], pae[N * N];
static double plddt[A], contact[N * N];
static fm_complex_scores scores;

static const fm_complex_prediction prediction = {.name = "my job",
                                                 .model = "weights",
                                                 .software = "1.2.3",
                                                 .seed = 7,
                                                 .sample = 2,
                                                 .atoms = &atoms,
                                                 .layout = &layout,
                                                 .position = position,
                                                 .plddt = plddt,
                                                 .pae = pae,
                                                 .contact = contact,
                                                 .scores = &scores};

static int setup(void **state) {
    (void)state;
    static const int32_t token[] = {0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    static const uint8_t frames[N] = {1, 1};
    static double pair_iptm[K * K] = {0.5, 0.25, 0.126, 0.25, 0.4, 0, 0.126, 0, 1};
    static double pair_pae[K * K] = {0.25, 3, 4, 5, 6, 7, 8, 9, 1};
    static double ptm[K] = {0.5, 0.4, 1}, iptm[K] = {0.2, 0.3, 0.4};
    pair_pae[7] = pair_iptm[5] = ptm[2] = (double)NAN;
    fm_test_make_folder(folder, sizeof folder);
    if (fm_arena_init(&arena, (size_t)64 << 20, NULL)) return 1;
    atoms = fm_test_complex_names();
    for (int i = 0; i < A; i++) {
        plddt[i] = 0.5 + 0.02 * i;
        position[3 * i] = 1.0004F * (float)i;
        position[3 * i + 1] = -0.5F;
    }
    for (int i = 0; i < N * N; i++) {
        pae[i] = 0.25F * (float)i;
        contact[i] = i / 99.0;
    }
    pae[5] = (float)NAN;
    pae[1] = 120;
    scores = (fm_complex_scores){.ptm = 0.625,
                                 .iptm = 0.125,
                                 .mean_plddt = 66,
                                 .has_clash = true,
                                 .ranking_score = -99.775,
                                 .chain_pair_iptm = pair_iptm,
                                 .chain_pair_pae_min = pair_pae,
                                 .chain_ptm = ptm,
                                 .chain_iptm = iptm};
    return fm_complex_layout_make(&atoms, N, token, frames, &arena, &layout, NULL);
}

static int teardown(void **state) {
    (void)state;
    fm_arena_fini(&arena);
    fm_test_remove_tree(folder);
    return 0;
}

/* The text of a file in the folder, with its end. */
static const char *text_of(const char *name) {
    fm_bytes bytes;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(fm_file_read(&arena, path, (size_t)1 << 20, &bytes, NULL), FM_OK);
    char *text = fm_arena_alloc(&arena, bytes.size + 1);
    assert_non_null(text);
    memcpy(text, bytes.data, bytes.size);
    text[bytes.size] = '\0';
    return text;
}

static const char *path_of(const char *name) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void expect_in(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("not found: %s\nin:\n%s", part, text);
}

static void test_cif(void **state) {
    (void)state;
    assert_int_equal(fm_complex_write_cif(path_of("m.cif"), &prediction, NULL), FM_OK);
    const char *text = text_of("m.cif");
    expect_in(text, "data_my_job\n#\n_entry.id 'my job'\n");
    expect_in(text, "\n1 polymer man 'a peptide' 1\n2 non-polymer man ? 1\n"
                    "3 non-polymer man \n;ion's \"name\"\n;\n 1\n");
    expect_in(text, "\n1 polypeptide(L) no no\n;A\n;\n;GC\n;\n;GC\n;\n");
    expect_in(text, "\n1 1 GLY n\n1 2 CYS n\n");
    expect_in(text, "\nXYZ NON-POLYMER n 3'-XYZ ? ?\nMG NON-POLYMER n ? Mg 24.305\n");
    expect_in(text, "\nXYZ N3 N 1 N N\nXYZ C5' C 0 N N\nMG MG MG 2 N N\n");
    expect_in(text, "\nXYZ C1 C2 doub Y 1\nXYZ C2 N3 sing N 2\nXYZ N3 C5' trip N 3\n");
    expect_in(text, "\ncovale1 covale A CYS 2 SG A CYS 2 B XYZ . C1 B XYZ 1 1_555 1_555 sing\n"
                    "covale2 covale B XYZ . C5' B XYZ 1 B XYZ . C1 B XYZ 2 1_555 1_555 sing\n#\n");
    expect_in(text, "\n1 1 A 1 GLY 1 53.00\n2 1 A 2 CYS 1 62.00\n#\n");
    expect_in(text, "\n1 1 2 66.00\n2 1 3 0.6250\n3 1 4 0.1250\n");
    expect_in(text, "\nATOM 9 S SG . CYS A 1 2 ? 8.003 -0.500 0.000 1.00 66.00 ? 2 CYS A SG 1\n");
    expect_in(text,
              "\nHETATM 16 N N3 . XYZ B 2 . ? 15.006 -0.500 0.000 1.00 80.00 1 2 XYZ B N3 1\n");
    expect_in(text, "'weights, seed 7, sample 2'");
    const float was = position[4];
    position[4] = (float)NAN;
    fm_error error;
    assert_int_equal(fm_complex_write_cif(path_of("n.cif"), &prediction, &error), FM_ERR_DATA);
    assert_string_equal(error.message, "atom 2: found a position that is not finite, expected "
                                       "numbers");
    position[4] = was;
}

static void test_confidences(void **state) {
    (void)state;
    fm_json *json;
    assert_int_equal(fm_complex_write_confidences(path_of("c.json"), &prediction, NULL), FM_OK);
    const char *text = text_of("c.json");
    expect_in(text, "{\"atom_chain_ids\":[\"A\",\"A\",");
    expect_in(text, "],\"atom_plddts\":[50.0,52.0,");
    expect_in(text,
              "],\"contact_probs\":[[0.0,0.01,0.02,0.03,0.04,0.05,0.06,0.07,0.08,0.09],[0.1,");
    expect_in(text, "],\"pae\":[[0.0,99.9,0.5,0.8,1.0,null,1.5,1.8,2.0,2.3],[2.5,");
    expect_in(text, "],\"token_chain_ids\":[\"A\",\"A\",\"B\",");
    expect_in(text, "],\"token_res_ids\":[1,2,1,1,1,1,2,2,2,1]}\n");
    assert_non_null(json = fm_json_parse(text, strlen(text)));
    fm_json_free(json);
}

static void test_summary(void **state) {
    (void)state;
    assert_int_equal(fm_complex_write_summary(path_of("s.json"), &prediction, NULL), FM_OK);
    const char *text = text_of("s.json");
    expect_in(text, "{\n \"chain_ids\": [\n  \"A\",\n  \"B\",\n  \"C\"\n ],\n \"chain_iptm\": [\n"
                    "  0.2,\n  0.3,\n  0.4\n ],\n \"chain_pair_iptm\": [\n  [\n   0.5,\n   0.25,\n"
                    "   0.13\n  ],\n  [\n   0.25,\n   0.4,\n   null\n  ],");
    expect_in(text, " \"chain_ptm\": [\n  0.5,\n  0.4,\n  null\n ],\n \"fraction_disordered\": 0.0,"
                    "\n \"has_clash\": 1.0,\n \"iptm\": 0.12,\n \"ptm\": 0.62,\n"
                    " \"ranking_score\": -99.78\n}\n");
}

static void test_ranking(void **state) {
    (void)state;
    static const fm_complex_ranked rows[] = {
        {1, 0, 0.1}, {1, 1, (double)NAN}, {4294967295, 4, -99.5}};
    assert_int_equal(fm_complex_write_ranking(path_of("r.csv"), rows, 3, NULL), FM_OK);
    assert_string_equal(text_of("r.csv"),
                        "seed,sample,ranking_score\n1,0,0.1\n1,1,\n4294967295,4,-99.5\n");
}

static void test_protenix(void **state) {
    (void)state;
    double one[1] = {0.5}, none[1] = {0};
    const fm_protenix_scores s = {.plddt = 71.5,
                                  .gpde = (double)NAN,
                                  .chain_ptm = one,
                                  .chain_iptm = none,
                                  .chain_gpde = none,
                                  .chain_plddt = one,
                                  .chain_pair_iptm = none,
                                  .chain_pair_iptm_global = none,
                                  .chain_pair_gpde = none,
                                  .chain_pair_plddt = none};
    assert_int_equal(fm_complex_write_protenix(path_of("p.json"), 1, &s, 10, NULL), FM_OK);
    const char *text = text_of("p.json");
    expect_in(text, "{\n \"plddt\": 71.5,\n \"gpde\": null,\n \"ptm\": 0,");
    expect_in(text, " \"has_clash\": false,\n \"disorder\": 0,\n");
    expect_in(text, " \"num_recycles\": 10\n}\n");
}

/* Writes the page of a job with one structure. */
static void write_page(const fm_complex_prediction *p) {
    char *best;
    size_t bytes;
    const fm_complex_page_row row = {7, 2, 0.5, 0.25, (double)NAN, 66, 0.125, true};
    assert_int_equal(fm_complex_page_draw(p, &best, &bytes, NULL), FM_OK);
    const fm_complex_page page = {.name = p->name,
                                  .software = "1.2.3",
                                  .n_token = p->layout->n_token,
                                  .n_atom = p->layout->n_atom,
                                  .n_chain = p->layout->n_chain,
                                  .n_row = 1,
                                  .row = &row,
                                  .best = best,
                                  .best_bytes = bytes};
    assert_int_equal(fm_complex_page_write(path, &page, NULL), FM_OK);
    free(best);
}

/* Without the tags that HTML does not close the page is XML. */
static void pages_are_whole_and_escaped(void **state) {
    (void)state;
    static const char *const ids[K] = {"<A&\">", "B", "C"};
    fm_complex_atoms named = atoms;
    fm_complex_prediction p = prediction;
    named.chain_id = ids;
    p.name = "a <job> & 'more'";
    p.atoms = &named;
    snprintf(path, sizeof path, "%s/page.html", folder);
    write_page(&p);
    const char *check =
        "grep -v '^<!doctype' page.html | sed 's/<meta [^>]*>//g' > page.xml && "
        "python3 -c 'import xml.etree.ElementTree as e; e.parse(\"page.xml\")' && "
        "! grep -qE '<job>|<A&|src=|href=\"[^.]|@import|nan' page.html && "
        "[ $(grep -c '<script' page.html) = 1 ] && "
        "grep -qF '<th>&lt;A&amp;' page.html && grep -qF 'a &lt;job&gt; &amp; ' page.html && "
        "grep -qF 'href=\"./seed-7_sample-2/a%20%3Cjob%3E%20%26%20%27more%27_seed-7_sample-2_"
        "summary_confidences.json\"' page.html && "
        "grep -qF 'rgba(0,109,44,0.13)\">0.13</td>' page.html && "
        "[ $(grep -cF '<td>-</td>' page.html) -ge 2 ] && [ $(grep -o '<svg ' page.html | wc -l) = "
        "3 ]";
    assert_int_equal(fm_test_shell(folder, check), 0);
    const char *keep = getenv("FM_TEST_PICTURES");
    if (keep) {
        assert_int_equal(fm_test_shell_format(folder, "cp page.html '%s/complex.html'", keep), 0);
    }
}

/* The drawing has the ribbon of the peptide, and atoms and bonds of its bonded residue, the ligand
 * and the ion: two double bonds and a triple one, and no bond to the atom O4 that left. */
static void a_scene_has_the_bonds(void **state) {
    (void)state;
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    uint32_t n_left_out;
    assert_int_equal(fm_complex_scene_put(out, &prediction, &n_left_out, NULL), FM_OK);
    assert_int_equal(n_left_out, 0);
    assert_int_equal(fclose(out), 0);
    snprintf(path, sizeof path, "%s/scene.json", folder);
    assert_int_equal(fm_file_write_atomic(path, text, bytes, NULL), FM_OK);
    free(text);
    assert_int_equal(
        fm_test_shell(
            folder,
            "python3 -c '\n"
            "import html, json\n"
            "s = json.loads(html.unescape(open(\"scene.json\").read()))\n"
            "r, a, b = s[\"residues\"], s[\"atoms\"], s[\"bonds\"]\n"
            "rows = [tuple(r[i:i + 5]) for i in range(0, len(r), 11)]\n"
            "assert rows == [(0, 1, 0, 53.0, 0), (0, 2, 1, 62.0, 0)], rows\n"
            "assert r[8:11] == [100, 0, 0] and r[5] - r[16] == -400, r\n"
            "names = s[\"names\"][0::2]\n"
            "assert len(a) == 7 * 13 and names[4] == \"SG\" and names[-1] == \"MG\", names\n"
            "pairs = [(names[b[i]], names[b[i + 1]], b[i + 2]) for i in range(0, len(b), 3)]\n"
            "want = [(\"N\", \"CA\", 1), (\"CA\", \"C\", 1), (\"C\", \"O\", 2), (\"C1\", \"C2\", "
            "2),"
            " (\"C2\", \"N3\", 1), (\"N3\", \"C5\\x27\", 3), (\"C1\", \"C2\", 2),"
            " (\"C2\", \"N3\", 1), (\"SG\", \"C1\", 1), (\"C5\\x27\", \"C1\", 1)]\n"
            "assert pairs == want, pairs\n"
            "' 2>scene.err || { cat scene.err; exit 1; }"),
        0);
}

/* Three jobs whose best structures have other ranks than their places, and two without structures.
 */
static void write_index(void) {
    const double none = (double)NAN;
    const fm_complex_index_row rows[] = {
        {.job = "bad <one>", .why = "jobs.json:3:29: found & expected"},
        {.job = "low",
         .n_chain = 2,
         .n_token = 12345,
         .n_atom = 99999,
         .n_structure = 5,
         .best = {7, 2, -99.5, 0.25, 0.125, 42, 0.125, true}},
        {.job = "a job & more",
         .has_page = true,
         .n_chain = 1,
         .n_structure = 10,
         .best = {4294967295, 0, 0.5, 0.5, none, 95, none, false}},
        {.job = "worst", .why = "none"},
        {.job = "equal",
         .has_page = true,
         .n_chain = 1,
         .n_structure = 1,
         .best = {1, 3, 0.5, 0.5, none, 72, 0, false}}};
    snprintf(path, sizeof path, "%s/index.html", folder);
    assert_int_equal(fm_complex_index_write(path, rows, 5, "1.2.3", NULL), FM_OK);
}

static void an_index_has_the_jobs_in_their_order(void **state) {
    (void)state;
    write_index();
    assert_int_equal(
        fm_test_shell(
            folder,
            "grep -v '^<!doctype' index.html | sed 's/<meta [^>]*>//g' >index.xml && "
            "python3 -c '\n"
            "import xml.etree.ElementTree as e\n"
            "page = e.parse(\"index.xml\").getroot().find(\"body\")\n"
            "made, other = ([[\"\".join(c.itertext()).strip() for c in r] for r in t.iter(\"tr\")]"
            " for t in page.iter(\"table\"))\n"
            "assert [r[1] for r in made] == [\"job\", \"a job & more\", \"equal\", \"low\"], made\n"
            "assert made[1][2:] == \"1 0 0 10 4294967295 0 0.500 0.500 - 95.0 no -\".split(), "
            "made\n"
            "assert made[3][2:] == \"2 12345 99999 5 7 2 -99.500 0.250 0.125 42.0 yes "
            "0.125\".split(), made\n"
            "assert other[1:] == [[\"bad <one>\", \"jobs.json:3:29: found & expected\"], "
            "[\"worst\", \"none\"]], other\n"
            "links = [a.get(\"href\") for a in page.iter(\"a\")]\n"
            "assert links == [\"./summary.csv\", "
            "\"./a%20job%20%26%20more/a%20job%20%26%20more.html\","
            " \"./equal/equal.html\", \"./low/low_ranking_scores.csv\"], links\n"
            "' && ! grep -qE 'src=|<script|@import|nan|https?:' index.html"),
        0);
    const char *keep = getenv("FM_KEEP_PICTURES");
    if (keep && *keep) {
        assert_int_equal(fm_test_shell_format(folder, "cp index.html '%s/index.html'", keep), 0);
    }
}

/* In a browser both colourings are seen, a page of each, and beside them the bars of scores and
 * colours of pLDDT of the index. */
static void a_browser_draws_the_pages(void **state) {
    (void)state;
    if (fm_test_shell(folder, "command -v chromium >/dev/null") != 0) {
        print_message("skipped: there is no chromium\n");
        skip();
    }
    write_index();
    snprintf(path, sizeof path, "%s/drawn.html", folder);
    write_page(&prediction);
    static const char script[] =
        "sed 's/ checked=\"\"//; s/value=\"chain\"/& checked=\"\"/' drawn.html >chain.html\n"
        "echo '<iframe src=drawn.html width=640 height=900></iframe>"
        "<iframe src=chain.html width=640 height=900></iframe>"
        "<iframe src=index.html width=1300 height=900></iframe>' >both.html\n"
        "timeout 120 chromium --headless --no-sandbox --disable-gpu --user-data-dir=profile "
        "--enable-logging=stderr --window-size=2680,1000 --screenshot=both.png "
        "file://$PWD/both.html >both.log 2>&1 || exit 1\n"
        "! grep -E 'CONSOLE|Refused|ERR_' both.log || exit 1\n";
    assert_int_equal(fm_test_shell(folder, script), 0);
    /* Hues of the classes low and confident; of the ligand's carbon and nitrogen, the peptide's
     * chain and the ion; of the bars, and of the classes very high, very low and confident. */
    assert_int_equal(
        fm_test_shell(folder,
                      "python3 \"$OLDPWD\"/tests/trainer/predict/count_hues.py both.png "
                      "0-660:50:200 0-660:197:200 660-1340:352:60 660-1340:230:20 "
                      "660-1340:210:200 660-1340:266:50 1340-2680:144:200 "
                      "1340-2680:216:100 1340-2680:20:100 1340-2680:197:100 >hues.log 2>&1 || "
                      "{ cat hues.log; exit 1; }"),
        0);
}

/* The names of n atoms, each a residue and a chain. number [n] counts from 0, zero [n] is 0. */
static fm_complex_atoms name_many(uint32_t n, const int32_t *number, const int32_t *zero,
                                  const char *const *id) {
    static const uint8_t kind[] = {FM_COMPLEX_PROTEIN};
    return (fm_complex_atoms){.entity_kind = kind,
                              .n_chain = n,
                              .chain_id = id,
                              .chain_entity = zero,
                              .n_residue = n,
                              .residue_chain = number,
                              .residue_number = zero,
                              .residue_component = zero,
                              .n_atom = n,
                              .atom_residue = number,
                              .atom_name = id,
                              .atom_element = (const uint8_t *)zero,
                              .n_component = 1,
                              .component_id = id};
}

static void a_scene_counts_what_it_leaves_out(void **state) {
    (void)state;
    enum { MANY = FM_SCENE_ROWS + 10 };
    static int32_t number[MANY], zero[MANY];
    static float place[MANY * 3];
    static double confidence[MANY];
    static const char *id[MANY];
    uint32_t n_left_out;
    for (int i = 0; i < MANY; i++) {
        number[i] = i;
        id[i] = "CA";
    }
    const fm_complex_atoms named = name_many(MANY, number, zero, id);
    const fm_complex_prediction p = {.atoms = &named, .position = place, .plddt = confidence};
    FILE *out = fopen("/dev/null", "w");
    assert_non_null(out);
    assert_int_equal(fm_complex_scene_put(out, &p, &n_left_out, NULL), FM_OK);
    assert_int_equal(n_left_out, 20);
    fclose(out);
}

/* 5,120 tokens, each a chain and drawn as a residue and as an atom, whose matrices have no two
 * equal neighbours. */
static void pages_of_large_complexes_are_bounded(void **state) {
    (void)state;
    enum { LARGE = 5120, MOST_BYTES = 2 << 20 };
    const size_t n = LARGE, nn = n * n;
    float *errors = malloc(nn * sizeof *errors);
    double *probabilities = malloc(nn * sizeof *probabilities);
    double *iptm = malloc(nn * sizeof *iptm);
    double *confidence = malloc(n * sizeof *confidence);
    int32_t *number = malloc(n * sizeof *number), *zero = calloc(n, sizeof *zero);
    float *place = malloc(3 * n * sizeof *place);
    const char **ids = malloc(n * sizeof *ids);
    assert_true(errors && probabilities && iptm && confidence && number && zero && place && ids);
    for (size_t i = 0; i < nn; i++) {
        probabilities[i] = iptm[i] = (double)((i / 40 + i / (40 * n)) * 7 % 32) / 32;
        errors[i] = (float)(32 * probabilities[i]);
    }
    for (size_t i = 0; i < n; i++) {
        number[i] = (int32_t)i;
        ids[i] = "CA";
        for (size_t c = 0; c < 3; c++)
            place[3 * i + c] = (float)((i * (2 * c + 7)) % 997) / 3;
        confidence[i] = (double)(i % 10) / 10;
    }
    const fm_complex_layout large = {.n_token = LARGE,
                                     .n_atom = LARGE,
                                     .n_chain = LARGE,
                                     .token_chain = number,
                                     .atom_token = number};
    const fm_complex_atoms named = name_many(LARGE, number, zero, ids);
    const fm_complex_scores judged = {.chain_pair_iptm = iptm};
    const fm_complex_prediction p = {.name = "large",
                                     .atoms = &named,
                                     .layout = &large,
                                     .position = place,
                                     .plddt = confidence,
                                     .pae = errors,
                                     .contact = probabilities,
                                     .scores = &judged};
    char *text;
    size_t bytes;
    assert_int_equal(fm_complex_page_draw(&p, &text, &bytes, NULL), FM_OK);
    assert_in_range(bytes, 1 << 18, MOST_BYTES);
    assert_non_null(strstr(text, "the first 40 of 5120 chains"));
    free(text);
    free(errors);
    free(probabilities);
    free(iptm);
    free(confidence);
    free(number);
    free(zero);
    free(place);
    free(ids);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cif),
        cmocka_unit_test(test_confidences),
        cmocka_unit_test(test_summary),
        cmocka_unit_test(test_ranking),
        cmocka_unit_test(test_protenix),
        cmocka_unit_test(pages_are_whole_and_escaped),
        cmocka_unit_test(an_index_has_the_jobs_in_their_order),
        cmocka_unit_test(a_scene_has_the_bonds),
        cmocka_unit_test(a_scene_counts_what_it_leaves_out),
        cmocka_unit_test(a_browser_draws_the_pages),
        cmocka_unit_test(pages_of_large_complexes_are_bounded),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
