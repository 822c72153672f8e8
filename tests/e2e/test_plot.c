/* test_plot.c: `foldmill plot` as a user runs it: what is in the pictures of runs whose numbers are
 * known, PNG files, and what is refused. */
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

/* Runs of known numbers: the loss falls from 100 in steps of 1, the speed is 4 and 5 steps per
 * second. The script `look` prints the curves of a picture in numbers:
 *
 *     PANEL COLOUR KIND N X0,Y0 ... X1,Y1   of a curve, in units of the axes
 *     dots PANEL COLOUR N
 *     text WORDS                            every text */
static const char runs[] =
    "for r in a-1 a-2 b; do mkdir $r; n=50; [ $r != b ] || n=40; for i in $(seq $n); do "
    "echo \"{\\\"step\\\":$i,\\\"index\\\":$i,\\\"sample\\\":\\\"x\\\",\\\"loss\\\":$((100 - i)),"
    "\\\"fape\\\":$((i + 10)),\\\"learning_rate\\\":0.001,\\\"step_s\\\":0.2$([ $r = b ] && echo "
    "5)}\"; "
    "done >$r/metrics.jsonl; done; "
    "for s in 0 25 50; do echo \"{\\\"step\\\":$s,\\\"loss\\\":$((120 - s)),"
    "\\\"lddt_ca\\\":0.$((s + 10))}\"; done >a-1/eval.jsonl";

static const char look[] =
    "import re, sys, xml.dom.minidom\n"
    "page = xml.dom.minidom.parse(sys.argv[1]).documentElement\n"
    "def number(s):\n"
    "    return float(s.replace(',', ''))\n"
    "labels = [(float(t.getAttribute('x')), float(t.getAttribute('y')), t.firstChild.data,\n"
    "           t.getAttribute('text-anchor')) for t in page.getElementsByTagName('text')]\n"
    "for t in labels: print('text', t[2])\n"
    "for n, group in enumerate(page.getElementsByTagName('g')):\n"
    "    box = page.getElementsByTagName('clipPath')[n].getElementsByTagName('rect')[0]\n"
    "    left, top, width, height = (float(box.getAttribute(k)) for k in ('x', 'y', 'width', "
    "'height'))\n"
    "    def scale(which, keep):\n"
    "        ticks = [(t[which], number(t[2])) for t in labels if keep(t)]\n"
    "        (p, u), (q, v) = ticks[0], ticks[-1]\n"
    "        return lambda at: u + (v - u) * (at - p) / (q - p)\n"
    "    inside = lambda t: top - 9 < t[1] < top + height + 9\n"
    "    y_of = scale(1, lambda t: t[3] == 'end' and left - 60 < t[0] < left and inside(t))\n"
    "    x_of = scale(0, lambda t: t[3] == 'middle' and left - 9 < t[0] < left + width + 9 and\n"
    "                 abs(t[1] - top - height - 13) < 2)\n"
    "    title = [t[2] for t in labels if t[3] == 'start' and abs(t[0] - left - 5) < 1 and\n"
    "             abs(t[1] - top + 7) < 1][0]\n"
    "    for path in group.getElementsByTagName('path'):\n"
    "        at = re.findall(r'[ML](\\S+) ([^ML]+)', path.getAttribute('d'))\n"
    "        if path.getAttribute('fill') or len(at) < 2: continue\n"
    "        kind = 'pale' if path.getAttribute('stroke-opacity') else 'line'\n"
    "        ends = ['%.0f,%.1f' % (x_of(float(x)), y_of(float(y) + 4)) for x, y in (at[0], "
    "at[-1])]\n"
    "        print(title, path.getAttribute('stroke'), kind, len(at), *ends)\n"
    "    dots = group.getElementsByTagName('circle')\n"
    "    if dots: print('dots', title, dots[0].getAttribute('fill'), len(dots))\n";

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    char path[600];
    snprintf(path, sizeof path, "%s/look.py", folder);
    FILE *file = fopen(path, "w");
    if (!file || fputs(look, file) < 0 || fclose(file) != 0) return 1;
    return run(runs);
}

/* Whether a line of the picture's description matches the whole pattern. */
static void assert_shows(const char *pattern) {
    if (fm_test_shell_format(folder, "grep -qxE '%s' shown", pattern) == 0) return;
    run("cat shown >&2");
    fail_msg("the picture has no %s", pattern);
}

