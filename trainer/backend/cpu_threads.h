/* cpu_threads.h: sets how many threads the CPU's kernels use. */
#ifndef FM_BACKEND_CPU_THREADS_NUMBER_H
#define FM_BACKEND_CPU_THREADS_NUMBER_H

/* Makes large products and attentions of the CPU's tables run on n threads; the default is 1. Call
 * it before memory is planned, because workspaces depend on it. If the system refuses some threads,
 * fewer are used. */
void fm_cpu_use_threads(int n);

#endif
