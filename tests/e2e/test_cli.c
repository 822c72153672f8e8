/* The command line as a person meets it: versions, help and its width, suggestions, advice for
 * wrong paths, full outputs, JSON objects, standard input, and names of chains. */
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static char folder[256];

#define run(...) fm_test_shell_format(folder, __VA_ARGS__)

/* data: 8 chains, of which the build of cache c refuses one; $CHAIN is a chain of c, `refused`
 * holds the name of the one that is not. */
static int make_folder(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    assert_int_equal(run("$FOLDMILL synth --chains 8 --seed 6 --max-length 60 --depth 30 --quiet "
                         "-o data > /dev/null && ls data/alignments > names && "
                         "head -1 names > refused && tail -1 names > chain && "
                         "echo junk > data/alignments/$(cat refused)/mgnify_hits.a3m"),
                     0);
    assert_int_equal(run("$FOLDMILL build data --cache c -q > /dev/null"), 3);
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

static const char *const commands[] = {"build", "merge", "catalogue", "verify",    "inspect",
                                       "stats", "gc",    "snapshot",  "export",    "parse",
                                       "serve", "fetch", "synth",     "components"};
enum { N_COMMAND = sizeof commands / sizeof commands[0] };

static void versions_and_help(void **state) {
    (void)state;
    assert_int_equal(run("$FOLDMILL --version > a && $FOLDMILL -V > b && "
                         "$FOLDMILL verify --version > c1 && $FOLDMILL train -V > d && "
                         "cmp a b && cmp a c1 && cmp a d && grep -q '^foldmill [0-9]' a"),
                     0);
    assert_int_equal(run("$FOLDMILL help > a && $FOLDMILL --help > b && cmp a b"), 0);
    for (size_t i = 0; i < N_COMMAND; i++) {
        assert_int_equal(run("$FOLDMILL help %s > a && $FOLDMILL %s --help > b && cmp a b && "
                             "grep -q '^usage: foldmill %s' a",
                             commands[i], commands[i], commands[i]),
                         0);
    }
    assert_int_equal(run("$FOLDMILL 2> /dev/null"), 2);
}

/* No line of a help text is wider than COLUMNS, or 80. */
static void help_fits_the_terminal(void **state) {
    (void)state;
    static const int columns[] = {60, 80, 120};
    for (size_t i = 0; i < N_COMMAND; i++) {
        for (size_t k = 0; k < sizeof columns / sizeof columns[0]; k++) {
            assert_int_equal(run("COLUMNS=%d $FOLDMILL help %s > out && "
                                 "! LC_ALL=C.UTF-8 grep -E '^.{%d,}$' out",
                                 columns[k], commands[i], columns[k] + 1),
                             0);
        }
        assert_int_equal(run("env -u COLUMNS $FOLDMILL help %s > a && "
                             "COLUMNS=80 $FOLDMILL help %s | cmp - a && "
                             "COLUMNS=wide $FOLDMILL help %s | cmp - a && "
                             "! COLUMNS=120 $FOLDMILL help %s | cmp -s - a",
                             commands[i], commands[i], commands[i], commands[i]),
                         0);
    }
}

/* The command exits with `code` and says `words` on stderr. */
static void expect(int code, const char *words, const char *command) {
    assert_int_equal(run("%s 2> err > /dev/null", command), code);
    if (run("grep -qF -- \"%s\" err", words)) {
        (void)!run("cat err >&2");
        fail_msg("'%s' does not say '%s'", command, words);
    }
}

static void suggestions(void **state) {
    (void)state;
    expect(2, "unknown command 'biuld'; did you mean 'build'?", "$FOLDMILL biuld");
    expect(2, "did you mean 'catalogue'?", "$FOLDMILL catalog");
    expect(2, "did you mean 'inspect'?", "$FOLDMILL help inspct");
    expect(2, "unknown command 'xyzzy'; foldmill --help lists", "$FOLDMILL xyzzy");
    expect(2, "found '--cache' in place of a command; options come after it",
           "$FOLDMILL --cache x verify");
    expect(2, "unknown option '--cahce'; did you mean '--cache'?", "$FOLDMILL verify --cahce c");
    expect(2, "did you mean '--max-length'?", "$FOLDMILL snapshot list --maxlength=3");
    expect(2, "did you mean 'create'?", "$FOLDMILL snapshot creat x --cache c");
    expect(2, "did you mean 'status'?", "$FOLDMILL catalogue stats --catalogue c");
    expect(2, "did you mean 'mmcif'?", "$FOLDMILL parse cif x.cif");
    expect(2, "the kind comes first: foldmill parse a3m x.a3m", "$FOLDMILL parse x.a3m a3m");
    expect(2, "did you mean '--cache c'?", "$FOLDMILL inspect c");
    expect(2, "did you mean '--data unix:s'?", "$FOLDMILL fetch unix:s");
    expect(2, "did you mean '--cache c'?", "$FOLDMILL build data c");
    expect(2, "did you mean '--dataset NAME=b'?", "$FOLDMILL build data b --cache c");
    expect(2, "--until: found '2020-13-01', expected a date",
           "$FOLDMILL snapshot create x --cache c --until 2020-13-01");
    expect(2, "--max-resolution: found -4, expected at least 0",
           "$FOLDMILL snapshot create x --cache c --max-resolution -4");
    expect(2, "--interval: found 0, expected 0.1 to 3600 seconds",
           "$FOLDMILL top run --interval 0");
    expect(2, "--group: found '2/2'", "$FOLDMILL fetch --data unix:s --steps 1 --group 2/2");
    expect(2, "--listen is given twice: --also-listen takes the second address",
           "$FOLDMILL serve --cache c --listen unix:a --listen unix:b");
    expect(2, "--alignments is given twice: the files must be in one place",
           "$FOLDMILL build data --cache c --alignments a --alignments b");
    expect(2, "--cache DIR is required; usage: foldmill verify", "$FOLDMILL verify");
    expect(2, "cannot be a snapshot's name: at most 240 bytes",
           "$FOLDMILL snapshot create $(printf '%241s' | tr ' ' n) --cache c");
    expect(2, "--svg: found 'a.png', expected a file that ends in .svg",
           "$FOLDMILL stats --cache c --svg a.png");
    expect(2, "expected: snapshot diff A B", "$FOLDMILL snapshot diff all --cache c");
}

/* A limit on the size of files simulates a full disk. */
static void a_full_disk_is_told_with_and_without_a_cache(void **state) {
    (void)state;
    static const char build[] = "(ulimit -f 0; trap '' XFSZ; "
                                "exec $FOLDMILL build grown --cache room -q 2>&1)";
    assert_int_equal(run("$FOLDMILL synth --chains 1 -q -o grown >/dev/null; %s | "
                         "grep -q 'File too large (is the disk full?); make room on the disk'",
                         build),
                     0);
    assert_int_equal(
        run("$FOLDMILL build grown --cache room -q >/dev/null && "
            "$FOLDMILL synth --chains 2 -q --force -o grown >/dev/null; %s | "
            "grep -q 'disk full?); the cache is whole as it is: make room on the disk'",
            build),
        0);
}

static void advice_for_paths(void **state) {
    (void)state;
    static const char *const readers[] = {"verify",
                                          "inspect",
                                          "stats",
                                          "gc",
                                          "snapshot list",
                                          "export --chain x_A -o x.npz",
                                          "serve --listen unix:socket"};
    assert_int_equal(run("mkdir empty half half/shards && echo > file && cp -r c lost && "
                         "echo 7 > lost/CURRENT"),
                     0);
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        char command[256];
        snprintf(command, sizeof command, "$FOLDMILL %s --cache nowhere", readers[i]);
        expect(1, "there is no folder nowhere; ", command);
        snprintf(command, sizeof command, "$FOLDMILL %s --cache empty", readers[i]);
        expect(1, "empty is not a foldmill cache (it has no file CURRENT); ", command);
        snprintf(command, sizeof command, "$FOLDMILL %s --cache file", readers[i]);
        expect(1, "file is a file, and a foldmill cache is a folder", command);
        snprintf(command, sizeof command, "$FOLDMILL %s --cache data", readers[i]);
        expect(1, "data is a dataset, not a foldmill cache; ", command);
        snprintf(command, sizeof command, "$FOLDMILL %s --cache half", readers[i]);
        expect(1, "the cache half is not finished", command);
        snprintf(command, sizeof command, "$FOLDMILL %s --cache lost", readers[i]);
        expect(1, "lost/generations/00000007.manifest: there is no such file, and CURRENT names",
               command);
    }
    expect(2, "c is a foldmill cache, not a dataset", "$FOLDMILL build c --cache made");
    expect(2, "c is a foldmill cache, not a dataset",
           "$FOLDMILL build --dataset a=data --dataset b=c --cache made");
    expect(2, "file is a file, and a dataset is a folder", "$FOLDMILL build file --cache made");
    expect(2, "--cache: file is a file, and a foldmill cache is a folder",
           "$FOLDMILL build data --cache file");
    expect(2, "--cache: ./data is the dataset itself", "$FOLDMILL build data --cache ./data");
    assert_int_equal(run("test ! -e made && test ! -e data/CURRENT"), 0);
}

