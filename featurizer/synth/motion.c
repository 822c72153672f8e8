/* motion.c: see motion.h. */
#include "featurizer/synth/motion.h"

#include <assert.h>
#include <math.h>

fm_vec3 fm_synth_move(const fm_synth_motion *motion, fm_vec3 p) {
    fm_vec3 turned = {fm_vec3_dot(motion->rows[0], p), fm_vec3_dot(motion->rows[1], p),
                      fm_vec3_dot(motion->rows[2], p)};
    return fm_vec3_add(turned, motion->shift);
}

/* The rotation is that of a unit quaternion (four uniforms inside the unit ball). */
fm_synth_motion fm_synth_draw_motion(fm_synth_draws *draws) {
    double q[4], square;
    do {
        square = 0;
        for (unsigned i = 0; i < 4; i++) {
            q[i] = 2 * fm_synth_draw_real(draws) - 1;
            square += q[i] * q[i];
        }
    } while (square > 1 || square < 0.01);
    double scale = 1.0 / sqrt(square);
    double w = q[0] * scale, x = q[1] * scale, y = q[2] * scale, z = q[3] * scale;
    fm_synth_motion motion;
    motion.rows[0] = (fm_vec3){1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)};
    motion.rows[1] = (fm_vec3){2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)};
    motion.rows[2] = (fm_vec3){2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)};
    for (unsigned i = 0; i < 3; i++) {
        double at = 120 * fm_synth_draw_real(draws) - 60;
        *(i == 0 ? &motion.shift.x : i == 1 ? &motion.shift.y : &motion.shift.z) = at;
    }
    return motion;
}

double fm_synth_clearance(const fm_synth_points *fixed, const fm_synth_points *moving,
                          fm_vec3 shift, fm_vec3 way, double apart) {
    double clearance = 0;
    bool met = false;
    for (uint32_t i = 0; i < moving->n; i++) {
        fm_vec3 m = fm_vec3_add(moving->at[i], shift);
        for (uint32_t k = 0; k < fixed->n; k++) {
            fm_vec3 d = fm_vec3_sub(fixed->at[k], m);
            double along = fm_vec3_dot(d, way);
            double aside = fm_vec3_dot(d, d) - along * along;
            if (aside >= apart * apart) continue;
            double beyond = along + sqrt(apart * apart - aside);
            if (!met || beyond > clearance) clearance = beyond;
            met = true;
        }
    }
    return clearance;
}

static fm_vec3 middle_of(const fm_synth_points *points) {
    fm_vec3 sum = {0, 0, 0};
    for (uint32_t i = 0; i < points->n; i++)
        sum = fm_vec3_add(sum, points->at[i]);
    return fm_vec3_scale(sum, 1.0 / points->n);
}

fm_vec3 fm_synth_dock(fm_synth_draws *draws, const fm_synth_points *fixed,
                      const fm_synth_points *moving, double apart) {
    assert(fixed->n > 0 && moving->n > 0);
    /* Two drawn atoms are put on each other, so the way out meets at least one atom. */
    fm_vec3 at = fixed->at[fm_synth_draw_below(draws, fixed->n)];
    fm_vec3 mine = moving->at[fm_synth_draw_below(draws, moving->n)];
    fm_vec3 out = fm_vec3_sub(at, middle_of(fixed)), shift = fm_vec3_sub(at, mine);
    double length = sqrt(fm_vec3_dot(out, out));
    fm_vec3 way = length > 0.1 ? fm_vec3_scale(out, 1 / length) : (fm_vec3){1, 0, 0};
    double far = fm_synth_clearance(fixed, moving, shift, way, apart);
    return fm_vec3_add(shift, fm_vec3_scale(way, far));
}
