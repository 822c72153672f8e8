/* test_build_endure.c: what a build survives, as a user meets it: a full disk and a signal at
 * several places, and how its progress is shown on terminals of several widths. */
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static char folder[256];

#define run(...) fm_test_shell_format(folder, __VA_ARGS__)

/* few: a cache with three of the chains of data; `few.content` and `all.content` are what verify
 * says about it and about a cache of all chains. */
static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    return run("cp \"$OLDPWD/tests/e2e/endure.sh\" lib && "
               "foldmill synth --chains 12 --seed 4 --max-length 80 --depth 300 --quiet -o data "
               ">log && mkdir -p three/alignments && cp -r data/mmcifs three && "
               "cp -r $(ls -d data/alignments/* | head -3) three/alignments && "
               "foldmill build three --cache few -q >log && cp -r few all && "
               "foldmill build data --cache all -q >log && "
               "foldmill verify --cache few | grep content >few.content && "
               "foldmill verify --cache all | grep content >all.content");
}

static int tear_down(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

/* The cache is on a file system of 8 MiB that other files fill while the build runs: before its
 * shard, in it, and while the files of the generation are written. The numbers count calls below
 * the cache. */
static void a_full_disk_loses_no_chain(void **state) {
    (void)state;
    static const int places[] = {40, 64, 130, 176};
    if (run("mkdir disk && mount -t tmpfs -o size=8m none disk 2>err") != 0) {
        print_message("no tmpfs can be mounted here; the full disk is not tested\n");
        skip();
    }
    int failed = 0;
    for (int i = 0; i < (int)(sizeof places / sizeof places[0]) && !failed; i++) {
        failed = run(
            ". ./lib; rm -rf disk/c && cp -r few disk/c && "
            "stop_at $PWD/disk/c/ %d foldmill build data --cache $PWD/disk/c -q -j 1 >out 2>err && "
            "{ dd if=/dev/zero of=disk/fill bs=4k 2>log; kill -CONT $pid; wait $pid; code=$?; "
            "foldmill verify --cache disk/c 2>>err | grep content >found; rm disk/fill; } && "
            "[ $code = 1 ] && grep -qiE 'No space left|disk (is )?full' err && "
            "cmp found few.content && foldmill build data --cache disk/c -q >out && "
            "foldmill verify --cache disk/c | grep content | cmp - all.content",
            places[i]);
        if (failed) print_message("the disk is full from call %d on\n", places[i]);
    }
    if (failed) run("cat err");
    assert_int_equal(run("umount disk"), 0);
    assert_int_equal(failed, 0);
}

/* A build that is signalled before it publishes its shard says so, and the next one goes on. */
static void a_signal_loses_no_chain(void **state) {
    (void)state;
    static const int places[] = {20, 40, 64};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        assert_int_equal(run(". ./lib; rm -rf c && cp -r few c && "
                             "stop_at $PWD/c/ %d foldmill build data --cache $PWD/c -q -j 1 "
                             ">out 2>err && strike TERM && wait $pid",
                             places[i]),
                         143);
        assert_int_equal(run("grep -q stopped err && foldmill verify --cache c | grep content | "
                             "cmp - few.content && foldmill build data --cache c -q >out && "
                             "foldmill verify --cache c | grep content | cmp - all.content"),
                         0);
    }
}

/* The cache is renamed while a build works in it, and another build makes one under its name. Each
 * stays in its own folder. */
static void a_renamed_cache_is_built_where_it_is(void **state) {
    (void)state;
    static const int places[] = {20, 40, 64, 90, 130, 176};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        int failed = run(". ./lib; rm -rf c old && cp -r few c && "
                         "stop_at $PWD/c/ %d foldmill build data --cache $PWD/c -q -j 1 "
                         ">out 2>err && mv c old && foldmill build three --cache c -q >log && "
                         "ls -R c >before && kill -CONT $pid && wait $pid && "
                         "ls -R c | cmp - before && "
                         "foldmill verify --cache old | grep content | cmp - all.content && "
                         "foldmill verify --cache c | grep content | cmp - few.content",
                         places[i]);
        if (failed) run("cat out err");
        if (failed) fail_msg("the cache was renamed before call %d: %d", places[i], failed);
    }
}

/* Every line that is drawn ends before the last column of the terminal, or of $COLUMNS. */
static void progress_fits_the_terminal(void **state) {
    (void)state;
    char path[300];
    snprintf(path, sizeof path, "%s/terminal.py", folder);
    FILE *script = fopen(path, "w");
    assert_non_null(script);
    assert_true(
        fputs(
            "import fcntl, os, pty, struct, termios\n"
            "def width(columns, given):\n"
            "    pid, fd = pty.fork()\n"
            "    if pid == 0:\n"
            "        size = struct.pack('HHHH', 24 if columns else 0, columns, 0, 0)\n"
            "        fcntl.ioctl(2, termios.TIOCSWINSZ, size)\n"
            "        os.environ.pop('COLUMNS', None)\n"
            "        if given: os.environ['COLUMNS'] = given\n"
            "        os.execvp('sh', ['sh', '-c', 'rm -rf t; exec foldmill build data --cache t '\n"
            "                         '>/dev/null'])\n"
            "    text = b''\n"
            "    while True:\n"
            "        try: read = os.read(fd, 4096)\n"
            "        except OSError: break\n"
            "        if not read: break\n"
            "        text += read\n"
            "    assert os.waitpid(pid, 0)[1] == 0, text\n"
            "    drawn = [p for p in text.decode().split('\\r\\033[K') if '%' in p]\n"
            "    assert drawn and '12/12 chains' in drawn[-1], text\n"
            "    return max(map(len, drawn))\n"
            "less, narrow, plain = width(60, '50'), width(60, ''), width(0, '')\n"
            "assert less <= 49 < narrow <= 59 < plain <= 79, (less, narrow, plain)\n",
            script) >= 0);
    assert_int_equal(fclose(script), 0);
    assert_int_equal(run("python3 terminal.py"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_disk_loses_no_chain),
        cmocka_unit_test(a_signal_loses_no_chain),
        cmocka_unit_test(a_renamed_cache_is_built_where_it_is),
        cmocka_unit_test(progress_fits_the_terminal),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
