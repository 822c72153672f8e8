/* fault_shim.c: a library to preload into a program: one of its calls to the system fails.
 *
 * It counts the calls below whose path begins with $FM_FAULT_ROOT, in each process; "socket:" is
 * the path of every socket. Call number $FM_FAULT_AT (or each of several, as in 5,30) fails with
 * the error number $FM_FAULT_CODE. Two codes are special:
 *
 *      0   a write puts down half of its bytes and says so, as the last one before a disk is full
 *     -1   the process stops itself (SIGSTOP) before the call, and makes it after SIGCONT
 *
 * The name of the call, the code and the path are then written into the file $FM_FAULT_LOG. With
 * $FM_FAULT_TRACE, every counted call adds a line to that file: its number, its name and its path.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* dlsym returns a function as a data pointer. */
#define REAL(name)                                                                                 \
    static __typeof__(name) *real;                                                                 \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name)

enum { PATH_BYTES = 512, HALF = 0, STOP = -1 };

static atomic_ulong n_call;

/* What the environment asks for; read once, because the program may change its environment. */
static int fault_code;
static const char *fault_at, *root, *log_path, *trace_path;

__attribute__((constructor)) static void read_environment(void) {
    const char *code = getenv("FM_FAULT_CODE");
    fault_at = getenv("FM_FAULT_AT");
    fault_code = code ? (int)strtol(code, NULL, 10) : EIO;
    root = getenv("FM_FAULT_ROOT");
    log_path = getenv("FM_FAULT_LOG");
    trace_path = getenv("FM_FAULT_TRACE");
}

/* Adds a line to a file, by system calls that nobody counts. */
static void put_line(const char *file, const char *line, int bytes) {
    long fd = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd < 0) return;
    syscall(SYS_write, fd, line, bytes);
    syscall(SYS_close, fd);
}

static bool is_due(unsigned long n) {
    for (const char *at = fault_at; at && *at; at += strspn(at, ",")) {
        char *end;
        if (strtoul(at, &end, 10) == n) return true;
        if (end == at) break;
        at = end;
    }
    return false;
}

/* Counts a call; whether it is one that fails. */
static bool counts_down(const char *call, const char *path) {
    char line[PATH_BYTES + 64];
    unsigned long n = atomic_fetch_add(&n_call, 1) + 1;
    if (trace_path) {
        put_line(trace_path, line, snprintf(line, sizeof line, "%lu %s %s\n", n, call, path));
    }
    if (!is_due(n)) return false;
    if (log_path) {
        put_line(log_path, line, snprintf(line, sizeof line, "%s %d %s\n", call, fault_code, path));
    }
    return true;
}

static bool is_within(const char *path) {
    return root && path && strncmp(path, root, strlen(root)) == 0;
}

static bool find_path(int fd, char path[PATH_BYTES]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long n = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_BYTES - 1);
    path[n > 0 ? n : 0] = '\0';
    return is_within(path);
}

/* The call is due: stops the process, or sets errno and returns true. */
static bool fails_now(void) {
    if (fault_code == STOP) {
        kill(getpid(), SIGSTOP);
        return false;
    }
    errno = fault_code == HALF ? EIO : fault_code;
    return true;
}

/* Writes a path below a held folder, /proc/self/fd/N/..., with the name of the folder. */
static const char *name_of(const char *path, char named[PATH_BYTES]) {
    static const char prefix[] = "/proc/self/fd/";
    char folder[PATH_BYTES];
    if (!path || strncmp(path, prefix, strlen(prefix)) != 0) return path;
    char *rest;
    long fd = strtol(path + strlen(prefix), &rest, 10);
    (void)find_path((int)fd, folder);
    snprintf(named, PATH_BYTES, "%.250s%.250s", folder, rest);
    return named;
}

static bool fails_at(const char *call, const char *path) {
    int code = errno;
    char named[PATH_BYTES];
    path = name_of(path, named);
    if (is_within(path) && counts_down(call, path) && fails_now()) return true;
    errno = code; /* readdir leaves it alone at the end of a folder */
    return false;
}

static bool fails_on(const char *call, int fd) {
    char path[PATH_BYTES];
    int code = errno;
    if (find_path(fd, path) && counts_down(call, path) && fails_now()) return true;
    errno = code;
    return false;
}

