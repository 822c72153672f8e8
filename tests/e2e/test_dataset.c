/* foldmill build --dry-run, snapshot, stats and gc as a user runs them. */
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    return run("$FOLDMILL synth --chains 10 --seed 6 --max-length 80 --depth 50 --quiet -o data > "
               "/dev/null");
}

static void dry_run(void **state) {
    (void)state;
    assert_int_equal(run("mkdir data/alignments/lone_A && "
                         "$FOLDMILL build data --dry-run > out && test ! -e cache"),
                     0);
    assert_int_equal(run("test $(grep -c '^chain ' out) = 10"), 0);
    assert_int_equal(run("grep '^refused lone_A' out | grep -q 'without a structure'"), 0);
    assert_int_equal(run("grep -q '^alignments data/alignments: a folder for each chain: 10' out"),
                     0);
    assert_int_equal(run("grep -q '^chain .*mmcifs/.*uniref90_hits.a3m [0-9]' out"), 0);
    assert_int_equal(run("mkdir -p none/mmcifs && $FOLDMILL build none -n > /dev/null"), 1);
}

static void progress_for_programs(void **state) {
    (void)state;
    assert_int_equal(run("$FOLDMILL build data --cache c --progress json 2> err > /dev/null"), 0);
    assert_int_equal(
        run("tail -1 err | grep -q '^{\"chains_done\": 10, \"chains\": 10, .*\"done\": "
            "1.000000, .*}$'"),
        0);
    assert_int_equal(run("! grep -qv '^{' err"), 0);
    assert_int_equal(run("$FOLDMILL build data --cache c --progress xml 2> /dev/null"), 2);
}

static void snapshots(void **state) {
    (void)state;
    assert_int_equal(run("$FOLDMILL build data --cache c -q > /dev/null && "
                         "ls data/alignments > names && head -3 names > few && "
                         "{ head -4 names | tr '\\n' ' '; echo; } | tr a-z A-Z > clusters"),
                     0);
    assert_int_equal(run("$FOLDMILL snapshot create eval --cache c --chains few > out && "
                         "grep -q '^chains    3, sum of weights 768' out"),
                     0);
    /* What the rules excluded is no reason for this failure. */
    assert_int_equal(run("tail -1 names > last && $FOLDMILL snapshot create train --cache c "
                         "--clusters clusters --exclude last --disjoint-from eval 2> err"),
                     1);
    assert_int_equal(run("grep -q '4 chains share a cluster with snapshot eval' err && "
                         "! grep -q '^excluded' err"),
                     0);
    assert_int_equal(run("$FOLDMILL snapshot create train --cache c --clusters clusters "
                         "--apart-from eval --disjoint-from eval > out && "
                         "grep -q '^chains    6, sum of weights 6442450944' out"),
                     0);
    assert_int_equal(
        run("$FOLDMILL snapshot diff eval train --cache c --clusters clusters > out && "
            "grep -q '3 only in the first, 6 only in the second, 0 changed' out && "
            "grep -q '^0 chains of the first share' out"),
        0);
    assert_int_equal(run("$FOLDMILL snapshot pin train --cache c && "
                         "$FOLDMILL snapshot list --cache c > out && "
                         "grep -q '^train .*6 chains.*pinned to generation 1' out && "
                         "grep -q '^all .*10 chains' out"),
                     0);
    assert_int_equal(run("$FOLDMILL snapshot create --cache c 2> /dev/null"), 2);
    assert_int_equal(run("$FOLDMILL snapshot create x --cache c --weights af2 2> /dev/null"), 2);
    assert_int_equal(run("$FOLDMILL snapshot create x --cache c --until 2020 2> /dev/null"), 2);
    assert_int_equal(run("$FOLDMILL snapshot create x --cache c --min-length 900 2> /dev/null"), 1);
    assert_int_equal(run("test ! -e c/snapshots/x"), 0);
}

/* A snapshot is served by its name; python3 reads what --json says. */
static void served_and_inspected(void **state) {
    (void)state;
    assert_int_equal(run("$FOLDMILL build data --cache c -q > /dev/null && "
                         "ls data/alignments | head -3 > few && "
                         "$FOLDMILL snapshot create few --cache c --chains few > made"),
                     0);
    assert_int_equal(
        run("{ $FOLDMILL serve --cache c --snapshot few --listen unix:$PWD/s 2> log & } && "
            "server=$! && for i in $(seq 100); do test -S s && break; sleep 0.1; done && "
            "$FOLDMILL fetch --data unix:$PWD/s --steps 3 --batch 2 --seed 1 > fetched 2>&1; "
            "code=$?; kill $server; wait $server; exit $code"),
        0);
    assert_int_equal(run("grep -q 'samples   6, 0 skipped' fetched && "
                         "grep -q \"$(sed -n 's/^hash  *\\(.\\{16\\}\\).*/\\1/p' made)\" log"),
                     0);
    assert_int_equal(run("c=$(head -1 few) && $FOLDMILL inspect --cache c --json > cache.json && "
                         "$FOLDMILL inspect --cache c --chain $c --json > chain.json && "
                         "python3 -c \"import json; a = json.load(open('cache.json')); "
                         "b = json.load(open('chain.json')); assert a['chains'] == 10; "
                         "assert b['residues'] == len(b['sequence']); "
                         "assert sum(s['rows'] for s in b['msa']['sources']) == b['msa']['rows']; "
                         "assert set(b['parts']) <= set(a['parts'])\""),
                     0);
}

