/* rates.c: see rates.h. */
#include "server/rates.h"

#include "proto/base/log.h"

static double per_second(uint64_t n, uint64_t before, double seconds) {
    return (double)(n - before) / seconds;
}

static double ms_of(const fm_histogram *histogram, uint32_t per_mille) {
    return (double)fm_histogram_percentile(histogram, per_mille) * 1e-6;
}

void fm_rates_begin(fm_rates *rates, const fm_counters *counters, uint64_t now_ms) {
    *rates = (fm_rates){.begun_ms = now_ms,
                        .n_sample = fm_counter_read(counters, FM_COUNT_SAMPLES_SENT),
                        .n_byte = fm_counter_read(counters, FM_COUNT_SAMPLE_BYTES),
                        .n_failed = fm_counter_read(counters, FM_COUNT_SAMPLES_FAILED)};
}

void fm_rates_log(fm_rates *rates, const fm_counters *counters, const fm_rates_load *load,
                  uint64_t now_ms) {
    double seconds = (double)(now_ms - rates->begun_ms) * 1e-3;
    uint64_t n_sample = fm_counter_read(counters, FM_COUNT_SAMPLES_SENT);
    uint64_t n_byte = fm_counter_read(counters, FM_COUNT_SAMPLE_BYTES);
    uint64_t n_failed = fm_counter_read(counters, FM_COUNT_SAMPLES_FAILED) - rates->n_failed;
    if (load->n_connection || rates->prepare_ns.n) {
        fm_log(FM_LOG_INFO, "rates",
               "connections=%u streams=%zu samples_per_s=%.1f mb_per_s=%.3f failed=%llu "
               "memory_mib=%zu jobs=%u prepare_ms_p50=%.3f prepare_ms_p99=%.3f ready_ms_p50=%.3f "
               "ready_ms_p99=%.3f",
               load->n_connection, load->n_stream, per_second(n_sample, rates->n_sample, seconds),
               per_second(n_byte, rates->n_byte, seconds) * 1e-6, (unsigned long long)n_failed,
               load->memory_bytes >> 20, load->n_job, ms_of(&rates->prepare_ns, 500),
               ms_of(&rates->prepare_ns, 990), ms_of(&rates->ready_ns, 500),
               ms_of(&rates->ready_ns, 990));
    }
    fm_rates_begin(rates, counters, now_ms);
}
