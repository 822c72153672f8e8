/* checks_machine.c: the processor, the memory, the limits of this process and the clock. */
#include "proto/base/machine.h"
#include "trainer/app/doctor/doctor.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>

static const double gib = 1073741824.0;

/* The name of the processor from /proc/cpuinfo, or "". */
static void find_processor(char *out, size_t bytes) {
    out[0] = '\0';
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[256];
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        colon += 1 + strspn(colon + 1, " ");
        snprintf(out, bytes, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    if (file) fclose(file);
}

static void check_processor(fm_findings *findings) {
    char name[100];
    find_processor(name, sizeof name);
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    bool has_avx2 = __builtin_cpu_supports("avx2"), has_512 = __builtin_cpu_supports("avx512bw");
    fm_findings_add(findings, has_avx2 ? FM_FINDING_OK : FM_FINDING_SLOW, "processor",
                    "without AVX2 the portable code runs; use another machine for large builds",
                    "%s%s%d core%s usable, %s", name, *name ? ", " : "", cores,
                    cores == 1 ? "" : "s",
                    has_512    ? "AVX-512"
                    : has_avx2 ? "AVX2"
                               : "no AVX2");
}

/* Bytes that the system could give to programs now, from /proc/meminfo; 0 when it does not say. */
static double find_available(void) {
    FILE *file = fopen("/proc/meminfo", "r");
    char line[128];
    unsigned long long kib = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) break;
    }
    if (file) fclose(file);
    return (double)kib * 1024;
}

static void check_memory(fm_findings *findings) {
    double usable = (double)fm_machine_memory(), free_now = find_available();
    bool is_small = usable < 2 * gib;
    char now[48] = "";
    if (free_now > 0) snprintf(now, sizeof now, ", %.1f GiB free", free_now / gib);
    fm_findings_add(findings, is_small ? FM_FINDING_SLOW : FM_FINDING_OK, "memory",
                    "large chains and complexes may be refused for memory", "%.1f GiB usable%s",
                    usable / gib, now);
}

static void check_limits(fm_findings *findings) {
    struct rlimit files, locked;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || getrlimit(RLIMIT_MEMLOCK, &locked) != 0) return;
    bool is_low = files.rlim_cur != RLIM_INFINITY && files.rlim_cur < 4096 &&
                  files.rlim_max != RLIM_INFINITY && files.rlim_max < 4096;
    fm_findings_add(findings, is_low ? FM_FINDING_SLOW : FM_FINDING_OK, "files",
                    "a server of many clients needs more: ulimit -n 65536, or LimitNOFILE= of its "
                    "unit",
                    "%llu open files, %llu at most", (unsigned long long)files.rlim_cur,
                    (unsigned long long)files.rlim_max);
    bool is_locked_low = locked.rlim_cur != RLIM_INFINITY && locked.rlim_cur < (rlim_t)64 << 20;
    char text[48] = "no limit on locked memory";
    if (locked.rlim_cur != RLIM_INFINITY) {
        snprintf(text, sizeof text, "%.0f MiB of locked memory",
                 (double)locked.rlim_cur / (1024 * 1024));
    }
    /* NCCL over InfiniBand registers memory; a machine without it is not hurt. */
    struct statvfs rdma;
    bool has_rdma = statvfs("/sys/class/infiniband", &rdma) == 0;
    fm_findings_add(findings, is_locked_low && has_rdma ? FM_FINDING_BAD : FM_FINDING_OK, "locked",
                    "NCCL cannot use InfiniBand: ulimit -l unlimited, or --ulimit memlock=-1 of a "
                    "container",
                    "%s%s", text, has_rdma ? ", with InfiniBand" : "");
}

/* foldmill's own ranks share memory without files; NCCL makes files there. */
static void check_shared_memory(fm_findings *findings) {
    struct statvfs space;
    bool is_there = statvfs("/dev/shm", &space) == 0;
    double free_bytes = is_there ? (double)space.f_bavail * (double)space.f_frsize : 0;
    fm_findings_add(findings, free_bytes < 64e6 ? FM_FINDING_SLOW : FM_FINDING_OK, "shared",
                    "NCCL needs some between GPUs of one host: --shm-size=1g of a container",
                    "%.2f GiB free in /dev/shm", free_bytes / gib);
}

static void check_clock(fm_findings *findings) {
    struct timex clock = {.modes = 0};
    int state = adjtimex(&clock);
    bool is_wrong = state == TIME_ERROR || (clock.status & STA_UNSYNC);
    fm_findings_add(findings, is_wrong ? FM_FINDING_SLOW : FM_FINDING_OK, "clock",
                    "certificates and leases compare dates: run chrony or systemd-timesyncd, "
                    "unless the host of this container does",
                    "%s", is_wrong ? "not synchronized by this system" : "synchronized");
}

void fm_doctor_check_machine(fm_findings *findings) {
    struct utsname name;
    if (uname(&name) == 0) {
        fm_findings_add(findings, FM_FINDING_OK, "system", "", "%s %s, %s", name.sysname,
                        name.release, name.machine);
    }
    check_processor(findings);
    check_memory(findings);
    check_limits(findings);
    check_shared_memory(findings);
    check_clock(findings);
}
