/* fault_shim.c: a library to preload into the program: one call to the system fails.
 *
 * It counts the calls below that touch $FM_FAULT_ROOT and lets number $FM_FAULT_AT fail; it then
 * writes the name of the call into the file $FM_FAULT_LOG. The code is EIO, or on every other call
 * ENOSPC for what writes and EACCES for what looks and opens. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* dlsym returns a function as a data pointer. */
#define REAL(name)                                                                                 \
    static __typeof__(name) *real;                                                                 \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name)

static atomic_ulong n_call;

static bool fails(const char *call, int other_code) {
    static _Atomic(unsigned long) at;
    static _Atomic(bool) known;
    if (!atomic_load(&known)) {
        const char *text = getenv("FM_FAULT_AT");
        atomic_store(&at, text ? strtoul(text, NULL, 10) : 0);
        atomic_store(&known, true);
    }
    unsigned long n = atomic_fetch_add(&n_call, 1) + 1;
    if (n != atomic_load(&at)) return false;
    const char *log = getenv("FM_FAULT_LOG");
    long fd = log ? syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    if (fd >= 0) {
        syscall(SYS_write, fd, call, strlen(call));
        syscall(SYS_close, fd);
    }
    errno = n % 2 ? EIO : other_code;
    return true;
}

static bool is_within(const char *path) {
    const char *root = getenv("FM_FAULT_ROOT");
    return root && path && strncmp(path, root, strlen(root)) == 0;
}

static bool is_fd_within(int fd) {
    char link[64], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long n = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    return is_within(path);
}

int open(const char *path, int flags, ...) {
    REAL(open);
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return is_within(path) && fails("open", EACCES) ? -1 : real(path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...) {
    REAL(openat);
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return is_within(path) && fails("openat", EACCES) ? -1 : real(dir, path, flags, mode);
}

DIR *opendir(const char *path) {
    REAL(opendir);
    return is_within(path) && fails("opendir", EACCES) ? NULL : real(path);
}

struct dirent *readdir(DIR *dir) {
    REAL(readdir);
    return is_fd_within(dirfd(dir)) && fails("readdir", EIO) ? NULL : real(dir);
}

int stat(const char *path, struct stat *info) {
    REAL(stat);
    return is_within(path) && fails("stat", EACCES) ? -1 : real(path, info);
}

int fstat(int fd, struct stat *info) {
    REAL(fstat);
    return is_fd_within(fd) && fails("fstat", EIO) ? -1 : real(fd, info);
}

int fstatat(int dir, const char *path, struct stat *info, int flags) {
    REAL(fstatat);
    return is_fd_within(dir) && fails("fstatat", EACCES) ? -1 : real(dir, path, info, flags);
}

ssize_t read(int fd, void *out, size_t size) {
    REAL(read);
    return is_fd_within(fd) && fails("read", EIO) ? -1 : real(fd, out, size);
}

ssize_t pread(int fd, void *out, size_t size, off_t at) {
    REAL(pread);
    return is_fd_within(fd) && fails("pread", EIO) ? -1 : real(fd, out, size, at);
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    return is_fd_within(fd) && fails("write", ENOSPC) ? -1 : real(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    REAL(pwrite);
    return is_fd_within(fd) && fails("pwrite", ENOSPC) ? -1 : real(fd, data, size, at);
}

int fsync(int fd) {
    return is_fd_within(fd) && fails("fsync", EIO) ? -1 : 0; /* no test looks behind the cache */
}

int fdatasync(int fd) {
    return is_fd_within(fd) && fails("fdatasync", EIO) ? -1 : 0;
}

int rename(const char *from, const char *to) {
    REAL(rename);
    return is_within(to) && fails("rename", ENOSPC) ? -1 : real(from, to);
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    return is_within(path) && fails("mkdir", ENOSPC) ? -1 : real(path, mode);
}

int link(const char *from, const char *to) {
    REAL(link);
    return is_within(to) && fails("link", EACCES) ? -1 : real(from, to);
}
