/* fallback.h: counts the calls for which a backend has only a slow path.
 *
 * A kernel that falls back gives correct results, only later, so nothing fails. The backend counts
 * such calls by kind, as do ops that are recorded because it lacks an entry for a shape. It keeps a
 * sentence about the first of each kind; a program prints it once, after its first steps
 * (trainer/app/train/train_step.c). Replays of a captured graph queue no calls and are not counted.
 * Calls of all threads and tables are counted together. */
#ifndef FM_BACKEND_FALLBACK_H
#define FM_BACKEND_FALLBACK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fm_fallback_kind {
    FM_FALLBACK_GEMM,      /* cuBLASLt has no algorithm: the plain kernel multiplies */
    FM_FALLBACK_TRIANGLE,  /* triangle multiplication is composed of other entries */
    FM_FALLBACK_ATTENTION, /* attention without tensor cores */
    FM_FALLBACK_KINDS,
} fm_fallback_kind;

enum { FM_FALLBACK_TEXT = 200 };

typedef struct fm_fallback {
    const char *name;            /* "gemm", "triangle", "attention" */
    uint64_t count;              /* calls that took the slow path; 0: text is empty */
    char text[FM_FALLBACK_TEXT]; /* a sentence about the first of them, without a full stop */
} fm_fallback;

/* Counts a call. The format and its arguments make the sentence; only the first call of a kind
 * uses them. Thread-safe. */
void fm_backend_fall_back(fm_fallback_kind kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A copy of each kind's counter. A program that prints them prints a kind once, when its count is
 * no longer 0. */
void fm_backend_fallbacks(fm_fallback ret_fallbacks[FM_FALLBACK_KINDS]);

#ifdef __cplusplus
}
#endif

#endif
