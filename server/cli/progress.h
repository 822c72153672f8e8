/* progress.h: the line on standard error that shows how far a command is. */
#ifndef FM_CLI_PROGRESS_H
#define FM_CLI_PROGRESS_H

#include "proto/base/status.h"

#include <stdbool.h>

/* True when standard error is a terminal, on which a line can be drawn again and again. */
bool fm_progress_has_terminal(void);

/* Draws the line in place of the one before it, cut to the width of the terminal. */
void fm_progress_draw(const char *format, ...) FM_PRINTF(1, 2);

/* Removes the line. */
void fm_progress_clear(void);

/* "1:02:03" for the seconds that are left of a job of which `done` (0 to 1) took `seconds`; "?"
 * while nothing is known. Returns out. */
const char *fm_progress_format_eta(double seconds, double done, char out[32]);

#endif
