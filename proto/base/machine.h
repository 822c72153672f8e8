/* machine.h: what a program finds when it starts: its standard descriptors and signals, its memory,
 * and the ID of its own build. */
#ifndef FM_BASE_MACHINE_H
#define FM_BASE_MACHINE_H

#include <stdint.h>

/* Call it first in main; it mends what the program that started this one may have left.
 *
 * Standard descriptors that are closed are opened on /dev/null, so that no file of the program
 * becomes its standard output. Reading gives the end of input. Writing results to a standard output
 * that was closed still fails (EBADF), so that lost results are an error. What is written to a
 * closed standard error is dropped.
 *
 * Where SIGCHLD is ignored, the system forgets the children that end, and whoever waits for them
 * learns nothing. It gets its default. */
void fm_machine_begin(void);

/* Bytes of memory that this process may use: that of the machine, or less where its control group,
 * or one above it, has a limit. UINT64_MAX when the system does not say. */
uint64_t fm_machine_memory(void);

/* The least memory limit of the groups that the list of a process names, and of those above them;
 * UINT64_MAX = none. `list` is /proc/self/cgroup and `root` /sys/fs/cgroup; tests have others. */
uint64_t fm_machine_group_limit(const char *list, const char *root);

/* A default that fits the machine: `wanted` bytes, or `share` (0..1) of the memory of `machine`
 * bytes where that is less, but at least `least`. */
uint64_t fm_machine_fit(uint64_t wanted, uint64_t machine, double share, uint64_t least);

/* Writes the build ID that the linker gave this program, 40 hexadecimal digits: programs of other
 * code have another one. "" = it has none. */
enum { FM_MACHINE_BUILD_BYTES = 41 };
void fm_machine_build(char out[FM_MACHINE_BUILD_BYTES]);

#endif
