/* test_mixture.c: AlphaFold2's mixture of data as a user makes it: a cache of two datasets, a
 * snapshot by recipe with shares, a server, and clients that receive its samples. */
#include "proto/batch.h"
#include "proto/client.h"
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_SAMPLE = 400 };

/* Twelve experimental chains, one of them of 9.15 Å and one released in 2016, and five predicted
 * ones. All experimental chains are one cluster; the predicted ones are in none. */
static int make_cache(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    return run("$FOLDMILL synth --chains 12 --seed 6 --max-length 60 --depth 40 -q -o a >out && "
               "$FOLDMILL synth --chains 5 --seed 7 --max-length 60 --depth 40 -q -o b >out && "
               "sed -i 's/ 3[.]15 *$/ 9.15/' a/mmcifs/*.cif && "
               "$FOLDMILL build --dataset pdb=a --dataset distillation=b --cache c -q >out && "
               "ls a/alignments | sed s/^/pdb:/ | tr '\\n' ' ' > clusters && echo >> clusters");
}

#define CREATE                                                                                     \
    "$FOLDMILL snapshot create mixed --cache c --recipe af2-train --until 2016-01-01 "             \
    "--clusters clusters --share pdb=0.25 --share distillation=0.75"

static void the_recipe_says_what_it_removed(void **state) {
    (void)state;
    assert_int_equal(run(CREATE " > made && "
                                "grep -qx 'share     0.75 of distillation: chains 5, sum of "
                                "weights 5368709120' made && "
                                "grep -qx 'share     0.25 of pdb: chains 10, sum of weights "
                                "894784850' made"),
                     0);
    assert_int_equal(
        run("head -1 c/snapshots/mixed | grep -qx 'foldmill snapshot 2' && "
            "$FOLDMILL snapshot show mixed --cache c > shown && "
            "grep -qx 'recipe    af2-train' shown && "
            "grep -qx 'selected  from the 17 chains of generation 1' shown && "
            "grep -qx 'weights   af2, clusters of a file' shown && "
            "grep -qx 'rule      resolution at most 9 Å, where there is one: excluded "
            "1' shown && "
            "grep -qx 'rule      no kind of residue (X is one) above 80 %: excluded 0' "
            "shown && "
            "grep -qx 'rule      released until 2016-01-01; predicted structures are "
            "exempt: excluded 1' shown"),
        0);
    assert_int_equal(run("$FOLDMILL snapshot show mixed --cache c --json > shown && "
                         "python3 -c \"import json; a = json.load(open('shown')); "
                         "assert [(s['dataset'], s['share'], s['chains']) for s in a['shares']] == "
                         "[('distillation', 0.75, 5), ('pdb', 0.25, 10)]; "
                         "assert a['selection']['recipe'] == 'af2-train'; "
                         "assert sum(r['excluded'] for r in a['selection']['rules']) == 2; "
                         "assert len(a['lines']) == 15\""),
                     0);
    /* The same chains, weights and shares are the same snapshot, however they were selected. */
    assert_int_equal(run("cp c/snapshots/mixed before && " CREATE " --max-length 4000 > out && "
                         "cmp before c/snapshots/mixed && "
                         "$FOLDMILL snapshot show mixed --cache c > shown && "
                         "grep -qx 'rule      0 to 4000 residues: excluded 0' shown"),
                     0);
    assert_int_equal(run("$FOLDMILL snapshot list --cache c | grep -q '^mixed .*, 2 shares$' && "
                         "$FOLDMILL snapshot create plain --cache c --exclude clusters > out && "
                         "head -1 c/snapshots/plain | grep -qx 'foldmill snapshot 1' && "
                         "$FOLDMILL snapshot diff plain mixed --cache c > out && "
                         "grep -qx '~ share of pdb  0, now 0.25' out && "
                         "grep -qx '2 datasets have another share' out"),
                     0);
}

