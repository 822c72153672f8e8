/* cpu_threads.h: how many threads the CPU's kernels use. */
#ifndef FM_BACKEND_CPU_THREADS_NUMBER_H
#define FM_BACKEND_CPU_THREADS_NUMBER_H

/* Lets large products and attentions of the CPU's tables run on n threads, 1 at first. Call it
 * before memory is planned: workspaces depend on it. Fewer are used where the system refuses
 * them. */
void fm_cpu_use_threads(int n);

#endif