static void advice_for_addresses(void **state) {
    (void)state;
    static const char fetch[] = "$FOLDMILL fetch --steps 1 --data";
    char command[256];
    snprintf(command, sizeof command, "%s localhost:7420", fetch);
    expect(2, "did you mean tcp://localhost:7420?", command);
    snprintf(command, sizeof command, "%s /run/s.sock", fetch);
    expect(2, "did you mean unix:/run/s.sock?", command);
    snprintf(command, sizeof command, "%s tcp://localhost", fetch);
    expect(2, "did you mean tcp://localhost:7420?", command);
    snprintf(command, sizeof command, "%s http://localhost:7420", fetch);
    expect(2, "did you mean tcp://localhost:7420?", command);
    snprintf(command, sizeof command, "%s unix:none", fetch);
    expect(1, "is foldmill serve running there?", command);
    snprintf(command, sizeof command, "%s tcp://127.0.0.1:1", fetch);
    expect(1, "is foldmill serve running there?", command);
    expect(2, "address 'somewhere', expected unix:PATH",
           "$FOLDMILL serve --cache nowhere --listen somewhere");
    expect(1, "the folder of the socket must exist",
           "$FOLDMILL serve --cache c --listen unix:none/socket");
    expect(1, "names exists and is not a socket", "$FOLDMILL serve --cache c --listen unix:names");
    /* A port that another server has. */
    assert_int_equal(
        run("$FOLDMILL serve --cache c --listen tcp://127.0.0.1:0 2> log & server=$!; "
            "for i in $(seq 300); do grep -q ' listening ' log && break; sleep 0.1; done; "
            "$FOLDMILL serve --cache c --listen $(grep -o 'tcp://[0-9.:]*' log) 2> err; code=$?; "
            "kill $server; wait $server; test $code = 1 && "
            "grep -q 'another program listens there; port 0 takes any free port' err"),
        0);
}

