/* file.c: see file.h. */
#include "proto/base/file.h"

#include "proto/base/compress.h"
#include "proto/base/directory.h"
#include "proto/base/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static fm_status fail_errno(fm_error *reterr, const char *path, const char *what) {
    int code = errno;
    fm_status status = fm_fail(reterr, code == ENOENT ? FM_ERR_NOT_FOUND : FM_ERR_IO, "%s: %s",
                               what, strerror(code));
    if (reterr) fm_error_in(reterr, path);
    return status;
}

/* Reads exactly `size` bytes. */
static fm_status read_whole(int fd, uint8_t *out, size_t size, const char *path, fm_error *reterr) {
    for (size_t at = 0; at < size;) {
        ssize_t got = read(fd, out + at, size - at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_errno(reterr, path, "cannot read");
        if (got == 0) {
            fm_fail(reterr, FM_ERR_IO, "file became shorter while it was read (%zu of %zu bytes)",
                    at, size);
            if (reterr) fm_error_in(reterr, path);
            return FM_ERR_IO;
        }
        at += (size_t)got;
    }
    return FM_OK;
}

static fm_status check_open(int fd, const char *path, uint64_t *ret_bytes, fm_error *reterr) {
    struct stat info;
    if (fstat(fd, &info) != 0) return fail_errno(reterr, path, "cannot stat");
    if (!S_ISREG(info.st_mode)) {
        return fm_fail_in(reterr, FM_ERR_IO, path, "%s", fm_path_refusal(FM_PATH_OTHER, 0));
    }
    *ret_bytes = (uint64_t)info.st_size;
    return FM_OK;
}

fm_status fm_file_open(const char *path, int *ret_fd, uint64_t *ret_bytes, fm_error *reterr) {
    fm_path_kind kind;
    fm_status status = fm_path_look(path, &kind, reterr);
    if (status) return status;
    if (kind != FM_PATH_FILE && kind != FM_PATH_ABSENT) {
        return fm_fail_in(reterr, FM_ERR_IO, path, "%s", fm_path_refusal(kind, 0));
    }
    /* O_NONBLOCK: a pipe that has taken the file's place since must not hang us. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return fail_errno(reterr, path, "cannot open");
    status = check_open(fd, path, ret_bytes, reterr);
    if (status) {
        close(fd);
    } else {
        *ret_fd = fd;
    }
    return status;
}

static fm_status read_open(fm_arena *arena, int fd, uint64_t bytes, const char *path,
                           size_t max_bytes, fm_bytes *ret_content, fm_error *reterr) {
    fm_status status = FM_OK;
    if (bytes > max_bytes) {
        status = fm_fail(reterr, FM_ERR_LIMIT, "file has %llu bytes, at most %zu are allowed",
                         (unsigned long long)bytes, max_bytes);
    }
    size_t size = (size_t)bytes;
    uint8_t *data = !status ? fm_arena_alloc(arena, size) : NULL;
    if (!status && !data) status = fm_arena_full(arena, reterr);
    if (status) {
        if (reterr) fm_error_in(reterr, path);
        return status;
    }
    status = read_whole(fd, data, size, path, reterr);
    if (!status) *ret_content = (fm_bytes){.data = data, .size = size};
    return status;
}

fm_status fm_file_read(fm_arena *arena, const char *path, size_t max_bytes, fm_bytes *ret_content,
                       fm_error *reterr) {
    int fd;
    uint64_t bytes;
    fm_status status = fm_file_open(path, &fd, &bytes, reterr);
    if (status) return status;
    status = read_open(arena, fd, bytes, path, max_bytes, ret_content, reterr);
    close(fd);
    return status;
}

fm_status fm_file_read_text(fm_arena *arena, const char *path, size_t max_bytes,
                            fm_bytes *ret_content, fm_error *reterr) {
    fm_bytes raw;
    fm_status status = fm_file_read(arena, path, max_bytes, &raw, reterr);
    if (status) return status;
    status = fm_unpack(arena, raw, max_bytes, ret_content, reterr);
    if (status && reterr) fm_error_in(reterr, path);
    return status;
}

fm_status fm_file_refuse_input(const char *output, const char *input, fm_error *reterr) {
    bool same;
    if (fm_path_is_same(output, input, &same, NULL) || !same) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_USAGE, output,
                      "--out: found the file that is read, expected another; choose another name");
}

fm_status fm_file_find_old(const char *output, bool replace, bool *ret_is_old, fm_error *reterr) {
    fm_path_kind kind;
    fm_status status = fm_path_look(output, &kind, reterr);
    *ret_is_old = !status && kind == FM_PATH_FILE;
    if (!*ret_is_old || replace) return status;
    return fm_fail_in(reterr, FM_ERR_EXISTS, output,
                      "the file exists; give another --out, or --replace");
}

/* The folder that contains `path`; "." when the path names none. */
static void parent_of(const char *path, char out[PATH_MAX]) {
    snprintf(out, PATH_MAX, "%s", path);
    char *slash = strrchr(out, '/');
    if (!slash) {
        memcpy(out, ".", 2);
    } else if (slash == out) {
        out[1] = '\0';
    } else {
        *slash = '\0';
    }
}

struct fm_file_writer {
    fm_temporary_file temporary;
    char path[PATH_MAX];
};

/* Finds the file to replace: the target of a symbolic link, so that the link stays. Devices, pipes
 * and folders are refused, because a rename would put a file in their place. */
static fm_status find_goal(const char *path, char out[PATH_MAX], fm_error *reterr) {
    fm_path_kind kind;
    bool is_link;
    fm_status status = fm_path_is_link(path, &is_link, reterr);
    if (status) return status;
    bool leads = is_link && realpath(path, out);
    if (is_link && !leads && errno != ENOENT) {
        return fail_errno(reterr, path, "cannot follow the symbolic link");
    }
    if (!leads) snprintf(out, PATH_MAX, "%s", path);
    if (is_link && !leads) return FM_OK; /* it leads nowhere, and the file replaces it */
    status = fm_path_look(out, &kind, reterr);
    if (status || kind == FM_PATH_FILE || kind == FM_PATH_ABSENT) return status;
    return fm_fail_in(reterr, FM_ERR_IO, path, "cannot create: %s is here, expected a file or none",
                      kind == FM_PATH_FOLDER ? "a folder" : "a device or a pipe");
}

fm_status fm_file_writer_open(const char *path, fm_file_writer **ret_writer, fm_error *reterr) {
    fm_file_writer *writer = malloc(sizeof *writer);
    if (!writer) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a file writer");
    fm_status status = find_goal(path, writer->path, reterr);
    if (status) {
        free(writer);
        return status;
    }
    errno = ENAMETOOLONG;
    if (strlen(path) >= PATH_MAX || !fm_temporary_file_create(writer->path, &writer->temporary)) {
        free(writer);
        return fail_errno(reterr, path, "cannot create");
    }
    *ret_writer = writer;
    return FM_OK;
}

fm_status fm_file_writer_open_secret(const char *path, fm_file_writer **ret_writer,
                                     fm_error *reterr) {
    fm_file_writer *writer;
    fm_status status = fm_file_writer_open(path, &writer, reterr);
    if (status) return status;
    if (fchmod(writer->temporary.fd, 0600) != 0) {
        status = fail_errno(reterr, writer->temporary.path, "cannot keep others from reading");
        fm_file_writer_discard(writer);
        return status;
    }
    *ret_writer = writer;
    return FM_OK;
}

fm_status fm_file_writer_append(fm_file_writer *writer, const void *data, size_t size,
                                fm_error *reterr) {
    for (size_t at = 0; at < size;) {
        ssize_t put = write(writer->temporary.fd, (const uint8_t *)data + at, size - at);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return fail_errno(reterr, writer->temporary.path, "cannot write");
        at += (size_t)put;
    }
    return FM_OK;
}

static fm_status close_file(fm_file_writer *writer, fm_error *reterr) {
    int fd = writer->temporary.fd;
    writer->temporary.fd = -1;
    return close(fd) == 0 ? FM_OK : fail_errno(reterr, writer->temporary.path, "cannot close");
}

/* Brings all that was appended to the disk. */
static fm_status settle(fm_file_writer *writer, fm_error *reterr) {
    if (fsync(writer->temporary.fd) == 0) return close_file(writer, reterr);
    return fail_errno(reterr, writer->temporary.path, "cannot sync");
}

static fm_status put_in_place(fm_file_writer *writer, fm_error *reterr) {
    if (rename(writer->temporary.path, writer->path) == 0) return FM_OK;
    return fail_errno(reterr, writer->path, "cannot rename into place");
}

/* The file is in place: frees the writer, and syncs the folder. */
static fm_status finish(fm_file_writer *writer, fm_error *reterr) {
    char folder[PATH_MAX];
    parent_of(writer->path, folder);
    fm_temporary_file_end(&writer->temporary, false);
    free(writer);
    return fm_dir_sync(folder, reterr);
}

fm_status fm_file_writer_commit(fm_file_writer *writer, fm_error *reterr) {
    fm_status status = settle(writer, reterr);
    if (!status) status = put_in_place(writer, reterr);
    if (!status) return finish(writer, reterr);
    fm_file_writer_discard(writer);
    return status;
}

/* Exchanges the new file with the old one, which has the temporary name then; false where there is
 * no old one, or the file system cannot exchange names. */
static bool exchange(const fm_file_writer *writer) {
    return renameat2(AT_FDCWD, writer->temporary.path, AT_FDCWD, writer->path, RENAME_EXCHANGE) ==
           0;
}

/* Puts both files in place. When the second cannot be, the first takes its old state again. */
static fm_status put_pair_in_place(fm_file_writer *first, fm_file_writer *second,
                                   fm_error *reterr) {
    fm_path_kind before;
    fm_status status = fm_path_look(first->path, &before, reterr);
    bool has_old = !status && exchange(first);
    if (!status && !has_old) status = put_in_place(first, reterr);
    if (status) return status;
    status = put_in_place(second, reterr);
    if (status && has_old) (void)!exchange(first);
    if (status && before == FM_PATH_ABSENT) unlink(first->path);
    if (!status && has_old && unlink(first->temporary.path) != 0) {
        status = fail_errno(reterr, first->temporary.path, "cannot remove the old file");
    }
    return status;
}

fm_status fm_file_writer_commit_pair(fm_file_writer *first, fm_file_writer *second,
                                     fm_error *reterr) {
    fm_status status = settle(first, reterr);
    if (!status) status = settle(second, reterr);
    if (!status) status = put_pair_in_place(first, second, reterr);
    if (status) {
        fm_file_writer_discard(first);
        fm_file_writer_discard(second);
        return status;
    }
    status = finish(first, reterr);
    fm_status other = finish(second, status ? NULL : reterr);
    return status ? status : other;
}

void fm_file_writer_discard(fm_file_writer *writer) {
    if (!writer) return;
    fm_temporary_file_end(&writer->temporary, true);
    free(writer);
}

static fm_status write_whole(fm_file_writer *writer, const void *data, size_t size,
                             fm_error *reterr) {
    fm_status status = fm_file_writer_append(writer, data, size, reterr);
    if (!status) return fm_file_writer_commit(writer, reterr);
    fm_file_writer_discard(writer);
    return status;
}

fm_status fm_file_write_atomic(const char *path, const void *data, size_t size, fm_error *reterr) {
    fm_file_writer *writer;
    fm_status status = fm_file_writer_open(path, &writer, reterr);
    return status ? status : write_whole(writer, data, size, reterr);
}

fm_status fm_file_write_unsynced(const char *path, const void *data, size_t size,
                                 fm_error *reterr) {
    fm_file_writer *writer;
    fm_status status = fm_file_writer_open(path, &writer, reterr);
    if (status) return status;
    status = fm_file_writer_append(writer, data, size, reterr);
    if (!status) status = close_file(writer, reterr);
    if (!status) status = put_in_place(writer, reterr);
    fm_temporary_file_end(&writer->temporary, status);
    free(writer);
    return status;
}

fm_status fm_dir_sync(const char *path, fm_error *reterr) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fail_errno(reterr, path, "cannot open folder");
    fm_status status = fsync(fd) == 0 ? FM_OK : fail_errno(reterr, path, "cannot sync folder");
    close(fd);
    return status;
}

fm_status fm_dir_make(const char *path, fm_error *reterr) {
    size_t ignored;
    return fm_dir_make_noting(path, &ignored, reterr);
}

fm_status fm_dir_make_noting(const char *path, size_t *ret_existed, fm_error *reterr) {
    char partial[PATH_MAX];
    bool made = false;
    *ret_existed = 0;
    int length = snprintf(partial, sizeof partial, "%s", path);
    if (length <= 0 || (size_t)length >= sizeof partial) {
        errno = ENAMETOOLONG;
        return fail_errno(reterr, path, "cannot make folder");
    }
    for (char *p = partial + 1;; p++) {
        if (*p != '/' && *p != '\0') continue;
        char kept = *p;
        *p = '\0';
        if (mkdir(partial, 0777) == 0) {
            made = true;
        } else if (errno != EEXIST) {
            return fail_errno(reterr, partial, "cannot make folder");
        }
        if (!made) *ret_existed = (size_t)(p - partial);
        if (kept == '\0') break;
        *p = kept;
    }
    fm_path_kind kind;
    fm_status status = fm_path_look(path, &kind, reterr);
    if (status || kind == FM_PATH_FOLDER) return status;
    errno = kind == FM_PATH_ABSENT ? ENOENT : ENOTDIR; /* another process may remove it again */
    return fail_errno(reterr, path, "cannot make folder");
}

void fm_dir_unmake(const char *path, size_t existed) {
    char partial[PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof partial) return;
    memcpy(partial, path, length + 1);
    while (length > existed) {
        partial[length] = '\0';
        /* "a/" and "a" are one folder, which may be gone by now; a name may have been too long. */
        if (rmdir(partial) != 0 && errno != ENOENT && errno != ENAMETOOLONG) return;
        while (length > existed && partial[length - 1] != '/')
            length--;
        while (length > existed && partial[length - 1] == '/')
            length--;
    }
}
