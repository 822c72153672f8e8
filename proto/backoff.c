/* backoff.c: see backoff.h. */
#include "proto/backoff.h"

#include <unistd.h>

enum { FIRST_MS = 500, N_DOUBLING = 5 };

fm_backoff fm_backoff_begin(uint64_t limit_ms, uint64_t now_ns) {
    return (fm_backoff){.begin_ns = now_ns, .limit_ms = limit_ms};
}

/* A number below 512 that differs between processes and moments. */
static uint32_t draw(uint64_t now_ns) {
    uint64_t seed = now_ns ^ (uint64_t)getpid() << 40;
    return (uint32_t)((seed * 0x9e3779b97f4a7c15u) >> 55);
}

uint32_t fm_backoff_next(fm_backoff *backoff, uint64_t now_ns) {
    uint64_t gone_ms = (now_ns - backoff->begin_ns) / 1000000u;
    if (gone_ms >= backoff->limit_ms) return 0;
    uint32_t n = backoff->n_attempt < N_DOUBLING ? backoff->n_attempt : N_DOUBLING;
    uint64_t pause_ms = (uint64_t)FIRST_MS << n;
    pause_ms = pause_ms * (768 + draw(now_ns)) / 1024;
    backoff->n_attempt++;
    uint64_t left_ms = backoff->limit_ms - gone_ms;
    return (uint32_t)(pause_ms < left_ms ? pause_ms : left_ms);
}
