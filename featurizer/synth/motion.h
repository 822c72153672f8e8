/* motion.h: rigid motions, and placing one set of points against another. */
#ifndef FM_SYNTH_MOTION_H
#define FM_SYNTH_MOTION_H

#include "featurizer/synth/draw.h"
#include "proto/chem/geometry.h"

/* The three rows of a rotation matrix, then a translation (Å). */
typedef struct fm_synth_motion {
    fm_vec3 rows[3], shift;
} fm_synth_motion;

/* Atoms in space, Å. */
typedef struct fm_synth_points {
    fm_vec3 *at; /* [n], room for more is the owner's */
    uint32_t n;
} fm_synth_points;

fm_vec3 fm_synth_move(const fm_synth_motion *motion, fm_vec3 p);

/* Draws a uniformly random rotation, and a translation of up to 60 Å along each axis. */
fm_synth_motion fm_synth_draw_motion(fm_synth_draws *draws);

/* Returns how far (Å) `moving`, shifted by `shift`, must go along the unit vector `way` until it
 * is beyond `fixed`, with no two points closer than `apart` and one pair exactly that close.
 * Returns 0 where the way meets no point. */
double fm_synth_clearance(const fm_synth_points *fixed, const fm_synth_points *moving,
                          fm_vec3 shift, fm_vec3 way, double apart);

/* Returns the shift that puts `moving` in contact with `fixed`, at a drawn place of its surface:
 * the closest pair of points is `apart` Å apart. Both have points. */
fm_vec3 fm_synth_dock(fm_synth_draws *draws, const fm_synth_points *fixed,
                      const fm_synth_points *moving, double apart);

#endif
