/* test_prepare.c: `foldmill prepare` and the prediction of several jobs: lists of jobs and folders,
 * refused jobs, reports, the summary and exit codes. */
#include "tests/featurizer/job_case.h"
#include "tests/testing/complex_sample.h"
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* `exits N COMMAND` checks an exit code; `has TEXT FILE` looks for a line. */
static const char functions[] =
    "exits() { want=$1; shift; \"$@\" >out 2>err; code=$?; test $code = $want || "
    "{ echo \"exit code $code\"; cat out err; exit 9; }; }; "
    "has() { grep -q -- \"$1\" \"$2\" || { cat \"$2\"; exit 8; }; }; "
    "prepare='foldmill prepare --components known.cif --out ready'; "
    "w=run/checkpoint-000000000001.safetensors; "
    "p=\"foldmill predict --weights $w --components known.cif --steps 2 --recycles 1 --samples "
    "2\"; ";

static const char jobs[] =
    "[{\"name\":\"one\",\"sequences\":[{\"proteinChain\":{\"sequence\":\"GMGMG\",\"count\":2,"
    "\"unpairedMsaPath\":\"m.a3m\"}},{\"ligand\":{\"ligand\":\"CCD_SUG_GOL\"}}]},\n"
    "{\"name\":\"strange\",\"sequences\":[{\"ion\":{\"ion\":\"XXX\"}}]},\n"
    "{\"name\":\"wrong\",\"sequenzes\":[]},\n"
    "{\"name\":\"two\",\"sequences\":[{\"ion\":{\"ion\":\"ZN\",\"count\":3}}],"
    "\"modelSeeds\":[4,5]},\n"
    "{\"name\":\"one\",\"sequences\":[{\"ion\":{\"ion\":\"ZN\"}}]}]";

static void write_text(const char *name, const char *text) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static int set_up(void **state) {
    make_folder(state);
    run_first = functions;
    if (run("mkdir samples d e")) return 1;
    write_text("known.cif", JOB_COMPONENTS);
    write_text("jobs.json", jobs);
    write_text("m.a3m", ">q\nGMGMG\n>a\nGM-MG\n");
    write_text("d/b.yaml", "sequences:\n  - ligand: {id: A, ccd: SUG}\n");
    write_text("d/a.json", "[{\"name\":\"first\",\"sequences\":[{\"ion\":{\"ion\":\"ZN\"}}]}]");
    write_text("d/notes.txt", "none");
    fm_test_complex_write_seed(folder, "samples/s.npz", 1);
    return run("printf '[data]\\ncrop_size = 10\\nmax_atoms = 16\\nglobal_batch = 1\\n' >small.ini "
               "&& foldmill train --samples samples --config small.ini --preset af3-tiny -q "
               "--steps 1 --out run >log 2>&1");
}

/* Each job of a list has a file, or a reason. */
static void jobs_are_prepared_or_refused(void **state) {
    (void)state;
    assert_int_equal(
        run("exits 3 $prepare jobs.json d absent.json && "
            "has '^ready/one.npz: Protenix JSON, 3 chains, [0-9]* tokens, [0-9]* atoms$' out && "
            "has '^ready/first.npz: ' out && has '^ready/b.npz: Boltz YAML' out && "
            "has '^4 jobs prepared in ready, 4 refused$' out && "
            "has '^foldmill prepare: jobs.json:2:46: .1..sequences.0..ion.ion: found the component "
            "XXX' err && has '^foldmill prepare: jobs.json:3:29: .2..sequenzes: found an unknown' "
            "err && has 'jobs.json: a job before this one has the name one, too' err && "
            "has 'absent.json: cannot open' err && "
            "foldmill parse job jobs.json --job one --components known.cif -o one.npz && "
            "cmp one.npz ready/one.npz && "
            "exits 1 foldmill parse job jobs.json --job wrong --components known.cif && "
            "has 'jobs.json:3:29' err && exits 1 $prepare e && "
            "has '^foldmill prepare: e: found no description in the folder' err && "
            "exits 2 $prepare d --format x && exits 0 $prepare d -q"),
        0);
}

