/* cpu.h: what the files of the CPU backend share. */
#ifndef FM_BACKEND_CPU_CPU_H
#define FM_BACKEND_CPU_CPU_H

#include "trainer/backend/kernels.h"
#include "trainer/backend/normal.h"

extern const fm_kernels fm_cpu_f32, fm_cpu_f32_avx2, fm_cpu_f64;

extern const fm_device fm_cpu_device;

void *fm_cpu_alloc(size_t bytes);
void fm_cpu_release(void *memory);
void fm_cpu_copy(fm_stream *stream, void *to, const void *from, size_t bytes);
void fm_cpu_synchronize(fm_stream *stream);

#endif
