/* test_complexes.c: complexes in a cache: built beside chains in one pass, loaded as they were
 * read, drawn, and made again only where their inputs changed. */
#include "tests/cache/complexes_case.h"

#include "cache/export/complex_load.h"
#include "featurizer/complex/chooser.h"
#include "featurizer/complex/draw.h"
#include "featurizer/complex/read.h"
#include "featurizer/complex/records.h"

static fm_build_report build_all(complexes_case *test, fm_build_options options) {
    fm_build_report report = {0};
    options.complexes = true;
    if (!options.components) options.components = &test->components;
    fm_status status = build_with(&test->base, test->base.data, test->base.cache, options, &report);
    if (status) fail_msg("%s", test->base.error.message);
    assert_int_equal(verify(&test->base, test->base.cache), FM_OK);
    return report;
}

/* -- loading */

static void assert_same_assembly(const fm_assembly *a, const fm_assembly *b) {
    assert_int_equal(a->n_chain, b->n_chain);
    assert_int_equal(a->n_atom, b->n_atom);
    assert_int_equal(a->n_token, b->n_token);
    assert_int_equal(a->n_bond, b->n_bond);
    assert_int_equal(a->n_pair, b->n_pair);
    for (uint32_t i = 0; i < a->n_atom; i++) {
        assert_memory_equal(a->atoms[i].position, b->atoms[i].position, 12);
        assert_memory_equal(a->atoms[i].name, b->atoms[i].name, 8);
    }
    assert_string_equal(a->release_date, b->release_date);
}

static void assert_loads(complexes_case *test) {
    cache_case *base = &test->base;
    const fm_assembly_options options = {0};
    fm_store *store;
    fm_complex_reader *reader;
    fm_complex loaded;
    fm_assembly read;
    fm_bytes text = {0};
    char path[300];
    uint32_t item;
    assert_int_equal(fm_store_open(base->cache, &store, &base->error), FM_OK);
    assert_int_equal(fm_complex_reader_create(store, &reader, &base->error), FM_OK);
    assert_int_equal(fm_store_find(store, "1abc", &item, &base->error), FM_OK);
    assert_int_equal(fm_store_item_kind(store, item), FM_STORED_COMPLEX);
    assert_int_equal(fm_complex_load(reader, item, &base->arena, &loaded, &base->error), FM_OK);
    snprintf(path, sizeof path, "%s/mmcifs/1abc.cif", base->data);
    fm_source_file file = {.path = path, .bytes = UINT64_MAX};
    assert_int_equal(fm_source_read(&file, 1 << 20, &base->arena, &text, &base->error), FM_OK);
    assert_int_equal(
        fm_assembly_read(text, &test->components, &options, &base->arena, &read, &base->error),
        FM_OK);
    assert_same_assembly(&read, &loaded.assembly);
    assert_int_equal(loaded.entities[0].unpaired->n_row, 2);
    assert_int_equal(loaded.entities[0].paired->n_row, 2);
    assert_int_equal(loaded.entities[0].paired->species[1].size, strlen("HUMAN"));
    assert_int_equal(loaded.entities[1].unpaired->n_row, 2);
    assert_int_equal(loaded.entities[1].unpaired->ids[5 + 2], FM_RESTYPE32_RNA + 1); /* G */
    assert_null(loaded.entities[1].paired);
    assert_null(loaded.entities[2].unpaired);
    fm_complex_reader_destroy(reader);
    fm_store_close(store);
}