/* A name relative to a folder: the folder decides. */
static bool fails_in(const char *call, int dir, const char *path) {
    if (path[0] == '/' || dir == AT_FDCWD) return fails_at(call, path);
    return fails_on(call, dir);
}

/* -- looking and opening */

int open(const char *path, int flags, ...) {
    REAL(open);
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return fails_at("open", path) ? -1 : real(path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...) {
    REAL(openat);
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return fails_in("openat", dir, path) ? -1 : real(dir, path, flags, mode);
}

DIR *opendir(const char *path) {
    REAL(opendir);
    return fails_at("opendir", path) ? NULL : real(path);
}

struct dirent *readdir(DIR *dir) {
    REAL(readdir);
    return fails_on("readdir", dirfd(dir)) ? NULL : real(dir);
}

int stat(const char *path, struct stat *info) {
    REAL(stat);
    return fails_at("stat", path) ? -1 : real(path, info);
}

int lstat(const char *path, struct stat *info) {
    REAL(lstat);
    return fails_at("lstat", path) ? -1 : real(path, info);
}

int fstat(int fd, struct stat *info) {
    REAL(fstat);
    return fails_on("fstat", fd) ? -1 : real(fd, info);
}

/* Libraries that were built for an older libc call fstat by this name. */
int __fxstat(int version, int fd, struct stat *info);
int __fxstat(int version, int fd, struct stat *info) {
    REAL(__fxstat);
    return fails_on("fstat", fd) ? -1 : real(version, fd, info);
}

int fstatat(int dir, const char *path, struct stat *info, int flags) {
    REAL(fstatat);
    return fails_in("fstatat", dir, path) ? -1 : real(dir, path, info, flags);
}

int statx(int dir, const char *path, int flags, unsigned mask, struct statx *info) {
    REAL(statx);
    return fails_in("statx", dir, path) ? -1 : real(dir, path, flags, mask, info);
}

int access(const char *path, int mode) {
    REAL(access);
    return fails_at("access", path) ? -1 : real(path, mode);
}

char *realpath(const char *path, char *out) {
    REAL(realpath);
    return fails_at("realpath", path) ? NULL : real(path, out);
}

/* -- reading */

ssize_t read(int fd, void *out, size_t size) {
    REAL(read);
    return fails_on("read", fd) ? -1 : real(fd, out, size);
}

ssize_t pread(int fd, void *out, size_t size, off_t at) {
    REAL(pread);
    return fails_on("pread", fd) ? -1 : real(fd, out, size, at);
}

ssize_t recv(int fd, void *out, size_t size, int flags) {
    REAL(recv);
    return fails_on("recv", fd) ? -1 : real(fd, out, size, flags);
}

/* -- writing */

static bool puts_half(size_t size) {
    return fault_code == HALF && size > 1;
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    if (!fails_on("write", fd)) return real(fd, data, size);
    return puts_half(size) ? real(fd, data, size / 2) : -1;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    REAL(pwrite);
    if (!fails_on("pwrite", fd)) return real(fd, data, size, at);
    return puts_half(size) ? real(fd, data, size / 2, at) : -1;
}

ssize_t writev(int fd, const struct iovec *piece, int n) {
    REAL(writev);
    return fails_on("writev", fd) ? -1 : real(fd, piece, n);
}

int ftruncate(int fd, off_t size) {
    REAL(ftruncate);
    return fails_on("ftruncate", fd) ? -1 : real(fd, size);
}

int fsync(int fd) {
    return fails_on("fsync", fd) ? -1 : 0; /* no test looks behind the cache */
}

int fdatasync(int fd) {
    return fails_on("fdatasync", fd) ? -1 : 0;
}

/* -- names */

int rename(const char *from, const char *to) {
    REAL(rename);
    return fails_at("rename", to) ? -1 : real(from, to);
}

int link(const char *from, const char *to) {
    REAL(link);
    return fails_at("link", to) ? -1 : real(from, to);
}

int unlink(const char *path) {
    REAL(unlink);
    return fails_at("unlink", path) ? -1 : real(path);
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    return fails_at("mkdir", path) ? -1 : real(path, mode);
}

int rmdir(const char *path) {
    REAL(rmdir);
    return fails_at("rmdir", path) ? -1 : real(path);
}
