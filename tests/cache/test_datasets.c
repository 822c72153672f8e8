/* test_datasets.c: predicted structures, several datasets in one cache, and structures in
 * archives. */
#include "cache/source/archive.h"
#include "tests/cache/prediction_case.h"

static fm_status build_all(cache_case *test, const fm_source_options *options, size_t n,
                           const char *cache, fm_build_report *report) {
    fm_source source;
    const fm_build_options how = {.cache = cache, .n_job = 2};
    fm_status status = fm_source_scan(options, n, &test->arena, &source, &test->error);
    if (status) return status;
    status = fm_build_run(&source, &how, &test->arena, report, &test->error);
    if (status) print_error("%s\n", test->error.message);
    fm_source_close(&source);
    return status;
}

static const char *path_of(cache_case *test, const char *name) {
    char *path = fm_arena_alloc(&test->arena, 300);
    assert_non_null(path);
    snprintf(path, 300, "%s/%s", test->folder, name);
    return path;
}

static fm_store *open_store(cache_case *test, const char *cache) {
    fm_store *store;
    fm_status status = fm_store_open(cache, &store, &test->error);
    if (status) print_error("%s\n", test->error.message);
    assert_int_equal(status, FM_OK);
    return store;
}

static fm_record load(cache_case *test, const fm_store *store, const char *name) {
    uint32_t chain;
    fm_record record;
    if (fm_store_find(store, name, &chain, NULL)) fail_msg("no chain %s", name);
    assert_int_equal(fm_store_load(store, chain, &test->arena, &record, &test->error), FM_OK);
    return record;
}

static fm_sha256 part_of(const fm_store *store, const char *name, fm_part_kind kind) {
    uint32_t chain;
    fm_store_part part;
    if (fm_store_find(store, name, &chain, NULL)) fail_msg("no chain %s", name);
    assert_true(fm_store_get_part(store, chain, kind, &part));
    return part.hash;
}

/* PDB files are predictions: B factors are kept as confidence, and chains have the names of
 * files. */
static void test_predictions(void **state) {
    (void)state;
    cache_case test;
    fm_build_report report;
    setup_case(&test, 4);
    (void)build(&test);
    uint32_t n = make_predictions(&test);
    const char *cache = path_of(&test, "flat-cache");
    const fm_source_options flat = {.dataset = path_of(&test, "predicted")};
    assert_int_equal(build_all(&test, &flat, 1, cache, &report), FM_OK);
    assert_int_equal(report.n_chain, n);
    assert_int_equal(report.n_refused, 0);
    assert_int_equal(report.n_source_refusal, 0);
    fm_store *store = open_store(&test, cache);
    for (uint32_t i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "P%u", i);
        fm_record record = load(&test, store, name);
        assert_int_equal(record.structure->is_distillation, 1);
        assert_true(record.structure->resolution == 0.0f);
        assert_string_equal(record.structure->release_date, "");
        assert_non_null(record.structure->confidence);
        for (uint32_t r = 0; r < record.structure->n_res; r++)
            assert_true(record.structure->confidence[r] == made_confidence(r));
        assert_true(record.msa->n_seq > 1);
    }
    /* OpenProteinSet's tree of predictions alone is a dataset, with the same parts. */
    const char *nested = path_of(&test, "nested-cache");
    const fm_source_options tree = {.dataset = path_of(&test, "nested")};
    assert_int_equal(build_all(&test, &tree, 1, nested, &report), FM_OK);
    assert_int_equal(report.n_chain, n);
    assert_int_equal(report.n_source_refusal, 0);
    fm_store *other = open_store(&test, nested);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(fm_store_chain_name(other, i) != NULL);
        char name[32];
        snprintf(name, sizeof name, "uniclust30:P%u", i);
        for (int kind = 1; kind <= FM_N_PART; kind++) {
            if (kind == FM_PART_HITS) continue;
            fm_sha256 a = part_of(store, name + strlen("uniclust30:"), (fm_part_kind)kind);
            fm_sha256 b = part_of(other, name, (fm_part_kind)kind);
            assert_memory_equal(&a, &b, sizeof a);
        }
    }
    fm_store_close(store);
    fm_store_close(other);
    teardown_case(&test);
}

