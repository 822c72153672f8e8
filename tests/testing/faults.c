/* faults.c: see faults.h. */
#include "tests/testing/faults.h"

#include "tests/testing/testing.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Programs with a sanitizer are ten times slower. */
#ifdef __SANITIZE_ADDRESS__
enum { SLOWER = 10 };
#else
enum { SLOWER = 1 };
#endif

enum { MOST_CALLS = 20000, PATH_BYTES = 512, N_CODE = 3, SHORT_WRITE = 0 };

/* The sanitizer wants to be the first library. */
#define PRELOAD                                                                                    \
    "ASAN_OPTIONS=\"$ASAN_OPTIONS:verify_asan_link_order=0\" "                                     \
    "LD_PRELOAD=\"$FM_BIN/../tests/libfm_fault_shim.so\" "

static const int codes[N_CODE] = {EIO, ENOSPC, EACCES};

/* One call of the undisturbed run. */
typedef struct call {
    char name[16];
    uint64_t key; /* of its name and its path without digits and hashes, which may differ */
    bool is_chosen;
} call;

/* A case while its failures are tried. */
typedef struct sweep {
    const char *folder;
    const fm_fault_case *test;
    call *call; /* [n_call] */
    unsigned n_call, n_tried, n_failed;
} sweep;

bool fm_test_has_faults(void) {
#ifdef __SANITIZE_THREAD__
    fprintf(stderr, "skipped: this sanitizer must be the first library of the program\n");
    return false;
#else
    return true;
#endif
}

static bool tries_all(void) {
    return getenv("FM_TEST_FAULTS") != NULL;
}

static bool tries_all_codes(void) {
    return tries_all() && strcmp(getenv("FM_TEST_FAULTS"), "codes") == 0;
}

/* Runs a shell command of the case, with assignments for its environment. */
static int run(const sweep *s, const char *environment, const char *command, const char *end) {
    return fm_test_shell_format(s->folder,
                                "F=foldmill T=foldmill-train ROOT=\"$PWD/w\"; export F T ROOT\n"
                                "%s%s%s",
                                environment, command, end);
}

static void fail_case(const sweep *s, const char *fault, const char *what, int code) {
    run(s, "", "cat out err fired", " >&2 2>/dev/null");
    fail_msg("%s, %s: '%s' gives %d", s->test->name, fault, what, code);
}

static void must_run(const sweep *s, const char *fault, const char *command) {
    int code = run(s, "", command, "");
    if (code) fail_case(s, fault, command, code);
}

/* -- the calls of an undisturbed run */

