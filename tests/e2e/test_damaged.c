/* test_damaged.c: samples that cannot be read, at the server or after they came: each message names
 * the sample and its chain, and a sample that comes damaged twice falls under the trainer's policy
 * for bad samples. */
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* Shell functions: serve a cache on a socket, forward a socket while damaging sample 4 or another
 * one (in its tensors, or its header), wait for a socket, compare two runs after a step. */
static const char library[] =
    "ready() { n=0; until [ -S $1 ] || [ $n -ge 1500 ]; do sleep 0.02; n=$((n + 1)); done; }\n"
    "serve() { foldmill serve --cache $1 --listen unix:$2 -q 2>>$2.log & pids=\"$pids $!\"; "
    "ready $2; }\n"
    "proxy() { rm -f proxy; python3 proxy.py $1 ${2:-4} 2>proxy.err & pids=\"$pids $!\"; ready "
    "proxy; }\n"
    "same() { cmp $1/checkpoint-$3.safetensors $2/checkpoint-$3.safetensors; }\n"
    "train='foldmill train --seed 3 --config batch.ini -q'\n"
    "trap 'kill $pids 2>/dev/null; wait' EXIT\n";

static const char proxy[] =
    "import os, socket, struct, sys, threading\n"
    "at = {'tensors': None, 'header': 40}[sys.argv[1]]\n"
    "damaged = int(sys.argv[2])\n"
    "listening = socket.socket(socket.AF_UNIX)\n"
    "listening.bind('proxy')\n"
    "listening.listen()\n"
    "def receive(a, n):\n"
    "    data = b''\n"
    "    while len(data) < n:\n"
    "        more = a.recv(n - len(data))\n"
    "        if not more: raise OSError\n"
    "        data += more\n"
    "    return data\n"
    "def forward(a, b, damages):\n"
    "    try:\n"
    "        while True:\n"
    "            head = receive(a, 32)\n"
    "            body = receive(a, struct.unpack_from('<I', head, 12)[0])\n"
    "            if damages and head[5] == 6 and struct.unpack_from('<Q', body, 32)[0] == "
    "damaged:\n"
    "                k = at or len(body) // 2\n"
    "                body = body[:k] + bytes([body[k] ^ 1]) + body[k + 1:]\n"
    "            b.sendall(head + body)\n"
    "    except OSError: pass\n"
    "    for s in a, b:\n"
    "        try: s.shutdown(socket.SHUT_RDWR)\n"
    "        except OSError: pass\n"
    "while True:\n"
    "    near, _ = listening.accept()\n"
    "    far = socket.socket(socket.AF_UNIX)\n"
    "    far.connect('socket')\n"
    "    for pair in (near, far, 0), (far, near, 1):\n"
    "        threading.Thread(target=forward, args=pair, daemon=True).start()\n";

static int put(const char *name, const char *text) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    return !file || fputs(text, file) < 0 || fclose(file) != 0;
}

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    if (put("lib", library) || put("proxy.py", proxy)) return 1;
    return run("foldmill synth --chains 6 --seed 5 --max-length 60 --depth 100 -o data --quiet && "
               "foldmill build data --cache cache --quiet >build.log && "
               "printf '[model]\\nn_block = 1\\nn_structure_iteration = 1\\n[data]\\ncrop_size = "
               "32\\nmax_msa_clusters = 12\\nglobal_batch = 3\\n' >batch.ini");
}

/* The run stops before the sample with a checkpoint, and the command that it names goes on. */
static void damaged_twice_stops_the_run(void **state) {
    (void)state;
    assert_int_equal(run(". ./lib; serve cache socket; proxy tensors; "
                         "$train --data unix:proxy --steps 4 --out stop >stop.log 2>&1"),
                     1);
    assert_int_equal(
        run("test $(grep -c 'warn reconnected' stop.log) = 1 && "
            "grep -q '^foldmill train: sample 4: chain [^ ]*: received damaged twice: .*checksum.*"
            "after step 1 of 4 and 1 sample; --resume continues' stop.log && "
            "grep -q 'go on without it: .*--resume --skip-sample 4$' stop.log"),
        0);
    assert_int_equal(run(". ./lib; serve cache socket; proxy tensors; "
                         "$train --data unix:proxy --steps 4 --out stop --resume --skip-sample 4 "
                         ">stop2.log 2>&1 && "
                         "$train --data unix:socket --steps 4 --out hand --skip-sample 4 "
                         ">hand.log 2>&1 && same stop hand 000000000004"),
                     0);
}