static void a_report_has_the_jobs_in_their_order(void **state) {
    (void)state;
    assert_int_equal(
        run("exits 3 $prepare --json jobs.json && test \"$(sed -n 's/.*\"job\": \"\\([a-z]*\\)\", "
            "\"\\([a-z]*\\)\".*/\\1:\\2/p' out | tr '\\n' ' ')\" = "
            "'one:file strange:reason wrong:reason two:file one:reason ' && "
            "has '\"file\": \"ready/two.npz\", \"tokens\": 3, \"atoms\": 3, \"chains\": 3}' out"),
        0);
}

/* A list, a folder and prepared jobs are predicted by one command; each structure, each refused
 * and each failed job has a row. Prepared jobs give the same structures as their descriptions. */
static void several_jobs_are_predicted(void **state) {
    (void)state;
    assert_int_equal(
        run("cp samples/s.npz d/s.npz && printf x >d/broken.npz && "
            "exits 3 $p jobs.json d --out r && "
            "has '^outputs   r/summary.csv, 5 complexes, 1 failed, 3 refused, ' out && "
            "has '^foldmill predict: jobs.json:3:29: .2..sequenzes' err && "
            "has '^1/6  r/inputs/one.npz  [0-9.]* s  [0-9]* an hour, [0-9.]* s left$' err && "
            "has '^6/6  d/s.npz  [0-9.]* s$' err && "
            "test \"$(grep ^two r/summary.csv | cut -d, -f9 | tr '\\n' ' ')\" = '1 2 3 4 ' && "
            "test $(grep -c '^two,3,3,3,' r/summary.csv) = 4 && "
            "test $(grep -c '^one,' r/summary.csv) = 3 && has '^one,,*\"*jobs.json: a job before' "
            "r/summary.csv && "
            "has '^strange,,*\"*jobs.json:2:46: ' r/summary.csv && "
            "has 'href=\"./one/one.html\">one</a>' r/index.html && "
            "has 'href=\"./s/s_ranking_scores.csv\">s</a>' r/index.html && "
            "has '>strange</td><td class=\"t why\">jobs.json:2:46: ' r/index.html && "
            "test $(grep -c '^<tr><td' r/index.html) = 9 && "
            "has '^broken,,*\"*d/broken.npz:' r/summary.csv && "
            "awk -F, '!/\"/ && NF != 16 { exit 1 }' r/summary.csv && "
            "rm d/broken.npz && exits 3 $prepare jobs.json d && "
            "exits 0 foldmill predict ready --weights $w --steps 2 --recycles 1 --samples 2 "
            "--out again && for job in one two first b; do diff -r r/$job again/$job || exit 7; "
            "done && exits 3 $p jobs.json d --out r --resume && "
            "has '5 complexes (12 structures done earlier), 3 refused' out"),
        0);
}

/* A complex that is larger than any of training is read, and the plan of memory refuses it. */
static void large_complexes_are_planned(void **state) {
    (void)state;
    assert_int_equal(
        run("printf '[{\"name\":\"large\",\"sequences\":[{\"proteinChain\":{\"sequence\":\"%s\"}},"
            "{\"ion\":{\"ion\":\"ZN\",\"count\":1200}}]}]' \"$(printf 'G%.0s' $(seq 3000))\" "
            ">large.json && exits 1 $p large.json --single-sequence --device-memory 0.01 --out big "
            "&& has 'large.npz: a complex of 4200 tokens, 13201 atoms and [0-9]* MSA rows needs "
            "[0-9.]* GiB of 0.010 GiB' err"),
        0);
}

/* Without any job the command fails. */
static void refused_jobs_alone_fail(void **state) {
    (void)state;
    assert_int_equal(
        run("exits 1 $p e --out n && has 'e: found no description and no prepared job' err && "
            "has ', 0 complexes, 1 refused' out && "
            "exits 1 foldmill predict --weights $w d/a.json --out n && "
            "has 'd/a.json: descriptions need a dictionary of components' err && "
            "exits 1 $p d/a.json --components absent --out n && "
            "has 'absent: cannot open' err && has 'descriptions cannot be prepared' err"),
        0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_are_prepared_or_refused),
        cmocka_unit_test(a_report_has_the_jobs_in_their_order),
        cmocka_unit_test(several_jobs_are_predicted),
        cmocka_unit_test(large_complexes_are_planned),
        cmocka_unit_test(refused_jobs_alone_fail),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
