/* machine.c: see machine.h. */
#include "proto/base/machine.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void open_standard(void) {
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

void fm_machine_begin(void) {
    open_standard();
    signal(SIGCHLD, SIG_DFL);
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

/* The least limit of a group and of those above it, up to `root`. `file`: its name in a group. */
static uint64_t read_limits(const char *root, const char *group, const char *file) {
    char path[PATH_MAX];
    uint64_t least = UINT64_MAX;
    size_t length = strlen(group);
    for (;;) {
        int n = snprintf(path, sizeof path, "%s%.*s/%s", root, (int)length, group, file);
        uint64_t limit = n > 0 && n < PATH_MAX ? read_limit(path) : UINT64_MAX;
        if (limit < least) least = limit;
        if (!length) return least;
        while (length && group[--length] != '/') {
        }
    }
}

/* Lines are "ID:CONTROLLERS:GROUP". Version 2 has one hierarchy, without controllers; version 1 has
 * one for "memory", in a folder of that name. In a container the groups are often not visible by
 * the names in the list, and the root is the process's own. */
uint64_t fm_machine_group_limit(const char *list, const char *root) {
    char line[PATH_MAX], memory[PATH_MAX];
    snprintf(memory, sizeof memory, "%s/memory", root);
    uint64_t least = read_limits(root, "", "memory.max");
    uint64_t old = read_limits(memory, "", "memory.limit_in_bytes");
    if (old < least) least = old;
    FILE *file = fopen(list, "r");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'),
             *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        bool is_new = !controllers[1], is_old = strcmp(controllers + 1, "memory") == 0;
        uint64_t limit = is_new   ? read_limits(root, group, "memory.max")
                         : is_old ? read_limits(memory, group, "memory.limit_in_bytes")
                                  : UINT64_MAX;
        if (limit < least) least = limit;
    }
    if (file) fclose(file);
    return least;
}

uint64_t fm_machine_memory(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    uint64_t bytes =
        pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : UINT64_MAX;
    uint64_t limit = fm_machine_group_limit("/proc/self/cgroup", "/sys/fs/cgroup");
    return limit < bytes ? limit : bytes;
}

uint64_t fm_machine_fit(uint64_t wanted, uint64_t machine, double share, uint64_t least) {
    double part = (double)machine * share;
    uint64_t bytes = part < (double)wanted ? (uint64_t)part : wanted;
    return bytes < least ? least : bytes;
}

/* Looks for the note "GNU" with the build ID in one segment of notes. */
static bool find_build(const uint8_t *notes, size_t bytes, char *out) {
    size_t at = 0;
    while (bytes - at >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        memcpy(&note, notes + at, sizeof note);
        size_t name = at + sizeof note, value = name + (((size_t)note.n_namesz + 3) & ~(size_t)3);
        size_t end = value + (((size_t)note.n_descsz + 3) & ~(size_t)3);
        if (end > bytes) return false;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof "GNU" &&
            memcmp(notes + name, "GNU", sizeof "GNU") == 0) {
            size_t n = note.n_descsz < FM_MACHINE_BUILD_BYTES / 2 ? note.n_descsz
                                                                  : FM_MACHINE_BUILD_BYTES / 2;
            for (size_t i = 0; i < n; i++)
                snprintf(out + 2 * i, 3, "%02x", notes[value + i]);
            return true;
        }
        at = end;
    }
    return false;
}

/* The program itself is the first object; 1 ends the walk. */
static int see_object(struct dl_phdr_info *info, size_t size, void *out) {
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_NOTE) continue;
        const uint8_t *notes = (const uint8_t *)(uintptr_t)(info->dlpi_addr + segment->p_vaddr);
        if (find_build(notes, segment->p_memsz, out)) break;
    }
    return 1;
}

void fm_machine_build(char out[FM_MACHINE_BUILD_BYTES]) {
    out[0] = '\0';
    (void)dl_iterate_phdr(see_object, out);
}
