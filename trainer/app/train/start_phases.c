/* start_phases.c: see start_phases.h. */
#include "trainer/app/train/start_phases.h"

#include <stdio.h>

void fm_start_phases_mark(fm_start_phases *phases, fm_start_phase phase, uint64_t now_ns) {
    phases->spent_ns[phase] += now_ns - phases->marked_ns;
    phases->marked_ns = now_ns;
}

void fm_start_phases_format(const fm_start_phases *phases, char out[FM_START_TEXT_BYTES]) {
    static const char *const names[FM_START_PHASES] = {"command", "meeting", "device", "links",
                                                       "model",   "data",    "checks", "step"};
    size_t n = (size_t)snprintf(out, FM_START_TEXT_BYTES, "after_s=%.2f",
                                (double)(phases->marked_ns - phases->began_ns) * 1e-9);
    for (int i = 0; i < FM_START_PHASES && n < FM_START_TEXT_BYTES; i++) {
        n += (size_t)snprintf(out + n, FM_START_TEXT_BYTES - n, " %s_s=%.2f", names[i],
                              (double)phases->spent_ns[i] * 1e-9);
    }
}
