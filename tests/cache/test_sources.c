/* test_sources.c: the same content from the same files in every layout; indices with false
 * values. */
#include "tests/cache/cache_case.h"

#include "proto/base/file.h"

/* The tree's alignments as one sharded database of two files, and as a legacy one of one file. */
static void write_databases(cache_case *test) {
    fm_source source;
    uint64_t at[2] = {0}, legacy_at = 0;
    char path[300];
    assert_int_equal(run_shell("mkdir -p %s/db %s/legacy", test->folder, test->folder), 0);
    assert_int_equal(fm_source_scan(&(fm_source_options){.dataset = test->data}, 1, &test->arena,
                                    &source, &test->error),
                     FM_OK);
    FILE *db[3], *index[2];
    static const char *const names[] = {"db/alignment_db_0.db", "db/alignment_db_1.db",
                                        "legacy/some.db", "db/alignment_db.index",
                                        "legacy/some.index"};
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s", test->folder, names[i]);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        if (i < 3) {
            db[i] = file;
        } else {
            index[i - 3] = file;
        }
    }
    uint32_t n = 0;
    for (uint32_t s = 0; s < source.n_structure; s++) {
        for (uint32_t c = 0; c < source.structure[s].n_chain; c++, n++) {
            const fm_source_chain *chain = &source.structure[s].chain[c];
            const fm_source_file *file;
            uint32_t n_file, shard = n % 2;
            assert_int_equal(fm_source_files(chain, &test->arena, &n_file, &file, &test->error),
                             FM_OK);
            fprintf(index[0], "%s\"%s\": {\"db\": \"alignment_db_%u.db\", \"files\": [",
                    n ? ", " : "{", chain->name, shard);
            fprintf(index[1], "%s\"%s\":[", n ? "," : "{", chain->name);
            for (uint32_t f = 0; f < n_file; f++) {
                fm_bytes bytes;
                assert_int_equal(fm_file_read(&test->arena, file[f].path, 1 << 24, &bytes, NULL),
                                 FM_OK);
                const char *name = strrchr(file[f].path, '/') + 1;
                fprintf(index[0], "%s[\"%s\", %llu, %zu]", f ? ", " : "", name,
                        (unsigned long long)at[shard], bytes.size);
                fprintf(index[1], "%s[\"%s\",%llu,%zu]", f ? "," : "", name,
                        (unsigned long long)legacy_at, bytes.size);
                assert_int_equal(fwrite(bytes.data, 1, bytes.size, db[shard]), bytes.size);
                assert_int_equal(fwrite(bytes.data, 1, bytes.size, db[2]), bytes.size);
                at[shard] += bytes.size;
                legacy_at += bytes.size;
            }
            fprintf(index[0], "]}");
            fprintf(index[1], "]");
        }
    }
    for (int i = 0; i < 2; i++)
        fputs("}\n", index[i]);
    for (int i = 0; i < 5; i++)
        assert_int_equal(fclose(i < 3 ? db[i] : index[i - 3]), 0);
}

static fm_status build_from(cache_case *test, const char *dataset, fm_build_report *report) {
    char cache[200], data[200];
    snprintf(cache, sizeof cache, "%s/cache-%s", test->folder, dataset);
    snprintf(data, sizeof data, "%s/%s", test->folder, dataset);
    fm_status status = build_with(test, data, cache, (fm_build_options){0}, report);
    if (status) print_error("%s: %s\n", dataset, test->error.message);
    return status;
}

/* A dataset of links: structures of the tree, alignments from elsewhere. */
static void link_dataset(cache_case *test, const char *name, const char *alignments,
                         const char *as) {
    assert_int_equal(run_shell("cd %s && mkdir -p %s && ln -s %s/mmcifs %s/mmcifs && "
                               "ln -s %s/%s %s/%s",
                               test->folder, name, test->data, name, test->folder, alignments, name,
                               as),
                     0);
}