static void complexes_stand_beside_chains(void **state) {
    (void)state;
    complexes_case test;
    set_up(&test);
    fm_build_report report = build_all(&test, (fm_build_options){0});
    /* 1abc, 1abc_X and 2xyz; a chain of RNA is of its complex alone. */
    assert_int_equal(report.n_chain, 3);
    assert_int_equal(report.n_complex, 2);
    assert_int_equal(report.n_refused, 0);
    assert_int_equal(report.n_bare_entity, 2); /* of 2xyz: a protein and an RNA */
    assert_loads(&test);
    /* The protein's rows are its chain's. */
    cache_case *base = &test.base;
    fm_store *store;
    fm_store_part msa;
    fm_part_entities entities;
    const fm_chain_facts *facts;
    uint32_t chain, item, last;
    assert_int_equal(fm_store_open(base->cache, &store, &base->error), FM_OK);
    assert_int_equal(fm_store_find(store, "1abc_X", &chain, &base->error), FM_OK);
    assert_int_equal(fm_store_find(store, "1abc", &item, &base->error), FM_OK);
    assert_int_equal(fm_store_find(store, "2xyz", &last, &base->error), FM_OK);
    assert_int_equal(fm_store_item_kind(store, chain), FM_STORED_CHAIN);
    assert_true(fm_store_get_part(store, chain, FM_PART_MSA, &msa));
    assert_int_equal(fm_store_load_entities(store, item, &base->arena, &entities, &base->error),
                     FM_OK);
    assert_memory_equal(&entities.inputs[0].unpaired, &msa.hash, sizeof msa.hash);
    assert_int_equal(fm_store_read_facts(store, &base->arena, &facts, &base->error), FM_OK);
    assert_int_equal(facts[item].flags, FM_FACTS_KNOWN | FM_FACTS_COMPLEX);
    assert_int_equal(facts[item].n_res, 24); /* two copies of 6 + 5 + 1 */
    assert_string_equal(facts[last].release_date, "2020-01-02");
    fm_store_close(store);
    tear_down(&test);
}

static void records_are_read_without_parts(void **state) {
    (void)state;
    complexes_case test;
    cache_case *base = &test.base;
    const fm_complex_row *rows;
    fm_store *store;
    uint32_t n = 0, n_chain = 0, n_interface = 0;
    set_up(&test);
    build_all(&test, (fm_build_options){0});
    assert_int_equal(fm_store_open(base->cache, &store, &base->error), FM_OK);
    assert_int_equal(fm_store_read_complex_rows(store, &base->arena, &rows, &n, &base->error),
                     FM_OK);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(fm_store_item_kind(store, rows[i].item), FM_STORED_COMPLEX);
        if (rows[i].is_interface) {
            n_interface++;
        } else {
            n_chain++;
        }
    }
    assert_int_equal(n_chain, 4); /* a protein and an RNA of each; ions are not drawn */
    assert_true(n_interface >= 2);
    fm_store_close(store);
    tear_down(&test);
}

/* -- commands */

/* An exported complex is what parse complex writes of its file, and has its alignments. */
static void a_complex_is_exported_as_it_is_parsed(void **state) {
    (void)state;
    complexes_case test;
    cache_case *base = &test.base;
    set_up(&test);
    build_all(&test, (fm_build_options){0});
    write_text(base->folder, "components.cif", components_text);
    write_text(base->folder, "compare.py",
               "import sys, zipfile\n"
               "a, b = (zipfile.ZipFile(p) for p in sys.argv[1:])\n"
               "assert set(a.namelist()) == set(b.namelist())\n"
               "other = {n for n in a.namelist() if a.read(n) != b.read(n)}\n"
               "assert 'features/msa.npy' in other, other\n"
               "rows = ('msa', 'deletion', 'deletion_mean', 'profile')\n"
               "assert other <= {'features/%s.npy' % n for n in rows}, other\n");
    assert_int_equal(
        run_shell("cd %s && $FM_BIN/foldmill export --cache cache --chain 1abc -o a.npz "
                  "> out && $FM_BIN/foldmill parse complex data/mmcifs/1abc.cif "
                  "--components components.cif -o b.npz > out && python3 compare.py "
                  "a.npz b.npz && $FM_BIN/foldmill inspect --cache cache --chain 1abc "
                  "| grep -q 'entity      2: 5 residues, 2 rows'",
                  base->folder),
        0);
    assert_int_equal(run_shell("cd %s && $FM_BIN/foldmill export --cache cache --chain 1abc "
                               "--stage nonensembled -o c.npz 2> err; test $? = 2 && "
                               "grep -q '1abc is a complex' err && test ! -e c.npz && "
                               "$FM_BIN/foldmill stats --cache cache | "
                               "grep -q ': 1 chain, 2 complexes, 0 refused' && "
                               "$FM_BIN/foldmill stats --cache cache --json | "
                               "grep -q '\"stored\": {\"chains\": 1,' && "
                               "$FM_BIN/foldmill inspect --cache cache | "
                               "grep -q '^assembly    2 complexes, .* per complex stored' && "
                               "$FM_BIN/foldmill verify --cache cache > out && "
                               "grep -qx 'chains: 1' out && grep -qx 'complexes: 2' out",
                               base->folder),
                     0);
    /* A dry run measures some of them, or says what it needs for that, as the build would. */
    write_text(base->folder, "few.cif", components_text);
    assert_int_equal(
        run_shell("cd %s && $FM_BIN/foldmill build data --complexes --dry-run > out && "
                  "grep -q 'total 2 complexes' out && ! grep '^refused' out && "
                  "grep -q '^sample none: complexes need the chemical' out && "
                  "$FM_BIN/foldmill build data --cache new --complexes --dry-run "
                  "--components few.cif > out && test ! -e new && "
                  "grep -q '^sample 2 structures with 2 complexes of 48 tokens' out && "
                  "grep -q '^time about .* with . worker' out && "
                  "grep -q '^space about .* and 2 of 2 complexes, from' out && "
                  "$FM_BIN/foldmill build data --cache new --complexes --dry-run "
                  "> out 2> err; test $? = 2 && grep -q 'total 2 complexes' out && "
                  "grep -q 'the cache has none; --components FILE' err",
                  base->folder),
        0);
    tear_down(&test);
}

