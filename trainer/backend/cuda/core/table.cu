/* table.cu: makes the tables of both act types and of tf32 products from the list of entries, and
 * refuses devices that the kernels cannot run on. */
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/core/kernel_set.cuh"
#include "trainer/backend/cuda/core/mask_check.cuh"
#include "trainer/backend/cuda/gemm/gemm.cuh"

#include <stdlib.h>

namespace fm_cuda {

template <typename T> static fm_kernels make_table(const char *name, fm_element act) {
    fm_kernels k = {};
    k.name = name, k.act = act, k.acc = FM_ELEMENT_F32;
    k.axis_multiple = 16; /* rows of a warp-group tile, and 16-byte rows of every element type */
    k.device = device_table();
#define FM_ENTRY_HOST(name) k.name = name;
#define FM_ENTRY_ANY(name) k.name = name;
#define FM_ENTRY_ACT(name) k.name = name<T>;
#define FM_KERNEL(kind, result, name, ...) FM_ENTRY_##kind(name)
#include "trainer/backend/kernel_entries.h"
    if (getenv("FM_CHECK_MASKS")) {
        k.attention = checked_attention<T>, k.attention_grad = checked_attention_grad<T>;
    }
    return k;
}

/* The f32 table with gemm, attention and FM_COMPOSED_ENTRIES, which round operands to tf32. */
static fm_kernels make_tf32_table(const fm_kernels *f32) {
    fm_kernels k = *f32;
    k.name = "cuda-tf32";
    k.gemm = gemm<tf32>;
    k.attention_workspace = attention_workspace<tf32>;
    k.attention_opens = attention_opens<tf32>;
    k.attention_grad_workspace = attention_grad_workspace<tf32>;
    k.attention = attention<tf32>, k.attention_grad = attention_grad<tf32>;
    if (getenv("FM_CHECK_MASKS")) {
        k.attention = checked_attention<tf32>, k.attention_grad = checked_attention_grad<tf32>;
    }
#define FM_ENTRY_TF32(name) k.name = name<tf32>;
    FM_COMPOSED_ENTRIES(FM_ENTRY_TF32)
    return k;
}

/* The tables of the backend, which refer to each other. */
struct table_set {
    fm_kernels f32, tf32, half;
    table_set() {
        f32 = make_table<float>("cuda-f32", FM_ELEMENT_F32);
        tf32 = make_tf32_table(&f32);
        half = make_table<bf16>("cuda-bf16", FM_ELEMENT_BF16);
        f32.tf32 = half.tf32 = &tf32;
        half.wide = &f32;
    }
};

/* Writes why the current device cannot be used; "" when it can. */
static void find_refusal(char *out, size_t out_bytes) {
    find_set_refusal(out, out_bytes);
    if (!out[0]) (void)gemm_prepare(out, out_bytes); /* writes its reason, or nothing */
}

} // namespace fm_cuda

const char *fm_kernels_cuda_refusal(void) {
    struct answer {
        char text[256];
        answer() {
            fm_cuda::find_refusal(text, sizeof text);
        }
    };
    static const answer found; /* made by the first caller, others wait for it */
    return found.text[0] ? found.text : NULL;
}

const fm_kernels *fm_kernels_cuda(fm_element act) {
    if (act != FM_ELEMENT_F32 && act != FM_ELEMENT_BF16) return NULL;
    if (fm_kernels_cuda_refusal()) return NULL;
    static const fm_cuda::table_set all;
    return act == FM_ELEMENT_F32 ? &all.f32 : &all.half;
}
