/* build_plan.h: foldmill build --dry-run: lists the inputs that a build would read and those it
 * would refuse. */
#ifndef FM_CLI_BUILD_PLAN_H
#define FM_CLI_BUILD_PLAN_H

#include "cache/build/build_sample.h"
#include "cache/build/space.h"
#include "cache/source/source.h"

#include <stdio.h>

/* Prints the disk space that a build needs, on one line. `cache` may be NULL. */
void fm_build_print_room(FILE *out, const fm_space *space, const char *cache);

typedef struct fm_build_plan {
    const fm_space *space;         /* the space that is needed; NULL = not known */
    const fm_build_sample *sample; /* NULL: no complexes, or not measured */
    const char
        *not_sampled;  /* why complexes were not measured; NULL = they were, or are not built */
    const char *cache; /* may be NULL */
    uint32_t n_job;
    bool json, single_sequence, complexes; /* of the build */
    bool takes_empty;                      /* chains without an alignment are built */
} fm_build_plan;

/* Prints the recognised layout, a line for each chain ("chain NAME <tab> structure <tab> files with
 * their bytes, or why it is refused") and a line for each refused input. The totals and the needed
 * space and time follow. With `json`, prints one object instead; `foldmill build --help` lists its
 * members. Lists every folder but opens no file. Returns the exit code: 0 even where inputs are
 * refused, 1 when there is nothing to build. */
int fm_build_dry_run(const fm_source *source, const fm_build_plan *plan, fm_arena *arena);

/* Prints the lists of a dataset, one on a line: "chain data PATH: N chains". */
void fm_build_print_lists(FILE *out, const fm_source_dataset *dataset);

#endif