static void full_outputs_fail(void **state) {
    (void)state;
    static const char *const arguments[] = {
        "--help",
        "--version",
        "help build",
        "verify --cache c",
        "verify --cache c --json",
        "inspect --cache c",
        "inspect --cache c --chain $(cat chain)",
        "stats --cache c",
        "gc --cache c --dry-run",
        "snapshot list --cache c",
        "snapshot show all --cache c",
        "build data --dry-run",
        "parse a3m data/alignments/$(cat chain)/uniref90_hits.a3m",
        "synth --chains 1 --force -o few",
    };
    for (size_t i = 0; i < sizeof arguments / sizeof arguments[0]; i++) {
        if (run("$FOLDMILL %s > /dev/full 2> err", arguments[i]) != 1) {
            fail_msg("'foldmill %s' does not fail on a full output", arguments[i]);
        }
        assert_int_equal(run("test $(wc -l < err) = 1 && grep -q 'cannot write the results to "
                             "standard output' err"),
                         0);
    }
    /* Also where some inputs were refused; and a closed output is no failure of what prints
     * nothing. */
    assert_int_equal(run("$FOLDMILL build data --cache c -q > /dev/full 2> err"), 1);
    assert_int_equal(run("$FOLDMILL export --cache c --chain $(cat chain) -o x.npz >&-"), 0);
}

