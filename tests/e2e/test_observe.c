/* A server's pages and `foldmill top` as an operator uses them: the numbers are those of what was
 * fetched, and a training run's folder is summed up. */
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/testing/must.h"

static char folder[200];

static int make_cache(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    return fm_test_shell(folder, "$FOLDMILL synth --seed 3 --chains 6 --depth 60 --max-length 120 "
                                 "--min-length 60 -o data >/dev/null 2>&1 && "
                                 "$FOLDMILL build data --cache cache --quiet >/dev/null 2>err");
}

static int drop_folder(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

static void must(const char *command) {
    fm_test_must(folder, command, "s.log out err");
}

static void the_pages_count_what_was_fetched(void **state) {
    (void)state;
    pid_t server = fm_test_serve(folder, "s", "--cache cache --http 127.0.0.1:0");
    fm_test_must_have_url(folder);
    must("$FOLDMILL fetch --data unix:s --plan tiny --steps 40 >/dev/null 2>err");
    /* The client may have all samples before the server has seen the end of the last write. */
    must("for i in $(seq 300); do $FOLDMILL top $(cat url) --once --json >out 2>err || exit 1; "
         "/usr/bin/python3 -c 'import json, sys; r = json.load(open(\"out\")); "
         "sys.exit(r[\"times\"][\"send\"][\"n\"] < 40)' && exit 0; sleep 0.1; done; exit 1");
    must("/usr/bin/python3 -c '\n"
         "import json\n"
         "r = json.load(open(\"out\"))\n"
         "assert r[\"counters\"][\"samples_sent_total\"] == 40, r[\"counters\"]\n"
         "assert r[\"times\"][\"prepare\"][\"n\"] >= 40\n"
         "assert r[\"times\"][\"send\"][\"n\"] == 40\n"
         "assert r[\"times\"][\"wait\"][\"n\"] == 40\n"
         "assert r[\"snapshots\"][0][\"chains\"] == 6 and not r[\"stopping\"]\n"
         "c, = r[\"consumers\"]\n"
         "assert c[\"peer\"].startswith(\"uid:\") and \"foldmill fetch\" in c[\"agent\"], c\n"
         "assert c[\"streams\"] == 0 and c[\"samples\"] == 40 and c[\"failed\"] == 0, c\n"
         "assert c[\"bytes\"] == r[\"counters\"][\"sample_bytes_sent_total\"]\n"
         "assert [c[k][\"n\"] for k in (\"prepare\", \"wait\", \"send\")] == [40, 40, 40], c\n"
         "names = [s[\"chain\"] for s in r[\"slowest\"]]\n"
         "assert 1 <= len(names) <= 6 and len(set(names)) == len(names), names\n"
         "' 2>err");
    must("$FOLDMILL top $(cat url)/ --once >out 2>err && grep -q ' 40 samples in all, 0 refused' "
         "out && grep -q 'nobody is connected' out && grep -q '  40 .* uid:.*foldmill fetch' out");
    assert_int_equal(fm_test_stop(server, SIGTERM), 0);
    assert_int_equal(fm_test_shell(folder, "$FOLDMILL top $(cat url) --once >out 2>err"), 1);
    must("grep -q 'foldmill top: .*7*.*refused' err");
}

static void a_run_is_summed_up(void **state) {
    (void)state;
    must("mkdir run && for i in 1 2 3 4; do printf "
         "'{\"step\":%d,\"index\":%d,\"cycles\":1,\"sample\":\"1abc_A\",\"loss\":%d.5,"
         "\"distogram\":3.25,\"grad_norm\":2,\"learning_rate\":0.001,\"step_s\":0.25,"
         "\"data_wait_s\":0.001}\\n' $i $i $((10 - i)); done >run/metrics.jsonl && "
         "printf '{\"step\":5' >>run/metrics.jsonl");
    must("$FOLDMILL top run --once >out 2>err && grep -q 'step 4 ' out && "
         "grep -q 'rate .* 4.000 ' out && grep -q 'distogram .* 3.2500' out");
    must("$FOLDMILL top run --json | /usr/bin/python3 -c 'import json, sys; r = "
         "json.load(sys.stdin); "
         "assert r[\"step\"] == 4 and r[\"step_s\"] == 0.25 and r[\"last\"][\"loss\"] == 6.5'");
    must("! grep -q 'ends in\\|memory\\|held out' out"); /* this run says nothing of them */
    must("sed -i 's/}$/,\"left_s\":3905,\"memory_bytes\":3221225472,\"device_used_bytes\":"
         "6442450944,\"device_free_bytes\":1073741824}/' run/metrics.jsonl && "
         "printf '{\"step\":2,\"n_chain\":7,\"lddt_ca\":0.5,\"loss\":9.25}\\n"
         "{\"step\":4,\"n_chain\":7,\"lddt_ca\":0.25,\"loss\":9.5}\\n{\"ste' >run/eval.jsonl");
    must("$FOLDMILL top run --once >out 2>err && grep -q 'ends in   1 h 05 min' out && "
         "grep -q '3.00  GiB of the trainer; of the device 6.00 GiB are used, 1.00 free' out && "
         "grep -q '0.2500  lddt_ca of 7 chains after step 4; best 0.5000 after step 2' out && "
         "grep -q 'held out loss  *9.5000' out && ! grep -q 'device_used' out");
    /* A mean that is not finite is no best score. */
    must("mkdir -p broken && cp run/metrics.jsonl broken && "
         "printf '{\"step\":2,\"samples\":3,\"lddt\":0.5}\n{\"step\":3,\"samples\":3,"
         "\"lddt\":0.25}\n{\"step\":4,\"samples\":3,\"lddt\":null}\n' >broken/eval.jsonl && "
         "$FOLDMILL top broken --once >out 2>err && "
         "grep -q 'nan  lddt of 3 samples after step 4; best 0.5000 after step 2' out");
    /* A run whose lock nobody holds has ended. */
    must("! grep -q 'no process' out && : >run/lock && $FOLDMILL top run --once >out && "
         "grep -q 's ago, no process trains here$' out && ! grep -q 'ends in' out && "
         "$FOLDMILL top run --json | grep -q '\"ended\": true' && "
         "flock run/lock $FOLDMILL top run --once >out && grep -q 's ago$' out && "
         "grep -q 'ends in' out");
    must("$FOLDMILL top run --json | /usr/bin/python3 -c 'import json, sys; r = "
         "json.load(sys.stdin); assert r[\"held_out\"][\"lddt_ca\"] == 0.25 and "
         "r[\"last\"][\"left_s\"] == 3905'");
    /* A picture on a terminal has one line less than the terminal. */
    must("/usr/bin/python3 -c '\n"
         "import fcntl, os, pty, struct, termios\n"
         "pid, fd = pty.fork()\n"
         "if pid == 0:\n"
         "    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack(\"HHHH\", 5, 80, 0, 0))\n"
         "    os.execvp(\"foldmill\", [\"foldmill\", \"top\", \"run\"])\n"
         "text = b\"\"\n"
         "while not text.endswith(b\"\\033[J\"): text += os.read(fd, 4096)\n"
         "os.write(fd, b\"\\3\")\n"
         "assert text.count(b\"\\n\") == 4 and b\"step 4 \" in text, text\n"
         "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130\n"
         "' 2>err");
    must("printf 'no json\\n' >>run/metrics.jsonl");
    assert_int_equal(fm_test_shell(folder, "$FOLDMILL top run --once >out 2>err"), 1);
    must("grep -q 'a line is no step of a training run' err");
    assert_int_equal(fm_test_shell(folder, "$FOLDMILL top nowhere --once >out 2>err"), 1);
    must("grep -q 'nowhere: found no metrics.jsonl, expected the folder of a run' err");
    assert_int_equal(fm_test_shell(folder, "$FOLDMILL top run/metrics.jsonl --once 2>err"), 2);
    must("grep -q 'run/metrics.jsonl: found a file, expected the folder of a run' err");
    must("mkdir new && : >new/metrics.jsonl && ! $FOLDMILL top new --once 2>err && "
         "grep -q 'new/metrics.jsonl: the run has no finished step yet' err");
    assert_int_equal(fm_test_shell(folder, "$FOLDMILL top http://nohost --once >out 2>err"), 2);
    assert_int_equal(fm_test_shell(folder, "$FOLDMILL top unix:socket --once >out 2>err"), 2);
    must("grep -q 'an address of streams; expected .*--http' err");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_pages_count_what_was_fetched),
        cmocka_unit_test(a_run_is_summed_up),
    };
    return cmocka_run_group_tests(tests, make_cache, drop_folder);
}