static void curves_are_at_their_numbers(void **state) {
    (void)state;
    assert_int_equal(run("foldmill plot a-1 b --out p.svg --smooth 1 --terms && "
                         "python3 look.py p.svg >shown"),
                     0);
    assert_shows("Loss #0072b2 line 50 1,99.0 50,50.0");
    assert_shows("Loss #d55e00 line 40 1,99.0 40,60.0");
    assert_shows("Held-out loss #0072b2 line 3 0,120.0 50,70.0");
    assert_shows("dots Held-out loss #0072b2 3");
    assert_int_equal(run("grep -c '^Loss' shown | grep -qx 2 && ! grep -q '^dots Loss' shown"), 0);
    assert_shows("lDDT-Cα #0072b2 line 3 0,0.1 50,0.6");
    assert_shows("Learning rate #0072b2 line 50 1,0.0 50,0.0");
    assert_shows("Speed #0072b2 line 50 1,5.0 50,5.0");
    assert_shows("Speed #d55e00 line 40 1,4.0 40,4.0");
    assert_shows("fape #0072b2 line 50 1,11.0 50,60.0");
    assert_shows("text Lines: training, every step; dots: held-out chains.");
    assert_shows("text (a-1|b)");
    /* The mean over 11 steps is that of fewer at the ends; single steps are drawn beside it. */
    assert_int_equal(run("foldmill plot a-1 --out p.svg --smooth 11 --title 'x < y & z' && "
                         "python3 look.py p.svg >shown"),
                     0);
    assert_shows("Loss #0072b2 pale 50 1,99.0 50,50.0");
    assert_shows("Loss #0072b2 line 50 1,96.5 50,52.5");
    assert_shows("text x < y & z");
    assert_shows("text Lines: training, centred mean over 11 steps; pale: single steps; "
                 "dots: held-out chains.");
    assert_int_equal(run("foldmill plot a-1 --out q.svg --smooth 11 --title 'x < y & z' && "
                         "cmp p.svg q.svg"),
                     0);
}

static void a_run_may_have_scores_alone(void **state) {
    (void)state;
    assert_int_equal(run("mkdir scores && sed 's/}/,\"seen_lddt_ca\":0.7}/' a-1/eval.jsonl "
                         ">scores/eval.jsonl && foldmill plot scores --out p.svg && "
                         "python3 look.py p.svg >shown"),
                     0);
    assert_shows("Held-out loss #0072b2 line 3 0,120.0 50,70.0");
    assert_int_equal(run("grep -q '^Loss' shown"), 1);
    assert_shows("lDDT-Cα #0072b2 line 3 0,0.7 50,0.7");
    assert_shows("text Dots: held-out chains.");
    assert_int_equal(run("grep -q 'Learning rate\\|Speed' shown"), 1);
}

/* The first steps of a run have one score, and a model may have terms that another has not. */
static void what_one_run_has_is_seen(void **state) {
    (void)state;
    assert_int_equal(run("mkdir brief && echo '{\"step\":3,\"loss\":7,\"lddt_ca\":0.5,"
                         "\"fape\":3,\"torsion\":2}' >brief/metrics.jsonl && "
                         "foldmill plot b brief --terms --out p.svg && "
                         "python3 look.py p.svg >shown && grep -c '^text torsion$' shown | "
                         "grep -qx 1 && grep -c '^text fape$' shown | grep -qx 1 && "
                         "grep -c '#d55e00.* d=\"M[0-9. ]*h5\"' p.svg | grep -qx 4"),
                     0);
    assert_shows("fape #0072b2 line 40 1,11.0 40,50.0");
}

static void runs_of_one_stem_share_a_colour(void **state) {
    (void)state;
    assert_int_equal(run("foldmill plot a-1 b a-2/ --by-seed --out p.svg && "
                         "python3 look.py p.svg >shown"),
                     0);
    assert_shows("text a \\(2 runs\\)");
    assert_shows("text b");
    assert_int_equal(run("grep -c '^Speed #0072b2' shown | grep -qx 2 && "
                         "grep -c '^Speed #d55e00' shown | grep -qx 1"),
                     0);
}

