/* test_inputs.c: the same inputs in other forms: compressed files, alignments in one flat folder,
 * PDB ids in upper or lower case. */
#include "tests/cache/prediction_case.h"

#include "cache/source/source.h"

static const char *path_of(const cache_case *test, const char *name) {
    static char text[4][400];
    static unsigned next;
    char *path = text[next++ % 4];
    snprintf(path, sizeof text[0], "%s/%s", test->folder, name);
    return path;
}

/* Builds FOLDER/<name> into FOLDER/<name>-cache. */
static fm_build_report build_of(cache_case *test, const char *name) {
    char cache[64];
    fm_build_report report;
    snprintf(cache, sizeof cache, "%s-cache", name);
    fm_status status =
        build_with(test, path_of(test, name), path_of(test, cache), (fm_build_options){0}, &report);
    if (status) print_error("%s: %s\n", name, test->error.message);
    assert_int_equal(status, FM_OK);
    return report;
}

static fm_source scan_of(cache_case *test, const char *name) {
    fm_source source;
    const fm_source_options options = {.dataset = path_of(test, name)};
    assert_int_equal(fm_source_scan(&options, 1, &test->arena, &source, &test->error), FM_OK);
    return source;
}

static uint32_t count_refusals(const fm_source *source, fm_source_reason reason, const char *name) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < source->n_refusal; i++) {
        bool is_this = !name || strcmp(source->refusal[i].name, name) == 0;
        n += is_this && source->refusal[i].reason == reason;
    }
    return n;
}

static const fm_source_chain *find_chain(const fm_source *source, const char *name) {
    for (uint32_t i = 0; i < source->n_structure; i++) {
        const fm_source_structure *structure = &source->structure[i];
        for (uint32_t k = 0; k < structure->n_chain; k++) {
            if (strcmp(structure->chain[k].name, name) == 0) return &structure->chain[k];
        }
    }
    return NULL;
}

/* -- compression */

static void test_compressed_files_are_the_same(void **state) {
    (void)state;
    static const char *const programs[] = {"gzip -1", "xz -0", "zstd -q --rm"};
    static const char *const names[] = {"gz", "xz", "zst"};
    cache_case test;
    setup_case(&test, 6);
    const fm_build_report plain = build_of(&test, "data");
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(run_shell("cd %s && cp -r data %s && find %s -type f -exec %s {} +",
                                   test.folder, names[i], names[i], programs[i]),
                         0);
        const fm_build_report packed = build_of(&test, names[i]);
        assert_same_content(plain, packed);
        assert_int_equal(packed.n_refused, 0);
        assert_int_equal(packed.n_source_refusal, plain.n_source_refusal);
        assert_int_equal(packed.n_without_hits, plain.n_without_hits);
    }
    teardown_case(&test);
}

/* Of one file in several forms the first of plain, .gz, .xz and .zst is read. */
static void test_the_first_form_is_read(void **state) {
    (void)state;
    cache_case test;
    setup_case(&test, 3);
    const fm_build_report plain = build_of(&test, "data");
    assert_int_equal(
        run_shell("cd %s && cp -r data more && cd more/alignments && for d in *; do cd $d; "
                  "f=bfd_uniclust_hits.a3m; echo broken | gzip -c > $f.gz; "
                  "echo broken | xz -c > $f.xz; f=uniref90_hits.a3m; gzip $f; "
                  "echo broken | xz -c > $f.xz; f=mgnify_hits.a3m; xz $f; "
                  "echo broken | zstd -q -c > $f.zst; cd ..; done",
                  test.folder),
        0);
    const fm_build_report more = build_of(&test, "more");
    assert_same_content(plain, more);
    assert_int_equal(more.n_refused, 0);
    teardown_case(&test);
}