/* Every record of the table is one of the complex that is loaded, and samples are made of both. */
static void samples_are_drawn_of_a_cache(void **state) {
    (void)state;
    enum { N_SAMPLE = 24, MOST = 8 };
    complexes_case test;
    cache_case *base = &test.base;
    fm_store *store;
    fm_complex_reader *reader;
    fm_complex_chooser *chooser;
    uint32_t items[MOST], n_item = 0, n_of[MOST] = {0}, place;
    fm_complex_choice choice = {.items = items};
    fm_plan plan;
    set_up(&test);
    build_all(&test, (fm_build_options){0});
    assert_int_equal(fm_store_open(base->cache, &store, &base->error), FM_OK);
    assert_int_equal(fm_complex_reader_create(store, &reader, &base->error), FM_OK);
    assert_int_equal(
        fm_store_read_complex_rows(store, &base->arena, &choice.rows, &choice.n_row, &base->error),
        FM_OK);
    for (uint32_t i = 0; i < fm_store_get_info(store)->n_chain; i++) {
        if (fm_store_item_kind(store, i) == FM_STORED_COMPLEX) items[n_item++] = i;
    }
    assert_int_equal(n_item, 2);
    choice.n_item = n_item;
    assert_int_equal(fm_plan_find("af3-initial", &plan, &base->error), FM_OK);
    assert_int_equal(fm_complex_chooser_create(&plan, &choice, &chooser, &base->error), FM_OK);
    for (uint64_t i = 0; i < N_SAMPLE; i++) {
        fm_complex loaded;
        fm_sample sample;
        const fm_complex_row *record = fm_complex_chooser_record(chooser, 1, i, &place);
        assert_int_equal(fm_complex_load(reader, items[place], &base->arena, &loaded, &base->error),
                         FM_OK);
        const fm_complex_request request = {.plan = &plan,
                                            .complex = &loaded,
                                            .record = record,
                                            .seed = 1,
                                            .index = i,
                                            .place = place,
                                            .n_cycle = 1};
        if (fm_complex_sample_draw(&request, &base->arena, &sample, &base->error)) {
            fail_msg("%s", base->error.message);
        }
        assert_string_equal(sample.name, fm_store_chain_name(store, items[place]));
        assert_true(sample.n_res >= 1 && sample.n_res <= loaded.assembly.n_token);
        n_of[place]++;
    }
    assert_true(n_of[0] > 0 && n_of[1] > 0);
    fm_complex_chooser_destroy(chooser);
    fm_complex_reader_destroy(reader);
    fm_store_close(store);
    tear_down(&test);
}

