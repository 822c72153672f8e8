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

/* Writes the bytes with one call, or leaves the file as it is. */
static fm_status write_whole(const fm_appender *appender, const void *data, size_t bytes,
                             fm_error *reterr) {
    off_t end = lseek(appender->fd, 0, SEEK_END);
    ssize_t written = write(appender->fd, data, bytes);
    if (written == (ssize_t)bytes) return FM_OK;
    const char *why = written < 0 ? strerror(errno) : "the disk is full";
    if (written > 0 && end >= 0 && ftruncate(appender->fd, end) != 0) {
        why = "the disk is full, and the last record is cut off";
    }
    return fm_fail_in(reterr, FM_ERR_IO, appender->path, "cannot write: %s", why);
}

fm_status fm_appender_flush(fm_appender *appender, fm_error *reterr) {
    if (appender->n_held == 0) return FM_OK;
    fm_status status = write_whole(appender, appender->held, appender->n_held, reterr);
    if (!status) appender->n_held = 0;
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
    return fm_appender_flush(appender, reterr);
}
