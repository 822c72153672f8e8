/* test_endure.c: what a training run survives, as a user meets it: signals and kills at any
 * instant, a server that comes and goes, bytes damaged on the way or on disk, samples that cannot
 * be used, a full disk, and changed settings. A run that goes on ends with the bytes of an
 * undisturbed one.
 *
 * FM_TEST_INSTANTS sets the number of random instants (50). */
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    int failed =
        run("cp \"$OLDPWD/tests/e2e/endure.sh\" lib && foldmill synth --chains 6 --seed 5 "
            "--max-length 60 --depth 100 -o data --quiet && "
            "foldmill build data --cache cache --quiet >build.log && "
            "printf '[model]\\nn_block = 1\\nn_structure_iteration = 1\\nn_extra_block = 0\\n"
            "n_template = 0\\n[data]\\ncrop_size = 16\\nmax_msa_clusters = 4\\n"
            "global_batch = 3\\n' >batch.ini");
    if (failed) return failed;
    server = fm_test_serve(folder, "socket", "--cache cache");
    return run(". ./lib; $train --steps 30 --out whole -q >whole.log 2>&1");
}

/* Every stopping signal leaves a checkpoint, has its own exit code, and costs nothing. The process
 * is stopped before it writes a row, so that the signal comes while it runs. */
static void a_signal_stops_between_samples(void **state) {
    (void)state;
    static const struct {
        const char *signal;
        int code;
    } cases[] = {{"TERM", 143}, {"INT", 130}, {"HUP", 129}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *s = cases[i].signal;
        assert_int_equal(
            fm_test_shell_format(folder,
                                 ". ./lib; stop_at $PWD/%s/metrics.jsonl %zu $train --steps 30 "
                                 "--out %s 2>%s.err >%s.log && strike %s && wait $pid",
                                 s, 9 + i, s, s, s, s),
            cases[i].code);
        assert_int_equal(
            fm_test_shell_format(folder,
                                 "grep -q 'stopping after the sample in hand' %s.err && "
                                 "grep -q 'stopped by SIG%s after step .*; --resume continues' "
                                 "%s.err && ls %s | grep -q checkpoint",
                                 s, s, s, s),
            0);
        assert_int_equal(fm_test_shell_format(
                             folder,
                             ". ./lib; $train --steps 30 --out %s --resume -q 2>%s.err >%s.log && "
                             "same whole %s 30",
                             s, s, s, s),
                         0);
    }
}

/* A batch is stopped after some of its samples: the partial sum is in the checkpoint, and the
 * samples in it are not asked for again. When the process has received 60 pieces of samples, at
 * most 30 samples have arrived, and those that did not fit its slabs are done. */
static void a_batch_in_hand_is_kept(void **state) {
    (void)state;
    assert_int_equal(
        run(". ./lib; sed 's/global_batch = 3/global_batch = 60/' batch.ini >big.ini; "
            "stop_at socket: 60 $train --config big.ini --steps 2 --ahead 4 --out half "
            ">half.log 2>&1 && strike TERM && wait $pid"),
        143);
    assert_int_equal(run("ls half | grep -qE '^checkpoint-000000000000[+][0-9]+.safetensors$' && "
                         "test ! -s half/metrics.jsonl && "
                         "grep -qE 'after step 0 of 2 and [0-9]+ samples' half.log"),
                     0);
    assert_int_equal(run(". ./lib; n=$(ls half | sed -n 's/.*+\\([0-9]*\\).safetensors/\\1/p'); "
                         "export COLUMNS=400; "
                         "$train --config big.ini --steps 1 --out half --resume >half.log 2>&1 && "
                         "grep -q \"^batch     $n samples of step 1 are done already\" half.log && "
                         "grep -q \"^samples   $((60 - n)) received\" half.log && "
                         "$train --config big.ini --steps 1 --out one >one.log 2>&1 && "
                         "for r in half one; do grep '^step 1' $r.log | "
                         "sed 's/  [0-9.]* s.step.*ms//' >$r.line; done && "
                         "grep -q 'violation ' one.line && cmp half.line one.line && "
                         "same half one 1"),
                     0);
}

