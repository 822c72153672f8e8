/* cpu.c: the CPU backend's memory and tables. */
#include "trainer/backend/cpu/cpu.h"
#include "trainer/backend/cpu/blas.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

const fm_kernels *fm_kernels_cpu(fm_element act) {
    fm_blas_init();
    if (act == FM_ELEMENT_F64) return &fm_cpu_f64;
    if (act == FM_ELEMENT_F32) {
        return __builtin_cpu_supports("avx2") ? &fm_cpu_f32_avx2 : &fm_cpu_f32;
    }
    return NULL;
}

void *fm_cpu_alloc(size_t bytes) {
    return bytes > SIZE_MAX - 63 ? NULL : aligned_alloc(64, (bytes + 63) & ~(size_t)63);
}

void fm_cpu_release(void *memory) {
    free(memory);
}

void fm_cpu_upload(fm_stream *stream, void *device, const void *host, size_t bytes) {
    (void)stream;
    memcpy(device, host, bytes);
}

void fm_cpu_download(fm_stream *stream, void *host, const void *device, size_t bytes) {
    (void)stream;
    memcpy(host, device, bytes);
}

void fm_cpu_synchronize(fm_stream *stream) {
    (void)stream;
}