/* No chain comes twice, and structures are found in all datasets. */
static void test_several(void **state) {
    (void)state;
    cache_case test;
    fm_build_report alone, report;
    setup_case(&test, 4);
    alone = build(&test);
    uint32_t n = make_predictions(&test);
    const char *cache = path_of(&test, "both");
    const fm_source_options both[] = {
        {.dataset = path_of(&test, "predicted"), .name = "distillation", .is_predicted = true},
        {.dataset = test.data, .name = "pdb"},
    };
    assert_int_equal(build_all(&test, both, 2, cache, &report), FM_OK);
    assert_int_equal(report.n_chain, 2 * n);
    assert_int_equal(report.n_refused, 0);
    assert_int_equal(verify(&test, cache), FM_OK);
    fm_store *one = open_store(&test, test.cache), *two = open_store(&test, cache);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = fm_store_chain_name(one, i);
        char full[300];
        uint32_t chain;
        snprintf(full, sizeof full, "pdb:%s", name);
        assert_int_equal(fm_store_find(two, full, &chain, &test.error), FM_OK);
        fm_sha256 a = fm_store_chain_hash(one, i), b = fm_store_chain_hash(two, chain);
        assert_memory_equal(&a, &b, sizeof a);
        /* The prediction's hits name the same structures. */
        fm_record mine = load(&test, one, name);
        snprintf(full, sizeof full, "distillation:P%u", i);
        fm_record theirs = load(&test, two, full);
        assert_true(!mine.hits == !theirs.hits);
        for (uint32_t h = 0; mine.hits && h < mine.hits->n_hit; h++)
            assert_int_equal(mine.hits->hit[h].fault, theirs.hits->hit[h].fault);
    }
    assert_true(alone.n_chain == n);
    fm_store_close(one);
    fm_store_close(two);
    fm_source source;
    const fm_source_options twice[] = {both[1], both[1]};
    assert_int_equal(fm_source_scan(twice, 2, &test.arena, &source, &test.error), FM_ERR_USAGE);
    const fm_source_options named = {.dataset = test.data, .name = "a:b"};
    assert_int_equal(fm_source_scan(&named, 1, &test.arena, &source, &test.error), FM_ERR_USAGE);
    teardown_case(&test);
}

/* Calling the structures predictions changes the sequence and structure parts only; undoing it
 * restores the content. */
static void test_change_of_kind(void **state) {
    (void)state;
    cache_case test;
    fm_build_report report;
    setup_case(&test, 3);
    const fm_build_report first = build(&test);
    fm_store *store = open_store(&test, test.cache);
    uint64_t chains = fm_store_get_info(store)->n_chain;
    const fm_source_options predicted = {.dataset = test.data, .is_predicted = true};
    assert_int_equal(build_all(&test, &predicted, 1, test.cache, &report), FM_OK);
    assert_int_equal(report.n_chain, chains);
    assert_int_equal(report.n_built, chains);
    assert_other_content(first, report);
    fm_store *after = open_store(&test, test.cache);
    for (uint32_t i = 0; i < chains; i++) {
        const char *name = fm_store_chain_name(store, i);
        fm_sha256 a = part_of(store, name, FM_PART_MSA), b = part_of(after, name, FM_PART_MSA);
        assert_memory_equal(&a, &b, sizeof a);
        a = part_of(store, name, FM_PART_STRUCTURE);
        b = part_of(after, name, FM_PART_STRUCTURE);
        assert_memory_not_equal(&a, &b, sizeof a);
        fm_record record = load(&test, after, name);
        assert_int_equal(record.structure->is_distillation, 1);
        assert_non_null(record.structure->confidence);
        assert_null(load(&test, store, name).structure->confidence);
    }
    fm_store_close(store);
    fm_store_close(after);
    fm_build_report again = build(&test);
    assert_same_content(first, again);
    /* The reference reads predictions from PDB files only. */
    fm_source source;
    const fm_build_options compat = {
        .cache = path_of(&test, "compat"), .n_job = 1, .features = {.compat_openfold = true}};
    assert_int_equal(fm_source_scan(&predicted, 1, &test.arena, &source, &test.error), FM_OK);
    assert_int_equal(fm_build_run(&source, &compat, &test.arena, &report, &test.error),
                     FM_ERR_DATA);
    assert_non_null(strstr(report.refusal[0], "reads predictions as PDB files only"));
    teardown_case(&test);
}

/* -- archives */

/* Skips the test when foldmill was built without libzip. */
static void need_archives(void) {
    fm_archive *archive;
    if (fm_archive_open("/proc/self/exe", &archive, NULL) != FM_ERR_UNSUPPORTED) return;
    print_message("skipped: built without libzip\n");
    skip();
}