static void test_every_layout_gives_the_same(void **state) {
    (void)state;
    cache_case test;
    fm_build_report tree, other;
    setup_case(&test, 9);
    assert_int_equal(build_from(&test, "data", &tree), FM_OK);
    assert_int_equal(tree.n_chain, 9);
    write_databases(&test);
    link_dataset(&test, "sharded", "db", "alignment_db");
    link_dataset(&test, "old", "legacy", "alignment_db");
    /* OpenProteinSet: nested folders; structures divided and compressed. */
    assert_int_equal(
        run_shell("cd %s && mkdir -p roda/pdb roda/pdb_mmcif/mmcif_files && "
                  "for c in $(ls data/alignments); do mkdir -p roda/pdb/$c/a3m roda/pdb/$c/hhr; "
                  "cp data/alignments/$c/*.a3m roda/pdb/$c/a3m; "
                  "cp data/alignments/$c/*.hhr roda/pdb/$c/hhr 2>/dev/null; done; "
                  "for f in $(ls data/mmcifs); do d=$(echo $f | cut -c2-3); "
                  "mkdir -p roda/pdb_mmcif/mmcif_files/$d; "
                  "gzip -c data/mmcifs/$f > roda/pdb_mmcif/mmcif_files/$d/$f.gz; done; "
                  "gzip -r roda/pdb",
                  test.folder),
        0);
    static const char *const layouts[] = {"sharded", "old", "roda"};
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        assert_int_equal(build_from(&test, layouts[i], &other), FM_OK);
        assert_same_content(tree, other);
        assert_int_equal(other.n_refused, 0);
        assert_int_equal(other.n_without_hits, tree.n_without_hits);
    }
    teardown_case(&test);
}

static void test_compressed_ranges(void **state) {
    (void)state;
    static const char *const programs[] = {"gzip", "xz -0", "zstd -q --rm"};
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        cache_case test;
        fm_build_report tree, other;
        setup_case(&test, 4);
        assert_int_equal(build_from(&test, "data", &tree), FM_OK);
        assert_int_equal(run_shell("cp -r %s %s/packed && find %s/alignments -type f -exec %s {} +",
                                   test.data, test.folder, test.data, programs[i]),
                         0);
        write_databases(&test); /* of the compressed files */
        link_dataset(&test, "sharded", "db", "alignment_db");
        assert_int_equal(build_from(&test, "sharded", &other), FM_OK);
        assert_same_content(tree, other);
        teardown_case(&test);
    }
}

static void test_layouts_are_found(void **state) {
    (void)state;
    cache_case test;
    fm_source source;
    setup_case(&test, 5);
    write_databases(&test);
    link_dataset(&test, "sharded", "db", "alignment_db");
    char data[200];
    snprintf(data, sizeof data, "%s/sharded", test.folder);
    const fm_source_options options = {.dataset = data};
    assert_int_equal(fm_source_scan(&options, 1, &test.arena, &source, &test.error), FM_OK);
    assert_int_equal(source.n_chain, 5);
    assert_non_null(
        strstr(source.dataset[0].alignments_found, "an alignment database, 1 index of 2 files"));
    assert_non_null(strstr(source.dataset[0].structures_found, "/mmcifs"));
    /* A database with two indices: equal entries count once, different ones are refused. */
    assert_int_equal(run_shell("cd %s/db && cp alignment_db.index again.index", test.folder), 0);
    assert_int_equal(fm_source_scan(&options, 1, &test.arena, &source, &test.error), FM_OK);
    assert_int_equal(source.n_chain, 5);
    uint32_t n_refusal = source.n_refusal;
    assert_int_equal(run_shell("cp %s/legacy/some.* %s/db", test.folder, test.folder), 0);
    assert_int_equal(fm_source_scan(&options, 1, &test.arena, &source, &test.error), FM_OK);
    assert_int_equal(source.n_chain, 5);
    assert_int_equal(source.n_refusal, n_refusal + 5);
    teardown_case(&test);
}