/* A truncated file refuses its chain, with the file and the reason; a name alone says nothing. */
static void test_broken_files_are_refused(void **state) {
    (void)state;
    static const char *const programs[] = {"xz -0", "zstd -q --rm"};
    static const char *const words[] = {".a3m.xz: xz data is broken or cut off",
                                        ".a3m.zst: zstd data is broken or cut off"};
    cache_case test;
    setup_case(&test, 4);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(run_shell("cd %s && rm -rf cut cut-cache && cp -r data cut && "
                                   "cd cut/alignments/$(ls cut/alignments | head -1) && "
                                   "%s mgnify_hits.a3m && truncate -s -9 mgnify_hits.a3m.*",
                                   test.folder, programs[i]),
                         0);
        const fm_build_report report = build_of(&test, "cut");
        assert_int_equal(report.n_chain, 3);
        assert_int_equal(report.n_refused, 1);
        assert_int_equal(report.refused[FM_ERR_CORRUPT], 1);
        assert_non_null(strstr(report.refusal[0], words[i]));
    }
    assert_int_equal(run_shell("cd %s && cp -r data named && "
                               "cd named/alignments/$(ls named/alignments | head -1) && "
                               "mv mgnify_hits.a3m mgnify_hits.a3m.xz",
                               test.folder),
                     0);
    const fm_build_report plain = build_of(&test, "data"), named = build_of(&test, "named");
    assert_same_content(plain, named);
    teardown_case(&test);
}

/* -- one flat folder */

/* FOLDER/flat: one alignment and the hits of each chain, in files that are named as the chain;
 * FOLDER/one: the same files (an MSA part keeps their names) in folders of the chains. */
static void make_flat(cache_case *test, const char *alignment, const char *ending) {
    assert_int_equal(
        run_shell("cd %s && mkdir -p one/alignments flat/alignments && "
                  "ln -s ../data/mmcifs one/mmcifs && ln -s ../data/mmcifs flat/mmcifs && "
                  "for c in $(ls data/alignments); do mkdir one/alignments/$c && "
                  "cp data/alignments/$c/%s one/alignments/$c/$c.%s && "
                  "cp data/alignments/$c/%s flat/alignments/$c.%s; "
                  "f=data/alignments/$c/pdb70_hits.hhr; if test -e $f; then "
                  "cp $f one/alignments/$c/$c.hhr && cp $f flat/alignments/$c.hhr; fi; done",
                  test->folder, alignment, ending, alignment, ending),
        0);
}

static void test_a_flat_folder_is_the_same(void **state) {
    (void)state;
    cache_case test;
    setup_case(&test, 6);
    make_flat(&test, "uniref90_hits.a3m", "a3m");
    const fm_build_report one = build_of(&test, "one"), flat = build_of(&test, "flat");
    assert_same_content(one, flat);
    assert_int_equal(flat.n_chain, 6);
    assert_int_equal(flat.n_refused, 0);
    assert_int_equal(flat.n_without_hits, one.n_without_hits);
    fm_source source = scan_of(&test, "flat");
    assert_non_null(strstr(source.dataset[0].alignments_found, ": files named as chains"));
    assert_int_equal(source.n_refusal, 0);
    /* Compressed, and files of other kinds beside them. */
    assert_int_equal(run_shell("cd %s && cp -rL flat packed && cd packed/alignments && "
                               "xz -0 *.a3m && zstd -q --rm *.hhr && echo x > README.md && "
                               "echo x > .hidden.a3m && echo x > params.json",
                               test.folder),
                     0);
    const fm_build_report packed = build_of(&test, "packed");
    assert_same_content(one, packed);
    assert_int_equal(packed.n_source_refusal, 0);
    teardown_case(&test);
}

static void test_flat_stockholm(void **state) {
    (void)state;
    cache_case test;
    setup_case(&test, 1);
    assert_int_equal(
        run_shell("cd %s && rm -r data && \"$FM_BIN\"/foldmill synth --chains 3 --seed 3 "
                  "--max-length 60 --depth 60 --stockholm --quiet -o data",
                  test.folder),
        0);
    make_flat(&test, "uniref90_hits.sto", "sto");
    const fm_build_report one = build_of(&test, "one"), flat = build_of(&test, "flat");
    assert_same_content(one, flat);
    teardown_case(&test);
}

