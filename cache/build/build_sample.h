/* build_sample.h: measures, before a build of complexes, what a sample of them takes.
 *
 *     some structures with new complexes, evenly spread -> a worker of a build -> counted, dropped
 *
 * The worker makes the same parts as a build would, of the complexes and of the chains of their
 * structures. It writes nothing. space.h scales what was measured by the sizes of files. */
#ifndef FM_CACHE_BUILD_SAMPLE_H
#define FM_CACHE_BUILD_SAMPLE_H

#include "cache/build/build.h"
#include "cache/build/space.h"

typedef struct fm_build_sample {
    uint32_t n_structure;          /* measured */
    uint32_t n_complex, n_refused; /* of these, complexes made and refused */
    uint64_t n_token;              /* of the complexes made */
    uint64_t input_bytes;          /* size of their files, as fm_space_estimate counts them */
    uint64_t stored_bytes;         /* that the parts and their notes would take in a cache */
    uint64_t component_bytes;      /* the same of the components that the cache does not have */
    double seconds;                /* of one worker */
} fm_build_sample;

/* Measures at most 64 structures, and begins no other after `seconds`. The options are those of the
 * build. options->cache may be NULL; its parts and its components count as there. FM_ERR_USAGE when
 * neither the options nor the cache have components, else errors of a build. */
FM_MUST_USE fm_status fm_build_measure(const fm_source *source, const fm_build_options *options,
                                       double seconds, fm_arena *arena, fm_build_sample *ret_sample,
                                       fm_error *reterr);

/* Replaces the estimate for structures with new complexes by what the sample needs for as many
 * bytes of files, and a fifth more, and adds the components. An empty sample changes nothing. */
void fm_build_sample_apply(const fm_build_sample *sample, fm_space *space);

/* Seconds that such structures take n workers, without waiting for the disk. */
double fm_build_sample_seconds(const fm_build_sample *sample, const fm_space *space,
                               uint32_t n_job);

#endif