static void test_duplicates(void **state) {
    (void)state;
    cache_case test;
    fm_build_report before, report;
    setup_case(&test, 6);
    before = build(&test);
    /* Each chain's structure and sequence again, under other names, without alignments. */
    assert_int_equal(run_shell("cd %s && for c in $(ls alignments); do id=${c%%_*}; "
                               "cp -n mmcifs/$id.cif mmcifs/z$id.cif; "
                               "echo \"none_A  z$c $c y$c\" >> duplicate_pdb_chains.txt; done; "
                               "printf 'lone_A other_B\\n\\n' >> duplicate_pdb_chains.txt",
                               test.data),
                     0);
    report = build(&test);
    assert_int_equal(report.n_chain, 2 * before.n_chain);
    assert_int_equal(report.n_refused, 0);
    /* No new part: the same bytes were parsed. */
    assert_int_equal(report.stored_bytes, before.stored_bytes);
    fm_source source;
    assert_int_equal(fm_source_scan(&(fm_source_options){.dataset = test.data}, 1, &test.arena,
                                    &source, &test.error),
                     FM_OK);
    assert_int_equal(source.n_duplicate, before.n_chain);
    assert_int_equal(source.n_chain, 2 * before.n_chain);
    for (uint32_t i = 0; i < source.n_refusal; i++)
        assert_int_not_equal(source.refusal[i].reason, FM_SOURCE_NO_STRUCTURE);
    teardown_case(&test);
}

/* Invalid entries of an index are refused by name; the other chains are built. */
static void test_lying_index(void **state) {
    (void)state;
    cache_case test;
    fm_build_report report;
    setup_case(&test, 6);
    write_databases(&test);
    link_dataset(&test, "sharded", "db", "alignment_db");
    /* The first entry leaves the folder, the second passes the end. */
    assert_int_equal(
        run_shell("cd %s/db && sed -i 's/alignment_db_0.db/..\\/alignment_db_0.db/; "
                  "s/\\(alignment_db_1.db\", \"files\": \\[\\[\"[^\"]*\", 0, \\)[0-9]*/"
                  "\\199999999999/' alignment_db.index",
                  test.folder),
        0);
    assert_int_equal(build_from(&test, "sharded", &report), FM_OK);
    assert_int_equal(report.n_chain, 4);
    assert_int_equal(report.n_refusal, 2);
    char all[4096] = "";
    for (uint32_t i = 0; i < report.n_refusal; i++)
        strncat(all, report.refusal[i], sizeof all - strlen(all) - 1);
    assert_non_null(strstr(all, "cannot be the name of a database"));
    assert_non_null(strstr(all, "passes the end"));
    assert_non_null(strstr(all, "alignment_db.index:1: "));
    /* An index that is not JSON ends the job with its place. */
    assert_int_equal(run_shell("cd %s/db && printf '{\"1abc_A\": {\"db\": \\n nonsense' > "
                               "alignment_db.index",
                               test.folder),
                     0);
    fm_source source;
    char data[200];
    snprintf(data, sizeof data, "%s/sharded", test.folder);
    assert_int_equal(
        fm_source_scan(&(fm_source_options){.dataset = data}, 1, &test.arena, &source, &test.error),
        FM_ERR_FORMAT);
    assert_int_equal(test.error.line, 2);
    assert_non_null(strstr(test.error.source, "alignment_db.index"));
    teardown_case(&test);
}

/* Each false value in an index of either form refuses its chain, by the name of its entry, in a
 * build. */
