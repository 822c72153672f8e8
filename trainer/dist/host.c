/* host.c: see host.h. */
#include "trainer/dist/host.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { PART_BYTES = 40 };

/* The number that the system drew when it started; "" where it does not say it. */
static void find_boot(char out[PART_BYTES]) {
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, PART_BYTES - 1) : 0;
    if (fd >= 0) close(fd);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

/* "pid:[4026531836]" or the like. */
static void find_namespace(const char *path, char out[PART_BYTES]) {
    ssize_t n = readlink(path, out, PART_BYTES - 1);
    out[n > 0 ? n : 0] = '\0';
}

void fm_host_find(fm_host *ret_host) {
    char boot[PART_BYTES], processes[PART_BYTES], memory[PART_BYTES];
    const char *given = getenv("FOLDMILL_HOST");
    memset(ret_host, 0, sizeof *ret_host);
    if (given && given[0]) {
        snprintf(ret_host->id, sizeof ret_host->id, "named %s", given);
        snprintf(ret_host->name, sizeof ret_host->name, "%s", given);
        return;
    }
    find_boot(boot);
    find_namespace("/proc/self/ns/pid", processes);
    find_namespace("/proc/self/ns/ipc", memory);
    snprintf(ret_host->id, sizeof ret_host->id, "%s %s %s", boot, processes, memory);
    if (gethostname(ret_host->name, sizeof ret_host->name - 1) < 0) {
        snprintf(ret_host->name, sizeof ret_host->name, "unknown");
    }
}
