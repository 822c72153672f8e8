/* where.c: see where.h. */
#include "trainer/backend/where.h"

static _Thread_local fm_backend_where here;

void fm_backend_name_op(const char *op, const char *module) {
    here.op = op;
    here.module = module;
}

void fm_backend_name_step(uint64_t step) {
    here.step = step;
}

fm_backend_where fm_backend_get_where(void) {
    return here;
}
