/* exact.c: see exact.h. */
#include "proto/base/exact.h"

#include <stdio.h>
#include <stdlib.h>

void fm_exact_f64(double value, int least, char out[FM_EXACT_BYTES]) {
    for (int digits = least; digits <= 17; digits++) {
        snprintf(out, FM_EXACT_BYTES, "%.*g", digits, value);
        if (strtod(out, NULL) == value) return;
    }
}

void fm_exact_f32(float value, int least, char out[FM_EXACT_BYTES]) {
    for (int digits = least; digits <= 9; digits++) {
        snprintf(out, FM_EXACT_BYTES, "%.*g", digits, (double)value);
        if (strtof(out, NULL) == value) return;
    }
}
