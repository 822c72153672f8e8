/* machine.h: what a program finds when it starts: its standard descriptors and its memory. */
#ifndef FM_BASE_MACHINE_H
#define FM_BASE_MACHINE_H

#include <stdint.h>

/* Opens the standard descriptors that were closed when the program started on /dev/null, so that no
 * file of the program becomes its standard output. Reading gives the end of input. Writing results
 * to a standard output that was closed still fails (EBADF), so that lost results are an error; what
 * is written to a closed standard error is dropped. Call it first in main. */
void fm_machine_open_standard(void);

/* Bytes of memory that this process may use: that of the machine, or less where its control group
 * has a limit. UINT64_MAX when the system does not say. */
uint64_t fm_machine_memory(void);

#endif
