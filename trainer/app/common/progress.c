/* progress.c: see progress.h. */
#include "trainer/app/common/progress.h"

#include "proto/base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { QUIET_STEPS = 10 }; /* without a terminal, a line every so many steps */

/* Columns for a progress line: $COLUMNS, else the terminal's width, else 80, each less the last
 * column, where terminals wrap. A log file without $COLUMNS has no limit (0). */
static size_t progress_columns(bool terminal) {
    const char *given = getenv("COLUMNS");
    long columns = given ? strtol(given, NULL, 10) : 0;
    struct winsize window;
    if (columns <= 0 && terminal) {
        bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
        columns = known ? window.ws_col : 80;
    }
    return columns > 1 ? (size_t)columns - 1 : 0;
}

fm_progress fm_progress_of(uint64_t n_step, bool quiet) {
    return (fm_progress){.n_step = n_step, .quiet = quiet, .terminal = isatty(STDERR_FILENO) == 1};
}

void fm_progress_say(const fm_progress *p, const fm_metrics_step *step) {
    bool last = step->step == p->n_step;
    if (p->quiet || (!p->terminal && step->step != 1 && step->step % QUIET_STEPS != 0 && !last)) {
        return;
    }
    char text[512]; /* a line that wraps could not be erased */
    fm_metrics_format(step, p->n_step, progress_columns(p->terminal), text, sizeof text);
    fprintf(stderr,
            p->terminal && !last ? "\r\033[K%s"
            : p->terminal        ? "\r\033[K%s\n"
                                 : "%s\n",
            text);
}

void fm_progress_cut(char *line) {
    size_t columns = progress_columns(true);
    fm_utf8_make_plain(line);
    if (columns) line[fm_utf8_prefix(line, columns)] = '\0';
}

void fm_progress_end(const fm_progress *p, uint64_t step) {
    if (p->terminal && step < p->n_step) fputc('\n', stderr);
}