/* A program that was started without standard descriptors gives none of them to a file of its own,
 * and results that cannot be written are still an error. */
static void closed_descriptors(void **state) {
    (void)state;
    assert_int_equal(run("$FOLDMILL build data --cache closed -q <&- >&- 2>&-; test $? = 3 || "
                         "test $? = 1; $FOLDMILL verify --cache closed > /dev/null"),
                     0);
    assert_int_equal(run("$FOLDMILL verify --cache c >&- 2> err"), 1);
    assert_int_equal(run("grep -q 'cannot write the results to standard output' err"), 0);
    assert_int_equal(run("$FOLDMILL verify --cache none > out 2>&-; test $? = 1 && test ! -s out"),
                     0);
    assert_int_equal(run("$FOLDMILL parse msa - <&- > out 2> err; test $? = 1 && test ! -s out && "
                         "test -s err"),
                     0);
}

/* Memory limits fit the machine, or the command says that they do not. */
static void memory_fits(void **state) {
    (void)state;
    assert_int_equal(run("$FOLDMILL build data --cache fit 2> err > /dev/null; "
                         "! grep -q 'may need' err"),
                     0);
    assert_int_equal(run("$FOLDMILL build data --cache fit --jobs 512 --worker-memory 16777216 "
                         "--dry-run > /dev/null; $FOLDMILL build data --cache fit --jobs 4 "
                         "--worker-memory 16777216 2> err > /dev/null; "
                         "grep -q '4 workers may need 16777216 MiB each' err"),
                     0);
    /* A small file that unpacks to more than a worker may use is refused, not unpacked whole. */
    assert_int_equal(
        run("cp -r data bomb && head -c 300000000 /dev/zero | gzip -1 > "
            "bomb/alignments/$(cat chain)/bomb.a3m.gz && "
            "$FOLDMILL build bomb --cache bombed --jobs 2 --worker-memory 1024 --json > out; "
            "python3 -c \"import json; o = json.load(open('out')); "
            "assert o['peak_resident_bytes'] < 400e6, o['peak_resident_bytes']; "
            "assert any('larger than the 268435456 bytes allowed' in r['reason'] "
            "for r in o['refusals']), o['refusals']\""),
        0);
}

