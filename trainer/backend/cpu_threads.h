/* cpu_threads.h: runs loops of the CPU backend, and of the host's own work, on several threads. The
 * default is one thread, the caller's.
 *
 * Work is divided into one part per thread, and no sum is divided between parts. So results have
 * the bits of one thread if the bits of a product's row do not depend on the other rows. This holds
 * for OpenBLAS and parts of 16 rows or more. */
#ifndef FM_BACKEND_CPU_THREADS_H
#define FM_BACKEND_CPU_THREADS_H

#include <stdint.h>

enum { FM_CPU_MOST_THREADS = 64 };

/* Makes large products and attentions of the CPU's tables run on n threads; the default is 1. Call
 * it before memory is planned, because workspaces depend on it. If the system refuses some threads,
 * fewer are used. */
void fm_cpu_use_threads(int n);

/* Returns the number of threads that loops use. */
int fm_cpu_threads(void);

/* Runs parts 0 to n_part - 1, each once, and returns when all have ended. n_part is at most
 * FM_CPU_MOST_THREADS. While another caller's parts run, the caller runs its parts alone. */
void fm_cpu_run_parts(void (*run)(void *context, int part), void *context, int n_part);

/* Returns where part `part` begins when n items are divided over n_part parts, in multiples of
 * `unit`. */
static inline int64_t fm_cpu_part_begin(int64_t n, int64_t unit, int part, int n_part) {
    int64_t units = (n + unit - 1) / unit, begin = units * part / n_part * unit;
    return begin < n ? begin : n;
}

#endif
