/* cancel.h: how a caller ends a wait that it has begun. The wait asks several times a second,
 * because a signal may reach another thread than the one that waits. */
#ifndef FM_BASE_CANCEL_H
#define FM_BASE_CANCEL_H

#include <stdbool.h>
#include <stdint.h>

enum { FM_CANCEL_LOOK_MS = 200 }; /* between two questions */

/* All zero: the wait is never cancelled. */
typedef struct fm_cancel {
    bool (*is_asked)(void *context);
    void *context;
} fm_cancel;

static inline bool fm_cancel_is_asked(const fm_cancel *cancel) {
    return cancel->is_asked && cancel->is_asked(cancel->context);
}

/* The part of a wait for `left_ms` until the next question. */
static inline uint64_t fm_cancel_slice_ms(const fm_cancel *cancel, uint64_t left_ms) {
    return cancel->is_asked && left_ms > FM_CANCEL_LOOK_MS ? FM_CANCEL_LOOK_MS : left_ms;
}

#endif