/* Each command prints one object, alone on stdout, whose members its help names. */
static void json_objects(void **state) {
    (void)state;
    static const struct {
        const char *command, *arguments, *check;
    } cases[] = {
        {"build", "data --cache c -q", "o['refused'] == 1 and o['outcome'] == 'some'"},
        {"build", "data --cache c --dry-run", "len(o['chains']) == 8 and o['files'] > 8"},
        {"build", "data --cache w -q --catalogue cat", "o['job']['done'] == 7"},
        {"catalogue", "status --catalogue cat", "o['refused'] == 1 and len(o['items']) == 1"},
        {"merge", "--catalogue cat --cache m", "o['chains'] == 7 and len(o['refusals']) == 1"},
        {"catalogue", "rebuild --catalogue cat2 --from w", "o['done'] == 7"},
        {"verify", "--cache c", "o['chains'] == 7 and len(o['content']) == 64"},
        {"inspect", "--cache c", "o['parts']['msa']['chains'] == 7 and o['refusals'][0]['reason']"},
        {"inspect", "--cache c --chain $(cat chain)", "len(o['sequence']) == o['residues']"},
        {"stats", "--cache c", "sum(x['chains'] for x in o['lengths']['counts']) == 7"},
        {"gc", "--cache c --dry-run", "o['dry_run'] and o['generations_kept'] == 1"},
        {"snapshot", "create some --cache c --min-length 1", "o['chains'] == 7"},
        {"snapshot", "pin some --cache c", "o['pinned'] == 1"},
        {"snapshot", "list --cache c", "[x['chains'] for x in o['snapshots']] == [7, 7]"},
        {"snapshot", "show some --cache c", "len(o['lines']) == 7"},
        {"snapshot", "diff all some --cache c", "o['same'] == 7"},
        {"parse", "a3m data/alignments/$(cat chain)/uniref90_hits.a3m", "o['rows'] >= 1"},
        {"parse", "msa data/alignments/$(cat chain)/uniref90_hits.a3m", "o['gaps'] < 1"},
        {"parse", "hhr data/alignments/$(cat chain)/pdb70_hits.hhr", "type(o['hits']) == list"},
        {"parse", "mmcif $(ls data/mmcifs/* | head -1)", "o['chains'][0]['sequence']"},
        {"synth", "--chains 1 --quiet -o one", "o['chains'] == 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)!run("$FOLDMILL %s %s --json > out 2> err", cases[i].command, cases[i].arguments);
        if (run("python3 -c \"import json; o = json.load(open('out')); assert %s, o; "
                "print(*o, sep='\\n')\" > keys && $FOLDMILL %s --help > help && "
                "for k in $(cat keys); do grep -qw -- $k help || { echo $k >&2; exit 1; }; done",
                cases[i].check, cases[i].command)) {
            (void)!run("cat out err >&2");
            fail_msg("foldmill %s %s --json", cases[i].command, cases[i].arguments);
        }
    }
    expect(2, "which -o replaces", "$FOLDMILL parse a3m x --json -o x.npz");
}

static void json_of_a_stream(void **state) {
    (void)state;
    assert_int_equal(
        run("$FOLDMILL serve --cache c --listen unix:s 2> log & server=$!; "
            "$FOLDMILL fetch --data unix:s --wait 30000 --steps 3 --batch 2 --digest --json "
            "> out; code=$?; kill $server; wait $server; test $code = 0 && "
            "python3 -c \"import json; o = json.load(open('out')); "
            "assert o['samples'] == 6 and o['end'] == 'delivered' and len(o['digest']) == 64\""),
        0);
}

static void standard_input(void **state) {
    (void)state;
    assert_int_equal(run("a3m=data/alignments/$(cat chain)/uniref90_hits.a3m; "
                         "$FOLDMILL parse msa - < $a3m > a && $FOLDMILL parse msa $a3m > b && "
                         "gzip -c $a3m | $FOLDMILL parse msa - > g && cmp a g && "
                         "sed 1d a > a1 && sed 1d b | cmp - a1 && grep -q '^stdin: A3M' a"),
                     0);
    assert_int_equal(run("printf '# STOCKHOLM 1.0\\nq AC\\n//\\n' | $FOLDMILL parse msa - | "
                         "grep -q '^stdin: Stockholm'"),
                     0);
    assert_int_equal(run("printf '>q\\nAC\\n>r\\nA\\n' | $FOLDMILL parse a3m - 2> err"), 1);
    assert_int_equal(run("grep -q '^foldmill parse: stdin:4:1: ' err"), 0);
    assert_int_equal(
        run("sed 1d names | head -3 | $FOLDMILL snapshot create few --cache c --chains "
            "- | grep -q '^chains    3,'"),
        0);
    assert_int_equal(run("tr '\\n' ' ' < names | $FOLDMILL snapshot create by --cache c --clusters "
                         "- > /dev/null"),
                     0);
    expect(2, "only one of --chains, --exclude and --clusters can be '-'",
           "$FOLDMILL snapshot create x --cache c --chains - --exclude - < names");
}

static void names_of_chains(void **state) {
    (void)state;
    /* Ids are found in either case; the chain's letters are not. */
    assert_int_equal(run("upper=$(sed 's/_.*//' chain | tr a-z A-Z)_$(sed 's/.*_//' chain) && "
                         "$FOLDMILL inspect --cache c --chain $upper > a && "
                         "$FOLDMILL inspect --cache c --chain $(cat chain) | cmp - a && "
                         "$FOLDMILL export --cache c --chain $upper -o x.npz --replace && "
                         "echo $upper > upper && "
                         "$FOLDMILL snapshot create up --cache c --chains upper | "
                         "grep -q '^chains    1,' && "
                         "$FOLDMILL snapshot create down --cache c --exclude upper | "
                         "grep -q '^chains    6,'"),
                     0);
    assert_int_equal(run("$FOLDMILL inspect --cache c --chain $(tr A-Z a-z < chain) 2> err"), 1);
    assert_int_equal(run("grep -q \"the cache has no chain '.*'; it has .*$(cat chain)\" err"), 0);
    expect(1, "; its 7 chains have names such as ", "$FOLDMILL inspect --cache c --chain nobody");
    /* A refused chain is answered with its reason. */
    assert_int_equal(run("for command in inspect 'export -o x.npz --replace'; do "
                         "$FOLDMILL $command --cache c --chain $(cat refused) 2> err && exit 1; "
                         "grep -q 'the build of the cache refused chain .*mgnify_hits.a3m:1' err "
                         "|| exit 1; done"),
                     0);
    assert_int_equal(run("echo nobody_A > unknown && cat refused chain unknown > list && "
                         "$FOLDMILL snapshot create l --cache c --chains list > out && "
                         "grep -q '^chains    1,' out && "
                         "grep -q '^refused   1 chain of the list' out && "
                         "grep -q 'mgnify_hits.a3m:1' out && "
                         "grep -q '^unknown   1 chain of the list' out"),
                     0);
    assert_int_equal(run("$FOLDMILL snapshot create l --cache c --chains refused 2> err"), 1);
    assert_int_equal(run("grep -q 'no chain is left: the build refused 1 chain .*mgnify' err"), 0);
    /* The dataset of a chain can be omitted. */
    assert_int_equal(run("$FOLDMILL build --dataset pdb=data --cache p -q > /dev/null; "
                         "$FOLDMILL inspect --cache p --chain $(cat chain) > out && "
                         "grep -q \"^chain       pdb:$(cat chain)\" out"),
                     0);
}

/* On a terminal, the progress line is never wider than it. */
static void progress_fits_the_terminal(void **state) {
    (void)state;
    if (run("command -v script > /dev/null")) {
        print_message("skipped: there is no program script to make a terminal\n");
        skip();
    }
    assert_int_equal(run("COLUMNS=50 script -qec '$FOLDMILL build data --cache t' log > /dev/null; "
                         "tr '\\r' '\\n' < log | grep 'ETA' | sed 's/^.\\[K//' > lines; "
                         "awk 'length($0) > 50 { bad = 1 } END { exit bad }' lines && "
                         "$FOLDMILL verify --cache t > /dev/null"),
                     0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_and_help),
        cmocka_unit_test(help_fits_the_terminal),
        cmocka_unit_test(suggestions),
        cmocka_unit_test(a_full_disk_is_told_with_and_without_a_cache),
        cmocka_unit_test(advice_for_paths),
        cmocka_unit_test(advice_for_addresses),
        cmocka_unit_test(full_outputs_fail),
        cmocka_unit_test(closed_descriptors),
        cmocka_unit_test(memory_fits),
        cmocka_unit_test(json_objects),
        cmocka_unit_test(json_of_a_stream),
        cmocka_unit_test(standard_input),
        cmocka_unit_test(names_of_chains),
        cmocka_unit_test(progress_fits_the_terminal),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
