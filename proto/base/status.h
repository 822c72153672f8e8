/* status.h: the error reporting of every fallible function.
 *
 * An error of the user or the world is reported as a fm_status and, for callers that want words, a
 * fm_error. Its one sentence names the place, the finding and the expectation. Our own mistakes
 * assert. Library code never exits and never prints.
 *
 * Conventions: outputs (`ret_x`) are written on success only. `reterr` is the last parameter, may
 * be NULL and is written on failure only. */
#ifndef FM_BASE_STATUS_H
#define FM_BASE_STATUS_H

#include <stddef.h>
#include <stdint.h>

#define FM_MUST_USE __attribute__((warn_unused_result))
#define FM_PRINTF(format_index, first_index)                                                       \
    __attribute__((format(printf, format_index, first_index)))

/* Programs branch on the kind; people read the message. The values are stable, because ERROR frames
 * carry them over the wire. */
typedef enum fm_status {
    FM_OK = 0,
    FM_ERR_FORMAT = 1,      /* the input breaks its format's rules */
    FM_ERR_LIMIT = 2,       /* valid, but larger than a limit of proto/limits.h */
    FM_ERR_IO = 3,          /* the operating system refused a read, write, open ... */
    FM_ERR_NOMEM = 4,       /* memory ran out */
    FM_ERR_NOT_FOUND = 5,   /* a named thing does not exist */
    FM_ERR_UNSUPPORTED = 6, /* valid, but this build or version cannot do it */
    /* Stored or received bytes do not match their checksum or declared shape. */
    FM_ERR_CORRUPT = 7,
    FM_ERR_PROTOCOL = 8,   /* the peer broke the wire protocol */
    FM_ERR_CLOSED = 9,     /* the peer or stream is gone */
    FM_ERR_CANCELLED = 10, /* stopped on request */
    FM_ERR_USAGE = 11,     /* a bad argument or option from the user */
    FM_ERR_EXISTS = 12,    /* would overwrite a file that must not be overwritten */
    /* Well-formed parts contradict each other (lengths, ids, sequences). */
    FM_ERR_DATA = 13,
    FM_ERR_DENIED = 14, /* the peer may not, or is not who it must be */
} fm_status;

/* Returns the kind as lower-case words ("format", "io", ...), never NULL; "unknown" for other
 * values. */
const char *fm_status_name(fm_status status);

enum { FM_ERROR_SOURCE_BYTES = 256, FM_ERROR_MESSAGE_BYTES = 512 };

/* Where and why. line and column count from 1; 0 means not known. offset is in bytes from the start
 * of the (decompressed) source and is meaningful only when line or offset is non-zero. */
typedef struct fm_error {
    fm_status status;
    uint64_t line, column, offset;
    /* File name or peer, "" when not known. The first function that knows it fills it in. */
    char source[FM_ERROR_SOURCE_BYTES];
    char message[FM_ERROR_MESSAGE_BYTES];
} fm_error;

/* Fills *reterr (when not NULL) without a place and returns `status`, for use as `return
 * fm_fail(reterr, FM_ERR_IO, "...")`. */
fm_status fm_fail(fm_error *reterr, fm_status status, const char *format, ...) FM_PRINTF(3, 4);

/* Does the same with a place. */
fm_status fm_fail_at(fm_error *reterr, fm_status status, uint64_t line, uint64_t column,
                     uint64_t offset, const char *format, ...) FM_PRINTF(6, 7);

/* Does the same with a source and no place. */
fm_status fm_fail_in(fm_error *reterr, fm_status status, const char *source, const char *format,
                     ...) FM_PRINTF(4, 5);

/* Calls go through these macros, so that the compiler sees which status is returned and knows that
 * outputs are written whenever FM_OK is. `status` is evaluated twice. */
static inline fm_status fm_failed(fm_status filled, fm_status status) {
    (void)filled;
    return status;
}
#define fm_fail(reterr, status, ...) fm_failed(fm_fail(reterr, status, __VA_ARGS__), status)
#define fm_fail_in(reterr, status, ...) fm_failed(fm_fail_in(reterr, status, __VA_ARGS__), status)
#define fm_fail_at(reterr, status, ...) fm_failed(fm_fail_at(reterr, status, __VA_ARGS__), status)

/* Sets the source of an error from code that saw only bytes; a source that is already set stays.
 * Returns the error's status. Control bytes of `source` are replaced by '?'. */
fm_status fm_error_in(fm_error *reterr, const char *source);

/* Writes "source:line:column: message", or "source:byte OFFSET: message" where there are no lines,
 * into out[0..out_bytes-1]. Unknown parts are omitted. The result is always terminated. */
void fm_error_format(const fm_error *error, char *out, size_t out_bytes);
/* Room for any such text, the NUL included. */
enum { FM_ERROR_TEXT_BYTES = FM_ERROR_SOURCE_BYTES + FM_ERROR_MESSAGE_BYTES + 64 };

#endif
