/* check.cu: the message of a failing call; see check.cuh. */
#include "trainer/backend/cuda/core/check.cuh"
#include "trainer/backend/where.h"

#include <stdio.h>
#include <stdlib.h>

namespace fm_cuda {

void call_failed(const char *call, const char *why, const char *file, int line) {
    fm_backend_where where = fm_backend_get_where();
    fprintf(stderr, "CUDA: %s:%d: %s: %s; in op %s%s%s%s, training step %llu\n", file, line, call,
            why, where.op ? where.op : "(none)", where.module ? " (" : "",
            where.module ? where.module : "", where.module ? ")" : "",
            (unsigned long long)where.step);
    abort();
}

} // namespace fm_cuda
