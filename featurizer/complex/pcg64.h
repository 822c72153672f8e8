/* pcg64.h: NumPy's default generator, for the one choice of the reference that draws with it.
 *
 * PCG XSL-RR 128/64 (O'Neill 2014), seeded by NumPy's SeedSequence. Our own draws come from Philox
 * (proto/base/rng.h). */
#ifndef FM_COMPLEX_PCG64_H
#define FM_COMPLEX_PCG64_H

#include <stdint.h>

/* Shuffles items as numpy.random.default_rng(seed).shuffle does. */
void fm_pcg64_shuffle(uint32_t seed, uint32_t *items, uint32_t n);

#endif
