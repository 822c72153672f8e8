/* ranks.c: see ranks.h. */
#include "tests/testing/ranks.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Puts the GPU of the rank first: the numbers of $CUDA_VISIBLE_DEVICES, or 0, 1, .., rotated. */
static void choose_gpu(int32_t rank, int32_t size) {
    char given[256], out[256] = "";
    const char *list = getenv("CUDA_VISIBLE_DEVICES"), *name[FM_TEST_RANKS];
    char numbers[FM_TEST_RANKS][8];
    int32_t n = 0;
    snprintf(given, sizeof given, "%s", list ? list : "");
    for (char *at = strtok(given, ","); at && n < FM_TEST_RANKS; at = strtok(NULL, ","))
        name[n++] = at;
    for (; !list && n < size; n++) {
        snprintf(numbers[n], sizeof numbers[n], "%d", (int)n);
        name[n] = numbers[n];
    }
    for (int32_t i = 0; i < n; i++) {
        size_t used = strlen(out);
        snprintf(out + used, sizeof out - used, "%s%s", i ? "," : "", name[(rank + i) % n]);
    }
    setenv("CUDA_VISIBLE_DEVICES", out, 1);
}

static void start(pid_t *ret_child, int32_t rank, int32_t size, const char *address,
                  fm_test_rank work, void *context, unsigned seconds) {
    *ret_child = fork();
    if (*ret_child != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(seconds);
    choose_gpu(rank, size);
    exit(work(rank, address, context)); /* not _exit: a tracer writes its file at exit */
}

static int wait_for_all(int32_t size, const pid_t *child, int *exits) {
    int worst = 0;
    for (int32_t left = size; left > 0; left--) {
        int status = 0;
        pid_t ended = wait(&status);
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        for (int32_t r = 0; r < size; r++) {
            if (child[r] == ended) exits[r] = code;
            /* a rank that ended by a signal is left to its peers, which must notice */
            if (code && code < 128 && exits[r] < 0) kill(child[r], SIGKILL);
        }
        worst = code > worst ? code : worst;
    }
    return worst;
}

/* The exit status of all: a rank that skips ends its peers, so it counts before them. */
static int verdict_of(int32_t size, const int *exits, int worst) {
    enum { SKIPPED = 77 };
    for (int32_t r = 0; r < size; r++) {
        if (exits[r] == SKIPPED) return SKIPPED;
    }
    return worst;
}

int fm_test_run_ranks(int32_t size, fm_test_rank work, void *context, unsigned seconds,
                      int *exits) {
    char folder[] = "/tmp/fm_ranks_XXXXXX", address[64];
    pid_t child[FM_TEST_RANKS];
    assert(size >= 1 && size <= FM_TEST_RANKS);
    if (!mkdtemp(folder)) return 1;
    snprintf(address, sizeof address, "unix:%s/meeting", folder);
    fflush(NULL);
    for (int32_t r = 0; r < size; r++) {
        exits[r] = -1;
        start(&child[r], r, size, address, work, context, seconds);
        if (child[r] < 0) { /* the ranks that have started would wait for it */
            for (int32_t i = 0; i < r; i++)
                kill(child[i], SIGKILL);
            size = r;
            break;
        }
    }
    int worst = wait_for_all(size, child, exits);
    unlink(address + strlen("unix:"));
    rmdir(folder);
    return verdict_of(size, exits, worst);
}
