/* temporary.c: see temporary.h.
 *
 * Whoever holds the lock of a file that is still at its path may remove it. A creator locks what it
 * has made and looks whether it is still there, since another process may have taken it for a
 * leftover in between. */
#include "proto/base/temporary.h"

#include "proto/base/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_NUMBERS = 1000,
    MOST_TRIES = 10,
    DAY_S = 86400,
    LIST_BYTES = 64 << 20,
    MOST_LEAVES = 1000
};

static const char folder_name[] = "foldmill_";

typedef enum lock_state { LOCKED, HELD_BY_OTHER, NO_LOCKS } lock_state;

static lock_state try_lock(int fd) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return LOCKED;
    return errno == EWOULDBLOCK ? HELD_BY_OTHER : NO_LOCKS;
}

static bool is_at(int fd, const char *path, struct stat *ret_open) {
    fm_path_mark there;
    return fstat(fd, ret_open) == 0 && !fm_path_mark_read(path, &there, NULL) &&
           ret_open->st_dev == there.device && ret_open->st_ino == there.inode;
}

/* Locks what was just made at the path; false when another process took it for a leftover. */
static bool lock_made(int fd, const char *path) {
    struct stat made;
    return try_lock(fd) != HELD_BY_OTHER && is_at(fd, path, &made);
}

/* -- files */

/* Returns whether it has removed the file. */
static bool remove_left_file(const char *path) {
    struct stat file;
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0) return false;
    lock_state state = try_lock(fd);
    bool is_left = state != HELD_BY_OTHER && is_at(fd, path, &file) && S_ISREG(file.st_mode) &&
                   (state == LOCKED || file.st_mtime < time(NULL) - DAY_S);
    bool is_removed = is_left && unlink(path) == 0;
    close(fd);
    return is_removed;
}

static bool name_file(const char *goal, uint32_t number, char out[PATH_MAX]) {
    errno = ENAMETOOLONG;
    return snprintf(out, PATH_MAX, "%s.tmp.%06x", goal, number) < PATH_MAX;
}

/* Creates and locks the file. Returns -1 with errno; EEXIST when another writer has it. */
static int create_at(const char *path) {
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    int fd = open(path, flags, 0666);
    if (fd < 0 && errno == EEXIST) {
        bool is_free = remove_left_file(path);
        errno = EEXIST;
        if (is_free) fd = open(path, flags, 0666);
    }
    if (fd < 0 || lock_made(fd, path)) return fd;
    close(fd);
    remove_left_file(path); /* if it is ours after all, but could not be looked at */
    errno = EEXIST;
    return -1;
}

static bool is_file(const char *path) {
    fm_path_kind kind;
    return !fm_path_look(path, &kind, NULL) && kind == FM_PATH_FILE;
}

