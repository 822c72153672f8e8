/* appender.c: see appender.h. The records that could not be written are one piece of memory; it is
 * written with one write(2) when the disk takes it. */
#include "trainer/metrics/appender.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, FIRST_BYTES = 65536 };

struct fm_appender {
    int fd;
    char path[PATH_BYTES];
    char *held; /* [held_max] */
    size_t n_held, held_max;
    bool is_torn; /* a record was written in part, from torn_at on, and is not cut off yet */
    off_t torn_at;
};

fm_status fm_appender_open(const char *path, fm_appender **ret_appender, fm_error *reterr) {
    fm_appender *appender = calloc(1, sizeof *appender);
    if (!appender) return fm_fail(reterr, FM_ERR_NOMEM, "no memory to write %s", path);
    int n = snprintf(appender->path, sizeof appender->path, "%s", path);
    bool fits = n < (int)sizeof appender->path;
    if (!fits) errno = ENAMETOOLONG;
    appender->fd = fits ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (appender->fd < 0) {
        fm_status status = fm_fail_in(reterr, FM_ERR_IO, path, "cannot open: %s", strerror(errno));
        free(appender);
        return status;
    }
    *ret_appender = appender;
    return FM_OK;
}

void fm_appender_close(fm_appender *appender) {
    if (!appender) return;
    close(appender->fd);
    free(appender->held);
    free(appender);
}

bool fm_appender_is_empty(const fm_appender *appender) {
    return lseek(appender->fd, 0, SEEK_END) == 0;
}

static bool hold(fm_appender *appender, const void *record, size_t bytes) {
    if (bytes > appender->held_max - appender->n_held) {
        size_t max = appender->held_max ? 2 * appender->held_max : FIRST_BYTES;
        while (max - appender->n_held < bytes)
            max *= 2;
        char *grown = realloc(appender->held, max);
        if (!grown) return false;
        appender->held = grown;
        appender->held_max = max;
    }
    memcpy(appender->held + appender->n_held, record, bytes);
    appender->n_held += bytes;
    return true;
}

static fm_status fail_errno(const fm_appender *appender, const char *what, fm_error *reterr) {
    return fm_fail_in(reterr, FM_ERR_IO, appender->path, "%s: %s", what, strerror(errno));
}

static fm_status cut_torn(fm_appender *appender, fm_error *reterr) {
    if (!appender->is_torn) return FM_OK;
    if (ftruncate(appender->fd, appender->torn_at) != 0) {
        return fail_errno(appender, "cannot cut off a record that was written in part", reterr);
    }
    appender->is_torn = false;
    return FM_OK;
}

/* Writes the bytes with one call, or leaves the file as it is. A part that cannot be cut off now is
 * cut off before the next write. */
static fm_status write_whole(fm_appender *appender, const void *data, size_t bytes,
                             fm_error *reterr) {
    fm_status status = cut_torn(appender, reterr);
    if (status) return status;
    off_t end = lseek(appender->fd, 0, SEEK_END);
    if (end < 0) return fail_errno(appender, "cannot seek", reterr);
    ssize_t written = write(appender->fd, data, bytes);
    if (written == (ssize_t)bytes) return FM_OK;
    if (written < 0) return fail_errno(appender, "cannot write", reterr);
    appender->is_torn = written > 0;
    appender->torn_at = end;
    status = cut_torn(appender, reterr);
    if (status) return status;
    return fm_fail_in(reterr, FM_ERR_IO, appender->path, "cannot write: the disk is full");
}

static fm_status flush(fm_appender *appender, fm_error *reterr) {
    if (appender->n_held == 0) return cut_torn(appender, reterr);
    fm_status status = write_whole(appender, appender->held, appender->n_held, reterr);
    if (!status) appender->n_held = 0;
    return status;
}

fm_status fm_appender_sync(fm_appender *appender, fm_error *reterr) {
    fm_status status = flush(appender, reterr);
    if (!status && fdatasync(appender->fd) != 0) {
        status = fail_errno(appender, "cannot sync", reterr);
    }
    return status;
}

fm_status fm_appender_add(fm_appender *appender, const void *record, size_t bytes,
                          fm_error *reterr) {
    if (appender->n_held == 0) {
        fm_status status = write_whole(appender, record, bytes, reterr);
        if (status && !hold(appender, record, bytes)) {
            return fm_fail(reterr, FM_ERR_NOMEM, "no memory for what cannot be written");
        }
        return status;
    }
    if (!hold(appender, record, bytes)) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for what cannot be written");
    }
    return flush(appender, reterr);
}
