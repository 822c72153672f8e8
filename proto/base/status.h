/* status.h: how every fallible function of foldmill reports.
 *
 * The user's or the world's fault is a fm_status with, where the caller wants words, a fm_error:
 * one sentence that says where, what was found and what was expected. Our own fault is an assert.
 * Library code never exits and never prints.
 *
 * Conventions: outputs (`ret_x`) are written on success only; `reterr` comes last, may be NULL, and
 * is written on failure only. */
#ifndef FM_BASE_STATUS_H
#define FM_BASE_STATUS_H

#include <stddef.h>
#include <stdint.h>

#define FM_MUST_USE __attribute__((warn_unused_result))
#define FM_PRINTF(format_index, first_index)                                                       \
    __attribute__((format(printf, format_index, first_index)))

/* Callers branch on the kind; people read the message. Values are stable: they cross the wire in
 * ERROR frames. */
typedef enum fm_status {
    FM_OK = 0,
    FM_ERR_FORMAT = 1,      /* the input breaks its format's rules */
    FM_ERR_LIMIT = 2,       /* the input is lawful but larger than a limit of proto/limits.h */
    FM_ERR_IO = 3,          /* the operating system refused a read, write, open ... */
    FM_ERR_NOMEM = 4,       /* memory ran out */
    FM_ERR_NOT_FOUND = 5,   /* a named thing does not exist */
    FM_ERR_UNSUPPORTED = 6, /* lawful, but this build or version does not do it */
    FM_ERR_CORRUPT = 7, /* stored or received bytes do not match their checksum or declared shape */
    FM_ERR_PROTOCOL = 8,   /* the peer broke the wire protocol */
    FM_ERR_CLOSED = 9,     /* the peer or stream is gone */
    FM_ERR_CANCELLED = 10, /* stopped on request */
    FM_ERR_USAGE = 11,     /* a bad argument or option from the user */
    FM_ERR_EXISTS = 12,    /* would overwrite something that must not be overwritten */
    FM_ERR_DATA = 13, /* well-formed parts that contradict each other (lengths, ids, sequences) */
} fm_status;

/* The kind as a lower-case word ("format", "io", ...), never NULL; "unknown" for other values. */
const char *fm_status_name(fm_status status);

enum { FM_ERROR_SOURCE_BYTES = 256, FM_ERROR_MESSAGE_BYTES = 512 };

/* Where and why. line and column are 1-based, 0 = not known; offset is in bytes from the start of
 * the (decompressed) source and only meaningful when line or offset is non-zero. */
typedef struct fm_error {
    fm_status status;
    uint64_t line, column, offset;
    char source[FM_ERROR_SOURCE_BYTES]; /* file name or peer, "" = not known; filled by whoever
                                           knows it */
    char message[FM_ERROR_MESSAGE_BYTES];
} fm_error;

/* Fills *reterr (when not NULL) without a place and returns `status`: `return fm_fail(reterr,
 * FM_ERR_IO, "...")`. */
fm_status fm_fail(fm_error *reterr, fm_status status, const char *format, ...) FM_PRINTF(3, 4);

/* The same with a place. */
fm_status fm_fail_at(fm_error *reterr, fm_status status, uint64_t line, uint64_t column,
                     uint64_t offset, const char *format, ...) FM_PRINTF(6, 7);

/* The same with a source and no place. */
fm_status fm_fail_in(fm_error *reterr, fm_status status, const char *source, const char *format,
                     ...) FM_PRINTF(4, 5);

/* Callers go through these, so that the compiler sees which status comes back, and with it that an
 * output is written whenever FM_OK is returned. `status` is evaluated twice. */
static inline fm_status fm_failed(fm_status filled, fm_status status) {
    (void)filled;
    return status;
}
#define fm_fail(reterr, status, ...) fm_failed(fm_fail(reterr, status, __VA_ARGS__), status)
#define fm_fail_in(reterr, status, ...) fm_failed(fm_fail_in(reterr, status, __VA_ARGS__), status)
#define fm_fail_at(reterr, status, ...) fm_failed(fm_fail_at(reterr, status, __VA_ARGS__), status)

/* Names the source of an error that came from code which saw bytes only; keeps a source that is
 * already there. Returns the error's status. Control bytes of `source` are replaced by '?'. */
fm_status fm_error_in(fm_error *reterr, const char *source);

/* "source:line:column: message" into out[0..out_bytes-1], or "source:byte OFFSET: message" where
 * there are no lines; parts that are not known are left out; always terminated. */
void fm_error_format(const fm_error *error, char *out, size_t out_bytes);

#endif