bool fm_temporary_file_create(const char *goal, fm_temporary_file *ret_file) {
    char next[PATH_MAX];
    uint32_t number = 0;
    ret_file->fd = -1;
    errno = EEXIST;
    while (ret_file->fd < 0 && errno == EEXIST && number < MOST_NUMBERS) {
        if (!name_file(goal, number++, ret_file->path)) return false;
        ret_file->fd = create_at(ret_file->path);
    }
    if (ret_file->fd < 0) return false;
    while (name_file(goal, number, next) && is_file(next) && remove_left_file(next))
        number++;
    /* The lock is held until the end, while the caller may close fd before. */
    ret_file->lock_fd = ret_file->fd;
    ret_file->fd = open(ret_file->path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (ret_file->fd >= 0) return true;
    int reason = errno;
    fm_temporary_file_end(ret_file, true);
    errno = reason;
    return false;
}

void fm_temporary_file_end(fm_temporary_file *file, bool removes) {
    if (removes) unlink(file->path);
    if (file->fd >= 0) close(file->fd);
    if (file->lock_fd >= 0) close(file->lock_fd);
    file->fd = file->lock_fd = -1;
}

/* -- folders */

/* What programs put into their folders. A folder of a user may have a name like theirs, so one with
 * anything else in it stays as it is. */
static const char *const leaves[] = {"socket", "meeting", "input.fasta", "output.fasta"};

static bool is_leaf(const fm_entry *entry) {
    bool is_known = false;
    for (size_t i = 0; i < sizeof leaves / sizeof leaves[0]; i++)
        is_known |= strncmp(entry->name, leaves[i], strlen(leaves[i])) == 0;
    return is_known && (entry->kind == FM_PATH_FILE || entry->kind == FM_PATH_OTHER);
}

static bool has_leaves_only(const char *path, fm_arena *arena) {
    fm_entry_list list = {0};
    if (fm_directory_read(path, MOST_LEAVES, arena, &list, NULL)) return false;
    bool is_so = true;
    for (size_t i = 0; i < list.n && is_so; i++)
        is_so = is_leaf(&list.entry[i]);
    free(list.entry);
    return is_so;
}

/* Where there are no locks, a folder is never known to be left. */
static bool remove_left_folder(const char *path, fm_arena *arena) {
    struct stat folder;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return false;
    bool is_left = fstat(fd, &folder) == 0 && folder.st_uid == geteuid() &&
                   (folder.st_mode & 0777) == 0700 && try_lock(fd) == LOCKED &&
                   is_at(fd, path, &folder) && has_leaves_only(path, arena);
    bool is_removed = is_left && !fm_dir_remove(path, NULL);
    close(fd);
    return is_removed;
}

static void remove_left_folders(const char *base) {
    char path[PATH_MAX];
    fm_arena arena;
    fm_name_list list = {0};
    if (fm_arena_init(&arena, LIST_BYTES, NULL)) return;
    if (!fm_directory_list(base, true, LIST_BYTES / sizeof folder_name, &arena, &list, NULL)) {
        for (size_t i = 0; i < list.n; i++) {
            const char *name = list.name[i];
            bool is_ours = strncmp(name, folder_name, sizeof folder_name - 1) == 0 &&
                           strlen(name) == sizeof folder_name - 1 + 6;
            int n = snprintf(path, sizeof path, "%s/%s", base, name);
            if (is_ours && n < PATH_MAX) remove_left_folder(path, &arena);
        }
        free(list.name);
    }
    fm_arena_fini(&arena);
}

/* Makes and locks a folder of a new name. Returns its descriptor, or -1 with errno; EAGAIN when
 * another process took it for a leftover. */
static int make_at(char *path) {
    if (!mkdtemp(path)) return -1;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && lock_made(fd, path)) return fd;
    if (fd >= 0) close(fd);
    rmdir(path);
    errno = EAGAIN;
    return -1;
}

fm_status fm_temporary_folder_make(size_t most_bytes, fm_temporary_folder *ret_folder,
                                   fm_error *reterr) {
    static atomic_flag has_looked = ATOMIC_FLAG_INIT;
    const char *base = getenv("TMPDIR");
    char *path = ret_folder->path;
    if (!base || !base[0]) base = "/tmp";
    if (strchr(base, ',')) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "found TMPDIR=%.200s, expected a folder without a comma in its path: commas "
                       "separate the addresses of sockets",
                       base);
    }
    if (!atomic_flag_test_and_set(&has_looked)) remove_left_folders(base);
    ret_folder->lock_fd = -1;
    errno = EAGAIN;
    for (int i = 0; i < MOST_TRIES && ret_folder->lock_fd < 0 && errno == EAGAIN; i++) {
        int n = snprintf(path, PATH_MAX, "%s/%sXXXXXX", base, folder_name);
        if (n < 0 || n >= PATH_MAX || (size_t)n > most_bytes) {
            return fm_fail(reterr, FM_ERR_USAGE, "TMPDIR is too long for a socket: %.200s", base);
        }
        ret_folder->lock_fd = make_at(path);
    }
    if (ret_folder->lock_fd >= 0) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_IO, path,
                      "cannot make the folder for temporary files: %s; the variable TMPDIR names "
                      "another place for it",
                      strerror(errno));
}

void fm_temporary_folder_end(fm_temporary_folder *folder) {
    rmdir(folder->path);
    close(folder->lock_fd);
    folder->lock_fd = -1;
}
