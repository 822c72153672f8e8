/* fuzz_prepare_times.c: arbitrary bytes as preparation times. What parses is a distribution: times
 * grow with the share, and the mean is between the first and the last. */
#include "server/simulate/prepare_times.h"

#include <assert.h>
#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fm_prepare_times times;
    fm_error error = {0};
    fm_status status = fm_prepare_times_parse((fm_bytes){data, size}, &times, &error);
    if (status) {
        assert(error.status == status && error.message[0] && !times.rows);
        return 0;
    }
    double before = 0;
    for (int i = 0; i <= 64; i++) {
        double ms = fm_prepare_times_at(&times, i / 65.0);
        assert(isfinite(ms) && ms >= before);
        before = ms;
    }
    double mean = fm_prepare_times_mean(&times), last = times.rows[times.n_row - 1].high_ms;
    assert(isfinite(mean) && mean >= 0 && mean <= last * (1 + 1e-9));
    fm_prepare_times_fini(&times);
    return 0;
}
