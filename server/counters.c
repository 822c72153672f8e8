/* counters.c: see counters.h. */
#include "server/counters.h"

const fm_counter_row fm_counter_rows[FM_N_COUNTER] = {
#define FM_COUNTER_ROW(id, kind, name, help) {name, help, FM_##kind},
    FM_COUNTER_ROWS(FM_COUNTER_ROW)
#undef FM_COUNTER_ROW
};
