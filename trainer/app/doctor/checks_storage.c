/* checks_storage.c: folders, and ways to other hosts. */
#include "proto/address.h"
#include "proto/base/directory.h"
#include "trainer/app/doctor/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum {
    READ_BYTES = 256 << 20, /* at most this much is read to measure a disk */
    BLOCK_BYTES = 1 << 20,
    LIST_BYTES = 16 << 20,
    LIST_MAX = 100000,
    CONNECT_MS = 5000,
};

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* -- folders */

typedef struct largest_file {
    char path[PATH_MAX];
    uint64_t bytes;
} largest_file;

/* Finds the largest file of a folder and, to `depth`, of the folders in it. What cannot be looked
 * at is passed over: any large file will do. */
static void find_largest(const char *folder, int depth, largest_file *largest) {
    fm_arena arena;
    fm_error error;
    fm_entry_list list = {.n = 0};
    if (fm_arena_init(&arena, LIST_BYTES, &error)) return;
    fm_status status = fm_directory_read(folder, LIST_MAX, &arena, &list, &error);
    for (size_t i = 0; !status && i < list.n; i++) {
        char path[PATH_MAX];
        fm_path_kind kind;
        uint64_t bytes;
        int n = snprintf(path, sizeof path, "%s/%s", folder, list.entry[i].name);
        if (n < 0 || (size_t)n >= sizeof path) continue;
        if (list.entry[i].kind == FM_PATH_FOLDER && depth) find_largest(path, depth - 1, largest);
        if (list.entry[i].kind != FM_PATH_FILE || fm_path_size(path, &kind, &bytes, &error)) {
            continue;
        }
        if (bytes <= largest->bytes) continue;
        memcpy(largest->path, path, (size_t)n + 1);
        largest->bytes = bytes;
    }
    free(list.entry);
    fm_arena_fini(&arena);
}

/* Reads the begin of a file, which the system is told to forget first. Returns bytes a second, or 0
 * when it cannot be read. */
static double measure_reading(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *block = malloc(BLOCK_BYTES);
    double rate = 0;
    if (fd >= 0 && block) {
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        double begin = now_s(), bytes = 0;
        ssize_t n = 1;
        while (n > 0 && bytes < READ_BYTES && now_s() - begin < 5) {
            n = read(fd, block, BLOCK_BYTES);
            if (n > 0) bytes += (double)n;
        }
        double seconds = now_s() - begin;
        if (n >= 0 && seconds > 0) rate = bytes / seconds;
    }
    if (fd >= 0) close(fd);
    free(block);
    return rate;
}

void fm_doctor_check_folder(fm_findings *findings, const char *path) {
    struct statvfs space;
    if (statvfs(path, &space) != 0) {
        fm_findings_add(findings, FM_FINDING_BAD, "folder", "make it, or name another one",
                        "%.120s: %s", path, strerror(errno));
        return;
    }
    double free_bytes = (double)space.f_bavail * (double)space.f_frsize;
    fm_findings_add(findings, free_bytes < 1e9 ? FM_FINDING_SLOW : FM_FINDING_OK, "folder",
                    "make room: a run keeps three checkpoints, a cache about 1 MB for each chain",
                    "%.120s: %.1f GB free%s", path, free_bytes / 1e9,
                    fm_path_is_writable(path) ? "" : ", cannot be written by this user");
    largest_file largest = {.bytes = 0};
    find_largest(path, 1, &largest);
    if (largest.bytes < BLOCK_BYTES) return; /* too little to say anything */
    double rate = measure_reading(largest.path);
    if (rate == 0) {
        fm_findings_add(findings, FM_FINDING_BAD, "reading", "check its permissions and the disk",
                        "%.120s cannot be read", largest.path);
        return;
    }
    fm_findings_add(findings, rate < 50e6 ? FM_FINDING_SLOW : FM_FINDING_OK, "reading",
                    "a server waits for such a disk: copy the cache to a local one", "%.0f MB/s",
                    rate / 1e6);
}

/* -- other hosts */

void fm_doctor_check_host(fm_findings *findings, const char *text) {
    fm_address address;
    fm_error error;
    char url[FM_ADDRESS_TEXT_BYTES];
    bool is_plain = !strstr(text, "://") && strncmp(text, "unix:", 5) != 0;
    snprintf(url, sizeof url, "%s%.280s", is_plain ? "tcp://" : "", text);
    fm_status status = fm_address_parse(url, &address, &error);
    int fd = -1;
    double begin = now_s();
    address.is_insecure = true; /* nothing is sent */
    if (!status) status = fm_address_connect(&address, CONNECT_MS, &fd, &error);
    double ms = (now_s() - begin) * 1000;
    if (status) {
        char message[FM_ERROR_TEXT_BYTES];
        fm_error_format(&error, message, sizeof message);
        fm_findings_add(findings, FM_FINDING_BAD, "host",
                        "check that something listens there, and the firewalls between", "%.190s",
                        message);
        return;
    }
    close(fd);
    fm_findings_add(findings, ms > 20 ? FM_FINDING_SLOW : FM_FINDING_OK, "host",
                    "steps of several hosts wait for each other: use hosts that are nearer",
                    "%.120s: connected in %.1f ms", url, ms);
}
