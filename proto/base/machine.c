/* machine.c: see machine.h. */
#include "proto/base/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void fm_machine_open_standard(void) {
    /* open takes the lowest free number, so each call below opens the descriptor that is missing.
     * Standard output gets a descriptor that cannot be written. */
    static const int flags[] = {O_RDONLY, O_RDONLY, O_WRONLY};
    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
        int opened = open("/dev/null", flags[fd]);
        if (opened >= 0 && opened != fd) close(opened);
        if (opened != fd) _exit(1); /* nothing can be said, and nothing may be written */
    }
}

/* The number in a file of one line; UINT64_MAX for "max", and when there is no such file. */
static uint64_t read_limit(const char *path) {
    unsigned long long value;
    FILE *file = fopen(path, "r");
    if (!file) return UINT64_MAX;
    int n = fscanf(file, "%20llu", &value);
    fclose(file);
    return n == 1 && value ? value : UINT64_MAX;
}

uint64_t fm_machine_memory(void) {
    static const char *const limits[] = {"/sys/fs/cgroup/memory.max",
                                         "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    uint64_t bytes =
        pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : UINT64_MAX;
    for (int i = 0; i < 2; i++) {
        uint64_t limit = read_limit(limits[i]);
        if (limit < bytes) bytes = limit;
    }
    return bytes;
}