static void test_lies_of_both_kinds(void **state) {
    (void)state;
    static const struct {
        const char *how, *reason; /* Python: e is the list of the entry's ranges */
    } lies[] = {
        {"e[0][0] = '../' + e[0][0]", "cannot be the name of an alignment"},
        {"e[0][2] = 10**12", "passes the end"},
        {"e[0][1] = 2**64 - 2", "passes the end"},
        {"e[0][1] = 2**64", "whole numbers below 2^64"},
        {"e[1][1] -= 1; e[1][2] += 1", "overlaps that of"},
    };
    cache_case test;
    setup_case(&test, 3);
    write_databases(&test);
    link_dataset(&test, "sharded", "db", "alignment_db");
    link_dataset(&test, "old", "legacy", "alignment_db");
    static const char *const kinds[][2] = {{"sharded", "db/alignment_db.index"},
                                           {"old", "legacy/some.index"}};
    for (size_t kind = 0; kind < 2; kind++) {
        for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
            fm_build_report report;
            char script[700], expected[200];
            snprintf(script, sizeof script,
                     "cd %s && cp %s good && python3 -c \"import json\n"
                     "d = json.load(open('good'))\nn = sorted(d)[1]\n"
                     "e = d[n]['files'] if 'files' in d[n] else d[n]\n%s\n"
                     "json.dump(d, open('%s', 'w'))\nopen('name', 'w').write(n)\"",
                     test.folder, kinds[kind][1], lies[i].how, kinds[kind][1]);
            assert_int_equal(run_shell("%s", script), 0);
            assert_int_equal(build_from(&test, kinds[kind][0], &report), FM_OK);
            assert_int_equal(run_shell("cd %s && cp good %s && rm -r cache-%s", test.folder,
                                       kinds[kind][1], kinds[kind][0]),
                             0);
            /* The index, its line, the entry's name, the reason. */
            char name[300];
            snprintf(name, sizeof name, "%s/name", test.folder);
            fm_bytes text;
            assert_int_equal(fm_file_read(&test.arena, name, 100, &text, NULL), FM_OK);
            snprintf(expected, sizeof expected, ".index:1: %.*s: ", (int)text.size,
                     (const char *)text.data);
            assert_int_equal(report.n_refused, 1);
            if (!strstr(report.refusal[0], expected) ||
                !strstr(report.refusal[0], lies[i].reason)) {
                fail_msg("%s %s: %s", kinds[kind][0], lies[i].how, report.refusal[0]);
            }
        }
    }
    teardown_case(&test);
}

/* Inputs that do not fit together are reported, and the rest is built: alignments without a
 * structure, a structure without alignments, an empty folder, a missing template. */
static void test_inputs_that_do_not_fit(void **state) {
    (void)state;
    cache_case test;
    fm_build_report report;
    setup_case(&test, 6);
    const fm_build_report whole = build(&test);
    char lonely[64] = "";
    fm_store *store;
    assert_int_equal(fm_store_open(test.cache, &store, &test.error), FM_OK);
    snprintf(lonely, sizeof lonely, "%s", fm_store_chain_name(store, 0));
    fm_store_close(store);
    uint32_t n_gone = 0;
    /* The first chain loses its structure, the last its alignments, another all its files. */
    assert_int_equal(run_shell("cd %s && rm mmcifs/%.4s.cif && set -- alignments/* && shift 4 && "
                               "rm $1/* && shift && rm -r $1 && test ! -e $1",
                               test.data, lonely),
                     0);
    assert_int_equal(build_with(&test, test.data, test.cache, (fm_build_options){0}, &report),
                     FM_OK);
    uint32_t n_of[FM_N_SOURCE_REASON] = {0};
    for (uint32_t i = 0; i < report.n_source_refusal; i++) {
        n_of[report.source_refusal[i].reason]++;
        bool is_lonely = strcmp(report.source_refusal[i].name, lonely) == 0;
        n_gone += is_lonely && report.source_refusal[i].reason == FM_SOURCE_NO_STRUCTURE;
    }
    assert_int_equal(n_gone, 1);
    assert_int_equal(n_of[FM_SOURCE_NO_ALIGNMENTS], 1);
    assert_int_equal(report.n_refused, 1); /* the one with an empty folder */
    assert_int_equal(report.n_chain + n_of[FM_SOURCE_NO_STRUCTURE] + 2, whole.n_chain);
    /* Hits of the missing structure are kept, with the reason. */
    uint32_t n_missing = 0;
    assert_int_equal(fm_store_open(test.cache, &store, &test.error), FM_OK);
    for (uint32_t i = 0; i < fm_store_get_info(store)->n_chain; i++) {
        fm_record record;
        assert_int_equal(fm_store_load(store, i, &test.arena, &record, &test.error), FM_OK);
        for (uint32_t h = 0; record.hits && h < record.hits->n_hit; h++) {
            const fm_template_hit *hit = &record.hits->hit[h];
            bool is_gone = strncmp(hit->name, lonely, 4) == 0;
            assert_int_equal(hit->fault == FM_HIT_NO_FILE, is_gone);
            n_missing += is_gone;
        }
    }
    assert_true(n_missing > 0);
    fm_store_close(store);
    assert_int_equal(verify(&test, test.cache), FM_OK);
    teardown_case(&test);
}

