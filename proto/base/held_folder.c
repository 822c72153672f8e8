/* held_folder.c: see held_folder.h. */
#include "proto/base/held_folder.h"

#include "proto/base/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folders that this process holds: messages are made where only their paths are known. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fm_held_folder *first;

static bool is_same_folder(int fd, const char *path) {
    struct stat held;
    fm_path_mark found;
    return fstat(fd, &held) == 0 && !fm_path_mark_read(path, &found, NULL) &&
           held.st_dev == found.device && held.st_ino == found.inode;
}

fm_status fm_held_folder_open(const char *name, fm_held_folder *ret_folder, fm_error *reterr) {
    *ret_folder = (fm_held_folder){.name = name};
    ret_folder->fd = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (ret_folder->fd < 0) {
        return fm_fail_in(reterr, errno == ENOENT ? FM_ERR_NOT_FOUND : FM_ERR_IO, name,
                          "cannot open folder: %s", strerror(errno));
    }
    snprintf(ret_folder->path, sizeof ret_folder->path, "/proc/self/fd/%d", ret_folder->fd);
    if (!is_same_folder(ret_folder->fd, ret_folder->path)) ret_folder->path[0] = '\0';
    pthread_mutex_lock(&lock);
    ret_folder->next = first;
    first = ret_folder;
    pthread_mutex_unlock(&lock);
    return FM_OK;
}

void fm_held_folder_close(fm_held_folder *folder) {
    if (folder->fd < 0) return;
    pthread_mutex_lock(&lock);
    fm_held_folder **at = &first;
    while (*at && *at != folder)
        at = &(*at)->next;
    if (*at) *at = folder->next;
    pthread_mutex_unlock(&lock);
    close(folder->fd);
    folder->fd = -1;
    folder->path[0] = '\0';
}

const char *fm_held_folder_path(const fm_held_folder *folder) {
    return folder->path[0] ? folder->path : folder->name;
}

bool fm_held_folder_exists(const fm_held_folder *folder) {
    struct stat info;
    return fstat(folder->fd, &info) == 0 && info.st_nlink > 0;
}

static bool is_below(const char *path, const char *folder) {
    const size_t n = strlen(folder);
    return n && strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

void fm_held_folder_show(const char *path, char *out, size_t out_bytes) {
    char target[PATH_MAX];
    pthread_mutex_lock(&lock);
    const fm_held_folder *at = first;
    while (at && !is_below(path, at->path))
        at = at->next;
    if (!at) {
        snprintf(out, out_bytes, "%s", path);
    } else {
        const char *rest = path + strlen(at->path), *name = at->name;
        const ssize_t n =
            is_same_folder(at->fd, name) ? -1 : readlink(at->path, target, sizeof target - 1);
        if (n >= 0) target[n] = '\0';
        snprintf(out, out_bytes, "%s%s", n >= 0 ? target : name, rest);
    }
    pthread_mutex_unlock(&lock);
}
