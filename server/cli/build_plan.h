/* build_plan.h: foldmill build --dry-run: lists the inputs that a build would read and those it
 * would refuse. */
#ifndef FM_CLI_BUILD_PLAN_H
#define FM_CLI_BUILD_PLAN_H

#include "cache/build/space.h"
#include "cache/source/source.h"

#include <stdio.h>

/* Prints the disk space that a build needs, on one line. `cache` may be NULL. */
void fm_build_print_room(FILE *out, const fm_space *space, const char *cache);

/* Prints the recognised layout, a line for each chain ("chain NAME <tab> structure <tab> files with
 * their bytes, or why it is refused") and a line for each refused input. The totals and the needed
 * space (`space`, NULL when it is not known) follow. With `json`, prints one object instead;
 * `foldmill build --help` lists its members. Lists every folder but opens no file. Returns the exit
 * code: 0 even where inputs are refused, 1 when there is nothing to build. `single_sequence`
 * and `complexes`: of the build; `takes_empty`: chains without an alignment are built. */
int fm_build_dry_run(const fm_source *source, const fm_space *space, const char *cache, bool json,
                     bool single_sequence, bool complexes, bool takes_empty, fm_arena *arena);

/* Prints the lists of a dataset, one on a line: "chain data PATH: N chains". */
void fm_build_print_lists(FILE *out, const fm_source_dataset *dataset);

#endif