static void a_wide_range_is_logarithmic(void **state) {
    (void)state;
    assert_int_equal(run("mkdir wide && for i in 1 2 3 4; do echo \"{\\\"step\\\":$i,"
                         "\\\"loss\\\":1e$((4 - i))}\"; done >wide/metrics.jsonl && "
                         "foldmill plot wide --out p.svg && python3 look.py p.svg >shown"),
                     0);
    assert_shows("text logarithmic");
    assert_shows("text 1,000");
    assert_shows("text 10");
}

static void a_png_has_the_pixels_of_the_picture(void **state) {
    (void)state;
    int code = run("foldmill plot a-1 b --out p.png --scale 1 2>err");
    if (code == 2 && run("grep -q 'built without librsvg' err") == 0) skip();
    assert_int_equal(code, 0);
    assert_int_equal(run("foldmill plot a-1 b --out p.svg && python3 -c '\n"
                         "import re, struct, zlib\n"
                         "png = open(\"p.png\", \"rb\").read()\n"
                         "svg = open(\"p.svg\").read()\n"
                         "assert png[:8] == b\"\\x89PNG\\r\\n\\x1a\\n\"\n"
                         "size = struct.unpack(\">II\", png[16:24])\n"
                         "assert list(size) == [int(re.search(k + \"=.(\\\\d+)\", svg)[1]) "
                         "for k in (\" width\", \" height\")], size\n"
                         "data, at = b\"\", 8\n"
                         "while at < len(png):\n"
                         "    n, kind = struct.unpack(\">I4s\", png[at:at + 8])\n"
                         "    if kind == b\"IDAT\": data += png[at + 8:at + 8 + n]\n"
                         "    at += 12 + n\n"
                         "raw = zlib.decompress(data)\n"
                         "assert len(set(raw)) > 50, \"an empty picture\"\n'"),
                     0);
}

static void mistakes_are_named(void **state) {
    (void)state;
    static const struct {
        const char *command, *sentence;
        int code;
    } cases[] = {
        {"a-1 --out p.pdf", "found 'p.pdf', expected a file that ends in .svg or .png", 2},
        {"a-1", "--out", 2},
        {"--out p.svg", "foldmill plot", 2},
        {"a-1 --scale 0 --out p.png", "--scale: found 0, expected 0.25 to 8", 2},
        {"a-1 --smooth 0 --out p.svg", "--smooth", 2},
        {"a-1 nowhere --out no.svg",
         "nowhere: found no metrics.jsonl, expected the folder of a run", 1},
        {"bad/metrics.jsonl --out no.svg",
         "bad/metrics.jsonl: found a file, expected the folder of a run (foldmill train --out)", 2},
        {"pipe --out no.svg", "pipe/metrics.jsonl: not a regular file but a device", 1},
        {"bad --out no.svg", "bad/metrics.jsonl:2:1: found '[1]', expected an object with a step",
         1},
        {"empty --out no.svg", "empty: the run has no finished step yet", 1},
        {"a-1 --out nowhere/p.svg", "nowhere", 1},
        {"$(printf './%.0s' $(seq 2040))a-1 --out no.svg", "././.: the path is too long", 2},
    };
    assert_int_equal(run("mkdir bad empty pipe && mkfifo pipe/metrics.jsonl && printf "
                         "'{\"step\":1,\"loss\":2}\\n[1]\\n' "
                         ">bad/metrics.jsonl && printf '{\"step\":1,\"lo' >empty/metrics.jsonl"),
                     0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(fm_test_shell_format(folder, "foldmill plot %s 2>err", cases[i].command),
                         cases[i].code);
        assert_int_equal(
            fm_test_shell_format(
                folder, "grep -qF -- \"%s\" err && test ! -e no.svg || { cat err >&2; false; }",
                cases[i].sentence),
            0);
    }
}

int main(void) {
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    cmocka_set_test_filter(getenv("FM_TEST_ONLY"));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curves_are_at_their_numbers),
        cmocka_unit_test(a_run_may_have_scores_alone),
        cmocka_unit_test(what_one_run_has_is_seen),
        cmocka_unit_test(runs_of_one_stem_share_a_colour),
        cmocka_unit_test(a_wide_range_is_logarithmic),
        cmocka_unit_test(a_png_has_the_pixels_of_the_picture),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
