/* progress.c: see progress.h. */
#include "server/cli/progress.h"

#include "proto/base/options.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

bool fm_progress_has_terminal(void) {
    return isatty(STDERR_FILENO) == 1;
}

void fm_progress_draw(const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    /* A line that reaches the last column would wrap, and \r could not return to its start. */
    fprintf(stderr, "\r\033[K%.*s", fm_options_columns(stderr) - 1, line);
    fflush(stderr);
}

void fm_progress_clear(void) {
    fputs("\r\033[K", stderr);
    fflush(stderr);
}

const char *fm_progress_format_eta(double seconds, double done, char out[32]) {
    if (!(done > 0.0)) return "?";
    unsigned long left = (unsigned long)(seconds * (1.0 - done) / done + 0.5);
    snprintf(out, 32, "%lu:%02lu:%02lu", left / 3600, left / 60 % 60, left % 60);
    return out;
}