/* A run that ends in its first sample leaves no folder, and the command that it names works. */
static void a_run_without_a_sample_leaves_nothing(void **state) {
    (void)state;
    assert_int_equal(run(". ./lib; serve cache socket; proxy tensors 0; "
                         "$train --data unix:proxy --steps 2 --out none >none.log 2>&1"),
                     1);
    assert_int_equal(run("grep -q 'after step 0 of 2' none.log && test ! -e none && "
                         "grep -q 'go on without it: .*--resume --skip-sample 0$' none.log"),
                     0);
    assert_int_equal(run(". ./lib; mkdir none; serve cache socket; proxy tensors 0; "
                         "$train --data unix:proxy --steps 2 --out none >none.log 2>&1"),
                     1);
    assert_int_equal(run("test -z \"$(ls -A none)\""), 0);
    assert_int_equal(run(". ./lib; serve cache socket; proxy tensors 0; $train --data unix:proxy "
                         "--steps 2 --out none --resume --skip-sample 0 >none.log 2>&1"),
                     0);
}

/* The index is in the checkpoint, so that a resumed run, which could read the sample, is the same
 * run. */
static void damaged_twice_is_skipped_by_policy(void **state) {
    (void)state;
    assert_int_equal(run(". ./lib; train=\"$train --bad-samples skip\"; serve cache socket; "
                         "proxy tensors; "
                         "$train --data unix:proxy --steps 4 --out skip >skip.log 2>&1 && "
                         "$train --data unix:proxy --steps 2 --out part >part.log 2>&1 && "
                         "$train --data unix:socket --steps 4 --out part --resume >part.log 2>&1 "
                         "&& same skip part 000000000004"),
                     0);
    assert_int_equal(
        run("grep -q 'warn sample_skipped sample=4 why=\"chain [^ ]*: received damaged "
            "twice' skip.log && grep -q '^skipped   1 sample, 1 of them bad' "
            "skip.log"),
        0);
}

/* Nobody can tell which sample it was: the connection is broken, as often as it is tried. */
static void a_damaged_header_is_a_broken_connection(void **state) {
    (void)state;
    assert_int_equal(run(". ./lib; serve cache socket; proxy header; "
                         "$train --data unix:proxy --steps 4 --out head --bad-samples skip "
                         ">head.log 2>&1"),
                     1);
    assert_int_equal(run("grep -q 'header does not match its checksum.*after step 1 of 4 and 1 "
                         "sample; --resume continues' head.log"),
                     0);
}

static void fetch_names_a_damaged_sample(void **state) {
    (void)state;
    assert_int_equal(
        run(". ./lib; serve cache socket; proxy tensors; "
            "foldmill fetch --data unix:proxy --batch 3 --steps 4 >log 2>err; test $? = 1 && "
            "grep -q '^foldmill fetch: sample [0-9]*: chain [^ ]*: received damaged: "
            ".*checksum' err && "
            "foldmill fetch --data unix:proxy --batch 3 --steps 4 --skip >log 2>err; "
            "test $? = 3 && test $(grep -c 'sample 4 skipped: chain ' err) = 1"),
        0);
}

/* Records on disk are damaged: the words of server and client name the sample and the chain. */
static void fetch_names_what_the_server_cannot_read(void **state) {
    (void)state;
    assert_int_equal(
        run("cp -r cache broken && python3 -c \"import sys; p = sys.argv[1]; "
            "b = bytearray(open(p, 'rb').read()); n = len(b)\nfor i in range(n // 2, n * 3 // 4, "
            "3000): b[i] ^= 255\nopen(p, 'wb').write(b)\" broken/shards/*"),
        0);
    assert_int_equal(run(". ./lib; serve broken bad; "
                         "foldmill fetch --data unix:bad --steps 8 >log 2>bad.stop; test $? = 1 && "
                         "{ foldmill fetch --data unix:bad --steps 8 --skip >log 2>bad.skip; "
                         "test $? = 3; }"),
                     0);
    assert_int_equal(
        run("grep -q '^foldmill fetch: unix:bad: sample [0-9]*: chain [0-9a-z]*_[A-Z]*: "
            "' bad.stop && "
            "grep -q '^foldmill fetch: sample [0-9]* skipped: chain [0-9a-z]*_[A-Z]*: "
            "' bad.skip && "
            "grep -q 'sample_failed .*index=[0-9]* why=\"chain ' bad.log"),
        0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_twice_stops_the_run),
        cmocka_unit_test(a_run_without_a_sample_leaves_nothing),
        cmocka_unit_test(damaged_twice_is_skipped_by_policy),
        cmocka_unit_test(a_damaged_header_is_a_broken_connection),
        cmocka_unit_test(fetch_names_a_damaged_sample),
        cmocka_unit_test(fetch_names_what_the_server_cannot_read),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
