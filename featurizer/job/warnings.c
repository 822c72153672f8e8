/* warnings.c: see warnings.h. */
#include "featurizer/job/warnings.h"

#include "proto/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void fm_job_warn(fm_arena *arena, fm_job_warnings *warnings, const char *path, const char *format,
                 ...) {
    char message[FM_ERROR_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    size_t room = strlen(path) + strlen(message) + 3;
    char *text = warnings->n < FM_JOB_WARNINGS ? fm_arena_alloc(arena, room) : NULL;
    if (!text) {
        warnings->n_dropped++;
        return;
    }
    snprintf(text, room, "%s%s%s", path, path[0] ? ": " : "", message);
    fm_utf8_make_plain(text);
    warnings->texts[warnings->n++] = text;
}
