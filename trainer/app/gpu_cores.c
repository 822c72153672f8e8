/* gpu_cores.c: see gpu_cores.h. */
#include "trainer/app/gpu_cores.h"

#include <ctype.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LINE_BYTES = 4096, ADDRESS_BYTES = 64, MOST_NODES = 64 };

/* Reads the first line of a file of the device. Returns false if there is none. */
static bool read_line(const char *devices, const char *bus, const char *name,
                      char out[LINE_BYTES]) {
    char path[PATH_MAX], address[ADDRESS_BYTES];
    size_t n = 0;
    while (bus[n] && n + 1 < sizeof address) { /* the system writes small letters */
        address[n] = (char)tolower((unsigned char)bus[n]);
        n++;
    }
    address[n] = '\0';
    int length = snprintf(path, sizeof path, "%s/%s/%s", devices, address, name);
    if (bus[n] || length >= (int)sizeof path) return false;
    FILE *file = fopen(path, "r");
    bool has = file && fgets(out, LINE_BYTES, file);
    if (file) fclose(file);
    return has;
}

bool fm_gpu_cores_parse(const char *text, cpu_set_t *ret_cores) {
    CPU_ZERO(ret_cores);
    for (const char *at = text;; at++) {
        char *end;
        if (!isdigit((unsigned char)*at)) return false;
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (*end == '-') {
            if (!isdigit((unsigned char)end[1])) return false;
            last = strtoul(end + 1, &end, 10);
        }
        if (last < first || last >= CPU_SETSIZE) return false;
        for (unsigned long core = first; core <= last; core++)
            CPU_SET(core, ret_cores);
        if (*end == '\0' || *end == '\n') return true;
        if (*end != ',') return false;
        at = end;
    }
}

/* Makes new memory come from that node while it has some. A kernel without NUMA refuses the call,
 * which is harmless because all memory is then equally near. */
static void prefer_node(long node) {
    if (node < 0 || node >= MOST_NODES) return;
    unsigned long nodes = 1ul << node;
    (void)syscall(SYS_set_mempolicy, MPOL_PREFERRED, &nodes, (unsigned long)MOST_NODES + 1);
}

int fm_gpu_cores_bind(const char *devices, const char *bus) {
    char line[LINE_BYTES];
    cpu_set_t near, allowed, both;
    if (!read_line(devices, bus, "local_cpulist", line) || !fm_gpu_cores_parse(line, &near)) {
        return 0;
    }
    if (sched_getaffinity(0, sizeof allowed, &allowed) < 0) return 0;
    CPU_AND(&both, &near, &allowed);
    if (CPU_COUNT(&both) == 0 || sched_setaffinity(0, sizeof both, &both) < 0) return 0;
    if (read_line(devices, bus, "numa_node", line)) prefer_node(strtol(line, NULL, 10));
    return CPU_COUNT(&both);
}
