/* program.h: how the programs end: their exit codes, and the report of an error. */
#ifndef FM_BASE_PROGRAM_H
#define FM_BASE_PROGRAM_H

#include "proto/base/status.h"

/* Partial: done in part, for example because some inputs were refused. */
enum { FM_EXIT_OK = 0, FM_EXIT_FAILED = 1, FM_EXIT_USAGE = 2, FM_EXIT_PARTIAL = 3 };

/* Prints "NAME: source:line:column: message" to stderr and returns the exit code for the error's
 * kind: FM_EXIT_USAGE for FM_ERR_USAGE, else FM_EXIT_FAILED. `name` is the program or command. */
int fm_program_report(const char *name, const fm_error *error);

#endif
