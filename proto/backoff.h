/* backoff.h: how long a client waits before it asks a server again that has no room for it.
 *
 * Pauses begin at half a second and double up to 16 s. Each is changed at random by up to a
 * quarter, so that the ranks of a job do not return all at once. */
#ifndef FM_BACKOFF_H
#define FM_BACKOFF_H

#include <stdint.h>

typedef struct fm_backoff {
    uint64_t begin_ns, limit_ms;
    uint32_t n_attempt; /* pauses so far */
} fm_backoff;

/* Returns a backoff that begins at now_ns; the last attempt is due limit_ms later. */
fm_backoff fm_backoff_begin(uint64_t limit_ms, uint64_t now_ns);

/* Returns the pause before the next attempt in milliseconds; 0 when the time is up. */
uint32_t fm_backoff_next(fm_backoff *backoff, uint64_t now_ns);

#endif