static void mistakes_are_named(void **state) {
    (void)state;
    static const struct {
        const char *options, *words;
        int code;
    } wrong[] = {
        {"--share pdb=0.25 --share distillation=0.57", "add up to 0.820000000, expected 1", 2},
        {"--share pdb=1.5", "found 'pdb=1.5'", 2},
        {"--share pdb=1 --share other=0", "found 'other=0'", 2},
        {"--share pdb=0.5 --share other=0.5", "no chain of dataset 'other' is left", 1},
        {"--share pdb=0.5 --share distillation=0.5 --no-predicted",
         "no chain of dataset 'distillation' is left", 1},
        {"--recipe af2", "no recipe is called 'af2'; there is: af2-train", 2},
        {"--recipe af2-train", "choose the weights length", 2},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(
            fm_test_shell_format(folder, "$FOLDMILL snapshot create x --cache c %s > out 2> err",
                                 wrong[i].options),
            wrong[i].code);
        assert_int_equal(fm_test_shell_format(folder, "grep -q \"%s\" err", wrong[i].words), 0);
    }
    assert_int_equal(run("test ! -e c/snapshots/x && test ! -e c/selections/x"), 0);
}

static void read_snapshot(char *out, size_t out_bytes) {
    char path[300];
    snprintf(path, sizeof path, "%s/c/snapshots/mixed", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = fread(out, 1, out_bytes - 1, file);
    assert_true(n < out_bytes - 1 && feof(file));
    out[n] = '\0';
    fclose(file);
}

/* Receives the stream and counts the samples of each dataset. */
static void count_datasets(const char *url, uint32_t *ret_n_pdb, uint32_t *ret_n_other) {
    fm_client *client = NULL;
    fm_error error = {0};
    fm_client_options options = {.url = url, .snapshot_name = "mixed"};
    char chains[4096];
    read_snapshot(chains, sizeof chains);
    if (fm_client_connect(&options, &client, &error)) fail_msg("%s", error.message);
    const fm_wire_open params = {.plan = "af2-initial",
                                 .global_batch = 4,
                                 .crop_size = 16,
                                 .max_msa_clusters = 4,
                                 .max_extra_msa = 4,
                                 .max_cycle = 1,
                                 .seed = 7,
                                 .n_step = N_SAMPLE / 4,
                                 .n_group = 1,
                                 .order = FM_WIRE_STRICT,
                                 .policy = FM_WIRE_STOP,
                                 .credit_items = 8,
                                 .credit_bytes = 1 << 20};
    fm_wire_opened opened;
    if (fm_client_open(client, &params, &opened, &error)) fail_msg("%s", error.message);
    fm_arena arena;
    assert_int_equal(fm_arena_init(&arena, opened.max_sample_bytes + (8 << 20), NULL), FM_OK);
    void *slab = fm_arena_alloc(&arena, opened.max_sample_bytes);
    for (;;) {
        fm_client_event event;
        fm_sample sample;
        size_t mark = fm_arena_mark(&arena);
        if (fm_client_next(client, slab, opened.max_sample_bytes, &event, &error)) {
            fail_msg("%s", error.message);
        }
        if (event.kind == FM_CLIENT_END) break;
        assert_int_equal(fm_sample_decode(event.sample, true, &arena, &sample, NULL), FM_OK);
        bool is_pdb = strncmp(sample.name, "pdb:", 4) == 0;
        assert_int_equal(sample.is_distillation, !is_pdb);
        char line_end[FM_LIMIT_NAME_BYTES + 3];
        snprintf(line_end, sizeof line_end, " %s\n", sample.name);
        if (!strstr(chains, line_end)) fail_msg("%s is not in the snapshot", sample.name);
        ++*(is_pdb ? ret_n_pdb : ret_n_other);
        assert_int_equal(fm_client_release(client, 1, event.sample.size, NULL), FM_OK);
        fm_arena_rewind(&arena, mark);
    }
    fm_arena_fini(&arena);
    fm_client_close(client);
}

/* The smaller dataset gives three quarters of the samples. The snapshot is pinned, and a server of
 * its generation gives the same bytes after the cache has moved on and gc has run. */
static void served_in_shares(void **state) {
    (void)state;
    static const char fetch[] = "$FOLDMILL fetch --data unix:s --plan af2-initial --steps 5 "
                                "--batch 4 --crop 16 --cycles 1 --seed 7 --digest | "
                                "grep digest > %s";
    char url[300];
    uint32_t n_pdb = 0, n_other = 0;
    snprintf(url, sizeof url, "unix:%s/s", folder);
    assert_int_equal(run(CREATE " > made && $FOLDMILL snapshot pin mixed --cache c"), 0);
    pid_t serving = fm_test_serve(folder, "s", "--cache c --snapshot mixed");
    count_datasets(url, &n_pdb, &n_other);
    assert_int_equal(n_pdb + n_other, N_SAMPLE);
    assert_in_range(n_pdb, N_SAMPLE / 4 - 30, N_SAMPLE / 4 + 30);
    assert_int_equal(fm_test_shell_format(folder, fetch, "first"), 0);
    /* A plan that takes each chain in turn cannot follow the shares, and the server says so. */
    assert_int_equal(run("! grep -q shares_unused s.log && "
                         "$FOLDMILL fetch --data unix:s --plan tiny --steps 2 > out && "
                         "grep -q 'warn shares_unused snapshot=mixed plan=tiny ' s.log"),
                     0);
    assert_int_equal(fm_test_stop(serving, SIGTERM), 0);
    assert_int_equal(run("$FOLDMILL build --dataset pdb=b --cache c --replace -q > out && "
                         "$FOLDMILL gc --cache c > out && $FOLDMILL verify --cache c > out"),
                     0);
    serving = fm_test_serve(folder, "s", "--cache c --snapshot mixed");
    assert_int_equal(fm_test_shell_format(folder, fetch, "second"), 0);
    assert_int_equal(fm_test_stop(serving, SIGTERM), 0);
    assert_int_equal(run("cmp first second && $FOLDMILL snapshot unpin mixed --cache c && "
                         "$FOLDMILL snapshot delete mixed --cache c && "
                         "test ! -e c/snapshots/mixed && test ! -e c/selections/mixed"),
                     0);
}

/* Templates are no newer than the query by default; other rules can be asked for. */
static void templates_by_date(void **state) {
    (void)state;
    static const char *const rules[] = {"", "--max-template-date query", "--max-template-date any",
                                        "--max-template-date 1950-01-01"};
    pid_t serving = fm_test_serve(folder, "s", "--cache c --snapshot all");
    for (int i = 0; i < 4; i++) {
        assert_int_equal(fm_test_shell_format(folder,
                                              "$FOLDMILL fetch --data unix:s --steps 10 --batch 4 "
                                              "--cycles 1 --digest %s > out && "
                                              "grep digest out > digest%d",
                                              rules[i], i),
                         0);
    }
    assert_int_equal(run("cmp digest0 digest1 && ! cmp -s digest1 digest2 && "
                         "! cmp -s digest1 digest3 && ! cmp -s digest2 digest3"),
                     0);
    assert_int_equal(run("$FOLDMILL fetch --data unix:s --steps 1 --max-template-date never "
                         "2> err"),
                     2);
    assert_int_equal(run("grep -q 'expected a day as YYYY-MM-DD, query or any' err"), 0);
    assert_int_equal(fm_test_stop(serving, SIGTERM), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_recipe_says_what_it_removed, make_cache, tear_down),
        cmocka_unit_test_setup_teardown(mistakes_are_named, make_cache, tear_down),
        cmocka_unit_test_setup_teardown(served_in_shares, make_cache, tear_down),
        cmocka_unit_test_setup_teardown(templates_by_date, make_cache, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