/* Runs Python on the dataset's folder; z is zipfile. */
static int run_python(cache_case *test, const char *script) {
    char path[200];
    snprintf(path, sizeof path, "%s/script.py", test->folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "import glob, gzip, lzma, os, zipfile as z\n%s", script);
    assert_int_equal(fclose(file), 0);
    return run_shell("cd %s && python3 script.py", test->folder);
}

static void test_archives(void **state) {
    (void)state;
    cache_case test;
    fm_build_report report;
    need_archives();
    setup_case(&test, 6);
    const fm_build_report tree = build(&test);
    /* One archive beside the alignments, with entries deflated, stored, compressed twice and in
     * folders, a file that is no structure, and a name that would leave the folder. */
    assert_int_equal(
        run_python(&test, "os.makedirs('packed')\n"
                          "os.symlink('../data/alignments', 'packed/alignments')\n"
                          "a = z.ZipFile('packed/pdb_mmcif.zip', 'w', z.ZIP_DEFLATED)\n"
                          "a.writestr('mmcif_files/', '')\n"
                          "for i, f in enumerate(sorted(glob.glob('data/mmcifs/*.cif'))):\n"
                          "    n, b = os.path.basename(f), open(f, 'rb').read()\n"
                          "    if i % 4 == 0: a.write(f, 'mmcif_files/' + n)\n"
                          "    if i % 4 == 1: a.write(f, n, z.ZIP_STORED)\n"
                          "    if i % 4 == 2: a.writestr('x/' + n + '.gz', gzip.compress(b))\n"
                          "    if i % 4 == 3: a.writestr('x/' + n + '.xz', lzma.compress(b))\n"
                          "a.writestr('README', 'text')\n"
                          "a.writestr('../1evl.cif', 'text')\n"
                          "a.close()\n"),
        0);
    const char *cache = path_of(&test, "packed-cache");
    fm_source_options options = {.dataset = path_of(&test, "packed")};
    assert_int_equal(build_all(&test, &options, 1, cache, &report), FM_OK);
    assert_same_content(tree, report);
    assert_int_equal(report.n_refused, 0);
    fm_source source;
    assert_int_equal(fm_source_scan(&options, 1, &test.arena, &source, &test.error), FM_OK);
    assert_non_null(strstr(source.dataset[0].structures_found, "pdb_mmcif.zip (zip archive)"));
    uint32_t n_bad = 0;
    for (uint32_t i = 0; i < source.n_refusal; i++) {
        bool is_name = source.refusal[i].reason == FM_SOURCE_BAD_NAME;
        if (is_name) assert_string_equal(source.refusal[i].name, "../1evl.cif");
        n_bad += is_name;
    }
    assert_int_equal(n_bad, 1);
    fm_source_close(&source);
    /* The same as an option, and in a folder of archives. */
    options.structures = path_of(&test, "packed/pdb_mmcif.zip");
    options.dataset = test.data;
    assert_int_equal(build_all(&test, &options, 1, path_of(&test, "given-cache"), &report), FM_OK);
    assert_same_content(tree, report);
    assert_int_equal(run_shell("cd %s && mkdir -p many/structures && cp packed/pdb_mmcif.zip "
                               "many/structures && ln -s ../data/alignments many/alignments",
                               test.folder),
                     0);
    options = (fm_source_options){.dataset = path_of(&test, "many")};
    assert_int_equal(build_all(&test, &options, 1, path_of(&test, "many-cache"), &report), FM_OK);
    assert_same_content(tree, report);
    teardown_case(&test);
}

/* All of OpenProteinSet, as the bucket has it: chains of the PDB, their structures in one archive,
 * predictions, duplicates, lists. */
