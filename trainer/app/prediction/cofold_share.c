/* cofold_share.c: see cofold_share.h. The memory has a head, the units, and the texts of paths. */
#include "trainer/app/prediction/cofold_share.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NUMBER_BYTES = 16, MAGIC = 0x666d6a31 };

/* The variable by which the command tells its ranks the memory's file descriptor. */
static const char variable[] = "FOLDMILL_JOBS";

typedef struct head {
    uint32_t magic, n_unit;
    _Atomic uint32_t next;
    fm_cofold_unit unit[]; /* [n_unit] */
} head;

struct fm_cofold_share {
    int fd;
    bool is_own; /* made here */
    size_t bytes;
    head *head;
};

static fm_status map(fm_cofold_share *s, fm_error *reterr) {
    void *at = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (at == MAP_FAILED) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the list of jobs: %s", strerror(errno));
    }
    s->head = at;
    return FM_OK;
}

/* Writes the units and texts; `text` is where these begin. */
static void fill(head *h, const fm_cofold_jobs *jobs, const uint32_t *n_seed, size_t text) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < jobs->n; i++) {
        if (!n_seed[i]) continue;
        const size_t bytes = strlen(jobs->job[i].path) + 1;
        for (uint32_t k = 0; k < n_seed[i]; k++)
            h->unit[at++] = (fm_cofold_unit){i, k, (uint32_t)text};
        memcpy((char *)h + text, jobs->job[i].path, bytes);
        text += bytes;
    }
    h->n_unit = at;
    h->magic = MAGIC;
}

static fm_status make(fm_cofold_share *s, const fm_cofold_jobs *jobs, const uint32_t *n_seed,
                      fm_error *reterr) {
    size_t n_unit = 0, texts = 0;
    char number[NUMBER_BYTES];
    for (uint32_t i = 0; i < jobs->n; i++) {
        if (!n_seed[i]) continue;
        n_unit += n_seed[i];
        texts += strlen(jobs->job[i].path) + 1;
    }
    const size_t text = sizeof(head) + n_unit * sizeof(fm_cofold_unit);
    s->bytes = text + texts;
    if (s->bytes > INT32_MAX) {
        return fm_fail(reterr, FM_ERR_LIMIT, "%zu seeds of jobs are too many for one command",
                       n_unit);
    }
    s->fd = memfd_create("foldmill jobs", 0); /* stays open in children */
    if (s->fd < 0 || ftruncate(s->fd, (off_t)s->bytes) < 0) {
        return fm_fail(reterr, FM_ERR_IO, "cannot share the list of jobs: %s", strerror(errno));
    }
    fm_status status = map(s, reterr);
    if (status) return status;
    fill(s->head, jobs, n_seed, text);
    snprintf(number, sizeof number, "%d", s->fd);
    setenv(variable, number, 1);
    return FM_OK;
}

fm_status fm_cofold_share_make(const fm_cofold_jobs *jobs, const uint32_t *n_seed,
                               fm_cofold_share **ret_share, fm_error *reterr) {
    fm_cofold_share *s = calloc(1, sizeof *s);
    if (!s) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the list of jobs");
    s->fd = -1;
    s->is_own = true;
    fm_status status = make(s, jobs, n_seed, reterr);
    *ret_share = s;
    if (!status) return FM_OK;
    fm_cofold_share_close(s);
    *ret_share = NULL;
    return status;
}

fm_status fm_cofold_share_open(fm_cofold_share **ret_share, fm_error *reterr) {
    const char *number = getenv(variable);
    struct stat about;
    fm_cofold_share *s = calloc(1, sizeof *s);
    if (!s) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the list of jobs");
    s->fd = number ? (int)strtol(number, NULL, 10) : -1;
    fm_status status = FM_OK;
    if (fstat(s->fd, &about) < 0 || about.st_size < (off_t)sizeof(head)) {
        s->fd = -1;
        status = fm_fail(reterr, FM_ERR_USAGE, "this process is a rank of no command");
    }
    if (!status) {
        s->bytes = (size_t)about.st_size;
        status = map(s, reterr);
    }
    if (!status && s->head->magic != MAGIC) {
        status = fm_fail(reterr, FM_ERR_USAGE, "this process is a rank of another command");
    }
    *ret_share = s;
    if (!status) return FM_OK;
    fm_cofold_share_close(s);
    *ret_share = NULL;
    return status;
}

void fm_cofold_share_close(fm_cofold_share *s) {
    if (!s) return;
    if (s->head) munmap(s->head, s->bytes);
    if (s->fd >= 0) close(s->fd);
    if (s->is_own) unsetenv(variable);
    free(s);
}

uint32_t fm_cofold_share_take(fm_cofold_share *s) {
    const uint32_t number = atomic_fetch_add(&s->head->next, 1);
    return number < s->head->n_unit ? number : FM_COFOLD_NO_UNIT;
}

const fm_cofold_unit *fm_cofold_share_unit(const fm_cofold_share *s, uint32_t number) {
    return &s->head->unit[number];
}

const char *fm_cofold_share_path(const fm_cofold_share *s, const fm_cofold_unit *unit) {
    return (const char *)s->head + unit->path;
}
