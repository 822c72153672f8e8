/* build_plan.h: `foldmill build --dry-run`: what a build would read, and what does not fit. */
#ifndef FM_CLI_BUILD_PLAN_H
#define FM_CLI_BUILD_PLAN_H

#include "cache/source/source.h"
#include "cache/build/space.h"

#include <stdio.h>

/* The room that a build needs, on a line: "room about 1.2 GB for 12 chains; 30.0 GB are free in
 * DIR". cache may be NULL. */
void fm_build_print_room(FILE *out, const fm_space *space, const char *cache);

/* Prints to stdout what was recognised, a line for each chain ("chain NAME <tab> structure <tab>
 * files with their bytes, or why it is refused"), every problem, and totals. Opens no file, but
 * lists every folder. Returns the exit code: 0 even when there are problems, 1 when there is
 * nothing to build. */
int fm_build_dry_run(const fm_source *source, fm_arena *arena);

/* The lists of a dataset, a line each: "chain data PATH: N chains". */
void fm_build_print_lists(FILE *out, const fm_source_dataset *dataset);

#endif