static void test_openproteinset(void **state) {
    (void)state;
    cache_case test;
    fm_build_report report;
    need_archives();
    setup_case(&test, 5);
    const fm_build_report tree = build(&test);
    uint32_t n = make_predictions(&test);
    assert_int_equal(
        run_python(&test,
                   "os.makedirs('roda/data_caches')\n"
                   "os.rename('nested/uniclust30', 'roda/uniclust30')\n"
                   "names = sorted(os.listdir('data/alignments'))\n"
                   "for n in names:\n"
                   "    for kind in ('a3m', 'hhr'):\n"
                   "        os.makedirs('roda/pdb/%s/%s' % (n, kind))\n"
                   "        for f in glob.glob('data/alignments/%s/*.%s' % (n, kind)):\n"
                   "            os.link(f, 'roda/pdb/%s/%s/%s' % (n, kind, os.path.basename(f)))\n"
                   "with z.ZipFile('roda/pdb_mmcif.zip', 'w', z.ZIP_DEFLATED) as a:\n"
                   "    for f in glob.glob('data/mmcifs/*.cif'):\n"
                   "        a.write(f, 'pdb_mmcif/mmcif_files/' + os.path.basename(f))\n"
                   "t = '%s none_A\\n' % names[0]\n"
                   "open('roda/duplicate_pdb_chains.txt', 'w').write(t)\n"
                   "t = '{\"%s\": {\"cluster_size\": 3}, \"P1\": {\"cluster_size\": 5}}'\n"
                   "open('roda/data_caches/chain_data_cache.json', 'w').write(t % names[0])\n"),
        0);
    const char *cache = path_of(&test, "roda-cache");
    const fm_source_options options = {.dataset = path_of(&test, "roda")};
    assert_int_equal(build_all(&test, &options, 1, cache, &report), FM_OK);
    assert_int_equal(report.n_refused, 0);
    assert_int_equal(report.n_source_refusal, 0);
    assert_int_equal(report.n_chain, tree.n_chain + n);
    assert_int_equal(verify(&test, cache), FM_OK);
    fm_store *one = open_store(&test, test.cache), *all = open_store(&test, cache);
    const fm_chain_facts *facts;
    assert_int_equal(fm_store_read_facts(all, &test.arena, &facts, &test.error), FM_OK);
    for (uint32_t i = 0; i < tree.n_chain; i++) {
        uint32_t chain;
        const char *name = fm_store_chain_name(one, i);
        assert_int_equal(fm_store_find(all, name, &chain, &test.error), FM_OK);
        fm_sha256 a = fm_store_chain_hash(one, i), b = fm_store_chain_hash(all, chain);
        assert_memory_equal(&a, &b, sizeof a);
        assert_int_equal(facts[chain].flags & FM_FACTS_PREDICTED, 0);
        assert_int_equal(facts[chain].cluster_size, i == 0 ? 3 : 0);
    }
    for (uint32_t i = 0; i < n; i++) {
        char name[32];
        uint32_t chain;
        snprintf(name, sizeof name, "uniclust30:P%u", i);
        assert_int_equal(fm_store_find(all, name, &chain, &test.error), FM_OK);
        assert_int_equal(facts[chain].flags & FM_FACTS_PREDICTED, FM_FACTS_PREDICTED);
        assert_int_equal(facts[chain].cluster_size, i == 1 ? 5 : 0);
    }
    fm_store_close(one);
    fm_store_close(all);
    teardown_case(&test);
}

