/* doctor.h: foldmill doctor: looks at the machine, and says what will not work and what to do.
 *
 * Each check appends findings. It reads only: no file, setting or device is changed. */
#ifndef FM_TRAINER_DOCTOR_H
#define FM_TRAINER_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

/* Runs the command; argv[0] is its name. Returns the exit code: 1 when something will not work. */
int fm_doctor_main(int argc, char **argv);

typedef enum fm_finding_state {
    FM_FINDING_OK,
    FM_FINDING_SLOW, /* works, but worse than it could */
    FM_FINDING_BAD,  /* something will not work */
} fm_finding_state;

typedef struct fm_finding {
    fm_finding_state state;
    char what[24];    /* "processor", "limits", ... */
    char found[200];  /* a sentence or a list of facts */
    char advice[240]; /* what to do; "" for FM_FINDING_OK */
} fm_finding;

enum { FM_FINDINGS_MAX = 96 };

typedef struct fm_findings {
    fm_finding item[FM_FINDINGS_MAX];
    uint32_t n;
    uint32_t n_left_out; /* beyond the maximum */
} fm_findings;

/* Appends a finding; `found` is a format of printf. */
#if defined(__GNUC__)
__attribute__((format(printf, 5, 6)))
#endif
void fm_findings_add(fm_findings *findings, fm_finding_state state, const char *what,
                     const char *advice, const char *found, ...);

/* Processor, memory, limits of the process, shared memory, clock (checks_machine.c). */
void fm_doctor_check_machine(fm_findings *findings);

/* The driver, GPUs and their memory, links between them, NCCL, and whether this program computes on
 * them (checks_gpu.c). A machine without GPUs is no fault unless one is wanted. */
void fm_doctor_check_gpus(fm_findings *findings, bool is_wanted);

/* A folder with a cache or for a run: free space, and the speed of reading its largest file,
 * without what is in memory already (checks_storage.c). */
void fm_doctor_check_folder(fm_findings *findings, const char *path);

/* Another host: the time to connect to the address `text`: `HOST:PORT`, `unix:PATH`, `tls://...` or
 * `tcp://...` (checks_storage.c). */
void fm_doctor_check_host(fm_findings *findings, const char *text);

#endif
