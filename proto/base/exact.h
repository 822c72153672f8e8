/* exact.h: writes numbers with as few digits as read back to the same bits. */
#ifndef FM_BASE_EXACT_H
#define FM_BASE_EXACT_H

enum { FM_EXACT_BYTES = 32 };

/* Writes a finite value as %g does, with at least `least` digits of precision, and as many more as
 * strtod needs to return the value (at most 17). */
void fm_exact_f64(double value, int least, char out[FM_EXACT_BYTES]);
/* The same for a float, which takes at most 9 digits. */
void fm_exact_f32(float value, int least, char out[FM_EXACT_BYTES]);

#endif