static void clean_and_count(void **state) {
    (void)state;
    assert_int_equal(run("$FOLDMILL build data --cache c -q > /dev/null && "
                         "set -- data/alignments/* && echo junk > $1/mgnify_hits.a3m && "
                         "$FOLDMILL build data --cache c -q > /dev/null; "
                         "$FOLDMILL gc --cache c --dry-run | grep -q '1 kept, 1 to remove' && "
                         "$FOLDMILL gc --cache c | grep -q '1 kept, 1 removed' && "
                         "$FOLDMILL verify --cache c > /dev/null"),
                     0);
    /* The picture: whole, the same bytes every time, a bar for each part at least. */
    assert_int_equal(run("$FOLDMILL stats --cache c --svg a.svg > a && $FOLDMILL stats --cache c "
                         "--svg b.SVG > b && cmp a b && cmp a.svg b.SVG"),
                     0);
    assert_int_equal(
        run("head -c 5 a.svg | grep -q '^<svg ' && tail -n 1 a.svg | grep -qx '</svg>' "
            "&& grep -q '>Residues of a chain<' a.svg && grep -q '>Rows of an "
            "alignment<' a.svg && test $(grep -c '^<rect' a.svg) -gt 8"),
        0);
    assert_int_equal(run("/usr/bin/python3 -c 'import xml.dom.minidom as m; m.parse(\"a.svg\")' || "
                         "test ! -x /usr/bin/python3"),
                     0);
    assert_int_equal(run("$FOLDMILL stats --cache c --svg nowhere/a.svg > a 2> err"), 1);
    assert_int_equal(run("$FOLDMILL stats --cache c > out && grep -q '^lengths: 9 chains' out && "
                         "grep -q '^depths: 9 chains' out && grep -q '^refused: 1 chain$' out && "
                         "grep -q '^msa  *9 ' out"),
                     0);
    assert_int_equal(run("$FOLDMILL gc 2> /dev/null"), 2);
    assert_int_equal(run("$FOLDMILL gc --cache nowhere 2> /dev/null"), 1);
}

/* Hits without a structure are counted with the reason, and a search of AlphaFold-Multimer's
 * name is read as one. */
static void template_trouble_is_counted(void **state) {
    (void)state;
    assert_int_equal(
        run("$FOLDMILL synth --chains 5 --seed 4 --max-length 60 --depth 40 --quiet -o t > "
            "/dev/null && $FOLDMILL build t --cache tc -q > all && "
            "grep -q '^templates [1-9][0-9]* hits, [1-9]' all && "
            "! grep -q 'no structure file of that id' all && cp -r t u && "
            "for f in u/mmcifs/*; do mv $f kept && $FOLDMILL build u --cache uc -q --json > out; "
            "grep -q 'no structure file of that id' out && break; mv kept $f; rm -r uc; done; "
            "python3 -c \"import json; o = json.load(open('out'))['templates']; "
            "u = o['unmapped']; assert u['no structure file of that id'] > 0, o; "
            "assert sum(u.values()) + o['mapped'] == o['hits'], o\""),
        0);
    assert_int_equal(run("$FOLDMILL stats --cache uc | grep -q 'not mapped: no structure file' && "
                         "$FOLDMILL stats --cache uc --json > s && python3 -c \"import json; "
                         "a = json.load(open('out')); b = json.load(open('s')); "
                         "assert a['templates'] == b['templates']\""),
                     0);
    assert_int_equal(run("for f in t/alignments/*; do rm -f $f/*.hhr $f/hmm_output.sto; done; "
                         "$FOLDMILL build t --cache nc -q | grep -q '[1-9] chains without a file "
                         "of template' && "
                         "c=$(ls t/alignments | head -1) && "
                         "printf '# STOCKHOLM 1.0\\n//\\n' > t/alignments/$c/pdb_hits.sto && "
                         "$FOLDMILL build t --cache nc -q > out; grep -q '1 chain whose files "
                         "list no hit' out"),
                     0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(dry_run, set_up, tear_down),
        cmocka_unit_test_setup_teardown(progress_for_programs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(snapshots, set_up, tear_down),
        cmocka_unit_test_setup_teardown(served_and_inspected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(clean_and_count, set_up, tear_down),
        cmocka_unit_test_setup_teardown(template_trouble_is_counted, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