/* Folders and files side by side; of a chain that has both the folder is read. */
static void test_flat_files_beside_folders(void **state) {
    (void)state;
    cache_case test;
    char first[64], text[160];
    setup_case(&test, 6);
    make_flat(&test, "uniref90_hits.a3m", "a3m");
    const fm_build_report one = build_of(&test, "one");
    assert_int_equal(run_shell("cd %s && cp -rL flat both && cd both/alignments && "
                               "i=0; for c in $(ls ../../one/alignments); do i=$((i + 1)); "
                               "test $((i %% 2)) = 1 || continue; rm -f $c.a3m $c.hhr; "
                               "cp -r ../../one/alignments/$c .; done; "
                               "echo broken > $(ls ../../one/alignments | head -1).a3m; "
                               "echo broken > lone_A.a3m; echo broken > 'a blank_A.a3m'; "
                               "echo broken > $(printf 'odd\\377_A.a3m'); "
                               "ls ../../one/alignments | head -1 > ../../first",
                               test.folder),
                     0);
    const fm_build_report both = build_of(&test, "both");
    assert_same_content(one, both);
    assert_int_equal(both.n_refused, 0);
    FILE *file = fopen(path_of(&test, "first"), "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%63s", first), 1);
    fclose(file);
    fm_source source = scan_of(&test, "both");
    assert_int_equal(source.n_refusal, 4);
    assert_int_equal(count_refusals(&source, FM_SOURCE_TWO_SETS, first), 1);
    assert_int_equal(count_refusals(&source, FM_SOURCE_NO_STRUCTURE, "lone_A"), 1);
    assert_int_equal(count_refusals(&source, FM_SOURCE_BAD_NAME, "a blank_A"), 1);
    assert_int_equal(count_refusals(&source, FM_SOURCE_BAD_NAME, "odd\377_A"), 1);
    assert_non_null(strstr(source.dataset[0].alignments_found, ", and files named as chains"));
    /* An error names the file. */
    snprintf(text, sizeof text, "cd %s/both/alignments && rm -r %s", test.folder, first);
    assert_int_equal(system(text), 0);
    const fm_build_report broken = build_of(&test, "both");
    assert_int_equal(broken.n_refused, 1);
    snprintf(text, sizeof text, "/both/alignments/%s.a3m:1", first);
    assert_non_null(strstr(broken.refusal[0], text));
    teardown_case(&test);
}

/* A prediction's alignment is named as its file. */
static void test_flat_predictions(void **state) {
    (void)state;
    cache_case test;
    setup_case(&test, 3);
    (void)build(&test);
    uint32_t n = make_predictions(&test);
    assert_int_equal(run_shell("cd %s/predicted/alignments && rm */[!u]* && for c in *; do "
                               "mv $c/uniref90_hits.a3m $c/$c.a3m; done && "
                               "cp -r ../../predicted ../../flatter && "
                               "cd ../../flatter/alignments && for c in *; do "
                               "mv $c/$c.a3m . && rmdir $c; done",
                               test.folder),
                     0);
    const fm_build_report folders = build_of(&test, "predicted"), flat = build_of(&test, "flatter");
    assert_int_equal(flat.n_chain, n);
    assert_same_content(folders, flat);
    teardown_case(&test);
}

/* -- ids */

static void test_structures_in_upper_case(void **state) {
    (void)state;
    cache_case test;
    setup_case(&test, 6);
    const fm_build_report lower = build_of(&test, "data");
    assert_int_equal(run_shell("cd %s && cp -r data upper && cd upper/mmcifs && for f in *.cif; do "
                               "f=${f%%.cif}; mv $f.cif $(echo $f | tr a-z A-Z).cif; done && "
                               "cp -r ../../data ../../mixed",
                               test.folder),
                     0);
    /* The same chains, and their template hits find the structures, too. */
    const fm_build_report upper = build_of(&test, "upper");
    assert_same_content(lower, upper);
    assert_int_equal(upper.n_source_refusal, 0);
    /* In both cases: the one in lower case is read, as without the other. */
    assert_int_equal(run_shell("cd %s/mixed/mmcifs && f=$(ls | head -1) && f=${f%%.cif} && "
                               "echo other > $(echo $f | tr a-z A-Z).cif",
                               test.folder),
                     0);
    const fm_build_report mixed = build_of(&test, "mixed");
    assert_same_content(lower, mixed);
    fm_source source = scan_of(&test, "mixed");
    assert_int_equal(source.n_refusal, 1);
    assert_int_equal(count_refusals(&source, FM_SOURCE_TWICE, NULL), 1);
    teardown_case(&test);
}