static void write_text(cache_case *test, const char *name, const char *text) {
    FILE *file = fopen(path_of(test, name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* A prediction with two chains needs the name of one. */
static void test_which_chain(void **state) {
    (void)state;
    static const char two_chains[] =
        "data_x\nloop_\n_entity_poly_seq.entity_id\n_entity_poly_seq.num\n"
        "_entity_poly_seq.mon_id\n1 1 ALA\n1 2 GLY\nloop_\n_struct_asym.id\n"
        "_struct_asym.entity_id\nA 1\nB 1\nloop_\n_atom_site.label_atom_id\n"
        "_atom_site.label_comp_id\n_atom_site.label_asym_id\n_atom_site.label_seq_id\n"
        "_atom_site.Cartn_x\n_atom_site.Cartn_y\n_atom_site.Cartn_z\n"
        "_atom_site.B_iso_or_equiv\nCA ALA A 1 0 0 0 90\nCA GLY A 2 3 0 0 40\n"
        "CA ALA B 1 0 9 0 80\nCA GLY B 2 3 9 0 70\n";
    cache_case test = {0};
    fm_build_report report;
    fm_source source;
    fm_test_make_folder(test.folder, sizeof test.folder);
    assert_int_equal(fm_arena_init(&test.arena, (size_t)4 << 30, NULL), FM_OK);
    assert_int_equal(run_shell("cd %s && mkdir -p set/data set/alignments/model "
                               "set/alignments/model_B set/alignments/model_C "
                               "set/alignments/other_X && for i in set/alignments/*; do "
                               "printf '>q\\nAG\\n' > $i/a.a3m; done",
                               test.folder),
                     0);
    write_text(&test, "set/data/model.cif", two_chains);
    const fm_source_options options = {.dataset = path_of(&test, "set"), .is_predicted = true};
    assert_int_equal(fm_source_scan(&options, 1, &test.arena, &source, &test.error), FM_OK);
    assert_int_equal(source.n_chain, 3);
    assert_int_equal(source.n_refusal, 1);
    assert_string_equal(source.refusal[0].name, "other_X");
    const char *cache = path_of(&test, "set-cache");
    const fm_build_options how = {.cache = cache, .n_job = 1};
    assert_int_equal(fm_build_run(&source, &how, &test.arena, &report, &test.error), FM_OK);
    assert_int_equal(report.n_refused, 2);
    assert_int_equal(report.n_chain, 1);
    assert_non_null(strstr(report.refusal[0], "model\t"));
    assert_non_null(
        strstr(report.refusal[0], "has 2 protein chains, so one of them must be named"));
    assert_non_null(strstr(report.refusal[1], "model_C\t"));
    fm_store *store = open_store(&test, cache);
    fm_record record = load(&test, store, "model_B");
    assert_true(record.structure->confidence[0] == 80.0f);
    assert_true(record.structure->confidence[1] == 70.0f);
    fm_store_close(store);
    fm_arena_fini(&test.arena);
    fm_test_remove_tree(test.folder);
}

/* Each kind of damage refuses the structure's chain and no other; a file that is no archive ends
 * the job. */
static void test_archives_with_false_sizes(void **state) {
    (void)state;
    static const struct {
        const char *how, *reason;
    } cases[] = {
        {"d[e+24:e+28] = (3 << 30).to_bytes(4, 'little')", "declares 3221225472 bytes"},
        {"d[e+24:e+28] = (1 << 30).to_bytes(4, 'little')", "cannot give"},
        {"d[e+24:e+28] = (99).to_bytes(4, 'little')", "does not give the expected 99"},
        {"d[e+16] ^= 1", "CRC"},
        {"d[e+10] = 14", "method 14"},
        {"d[e+8] |= 1", "encrypted"},
        {"d[60:64] = b'\\0\\0\\0\\0'", ""},
        {"d[e+42:e+46] = (1 << 30).to_bytes(4, 'little')", "cannot read the entry"},
    };
    cache_case test;
    need_archives();
    setup_case(&test, 3);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char script[1200];
        fm_build_report report;
        snprintf(
            script, sizeof script,
            "a = z.ZipFile('bad.zip', 'w', z.ZIP_DEFLATED)\n"
            "for f in sorted(glob.glob('data/mmcifs/*.cif')): a.write(f, os.path.basename(f))\n"
            "a.close()\n"
            "d = bytearray(open('bad.zip', 'rb').read())\n"
            "e = d.find(b'PK\\1\\2')\n"
            "%s\n"
            "open('bad.zip', 'wb').write(d)\n",
            cases[i].how);
        assert_int_equal(run_python(&test, script), 0);
        assert_int_equal(run_shell("rm -rf %s/cache", test.folder), 0);
        const fm_source_options options = {.dataset = test.data,
                                           .structures = path_of(&test, "bad.zip")};
        assert_int_equal(build_all(&test, &options, 1, test.cache, &report), FM_OK);
        /* A structure may have two of the chains. */
        assert_true(report.n_refused >= 1 && report.n_chain >= 1);
        assert_int_equal(report.n_refused + report.n_chain, 3);
        if (!strstr(report.refusal[0], cases[i].reason) || !strstr(report.refusal[0], "bad.zip/")) {
            fail_msg("%zu: %s", i, report.refusal[0]);
        }
    }
    fm_source source;
    assert_int_equal(run_shell("cd %s && head -c 100 bad.zip > cut.zip", test.folder), 0);
    fm_source_options options = {.dataset = test.data, .structures = path_of(&test, "cut.zip")};
    assert_int_equal(fm_source_scan(&options, 1, &test.arena, &source, &test.error), FM_ERR_FORMAT);
    assert_non_null(strstr(test.error.source, "cut.zip"));
    options.structures = path_of(&test, "none.zip");
    assert_int_equal(fm_source_scan(&options, 1, &test.arena, &source, &test.error),
                     FM_ERR_NOT_FOUND);
    teardown_case(&test);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_predictions),
        cmocka_unit_test(test_several),
        cmocka_unit_test(test_change_of_kind),
        cmocka_unit_test(test_archives),
        cmocka_unit_test(test_archives_with_false_sizes),
        cmocka_unit_test(test_openproteinset),
        cmocka_unit_test(test_which_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
