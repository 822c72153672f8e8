/* tuned.cu: the algorithms of cuBLASLt that were measured to be the fastest.
 *
 * The library's own proposal is good but not the best for products that are as long as their memory
 * traffic. tune.cu measured, for each product of the model's steps, every algorithm that the
 * library proposes; the tables below hold the winners that are clearly faster than the default
 * choice. They are part of the source, so the choice, and with it every bit of a result, does not
 * depend on a measurement at run time. */
#include "trainer/backend/cuda/gemm/library.cuh"

#include <string.h>

namespace fm_cuda {

struct tuned_row {
    gemm_key key;
    gemm_config config;
};

static const tuned_row h200[] = {
#include "trainer/backend/cuda/gemm/tuned_h200.inc"
    {{}, {}}};

static const tuned_row h100[] = {
#include "trainer/backend/cuda/gemm/tuned_h100.inc"
    {{}, {}}};

/* For all other devices: the library's proposals. */
static const tuned_row none[] = {{{}, {}}};

/* The table of the current device, ended by a row of zeros. */
static const tuned_row *find_table(void) {
    int device = 0;
    cudaDeviceProp properties;
    FM_CUDA(cudaGetDevice(&device));
    FM_CUDA(cudaGetDeviceProperties(&properties, device));
    if (strstr(properties.name, "H200")) return h200;
    return strstr(properties.name, "H100") ? h100 : none;
}

enum { CONFIG_NUMBERS = 9 };

static const cublasLtMatmulAlgoConfigAttributes_t attributes[CONFIG_NUMBERS] = {
    CUBLASLT_ALGO_CONFIG_ID,
    CUBLASLT_ALGO_CONFIG_TILE_ID,
    CUBLASLT_ALGO_CONFIG_STAGES_ID,
    CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
    CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
    CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
    CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION,
    CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID,
    CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID,
};

/* The shape attributes are 16-bit numbers in the library, all others 32-bit ones. */
static size_t attribute_bytes(int i) {
    return attributes[i] == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ||
                   attributes[i] == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID
               ? sizeof(uint16_t)
               : sizeof(uint32_t);
}

gemm_config config_of(const cublasLtMatmulAlgo_t *algo) {
    gemm_config config = {};
    int32_t *number = &config.algorithm;
    for (int i = 0; i < CONFIG_NUMBERS; i++) {
        uint32_t value = 0;
        size_t written = 0;
        FM_CUBLAS(cublasLtMatmulAlgoConfigGetAttribute(algo, attributes[i], &value,
                                                       attribute_bytes(i), &written));
        number[i] = (int32_t)value;
    }
    return config;
}

bool algorithm_of(const gemm_config *config, const gemm_key *key, const gemm_layouts *l,
                  cublasLtMatmulAlgo_t *ret_algo, size_t *ret_workspace) {
    cudaDataType_t type = key->type == GEMM_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    cudaDataType_t c_type = key->c_is_f32 ? CUDA_R_32F : type;
    const int32_t *number = &config->algorithm;
    if (cublasLtMatmulAlgoInit(library_handle(), compute_of(key->type), CUDA_R_32F, type, type,
                               c_type, c_type, config->algorithm,
                               ret_algo) != CUBLAS_STATUS_SUCCESS) {
        return false;
    }
    for (int i = 1; i < CONFIG_NUMBERS; i++) {
        uint32_t value = (uint32_t)number[i];
        if (cublasLtMatmulAlgoConfigSetAttribute(ret_algo, attributes[i], &value,
                                                 attribute_bytes(i)) != CUBLAS_STATUS_SUCCESS) {
            return false;
        }
    }
    cublasLtMatmulHeuristicResult_t result;
    if (cublasLtMatmulAlgoCheck(
            library_handle(), (cublasLtMatmulDesc_t)&l->product, (cublasLtMatrixLayout_t)&l->first,
            (cublasLtMatrixLayout_t)&l->second, (cublasLtMatrixLayout_t)&l->result,
            (cublasLtMatrixLayout_t)&l->result, ret_algo, &result) != CUBLAS_STATUS_SUCCESS) {
        return false;
    }
    *ret_workspace = result.workspaceSize;
    return true;
}

bool tuned_algorithm(const gemm_key *key, const gemm_layouts *l, uint64_t bytes,
                     cublasLtMatmulAlgo_t *ret_algo, size_t *ret_workspace) {
    static const tuned_row *const table = find_table();
    for (const tuned_row *row = table; row->key.used; row++) {
        if (memcmp(&row->key, key, sizeof *key) != 0) continue;
        if (!algorithm_of(&row->config, key, l, ret_algo, ret_workspace)) return false;
        if (*ret_workspace <= COUNTER_BYTES) *ret_workspace = 0;
        return *ret_workspace <= bytes;
    }
    return false;
}

} // namespace fm_cuda