static uint64_t hash_of(const char *name, const char *path) {
    uint64_t hash = 14695981039346656037u;
    for (const char *p = name; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 1099511628211u;
    for (const char *p = path; *p; p++) {
        bool is_digit = (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'f');
        if (!is_digit) hash = (hash ^ (unsigned char)*p) * 1099511628211u;
    }
    return hash;
}

static void read_trace(sweep *s) {
    char file[PATH_BYTES], line[PATH_BYTES + 64], name[16], path[PATH_BYTES];
    snprintf(file, sizeof file, "%s/trace", s->folder);
    FILE *trace = fopen(file, "r");
    assert_non_null(trace);
    while (fgets(line, sizeof line, trace)) {
        unsigned n;
        if (sscanf(line, "%u %15s %511s", &n, name, path) != 3) continue;
        assert_in_range(n, 1, MOST_CALLS);
        call *c = &s->call[n - 1]; /* each process counts from 1, and the last one has its say */
        memcpy(c->name, name, sizeof name);
        c->key = hash_of(name, path);
        if (n > s->n_call) s->n_call = n;
    }
    fclose(trace);
}

/* Keeps `n` of the `n_chosen` calls, at even distances. */
static void thin_out(sweep *s, unsigned n_chosen, unsigned n) {
    unsigned at = 0;
    for (unsigned i = 0; i < s->n_call; i++) {
        if (!s->call[i].is_chosen) continue;
        s->call[i].is_chosen = (at + 1) * n / n_chosen > at * n / n_chosen;
        at++;
    }
}

/* Chooses the first call of each key. If these are more than are to be tried, some of them, else
 * also calls at even distances. */
static void choose(sweep *s) {
    unsigned n_chosen = 0, n = s->test->n_try / SLOWER + SLOWER / 2;
    for (unsigned i = 0; i < s->n_call; i++) {
        bool is_new = true;
        for (unsigned k = 0; is_new && k < i; k++)
            is_new = !s->call[k].is_chosen || s->call[k].key != s->call[i].key;
        s->call[i].is_chosen = tries_all() || is_new;
        n_chosen += s->call[i].is_chosen;
    }
    if (tries_all()) return;
    if (n_chosen > n) thin_out(s, n_chosen, n);
    for (unsigned i = n_chosen; i < n; i++)
        s->call[(uint64_t)(i - n_chosen) * s->n_call / (n - n_chosen)].is_chosen = true;
}

/* -- a failure */

/* What the shim has written about the call that failed: the name of the file, without what a
 * temporary file and the lock of an LMDB file have at the end. False when none failed. */
static bool read_fired(const sweep *s, char file[PATH_BYTES]) {
    char log[PATH_BYTES], path[PATH_BYTES];
    snprintf(log, sizeof log, "%s/fired", s->folder);
    FILE *fired = fopen(log, "r");
    if (!fired) return false;
    assert_int_equal(fscanf(fired, "%*s %*d %511s", path), 1);
    fclose(fired);
    const char *slash = strrchr(path, '/');
    snprintf(file, PATH_BYTES, "%s", slash ? slash + 1 : path);
    static const char *const ends[] = {".tmp.", "-lock"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char *end = strstr(file, ends[i]);
        if (end) *end = '\0';
    }
    return true;
}

static void check_message(const sweep *s, const char *fault, const char *file, int code) {
    char command[2 * PATH_BYTES];
    snprintf(command, sizeof command, "cat out err | grep -F -- '%s' | grep -qF -- '%s'", file,
             code == SHORT_WRITE ? "" : strerror(code));
    must_run(s, fault, command);
}

/* Lets call n fail. A run that makes fewer calls than the first one must succeed. */
static void disturb(sweep *s, unsigned n, int code) {
    const fm_fault_case *test = s->test;
    char fault[128], environment[512], file[PATH_BYTES];
    snprintf(fault, sizeof fault, "call %u (%s) with %s", n, s->call[n - 1].name,
             code == SHORT_WRITE ? "half of the bytes" : strerror(code));
    must_run(s, fault, test->prepare);
    snprintf(environment, sizeof environment,
             "rm -f fired; FM_FAULT_AT=%u FM_FAULT_CODE=%d FM_FAULT_ROOT=\"$ROOT/\" "
             "FM_FAULT_LOG=\"$PWD/fired\" " PRELOAD "timeout --foreground 60 ",
             n, code);
    int exit_code = run(s, environment, test->command, " >out 2>err");
    if (!read_fired(s, file)) {
        if (exit_code) fail_case(s, fault, test->command, exit_code);
        return;
    }
    bool is_partial = exit_code == 3 && test->may_be_partial;
    if (exit_code != 0 && exit_code != 1 && !is_partial) {
        fail_case(s, fault, test->command, exit_code);
    }
    if (exit_code) check_message(s, fault, file, code);
    must_run(s, fault, test->check);
    char result[2048];
    snprintf(result, sizeof result, "(%s) >found 2>&1 && cmp found expected", test->result);
    if (exit_code == 0) must_run(s, fault, result);
    if (exit_code) {
        char again[2048];
        snprintf(again, sizeof again, "%s >out 2>err", test->again ? test->again : test->command);
        must_run(s, fault, again);
    }
    must_run(s, fault, result);
    s->n_tried++;
    s->n_failed += exit_code != 0;
}

/* The error numbers to try on call i, from its turn on; -1 ends the list. */
static void list_codes(const sweep *s, unsigned turn, unsigned i, int out[N_CODE + 2]) {
    bool is_write = strcmp(s->call[i].name, "write") == 0 || strcmp(s->call[i].name, "pwrite") == 0;
    unsigned n = is_write ? N_CODE + 1 : N_CODE, n_out = tries_all_codes() ? n : 1;
    for (unsigned k = 0; k < n_out; k++) {
        unsigned at = (turn + k) % n;
        out[k] = at < N_CODE ? codes[at] : SHORT_WRITE;
    }
    out[n_out] = -1;
}

void fm_test_faults(const char *folder, const fm_fault_case *test) {
    sweep s = {.folder = folder, .test = test, .call = calloc(MOST_CALLS, sizeof *s.call)};
    assert_non_null(s.call);
    must_run(&s, "no failure", test->prepare);
    int code =
        run(&s, "rm -f trace; FM_FAULT_ROOT=\"$ROOT/\" FM_FAULT_TRACE=\"$PWD/trace\" " PRELOAD,
            test->command, " >out 2>err");
    if (code) fail_case(&s, "no failure", test->command, code);
    char result[2048];
    snprintf(result, sizeof result, "(%s) >expected 2>&1", test->result);
    must_run(&s, "no failure", result);
    read_trace(&s);
    choose(&s);
    unsigned turn = 0;
    for (unsigned i = 0; i < s.n_call; i++) {
        int tried[N_CODE + 2];
        if (!s.call[i].is_chosen) continue;
        list_codes(&s, turn++, i, tried);
        for (int k = 0; tried[k] >= 0; k++)
            disturb(&s, i + 1, tried[k]);
    }
    print_message("%s: %u failures of %u calls tried, %u with an error\n", test->name, s.n_tried,
                  s.n_call, s.n_failed);
    free(s.call);
    assert_true(s.n_tried >= 3 && s.n_failed >= 2);
}