/* -- building again */

static void only_what_changed_is_made_again(void **state) {
    (void)state;
    complexes_case test;
    char path[300];
    set_up(&test);
    fm_build_report first = build_all(&test, (fm_build_options){0});
    assert_int_equal(first.n_built, 3);
    /* Without --components the cache's set is used. */
    fm_build_report again = {0};
    assert_int_equal(build_with(&test.base, test.base.data, test.base.cache,
                                (fm_build_options){.complexes = true}, &again),
                     FM_OK);
    assert_false(again.published);
    assert_int_equal(again.n_reused, 3);
    assert_int_equal(again.written_bytes, 0);
    assert_same_content(first, again);
    write_text(test.base.data, "alignments/1abc_R/rfam_hits.a3m", ">q\nACUUA\n>a\nACG--\n");
    fm_build_report changed = build_all(&test, (fm_build_options){0});
    assert_int_equal(changed.n_built, 1);
    assert_other_content(first, changed);
    snprintf(path, sizeof path, "%s/mmcifs/pdb_00002xyz.cif", test.base.data);
    write_entry(path, "2020-01-02", 0.25f);
    changed = build_all(&test, (fm_build_options){0});
    assert_int_equal(changed.n_built, 1);
    /* Another set of components is another input of all complexes. */
    char more[sizeof components_text + 64];
    snprintf(more, sizeof more, "%sdata_XE\n_chem_comp.id XE\n_chem_comp.type NON-POLYMER\n",
             components_text);
    const fm_components others = parse_components(&test.base.arena, more);
    changed = build_all(&test, (fm_build_options){.components = &others});
    assert_int_equal(changed.n_built, 2);
    tear_down(&test);
}

static void compressed_inputs_are_the_same(void **state) {
    (void)state;
    complexes_case test;
    set_up(&test);
    const fm_build_report plain = build_all(&test, (fm_build_options){0});
    assert_int_equal(run_shell("gzip -r %s", test.base.data), 0);
    snprintf(test.base.cache, sizeof test.base.cache, "%s/packed", test.base.folder);
    const fm_build_report packed = build_all(&test, (fm_build_options){0});
    assert_int_equal(packed.n_built, plain.n_built);
    assert_same_content(plain, packed);
    tear_down(&test);
}

/* What is drawn of the protein chain of an entry: its cluster, and its weight. */
typedef struct protein_record {
    uint64_t cluster;
    uint32_t weight;
    uint64_t interfaces; /* sum of the clusters of its entry's interfaces */
} protein_record;

static protein_record find_protein(complexes_case *test, const char *name) {
    cache_case *base = &test->base;
    const fm_complex_row *rows;
    protein_record found = {0};
    fm_store *store;
    uint32_t n, item;
    assert_int_equal(fm_store_open(base->cache, &store, &base->error), FM_OK);
    assert_int_equal(fm_store_find(store, name, &item, &base->error), FM_OK);
    assert_int_equal(fm_store_read_complex_rows(store, &base->arena, &rows, &n, &base->error),
                     FM_OK);
    uint32_t *weights = fm_arena_alloc_array(&base->arena, n, sizeof *weights);
    assert_non_null(weights);
    assert_int_equal(fm_complex_rows_weigh(rows, n, weights, &base->arena, &base->error), FM_OK);
    for (uint32_t i = 0; i < n; i++) {
        if (rows[i].item != item) continue;
        if (rows[i].is_interface) found.interfaces += rows[i].cluster;
        if (rows[i].is_interface || rows[i].kind[0] != FM_RECORD_PROTEIN) continue;
        found.cluster = rows[i].cluster;
        found.weight = weights[i];
    }
    fm_store_close(store);
    return found;
}

/* Clusters of a list change weights and no part; the sequence stands in where the list is silent.
 */
