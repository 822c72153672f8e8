/* cancel.h: how a caller ends a wait that it has begun. The wait asks several times a second
 * whether it is cancelled, because a signal may reach another thread than the one that waits.
 * Functions take a const fm_cancel *, and NULL or all zero means that nobody cancels. */
#ifndef FM_BASE_CANCEL_H
#define FM_BASE_CANCEL_H

#include <stdbool.h>
#include <stdint.h>

enum { FM_CANCEL_LOOK_MS = 200 }; /* between two questions */

typedef struct fm_cancel {
    bool (*is_asked)(void *context);
    void *context;
} fm_cancel;

static inline bool fm_cancel_is_asked(const fm_cancel *cancel) {
    return cancel && cancel->is_asked && cancel->is_asked(cancel->context);
}

/* The part of a wait for `left_ms` until the next question. */
static inline uint64_t fm_cancel_slice_ms(const fm_cancel *cancel, uint64_t left_ms) {
    const uint64_t look_ms = FM_CANCEL_LOOK_MS;
    bool may_be = cancel && cancel->is_asked;
    return may_be && left_ms > look_ms ? look_ms : left_ms;
}

#endif
