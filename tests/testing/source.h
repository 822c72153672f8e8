/* source.h: a server's source of invented samples, for tests and benchmarks of serving alone. */
#ifndef FM_TESTS_SOURCE_H
#define FM_TESTS_SOURCE_H

#include "server/source.h"
#include "tests/testing/sample.h"

#include <stdatomic.h>
#include <stdbool.h>

typedef struct fm_test_source {
    fm_test_shape shape;     /* of every sample */
    uint32_t global_batch;   /* of the plan "test", unless the client changes it */
    uint64_t fail_every;     /* indices that are multiples fail; 0 = none */
    const char *fail_source; /* and name this as their source; NULL = none */
    uint64_t slow_every;     /* multiples take slow_ms; 0 = none */
    uint32_t slow_ms;
    uint32_t (*delay_ms)(uint64_t index); /* every sample takes so long more; NULL = none */
    /* Every sample has the bytes of sample 0, which serves as fast as memory allows. */
    bool copies;
    _Atomic uint64_t n_plan; /* plans open now */
    _Atomic uint64_t n_made; /* samples made in total */
    fm_arena arena;          /* of the copied sample */
    fm_bytes copied;
} fm_test_source;

/* Fills *ret_source, which borrows `test`. The caller sets all fields but arena and copied. */
void fm_test_source_init(fm_test_source *test, fm_sample_source *ret_source);
void fm_test_source_fini(fm_test_source *test);

/* Returns the bytes of any sample of the source. */
size_t fm_test_source_sample_bytes(const fm_test_source *test);

#endif
