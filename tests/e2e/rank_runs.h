/* rank_runs.h: a folder with a cache, its server and shell functions, for the tests of `foldmill
 * train` on several ranks that are processes. Only one source file of a program may include it. */
#ifndef FM_TESTS_RANK_RUNS_H
#define FM_TESTS_RANK_RUNS_H

#include "tests/testing/testing.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static char folder[512];
static pid_t server;

/* Runs a shell command in the test's folder with the programs on PATH. */
static int run(const char *command) {
    return fm_test_shell_format(folder, ". ./lib; %s", command);
}

/* Shell functions of all tests, beside those of library.sh.
 *
 *     begin ARGS        starts a run beside the shell, which ends with it; $run is its process
 *     free_port         prints a TCP port that nobody uses
 *     start_on NAMES ARGS  starts a rank on each of the hosts that are named so, beside the shell;
 *                       $rank0, $rank1, ... are their processes
 *     end_on            waits for them
 *     same A B N        two runs have the same bytes after N steps, and the same losses */
static const char library[] =
    "train='foldmill train --data unix:socket --seed 3 --config batch.ini -q'\n"
    "begin() { beside $train \"$@\"; }\n"
    "free_port() { python3 -c 'import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 0)); "
    "print(s.getsockname()[1])'; }\n"
    "start_on() { names=$1; shift; rank=0; all=; for name in $names; do "
    "FOLDMILL_RANK=$rank FOLDMILL_RANKS=$(echo $names | wc -w) FOLDMILL_HOST=$name "
    "FOLDMILL_MEETING=file:$PWD/meeting $train \"$@\" >on.$rank.log 2>&1 & "
    "all=\"$all $!\"; eval rank$rank=$!; rank=$((rank + 1)); done; "
    "trap 'kill -9 $all 2>/dev/null' EXIT; }\n"
    "end_on() { code=0; for process in $all; do wait $process || code=$?; done; return $code; }\n"
    "same() { cmp $1/checkpoint-$3.safetensors $2/checkpoint-$3.safetensors && losses $1 >$1.l && "
    "losses $2 >$2.l && cmp $1.l $2.l; }\n";

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    if (fm_test_write_library(folder, library)) return 1;
    int failed =
        run("foldmill synth --chains 6 --seed 5 --max-length 60 --depth 100 -o data --quiet && "
            "foldmill build data --cache cache --quiet >build.log && "
            "ls data/alignments | sed 1d | foldmill snapshot create few --cache cache --chains - "
            ">few.log && "
            "printf '[model]\\nn_block = 1\\nn_structure_iteration = 1\\n[data]\\ncrop_size = 24\\n"
            "max_msa_clusters = 8\\nglobal_batch = 4\\n[metrics]\\nstructure_every = 4\\n' "
            ">batch.ini && sed 's/^n_block.*/&\\norder = opm_first/' batch.ini >branches.ini");
    if (failed) return failed;
    server = fm_test_serve(folder, "socket", "--cache cache --snapshot all --snapshot few");
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    int code = server ? fm_test_stop(server, SIGTERM) : 0;
    fm_test_remove_tree(folder);
    return code;
}

#endif