static void lists_of_clusters_change_weights_alone(void **state) {
    (void)state;
    complexes_case test;
    char path[300];
    set_up(&test);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/mmcifs/%dlon.cif", test.base.data, 3 + i);
        write_protein(path, "2012-02-02", (float)i / 8, 12);
    }
    fm_build_report first = build_all(&test, (fm_build_options){0});
    assert_int_equal(first.n_protein, 2); /* the others are short */
    assert_int_equal(first.n_unclustered, 2);
    const protein_record sequence = find_protein(&test, "3lon"),
                         other = find_protein(&test, "4lon");
    const protein_record small = find_protein(&test, "1abc");
    assert_true(sequence.cluster == other.cluster && sequence.interfaces == other.interfaces);
    write_text(test.base.data, "clusters-by-entity-40.txt",
               "3LON_1 9ZZZ_2 1ABC_1\npdb_00004lon_1\n");
    fm_build_report listed = build_all(&test, (fm_build_options){0});
    assert_true(listed.published);
    assert_int_equal(listed.n_built, 0);
    assert_int_equal(listed.n_unclustered, 0);
    assert_same_content(first, listed);
    const protein_record a = find_protein(&test, "3lon"), b = find_protein(&test, "4lon");
    assert_true(a.cluster == fm_xxh3("3lon_1", 6) && b.cluster == fm_xxh3("4lon_1", 6));
    assert_int_equal(a.weight, 2 * sequence.weight);
    assert_true(a.interfaces != b.interfaces && a.interfaces != sequence.interfaces);
    assert_true(find_protein(&test, "1abc").cluster == small.cluster);
    assert_false(build_all(&test, (fm_build_options){0}).published);
    write_text(test.base.data, "clusters-by-entity-40.txt", "9ZZZ_1 4lon_1 3LON_2\n");
    listed = build_all(&test, (fm_build_options){0});
    assert_int_equal(listed.n_unclustered, 1);
    assert_true(find_protein(&test, "3lon").cluster == sequence.cluster);
    assert_true(find_protein(&test, "4lon").cluster == fm_xxh3("9zzz_1", 6));
    write_text(test.base.data, "clusters-by-entity-40.txt", "3LON_1\n4LON_1 4LON\n");
    fm_source source;
    const fm_source_options options = {.dataset = test.base.data};
    assert_int_equal(fm_source_scan(&options, 1, &test.base.arena, &source, &test.base.error),
                     FM_ERR_FORMAT);
    assert_int_equal(test.base.error.line, 2);
    assert_int_equal(test.base.error.column, 8);
    assert_non_null(strstr(test.base.error.message, "found '4LON'"));
    assert_non_null(strstr(test.base.error.source, "clusters-by-entity-40.txt"));
    tear_down(&test);
}

static void a_broken_file_harms_its_complex_alone(void **state) {
    (void)state;
    complexes_case test;
    set_up(&test);
    write_text(test.base.data, "mmcifs/3bad.cif", "data_T\nloop_\n_atom_site.id\n");
    write_text(test.base.data, "mmcifs/4bad.cif", "data_T\n_cell.length_a 1\n");
    fm_build_report report = build_all(&test, (fm_build_options){0});
    assert_int_equal(report.n_chain, 3);
    assert_int_equal(report.n_refused, 2);
    assert_non_null(strstr(report.refusal[0], "3bad\t"));
    assert_non_null(strstr(report.refusal[0], "3bad.cif:"));
    assert_non_null(strstr(report.refusal[1], "4bad.cif"));
    tear_down(&test);
}

static void a_build_without_components_is_refused(void **state) {
    (void)state;
    complexes_case test;
    fm_build_report report;
    set_up(&test);
    assert_int_equal(build_with(&test.base, test.base.data, test.base.cache,
                                (fm_build_options){.complexes = true}, &report),
                     FM_ERR_USAGE);
    assert_non_null(strstr(test.base.error.message, "--components"));
    bool was_there = true;
    assert_int_equal(fm_build_put_components(test.base.cache, &test.components, &test.base.arena,
                                             &was_there, &test.base.error),
                     FM_OK);
    assert_false(was_there);
    assert_int_equal(build_with(&test.base, test.base.data, test.base.cache,
                                (fm_build_options){.complexes = true}, &report),
                     FM_OK);
    assert_int_equal(report.n_complex, 2);
    tear_down(&test);
}