/* The sample in hand takes minutes. Signals within 0.2 s count as one, hence the wait. */
static void a_second_signal_ends_at_once(void **state) {
    (void)state;
    assert_int_equal(
        run(". ./lib; printf '[model]\\nn_block = 48\\nrecompute = block\\n[data]\\ncrop_size = "
            "384\\n' >slow.ini; "
            "foldmill train --data unix:socket --config slow.ini --out slow >slow.log 2>&1 & "
            "pid=$!; await grep -q '^data' slow.log; kill -TERM $pid; "
            "await grep -q stopping slow.log; sleep 0.3; kill -INT $pid; wait $pid"),
        130);
    assert_int_equal(run("! grep -q 'stopped by' slow.log && ! ls slow | grep -q checkpoint"), 0);
}

static void a_checkpoint_by_signal_or_time_does_not_end_the_run(void **state) {
    (void)state;
    assert_int_equal(run(". ./lib; stop_at $PWD/usr/metrics.jsonl 9 $train --steps 30 --out usr "
                         ">usr.log 2>&1 && strike USR1 && wait $pid"),
                     0);
    assert_int_equal(
        run(". ./lib; same whole usr 30 && "
            "grep -q 'info checkpoint asked_by=SIGUSR1 path=usr/checkpoint' usr.log && "
            "test $(ls usr | grep -c checkpoint) = 2"),
        0);
    assert_int_equal(run(". ./lib; $train --steps 30 --out time --keep 99 --checkpoint-minutes "
                         "0.00001 >time.log 2>&1 && same whole time 30 && "
                         "test $(ls time | grep -c checkpoint) -ge 3"),
                     0);
}

/* One run lives many short lives. Each is stopped at an event that is drawn by chance, and then
 * signalled, killed, or left without its server. All kinds of instants occur. */
static void random_instants_cost_no_bit(void **state) {
    (void)state;
    const char *given = getenv("FM_TEST_INSTANTS");
    long n = given ? strtol(given, NULL, 10) : 50;
    assert_in_range(n, 3, 1000);
    assert_int_equal(fm_test_shell_format(folder, ". ./lib; live %ld 2>lives.err", n), 0);
    assert_int_equal(run("cut -d ' ' -f 1,3 events | sort | uniq -c | tr '\\n' ';'; echo"), 0);
    assert_int_equal(run("for kind in samples checkpoint away; do "
                         "grep -q \"^$kind \" events || exit 1; done"),
                     0);
}

/* A byte of a sample is changed on its way: the trainer connects again, and the bits are the
 * same. */
