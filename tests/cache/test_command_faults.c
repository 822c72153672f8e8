/* test_command_faults.c: calls of build, gc, merge, snapshot, export and certs to the system fail
 * one at a time (tests/testing/faults.h). After each, what was there before is whole, and the exit
 * code says whether the work was done. The same command run again brings the result of one that was
 * never disturbed. */
#include "tests/testing/faults.h"
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[160];

static int make_folder(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    return fm_test_shell(
        folder,
        "F=foldmill; "
        "mkdir w few kept && $F synth --chains 4 --seed 3 --max-length 60 --depth 40 --quiet "
        "-o w/data > /dev/null && cp -r w/data/mmcifs few && mkdir few/alignments && "
        "cp -r $(ls -d w/data/alignments/* | head -2) few/alignments && "
        "$F build few --cache base -q > /dev/null && "
        "$F snapshot create mine --cache base > /dev/null && "
        "$F snapshot pin mine --cache base > /dev/null && cp -r base old && "
        "$F build w/data --cache base -q > /dev/null && "
        "cp -r w/data more && rm -r more/alignments/$(ls more/alignments | head -1) && "
        "$F build more --cache base -q --replace > /dev/null && "
        "$F build w/data --cache worker -q --catalogue jobs > /dev/null");
}

static int drop_folder(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

static void test_build(void **state) {
    (void)state;
    fm_test_faults(
        folder,
        &(fm_fault_case){.name = "build",
                         .prepare = "rm -rf w/cache && cp -r old w/cache",
                         .command = "$F build $ROOT/data --cache $ROOT/cache -q -j 1",
                         .check = "$F verify --cache w/cache > /dev/null && "
                                  "$F snapshot list --cache w/cache | grep -q 'mine .* pinned'",
                         .result = "$F verify --cache w/cache | grep content",
                         .may_be_partial = true,
                         .n_try = 60});
}

static void test_gc(void **state) {
    (void)state;
    fm_test_faults(
        folder, &(fm_fault_case){.name = "gc",
                                 .prepare = "rm -rf w/cache && cp -r base w/cache",
                                 .command = "$F gc --cache $ROOT/cache",
                                 .check = "$F verify --cache w/cache > /dev/null && cd w/cache && "
                                          "for s in $(sed -n 's/^shard \\([0-9a-f]*\\).*/\\1/p' "
                                          "generations/00000001.manifest "
                                          "generations/0000000$(cat CURRENT).manifest); do "
                                          "test -s shards/$s.lmdb || exit 1; done",
                                 .result = "cd w/cache && ls generations shards pins CURRENT",
                                 .n_try = 25});
}

static void test_merge(void **state) {
    (void)state;
    fm_test_faults(
        folder, &(fm_fault_case){.name = "merge",
                                 .prepare = "rm -rf w/cache w/jobs && cp -r old w/cache && "
                                            "cp -r jobs w/jobs",
                                 .command = "$F merge --catalogue $ROOT/jobs --cache $ROOT/cache",
                                 .check = "$F verify --cache w/cache > /dev/null",
                                 .result = "$F verify --cache w/cache | grep content",
                                 .n_try = 30});
}

static void test_snapshot(void **state) {
    (void)state;
    fm_test_faults(
        folder,
        &(fm_fault_case){.name = "snapshot",
                         .prepare = "rm -rf w/cache && cp -r base w/cache",
                         .command = "$F snapshot create new --cache $ROOT/cache",
                         .check = "$F verify --cache w/cache > /dev/null && "
                                  "$F snapshot list --cache w/cache | grep -q 'mine .* pinned' && "
                                  "{ test ! -e w/cache/snapshots/new || "
                                  "$F snapshot show new --cache w/cache > /dev/null; }",
                         .result = "cat w/cache/snapshots/new",
                         .n_try = 20});
}

static void test_export(void **state) {
    (void)state;
    fm_test_faults(folder, &(fm_fault_case){
                               .name = "export",
                               .prepare = "rm -rf w/cache w/x.npz && cp -r base w/cache",
                               .command = "$F export --cache $ROOT/cache "
                                          "--chain $(ls more/alignments | head -1) -o $ROOT/x.npz",
                               .check = "test ! -e w/x.npz || python3 -c 'import zipfile; "
                                        "assert zipfile.ZipFile(\"w/x.npz\").testzip() is None'",
                               .result = "sha256sum < w/x.npz",
                               .n_try = 25});
}

/* Either both files of a pair are there or none, so that the command can be run again. */
static void test_certs(void **state) {
    (void)state;
    fm_test_faults(folder,
                   &(fm_fault_case){.name = "certs",
                                    .prepare = "rm -rf w/certs",
                                    .command = "$F certs --out $ROOT/certs --client a --replace",
                                    .check = "for n in ca a; do test -e w/certs/$n.crt; c=$?; "
                                             "test -e w/certs/$n.key; test $? = $c || exit 1; done",
                                    .result = "cd w/certs && ls && openssl verify -CAfile ca.crt "
                                              "a.crt",
                                    .n_try = 25});
}

/* A pair that is replaced stays a pair: the key is that of the certificate. */
static void test_certs_replace(void **state) {
    (void)state;
    assert_int_equal(fm_test_shell(folder, "$FM_BIN/foldmill certs --out pair --client a "
                                           "> /dev/null"),
                     0);
    fm_test_faults(
        folder, &(fm_fault_case){.name = "certs_replace",
                                 .prepare = "rm -rf w/certs && cp -r pair w/certs",
                                 .command = "$F certs --out $ROOT/certs --client a --replace",
                                 .check = "cd w/certs && openssl x509 -in a.crt -noout -pubkey "
                                          "> ../p && openssl pkey -in a.key -pubout | cmp - ../p",
                                 .result = "cd w/certs && ls && openssl verify -CAfile ca.crt "
                                           "a.crt",
                                 .n_try = 40});
}

int main(void) {
    if (!fm_test_has_faults()) return FM_TEST_SKIPPED;
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    cmocka_set_test_filter(getenv("FM_TEST_ONLY"));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_build),         cmocka_unit_test(test_gc),
        cmocka_unit_test(test_merge),         cmocka_unit_test(test_snapshot),
        cmocka_unit_test(test_export),        cmocka_unit_test(test_certs),
        cmocka_unit_test(test_certs_replace),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