/* -- Protenix's layout */

static void write_protenix_layout(const complexes_case *test, const char *folder) {
    assert_int_equal(
        run_shell("mkdir -p %s/common %s/mmcif %s/mmcif_msa_template/7 %s/rna_msa/msas/1abc_2 && "
                  "for f in %s/mmcifs/*; do { cat $f && printf '_pdbx_struct_assembly.id 1\n"
                  "_pdbx_struct_assembly.oligomeric_count 4\n'; } > %s/mmcif/${f##*/}; done",
                  folder, folder, folder, folder, test->base.data, folder),
        0);
    write_text(folder, "common/seq_to_pdb_index.json", "{\"AAAAAA\": 3, \"GGGGGG\": 7}");
    write_text(folder, "mmcif_msa_template/7/pairing.a3m",
               ">q\nGGGGGG\n>UniRef100_A0A1_9606/1-6\nGGaAG-G\n");
    write_text(folder, "mmcif_msa_template/7/non_pairing.a3m", ">q\nGGGGGG\n>b\nGG--GG\n");
    write_text(folder, "mmcif_msa_template/7/hmmsearch.a3m", ">1abc_A/1-2\nGG\n");
    write_text(folder, "rna_msa/rna_sequence_to_pdb_chains.json",
               "{\"ACUUA\": [\"1abc_2\", \"2xyz_2\"], \"GGGGG\": [\"9zzz_1\"]}");
    write_text(folder, "rna_msa/msas/1abc_2/1abc_2_all.a3m", ">q\nACUUA\n>a\nACGU-\n");
}

/* Alignments are found by the sequences of entities; rows to pair come first among all rows. */
static void assert_protenix_rows(cache_case *base, const char *cache, const char *name) {
    fm_store *store;
    fm_complex_reader *reader;
    fm_complex loaded;
    uint32_t item;
    assert_int_equal(fm_store_open(cache, &store, &base->error), FM_OK);
    assert_int_equal(fm_complex_reader_create(store, &reader, &base->error), FM_OK);
    assert_int_equal(fm_store_find(store, name, &item, &base->error), FM_OK);
    assert_int_equal(fm_complex_load(reader, item, &base->arena, &loaded, &base->error), FM_OK);
    const fm_sequence_rows *all = loaded.entities[0].unpaired, *paired = loaded.entities[0].paired;
    assert_int_equal(all->n_row, 3); /* the query once */
    assert_int_equal(all->deletion[6 + 2], 1);
    assert_int_equal(all->ids[2 * 6 + 2], FM_RESTYPE32_GAP);
    assert_int_equal(paired->n_row, 2);
    assert_int_equal(paired->species[1].size, 4);
    assert_memory_equal(paired->species[1].data, "9606", 4);
    assert_int_equal(loaded.entities[1].unpaired->n_row, 2);
    fm_complex_reader_destroy(reader);
    fm_store_close(store);
}

