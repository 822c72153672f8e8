/* test_complex_overfit.c: a short version of the run of docs/notes/learning.md on one complex: the
 * preset af3-overfit learns a complex of 14 atoms by heart. Samples of several draws then come near
 * the truth, and none is its mirror image. */
#include "tests/testing/complex_sample.h"
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

/* After 400 steps, the mean RMSD of 12 samples was 1.5 to 2.0 Å with four seeds. With the noise
 * levels of AlphaFold 3 it is above 4 Å, and mirror images are among the samples. Sanitizers take
 * ten times as long, so a run with them stops before the hand is decided. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STEPS = 60, MOST_RMSD = 14, MOST_MIRRORED = 100 };
#else
enum { STEPS = 400, MOST_RMSD = 3, MOST_MIRRORED = 0 };
#endif

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    int failed = fm_test_shell(
        folder, "mkdir complex copies && printf '[data]\\ncrop_size = 8\\nmax_atoms = 14\\n"
                "[optimizer]\\nlearning_rate = 8e-3\\nwarmup_samples = 20\\n"
                "decay_every_samples = 150\\nema_decay = 0.98\\n[af3]\\nn_sample = 8\\n"
                "n_rollout_step = 1\\n' >small.ini");
    fm_test_complex_write_seed(folder, "complex/a.npz", 3);
    return failed || fm_test_shell(folder, "for i in 1 2 3 4 5 6; do "
                                           "cp complex/a.npz copies/$i.npz || exit 1; done");
}

/* The first evaluation is that of the drawn network, whose first step has the rate 0. */
static void samples_return_the_complex(void **state) {
    (void)state;
    assert_int_equal(
        fm_test_shell_format(
            folder,
            "train='foldmill train --samples complex --eval-samples copies --config small.ini "
            "--preset af3-overfit -q'; export OPENBLAS_NUM_THREADS=1; "
            "$train --steps 1 --out drawn >drawn.log 2>&1 && "
            "$train --steps %d --out learnt >learnt.log 2>&1 && cat learnt/eval.csv && "
            "test $(wc -l <learnt/eval.csv) = 7 && "
            "python3 -c 'import json; a,b=[json.loads(open(f\"{x}/eval.jsonl\").readline()) for x "
            "in (\"drawn\",\"learnt\")]; print([(k,a[k],b[k]) for k in a]); "
            "exit(not (a[\"rollout_rmsd\"] > 15 and b[\"rollout_rmsd\"] < %d and "
            "100*b[\"rollout_mirrored\"] <= %d and b[\"loss\"] < 0.5*a[\"loss\"]))'",
            STEPS, MOST_RMSD, MOST_MIRRORED),
        0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(samples_return_the_complex)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
