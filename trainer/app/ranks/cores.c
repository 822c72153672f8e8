/* cores.c: see cores.h. */
#include "trainer/app/ranks/cores.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LINE_BYTES = 4096, MOST_NODES = 64 };

/* The path of a file of the device. The system writes addresses in small letters. */
static void path_of(const char *devices, const char *bus, const char *name, char out[PATH_MAX]) {
    int length = snprintf(out, PATH_MAX, "%s/%s/%s", devices, bus, name);
    assert(length < PATH_MAX);
    for (char *at = out + length; at > out + strlen(devices); at--)
        *at = (char)tolower((unsigned char)*at);
}

/* Reads the one line of a file, without its end. Returns false if there is no such file, and after
 * an error in *ret_status. */
static bool read_line(const char *path, char out[LINE_BYTES], fm_status *ret_status,
                      fm_error *reterr) {
    *ret_status = FM_OK;
    FILE *file = fopen(path, "r");
    if (!file && (errno == ENOENT || errno == ENOTDIR)) return false;
    size_t n = file ? fread(out, 1, LINE_BYTES, file) : 0;
    if (!file || ferror(file)) {
        *ret_status = fm_fail_in(reterr, FM_ERR_IO, path, "cannot be read: %s", strerror(errno));
    } else if (n == LINE_BYTES) {
        *ret_status =
            fm_fail_in(reterr, FM_ERR_FORMAT, path, "the line has %d bytes or more", LINE_BYTES);
    }
    if (file) fclose(file);
    if (*ret_status) return false;
    if (n > 0 && out[n - 1] == '\n') n--;
    out[n] = '\0';
    return true;
}

bool fm_cores_parse(const char *text, cpu_set_t *ret_cores) {
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
        if (*end == '\0') return true;
        if (*end != ',') return false;
        at = end;
    }
}

/* Makes new memory come from that node while it has some. */
static fm_status prefer_node(const char *path, const char *line, fm_error *reterr) {
    char *end;
    long node = strtol(line, &end, 10);
    if (end == line || *end || node < -1 || node >= MOST_NODES) {
        return fm_fail_in(reterr, FM_ERR_FORMAT, path,
                          "found '%.32s', expected the number of a node below %d, or -1", line,
                          MOST_NODES);
    }
    if (node < 0) return FM_OK; /* the device is near no node */
    unsigned long nodes = 1ul << node;
    long rc = syscall(SYS_set_mempolicy, MPOL_PREFERRED, &nodes, (unsigned long)MOST_NODES + 1);
    if (rc == 0 || errno == ENOSYS) return FM_OK; /* no NUMA: all memory is equally near */
    return fm_fail(reterr, FM_ERR_IO, "the system refuses memory of node %ld: %s", node,
                   strerror(errno));
}

/* Binds this thread to those cores of a list that it may use. */
static fm_status use_cores(const char *path, const char *line, int *ret_n, fm_error *reterr) {
    cpu_set_t near, allowed, both;
    *ret_n = 0;
    if (!*line) return FM_OK; /* the device is near no core */
    if (!fm_cores_parse(line, &near)) {
        return fm_fail_in(reterr, FM_ERR_FORMAT, path,
                          "found '%.32s', expected a list of cores as \"0-3,8\"", line);
    }
    bool is_known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
    if (is_known) CPU_AND(&both, &near, &allowed);
    if (is_known && CPU_COUNT(&both) == 0) return FM_OK;
    if (!is_known || sched_setaffinity(0, sizeof both, &both) < 0) {
        return fm_fail(reterr, FM_ERR_IO, "the system refuses the cores near the device: %s",
                       strerror(errno));
    }
    *ret_n = CPU_COUNT(&both);
    return FM_OK;
}

fm_status fm_cores_bind_near(const char *devices, const char *bus, int *ret_n, fm_error *reterr) {
    char path[PATH_MAX], line[LINE_BYTES];
    fm_status status;
    int n = 0;
    path_of(devices, bus, "local_cpulist", path);
    if (read_line(path, line, &status, reterr)) status = use_cores(path, line, &n, reterr);
    path_of(devices, bus, "numa_node", path);
    if (!status && n && read_line(path, line, &status, reterr)) {
        status = prefer_node(path, line, reterr);
    }
    if (!status) *ret_n = n;
    return status;
}

bool fm_cores_divide(const cpu_set_t *all, int32_t number, int32_t n, cpu_set_t *ret_part) {
    const int n_core = CPU_COUNT(all);
    if (n_core < n) return false;
    const int first = n_core * number / n, end = n_core * (number + 1) / n;
    CPU_ZERO(ret_part);
    for (int core = 0, seen = 0; core < CPU_SETSIZE && seen < end; core++) {
        if (!CPU_ISSET(core, all)) continue;
        if (seen++ >= first) CPU_SET(core, ret_part);
    }
    return true;
}