static void alignments_are_found_by_sequence(void **state) {
    (void)state;
    complexes_case test;
    cache_case *base = &test.base;
    char folder[200], compat[200];
    fm_build_report report, like;
    set_up(&test);
    snprintf(folder, sizeof folder, "%s/protenix", base->folder);
    snprintf(compat, sizeof compat, "%s/compat", base->folder);
    write_protenix_layout(&test, folder);
    fm_build_options options = {.complexes = true, .components = &test.components};
    assert_int_equal(build_with(base, folder, base->cache, options, &report), FM_OK);
    assert_int_equal(report.n_complex, 2);
    assert_int_equal(report.n_bare_entity, 0);
    assert_int_equal(report.n_refused, 0);
    assert_protenix_rows(base, base->cache, "1abc");
    assert_protenix_rows(base, base->cache, "2xyz");
    /* What is there is used again, without the sequences of the files. */
    assert_int_equal(build_with(base, folder, base->cache, options, &report), FM_OK);
    assert_int_equal(report.n_reused, 2);
    assert_false(report.published);
    /* Protenix draws metals, so there are more records. */
    options.compat_protenix = true;
    assert_int_equal(build_with(base, folder, compat, options, &like), FM_OK);
    assert_int_equal(like.n_complex, 2);
    assert_protenix_rows(base, compat, "1abc");
    assert_int_equal(run_shell("test $(stat -c %%s %s/generations/00000001.records) -lt "
                               "$(stat -c %%s %s/generations/00000001.records)",
                               base->cache, compat),
                     0);
    /* A folder that does not exist is counted, and another query refused. */
    assert_int_equal(run_shell("rm -r %s/rna_msa/msas/1abc_2", folder), 0);
    assert_int_equal(build_with(base, folder, base->cache, options, &report), FM_OK);
    assert_int_equal(report.n_bare_entity, 2);
    write_text(folder, "mmcif_msa_template/7/pairing.a3m", ">q\nGGGGGA\n");
    assert_int_equal(build_with(base, folder, base->cache, options, &report), FM_ERR_DATA);
    assert_int_equal(report.n_refused, 2);
    assert_non_null(strstr(report.refusal[0], "mmcif_msa_template/7/pairing.a3m:2:6: "));
    /* A broken index ends the scan, with its place. */
    write_text(folder, "common/seq_to_pdb_index.json", "{\"GGGGGG\": \"../7\"}");
    fm_source source;
    assert_int_equal(fm_source_scan(&(fm_source_options){.dataset = folder}, 1, &base->arena,
                                    &source, &base->error),
                     FM_ERR_FORMAT);
    assert_int_equal(base->error.line, 1);
    assert_int_equal(base->error.column, 12);
    assert_non_null(strstr(base->error.source, "seq_to_pdb_index.json"));
    write_text(folder, "common/seq_to_pdb_index.json", "{\"\": 7}");
    assert_int_equal(fm_source_scan(&(fm_source_options){.dataset = folder}, 1, &base->arena,
                                    &source, &base->error),
                     FM_ERR_FORMAT);
    assert_int_equal(base->error.column, 2);
    tear_down(&test);
}

/* Complexes of a dataset with another name stay, with their records and components. */
static void complexes_of_other_datasets_are_kept(void **state) {
    (void)state;
    complexes_case test;
    fm_build_report report;
    uint32_t n[2];
    set_up(&test);
    for (int i = 0; i < 2; i++) {
        fm_source source;
        fm_store *store;
        const fm_complex_row *rows;
        const fm_source_options from = {.dataset = test.base.data, .name = i ? "b" : "a"};
        const fm_build_options options = {.cache = test.base.cache,
                                          .n_job = 2,
                                          .complexes = true,
                                          .components = &test.components};
        assert_int_equal(fm_source_scan(&from, 1, &test.base.arena, &source, &test.base.error),
                         FM_OK);
        assert_int_equal(
            fm_build_run(&source, &options, &test.base.arena, &report, &test.base.error), FM_OK);
        assert_int_equal(verify(&test.base, test.base.cache), FM_OK);
        assert_int_equal(fm_store_open(test.base.cache, &store, &test.base.error), FM_OK);
        assert_int_equal(
            fm_store_read_complex_rows(store, &test.base.arena, &rows, &n[i], &test.base.error),
            FM_OK);
        fm_store_close(store);
    }
    assert_int_equal(report.n_complex, 4);
    assert_int_equal(n[1], 2 * n[0]);
    tear_down(&test);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(complexes_stand_beside_chains),
        cmocka_unit_test(records_are_read_without_parts),
        cmocka_unit_test(a_complex_is_exported_as_it_is_parsed),
        cmocka_unit_test(samples_are_drawn_of_a_cache),
        cmocka_unit_test(only_what_changed_is_made_again),
        cmocka_unit_test(compressed_inputs_are_the_same),
        cmocka_unit_test(lists_of_clusters_change_weights_alone),
        cmocka_unit_test(a_broken_file_harms_its_complex_alone),
        cmocka_unit_test(a_build_without_components_is_refused),
        cmocka_unit_test(alignments_are_found_by_sequence),
        cmocka_unit_test(complexes_of_other_datasets_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
