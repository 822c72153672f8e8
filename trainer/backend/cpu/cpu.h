/* cpu.h: declarations that the files of the CPU backend share. */
#ifndef FM_BACKEND_CPU_CPU_H
#define FM_BACKEND_CPU_CPU_H

#include "trainer/backend/kernels.h"
#include "trainer/backend/normal.h"

extern const fm_kernels fm_cpu_f32, fm_cpu_f32_avx2, fm_cpu_tf32, fm_cpu_f64;

extern const fm_device fm_cpu_device;

/* The HOST entries of kernel_entries.h: fm_cpu_alloc, fm_cpu_release, fm_cpu_upload, ... */
#define FM_CPU_HOST(result, name, ...) result fm_cpu_##name(__VA_ARGS__);
#define FM_CPU_ACT(...)
#define FM_CPU_ANY(...)
#define FM_KERNEL(kind, ...) FM_CPU_##kind(__VA_ARGS__)
#include "trainer/backend/kernel_entries.h"

#endif
