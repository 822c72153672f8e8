/* body/table.h: the table of one element type, made of the functions of the bodies before it. */
#include "trainer/backend/cpu/body/real.h"

/* HOST entries are shared by all types (cpu.h); the others are the bodies' static functions. */
#define ENTRY_HOST(name) .name = fm_cpu_##name,
#define ENTRY_ACT(name) .name = (name),
#define ENTRY_ANY(name) .name = (name),

const fm_kernels REAL_TABLE = {
    .name = REAL_NAME,
    .axis_multiple = 1,
    .act = REAL_ELEMENT,
    .acc = REAL_ELEMENT,
    .device = &fm_cpu_device,
    .tf32 = REAL_TF32_TABLE,
    .f32 = REAL_F32_TABLE,
#define FM_KERNEL(kind, result, name, ...) ENTRY_##kind(name)
#include "trainer/backend/kernel_entries.h"
};
