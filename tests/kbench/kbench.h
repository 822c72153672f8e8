/* kbench.h: the interface between the program kbench (kbench.c) and its cases (kbench_*.cu). A case
 * reports its results as lines of text. */
#ifndef FM_TESTS_KBENCH_H
#define FM_TESTS_KBENCH_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kbench_options {
    const char *const *select; /* parts of names; a case whose name contains one is selected */
    int n_select;
    bool f32;              /* every case on the f32 table */
    bool no_oracle;        /* only times */
    int samples;           /* of a median */
    int repeats;           /* runs more, whose outputs must have the same bits */
    double energy_seconds; /* that each part runs for its energy; 0: not measured */
} kbench_options;

/* Registers the cases, in the order of their files; the number of those selected. Cases whose name
 * begins with "self test" must be selected by it. No device is touched. */
int kbench_select(const kbench_options *options);

/* Case i of the selected ones as the table names it: its name, and its path in brackets. */
const char *kbench_name(int i);

/* In a child process: finds the device and says "device\tNAME\tSMS\tMEMORY_BYTES"; 77 without one,
 * else 0. Then runs a case; lines of tab-separated fields:
 *     error\tERROR\tTOLERANCE\tOUTPUT\tORACLE      of the worst output; ORACLE "none": not compared
 *     energy\tMS\tJOULES\tMHZ           of a call of the next part, when calls go on for seconds
 *     part\tNAME\tWARM_MS\tCOLD_MS\tFLOPS\tBYTES\tPEER_MS   PEER_MS 0: none
 *     failed\tWHY */
int kbench_prepare(int fd);
void kbench_run(int i, int fd);

#ifdef __cplusplus
}
#endif

#endif
