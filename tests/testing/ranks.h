/* ranks.h: runs the ranks of a test as processes, one GPU each. */
#ifndef FM_TESTING_RANKS_H
#define FM_TESTING_RANKS_H

#include <stdint.h>

enum { FM_TEST_RANKS = 16 };

/* What a rank does; returns its exit status. `address` is where the ranks meet (dist/meeting.h). */
typedef int (*fm_test_rank)(int32_t rank, const char *address, void *context);

/* Forks `size` processes, which call `work`, and waits for all of them. Call it before anything
 * has used CUDA. Each process sees all GPUs, with the one of its rank first. A rank that fails
 * or does not end within `seconds` ends the others. Fills exits[size]: exit statuses, or 128
 * and the number of the signal. Returns the largest, 77 when a rank skips (77), or 1 when no
 * process can be made. */
int fm_test_run_ranks(int32_t size, fm_test_rank work, void *context, unsigned seconds, int *exits);

#endif