/* FOLDER/<name>: empty files; for what a scan alone says. */
static void make_files(cache_case *test, const char *name, const char *structures,
                       const char *alignments) {
    assert_int_equal(run_shell("cd %s && mkdir -p %s/mmcifs %s/alignments && cd %s/mmcifs && "
                               "touch %s && cd ../alignments && mkdir %s",
                               test->folder, name, name, name, structures, alignments),
                     0);
}

static void test_chains_keep_the_names_of_their_alignments(void **state) {
    (void)state;
    cache_case test;
    setup_case(&test, 1);
    make_files(&test, "set", "1ABC.cif 2xyz.cif.xz 3DEF.cif", "1ABC_A 1abc_B 2XYZ_A 3def_A 3DEF_a");
    fm_source source = scan_of(&test, "set");
    static const char *const names[] = {"1ABC_A", "1abc_B", "2XYZ_A", "3def_A", "3DEF_a"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_non_null(find_chain(&source, names[i]));
    assert_int_equal(source.n_chain, 5);
    assert_int_equal(source.n_refusal, 0);
    /* Two spellings of one chain: that of the structure's file comes first, then lower case. */
    make_files(&test, "twice", "1ABC.cif 2xyz.cif 3DeF.cif",
               "1ABC_A 1abc_A 2XYZ_A 2xyz_A 3DEF_A 3def_A");
    source = scan_of(&test, "twice");
    assert_int_equal(source.n_chain, 3);
    assert_non_null(find_chain(&source, "1ABC_A"));
    assert_non_null(find_chain(&source, "2xyz_A"));
    assert_non_null(find_chain(&source, "3def_A"));
    assert_int_equal(count_refusals(&source, FM_SOURCE_TWO_SETS, NULL), 3);
    assert_int_equal(source.n_refusal, 3);
    /* The id as a template hit has it. */
    assert_string_equal(fm_source_find_template(&source, "1abc")->id, "1ABC");
    assert_string_equal(fm_source_find_template(&source, "3def")->id, "3DeF");
    assert_null(fm_source_find_template(&source, "1abd"));
    teardown_case(&test);
}

static void test_lists_in_any_case(void **state) {
    (void)state;
    cache_case test;
    setup_case(&test, 1);
    make_files(&test, "set", "1abc.cif 2xyz.cif 3DEF.cif", "1abc_A 3DEF_A");
    assert_int_equal(
        run_shell("cd %s/set && printf '1ABC_A 2XYZ_A 1abc_A\\n3def_A 3def_B\\n' > "
                  "duplicate_pdb_chains.txt && xz -0 -k duplicate_pdb_chains.txt && "
                  "echo '{\"1ABC_A\": {\"cluster_size\": 7}, \"3def_A\": {\"cluster_size\": 8}}' > "
                  "chain_data_cache.json",
                  test.folder),
        0);
    fm_source source = scan_of(&test, "set");
    assert_int_equal(source.n_chain, 4);
    assert_int_equal(source.n_duplicate, 2);
    assert_non_null(find_chain(&source, "2xyz_A"));
    assert_non_null(find_chain(&source, "3DEF_B"));
    assert_string_equal(find_chain(&source, "2xyz_A")->folder,
                        find_chain(&source, "1abc_A")->folder);
    assert_int_equal(source.n_refusal, 0);
    assert_int_equal(fm_source_listed_chain(&source, "1abc_A")->cluster_size, 7);
    assert_int_equal(fm_source_listed_chain(&source, "3DEF_A")->cluster_size, 8);
    assert_null(fm_source_listed_chain(&source, "3DEF_B"));
    /* The list may be compressed. */
    const fm_source_options options = {.dataset = path_of(&test, "set"),
                                       .duplicates =
                                           path_of(&test, "set/duplicate_pdb_chains.txt.xz")};
    assert_int_equal(fm_source_scan(&options, 1, &test.arena, &source, &test.error), FM_OK);
    assert_int_equal(source.n_duplicate, 2);
    teardown_case(&test);
}

/* An id and its extended form are one id, in names of files and folders and in every list. */
static void test_extended_ids(void **state) {
    (void)state;
    cache_case test;
    setup_case(&test, 1);
    make_files(&test, "set", "pdb_00001abc.cif 2xyz.cif pdb_00003DEF.cif 4ghi.cif",
               "1abc_A pdb_00002xyz_A pdb_00003def_A");
    assert_int_equal(run_shell("cd %s/set && printf 'pdb_00002XYZ_A 4ghi_A\n3DEF_A 1abc_B\n' > "
                               "duplicate_pdb_chains.txt && "
                               "echo '{\"pdb_00001abc_A\": {\"cluster_size\": 7}, "
                               "\"3DEF_A\": {\"cluster_size\": 8}}' > chain_data_cache.json && "
                               "echo '{\"pdb_00002xyz\": {\"release_date\": \"2001-02-03\"}}' > "
                               "mmcif_cache.json",
                               test.folder),
                     0);
    fm_source source = scan_of(&test, "set");
    assert_int_equal(source.n_refusal, 0);
    assert_int_equal(source.n_chain, 5);
    assert_non_null(find_chain(&source, "1abc_A"));
    assert_non_null(find_chain(&source, "pdb_00002xyz_A"));
    assert_non_null(find_chain(&source, "pdb_00003def_A"));
    assert_non_null(find_chain(&source, "4ghi_A"));
    /* A chain that the list alone names is spelled as its file is. */
    assert_non_null(find_chain(&source, "pdb_00001abc_B"));
    assert_int_equal(fm_source_listed_chain(&source, "1abc_A")->cluster_size, 7);
    assert_int_equal(fm_source_listed_chain(&source, "pdb_00003def_A")->cluster_size, 8);
    assert_string_equal(fm_source_listed_date(&source, "2xyz"), "2001-02-03");
    assert_string_equal(fm_source_find_template(&source, "3def")->id, "pdb_00003DEF");
    teardown_case(&test);
}

/* Names of predictions are no PDB ids: case tells them apart. */
static void test_predictions_keep_their_case(void **state) {
    (void)state;
    cache_case test;
    setup_case(&test, 1);
    make_files(&test, "set", "1abc.pdb 1ABC.pdb", "1abc 1ABC 1Abc");
    fm_source source = scan_of(&test, "set");
    assert_int_equal(source.n_structure, 2);
    assert_int_equal(source.n_chain, 2);
    assert_int_equal(source.n_refusal, 1);
    assert_int_equal(count_refusals(&source, FM_SOURCE_NO_STRUCTURE, "1Abc"), 1);
    teardown_case(&test);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compressed_files_are_the_same),
        cmocka_unit_test(test_the_first_form_is_read),
        cmocka_unit_test(test_broken_files_are_refused),
        cmocka_unit_test(test_a_flat_folder_is_the_same),
        cmocka_unit_test(test_flat_stockholm),
        cmocka_unit_test(test_flat_files_beside_folders),
        cmocka_unit_test(test_flat_predictions),
        cmocka_unit_test(test_structures_in_upper_case),
        cmocka_unit_test(test_chains_keep_the_names_of_their_alignments),
        cmocka_unit_test(test_lists_in_any_case),
        cmocka_unit_test(test_extended_ids),
        cmocka_unit_test(test_predictions_keep_their_case),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
