/* status.c: error values; see status.h. */
#include "proto/base/status.h"

#include "proto/base/held_folder.h"
#include "proto/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *fm_status_name(fm_status status) {
    static const char *const names[] = {
        [FM_OK] = "ok",
        [FM_ERR_FORMAT] = "format",
        [FM_ERR_LIMIT] = "limit",
        [FM_ERR_IO] = "io",
        [FM_ERR_NOMEM] = "memory",
        [FM_ERR_NOT_FOUND] = "not found",
        [FM_ERR_UNSUPPORTED] = "unsupported",
        [FM_ERR_CORRUPT] = "corrupt",
        [FM_ERR_PROTOCOL] = "protocol",
        [FM_ERR_CLOSED] = "closed",
        [FM_ERR_CANCELLED] = "cancelled",
        [FM_ERR_USAGE] = "usage",
        [FM_ERR_EXISTS] = "exists",
        [FM_ERR_DATA] = "data",
        [FM_ERR_DENIED] = "denied",
    };
    size_t i = (size_t)status;
    return i < sizeof names / sizeof names[0] ? names[i] : "unknown";
}

static void fill(fm_error *error, fm_status status, const char *format, va_list arguments) {
    error->status = status;
    error->line = error->column = error->offset = 0;
    error->source[0] = '\0';
    vsnprintf(error->message, sizeof error->message, format, arguments);
    /* Messages may quote input bytes. Control bytes must not reach a terminal or a log, and bytes
     * that are not text must not reach a catalogue or a JSON report. */
    fm_utf8_make_plain(error->message);
}

fm_status(fm_fail)(fm_error *reterr, fm_status status, const char *format, ...) {
    if (reterr) {
        va_list arguments;
        va_start(arguments, format);
        fill(reterr, status, format, arguments);
        va_end(arguments);
    }
    return status;
}

fm_status(fm_fail_at)(fm_error *reterr, fm_status status, uint64_t line, uint64_t column,
                      uint64_t offset, const char *format, ...) {
    if (reterr) {
        va_list arguments;
        va_start(arguments, format);
        fill(reterr, status, format, arguments);
        va_end(arguments);
        reterr->line = line;
        reterr->column = column;
        reterr->offset = offset;
    }
    return status;
}

fm_status(fm_fail_in)(fm_error *reterr, fm_status status, const char *source, const char *format,
                      ...) {
    if (reterr) {
        va_list arguments;
        va_start(arguments, format);
        fill(reterr, status, format, arguments);
        va_end(arguments);
        fm_error_in(reterr, source);
    }
    return status;
}

fm_status fm_error_in(fm_error *reterr, const char *source) {
    if (reterr->source[0] == '\0' && source) {
        fm_held_folder_show(source, reterr->source, sizeof reterr->source);
        fm_utf8_make_plain(reterr->source);
    }
    return reterr->status;
}

void fm_error_format(const fm_error *error, char *out, size_t out_bytes) {
    if (out_bytes == 0) return;
    const char *colon = error->source[0] ? ":" : "";
    if (error->line) {
        /* An error of a whole line is at its first column. */
        snprintf(out, out_bytes, "%s%s%llu:%llu: %s", error->source, colon,
                 (unsigned long long)error->line,
                 (unsigned long long)(error->column ? error->column : 1), error->message);
    } else if (error->offset) {
        snprintf(out, out_bytes, "%s%sbyte %llu: %s", error->source, colon,
                 (unsigned long long)error->offset, error->message);
    } else {
        snprintf(out, out_bytes, "%s%s%s", error->source, error->source[0] ? ": " : "",
                 error->message);
    }
}