static void test_single_sequence_without_protein(void **state) {
    (void)state;
    cache_case test;
    fm_build_report report;
    setup_case(&test, 4);
    /* The first file's monomers become nucleotides. */
    assert_int_equal(run_shell("cd %s && rm -r alignments && set -- mmcifs/* && "
                               "sed 's/peptide linking/DNA linking/I' $1 > mmcifs/1dna.cif && "
                               "! cmp -s $1 mmcifs/1dna.cif && echo junk > mmcifs/9bad.cif",
                               test.data),
                     0);
    const fm_build_options single = {.single_sequence = true};
    assert_int_equal(build_with(&test, test.data, test.cache, single, &report), FM_OK);
    assert_int_equal(report.n_no_protein, 1);
    assert_int_equal(report.n_refused, 1);
    assert_non_null(strstr(report.refusal[0], "9bad"));
    teardown_case(&test);
}

/* The reference's own files: the tree, the sharded and the legacy database. */
static void test_golden_databases(void **state) {
    (void)state;
    if (!fm_test_reference()) {
        print_message("skipped: FM_REFERENCE_DATA is not set\n");
        skip();
    }
    cache_case test = {0};
    fm_build_report tree, other;
    char base[300], structures[400], alignments[400], duplicates[400], cache[200];
    fm_test_make_folder(test.folder, sizeof test.folder);
    assert_int_equal(fm_arena_init(&test.arena, (size_t)4 << 30, NULL), FM_OK);
    fm_test_reference_path(base, sizeof base, "golden/inputs/fmt");
    snprintf(structures, sizeof structures, "%s/mm", base);
    snprintf(duplicates, sizeof duplicates, "%s/duplicate_pdb_chains.txt", base);
    static const char *const from[] = {"alignments", "db/alignment_db.index", "db/legacy_db.index"};
    for (int i = 0; i < 3; i++) {
        fm_source source;
        snprintf(alignments, sizeof alignments, "%s/%s", base, from[i]);
        snprintf(cache, sizeof cache, "%s/%d", test.folder, i);
        const fm_source_options options = {.dataset = base,
                                           .structures = structures,
                                           .alignments = alignments,
                                           .duplicates = duplicates};
        assert_int_equal(fm_source_scan(&options, 1, &test.arena, &source, &test.error), FM_OK);
        fm_status status = fm_build_run(&source, &(fm_build_options){.cache = cache, .n_job = 2},
                                        &test.arena, i ? &other : &tree, &test.error);
        assert_int_equal(status, FM_OK);
        assert_int_equal(source.n_chain, 22);
        if (i) assert_same_content(tree, other);
    }
    assert_int_equal(tree.n_chain, 22);
    teardown_case(&test);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_layout_gives_the_same),
        cmocka_unit_test(test_compressed_ranges),
        cmocka_unit_test(test_layouts_are_found),
        cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_lying_index),
        cmocka_unit_test(test_lies_of_both_kinds),
        cmocka_unit_test(test_inputs_that_do_not_fit),
        cmocka_unit_test(test_single_sequence_without_protein),
        cmocka_unit_test(test_golden_databases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