static void a_damaged_byte_in_the_stream_costs_nothing(void **state) {
    (void)state;
    char path[600];
    snprintf(path, sizeof path, "%s/proxy.py", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs("import os, socket, threading\n"
                      "listening = socket.socket(socket.AF_UNIX)\n"
                      "listening.bind('proxy')\n"
                      "listening.listen()\n"
                      "sent, damaged = 0, False\n"
                      "def forward(a, b, damages):\n"
                      "    global sent, damaged\n"
                      "    while True:\n"
                      "        try: data = a.recv(65536)\n"
                      "        except OSError: data = b''\n"
                      "        if not data: break\n"
                      "        sent += len(data) * damages\n"
                      "        if damages and sent > 300000 and len(data) > 9000 and not damaged:\n"
                      "            damaged = True\n"
                      "            data = data[:5000] + bytes([data[5000] ^ 1]) + data[5001:]\n"
                      "        try: b.sendall(data)\n"
                      "        except OSError: break\n"
                      "    for s in a, b:\n"
                      "        try: s.shutdown(socket.SHUT_RDWR)\n"
                      "        except OSError: pass\n"
                      "while True:\n"
                      "    near, _ = listening.accept()\n"
                      "    far = socket.socket(socket.AF_UNIX)\n"
                      "    far.connect('socket')\n"
                      "    for pair in (near, far, 0), (far, near, 1):\n"
                      "        threading.Thread(target=forward, args=pair, daemon=True).start()\n",
                      file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(run(". ./lib; python3 proxy.py 2>proxy.err & proxy=$!; "
                         "await test -S proxy; "
                         "$train --data unix:proxy --steps 30 --out damaged -q >damaged.log 2>&1; "
                         "rc=$?; kill $proxy; exit $rc"),
                     0);
    assert_int_equal(run(". ./lib; grep -q 'warn server_lost' damaged.log && "
                         "grep -q 'warn reconnected' damaged.log && same whole damaged "
                         "30"),
                     0);
}

/* Records on disk are damaged, so that the server cannot make the samples of some chains. */
static void unreadable_samples_stop_the_run_or_are_skipped(void **state) {
    (void)state;
    assert_int_equal(
        run("cp -r cache broken && python3 -c \"import sys; p = sys.argv[1]; "
            "b = bytearray(open(p, 'rb').read()); n = len(b)\nfor i in range(n // 2, n * 3 // 4, "
            "3000): b[i] ^= 255\nopen(p, 'wb').write(b)\" broken/shards/*"),
        0);
    assert_int_equal(run(". ./lib; serve bad broken; train=\"$train --data unix:bad --steps 8\"; "
                         "$train --out stop -q >stop.log 2>&1; rc=$?; "
                         "$train --out skip -q --bad-samples skip >skip.log 2>&1 || rc=skip; "
                         "$train --out few -q --bad-samples skip --bad-sample-budget 1 >few.log "
                         "2>&1 && rc=few; "
                         "$train --out few -q --bad-samples skip --resume >few2.log 2>&1 || "
                         "rc=few2; kill $server; exit $rc"),
                     1);
    /* The message names the sample and what was wrong, and the command that goes on. */
    assert_int_equal(run("n=$(sed -n 's/.* --resume --skip-sample \\([0-9]*\\)$/\\1/p' stop.log); "
                         "grep -q \"^foldmill train: sample $n: .*checksum.*, after step\" "
                         "stop.log && grep -q \"^foldmill train: to go on without it: foldmill "
                         "train --data unix:socket\" stop.log && echo $n >first"),
                     0);
    assert_int_equal(run(". ./lib; grep -q 'warn sample_skipped' skip.log && "
                         "grep -qE '^skipped   [0-9]+ samples' skip.log && "
                         "grep -q '1 bad samples were skipped already, the budget' few.log && "
                         "same skip few 8"),
                     0);
}

/* A sample that the command line leaves out, anywhere in a batch, and whole batches; stopped and
 * resumed as well. */
static void samples_are_left_out_by_hand(void **state) {
    (void)state;
    assert_int_equal(
        run(". ./lib; train=\"$train --steps 8 --skip-sample 1 --skip-sample 5 --skip-sample 6 "
            "--skip-sample 9 --skip-sample 10 --skip-sample 11 --skip-sample 23\"; "
            "$train --out left -q >left.log 2>&1 && "
            "grep -q '^skipped   7 samples, 0 of them bad' left.log"),
        0);
    assert_int_equal(run("python3 -c \"import json; r = [json.loads(l) for l in "
                         "open('left/metrics.jsonl')]; assert len(r) == 8 and r[3]['loss'] is None "
                         "and r[3]['index'] == 11 and r[4]['loss'] > 0\""),
                     0);
    /* The list is in the checkpoint: the resumed command need not name the samples again. */
    assert_int_equal(run(". ./lib; $train --steps 3 --out part -q --skip-sample 1 --skip-sample 5 "
                         "--skip-sample 6 --skip-sample 9 --skip-sample 10 --skip-sample 11 "
                         "--skip-sample 23 >part.log 2>&1 && "
                         "$train --steps 8 --out part -q --resume >part.log 2>&1 && "
                         "same left part 8"),
                     0);
    assert_int_equal(run(". ./lib; $train --steps 3 --out x --skip-sample one 2>err"), 2);
    assert_int_equal(run(". ./lib; $train --steps 3 --out x --bad-samples keep 2>err"), 2);
}

/* A learning rate that is much too high makes every sample not finite from some step on. */
static void a_sample_that_is_not_finite_is_named(void **state) {
    (void)state;
    assert_int_equal(run("(cat batch.ini; printf '[optimizer]\\nlearning_rate = 10\\nbeta2 = 0\\n"
                         "eps = 1e-30\\nwarmup_samples = 0\\n') >wild.ini"),
                     0);
    assert_int_equal(run(". ./lib; $train --config wild.ini --steps 30 --out wild -q >wild.log "
                         "2>&1"),
                     1);
    assert_int_equal(
        run("grep -qE '^foldmill train: sample [0-9]+ [(][^)]+[)]: step [0-9]+, sample "
            "[0-2], cycle [0-9]: .* is not finite, after step .*; --resume continues' "
            "wild.log && ls wild | grep -q checkpoint && "
            "grep -q -- '--resume --skip-sample' wild.log"),
        0);
    assert_int_equal(run(". ./lib; $train --config wild.ini --steps 30 --out wild -q --resume "
                         "--bad-samples skip --bad-sample-budget 4 >wild.log 2>&1"),
                     1);
    assert_int_equal(run("test $(grep -c 'warn sample_skipped' wild.log) = 4 && "
                         "grep -q '4 bad samples were skipped already' wild.log && "
                         "grep -q '^skipped   4 samples, 4 of them bad' wild.log"),
                     0);
}

/* The folder of the run is a file system of 4 MiB that other files fill. */
static void a_full_disk_ends_no_run(void **state) {
    (void)state;
    if (run("mkdir -p disk && mount -t tmpfs -o size=4m none disk 2>mount.err") != 0) {
        print_message("no tmpfs can be mounted here; the full disk is not tested\n");
        skip();
    }
    int failed =
        run(". ./lib; stop_at $PWD/disk/run/metrics.jsonl 14,36 $train --steps 90 --out disk/run "
            "--checkpoint-every 4 --keep 1 -q >disk.log 2>&1 && "
            "{ dd if=/dev/zero of=disk/fill bs=4k 2>dd.err; kill -CONT $pid; "
            "await_stop; } && grep -q metrics_wait disk.log && grep -q checkpoint_failed disk.log "
            "&& ls disk/run >during && rm disk/fill && kill -CONT $pid && wait $pid && "
            "cp -r disk/run full");
    assert_int_equal(run("umount disk"), 0);
    assert_int_equal(failed, 0);
    assert_int_equal(run(". ./lib; grep -q checkpoint during && "
                         "grep -q 'warn metrics_wait .*\\(No space left\\|full\\)' disk.log && "
                         "grep -q 'info metrics_written' disk.log && "
                         "$train --steps 90 --out roomy -q >roomy.log 2>&1 && "
                         "same roomy full 90"),
                     0);
}

/* The file system is read-only when a checkpoint is due. Metrics go on into the open file, and the
 * run ends with all that an undisturbed one has. */
static void a_read_only_folder_ends_no_run(void **state) {
    (void)state;
    assert_int_equal(run(". ./lib; (with_faults 30 $PWD/only/checkpoint- 1 $train --steps 40 --out "
                         "only --checkpoint-every 4 -q) >only.log 2>&1 && "
                         "grep -q 'checkpoint_failed .*Read-only file system' only.log"),
                     0);
    assert_int_equal(run(". ./lib; $train --steps 40 --out writable -q >writable.log 2>&1 && "
                         "same writable only 40"),
                     0);
}

/* Rows that someone removed, or that a crash of the machine damaged, cost no others. */
static void rows_that_are_missing_are_said(void **state) {
    (void)state;
    assert_int_equal(
        run(". ./lib; cp -r whole rows && sed -i '5d; 7s/loss.*//' rows/metrics.jsonl && "
            "$train --steps 31 --out rows --resume -q >rows.log 2>&1 && "
            "grep -q 'warn metrics_incomplete path=rows/metrics.jsonl rows=28 steps=30' "
            "rows.log && [ $(wc -l <rows/metrics.jsonl) = 29 ]"),
        0);
}

/* A resumed run is what it was, but for changes that are named. */
static void changes_are_made_on_purpose_and_recorded(void **state) {
    (void)state;
    assert_int_equal(run(". ./lib; $train --steps 4 --out id -q >id.log 2>&1"), 0);
    assert_int_equal(run(". ./lib; $train --steps 6 --out id --resume --order bounded:2 2>err"), 2);
    assert_int_equal(run("grep -q \"run has 'order = strict', but this run has 'order = "
                         "bounded:2'; .*: --change order=bounded:2\" err"),
                     0);
    assert_int_equal(run(". ./lib; (cat batch.ini; printf '[optimizer]\\nlearning_rate = "
                         "0.0005\\n') >lr.ini; $train --config lr.ini --steps 6 --out id --resume "
                         "2>err"),
                     2);
    assert_int_equal(run(". ./lib; $train --config lr.ini --steps 6 --out id --resume --change "
                         "optimizer.learning_rate=0.0005 2>err >log && "
                         "grep -q 'changed what=.step 4: optimizer.learning_rate: 0.003 -> 0.0005' "
                         "err && $train --config lr.ini --steps 8 --out id --resume 2>err >log && "
                         "grep -q 'changed what=.step 4: optimizer.learning_rate' err"),
                     0);
    /* A checkpoint of an older program has none of the newer notes. */
    assert_int_equal(run("mkdir old && python3 -c \"import json, struct; "
                         "b = open('whole/checkpoint-000000000030.safetensors', 'rb').read(); "
                         "n, = struct.unpack('<Q', b[:8]); h = json.loads(b[8:8 + n]); "
                         "[h['__metadata__'].pop(k) for k in ('identity', 'xxh3_more')]; "
                         "t = json.dumps(h, separators=(',', ':')); t += ' ' * (-len(t) % 8); "
                         "open('old/checkpoint-000000000030.safetensors', 'wb').write("
                         "struct.pack('<Q', len(t)) + t.encode() + b[8 + n:])\""),
                     0);
    assert_int_equal(run(". ./lib; $train --steps 32 --out old --resume -q >old.log 2>&1 && "
                         "grep -q 'warn identity_unknown' old.log && grep -q 'resumed at step 30' "
                         "old.log && $train --steps 32 --out whole --resume -q >log 2>&1 && "
                         "cmp old/checkpoint-000000000032.safetensors "
                         "whole/checkpoint-000000000032.safetensors && "
                         "rm whole/checkpoint-000000000032.safetensors && "
                         "head -30 whole/metrics.jsonl >m && mv m whole/metrics.jsonl"),
                     0);
}

/* A file where the folder should be is refused, and nothing begins in its place. */
static void a_file_is_no_folder_of_a_run(void **state) {
    (void)state;
    assert_int_equal(run(". ./lib; echo >notdir; $train --steps 4 --out notdir --resume 2>err"), 2);
    assert_int_equal(run("grep -q 'notdir: --out: found a file, expected a new folder' err"), 0);
}

/* The learning rate rises until the run diverges; the last good checkpoint is named. */
static void divergence_is_said_and_stops_on_request(void **state) {
    (void)state;
    assert_int_equal(run("sed 's/global_batch = 3/global_batch = 1/' batch.ini >jump.ini; printf "
                         "'[optimizer]\\nlearning_rate = 10\\nwarmup_samples = 4000\\nbeta2 = "
                         "0.9\\n' >>jump.ini"),
                     0);
    assert_int_equal(run(". ./lib; $train --config jump.ini --steps 400 --checkpoint-every 30 "
                         "--stop-on-divergence --out jump -q >jump.log 2>&1"),
                     1);
    assert_int_equal(
        run("grep -q 'warn diverging step=.* last_good_checkpoint=jump/checkpoint-' jump.log && "
            "grep -q 'the last good checkpoint is jump/checkpoint' jump.log && "
            "ls $(sed -n 's/.*last_good_checkpoint=//p' jump.log)"),
        0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_stops_between_samples),
        cmocka_unit_test(a_batch_in_hand_is_kept),
        cmocka_unit_test(a_second_signal_ends_at_once),
        cmocka_unit_test(a_checkpoint_by_signal_or_time_does_not_end_the_run),
        cmocka_unit_test(random_instants_cost_no_bit),
        cmocka_unit_test(a_damaged_byte_in_the_stream_costs_nothing),
        cmocka_unit_test(unreadable_samples_stop_the_run_or_are_skipped),
        cmocka_unit_test(samples_are_left_out_by_hand),
        cmocka_unit_test(a_sample_that_is_not_finite_is_named),
        cmocka_unit_test(a_full_disk_ends_no_run),
        cmocka_unit_test(a_read_only_folder_ends_no_run),
        cmocka_unit_test(rows_that_are_missing_are_said),
        cmocka_unit_test(changes_are_made_on_purpose_and_recorded),
        cmocka_unit_test(a_file_is_no_folder_of_a_run),
        cmocka_unit_test(divergence_is_said_and_stops_on_request),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
