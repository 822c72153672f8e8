/* open_library.cu: opens cuBLASLt at run time. A program that is linked with the library does not
 * start on a machine without it, where all that computes on the CPU would still work.
 *
 * The functions of the library that the backend calls are defined here, and each passes its call
 * on. open_library finds them all before the first call. */
#include "trainer/backend/cuda/gemm/library.cuh"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FM_LIBRARY_FUNCTIONS(X)                                                                    \
    X(cublasLtCreate)                                                                              \
    X(cublasLtGetStatusString)                                                                     \
    X(cublasLtGetVersion)                                                                          \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulAlgoCheck)                                                                     \
    X(cublasLtMatmulAlgoConfigGetAttribute)                                                        \
    X(cublasLtMatmulAlgoConfigSetAttribute)                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmulAlgoInit)                                                                      \
    X(cublasLtMatmulDescInit_internal)                                                             \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatmulPreferenceInit_internal)                                                       \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatrixLayoutInit_internal)                                                           \
    X(cublasLtMatrixLayoutSetAttribute)

#define FM_TEXT_OF(macro) #macro
#define FM_TEXT(macro) FM_TEXT_OF(macro)

namespace fm_cuda {

#define FM_MEMBER(name) decltype(&::name) name;
static struct library_functions { FM_LIBRARY_FUNCTIONS(FM_MEMBER) } functions;
#undef FM_MEMBER

/* The major version is that of the header, whose structures the calls pass. */
static const char file_name[] = "libcublasLt.so." FM_TEXT(CUBLAS_VER_MAJOR);

static void *open_file(void) {
    const char *own = getenv("FM_CUBLASLT");
    if (own && own[0]) return dlopen(own, RTLD_NOW | RTLD_LOCAL);
    /* $ORIGIN is the program's folder: an archive may bring the library. */
    static const char *const folders[] = {"", "$ORIGIN/../lib/", "/usr/local/cuda/lib64/"};
    void *file = NULL;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0] && !file; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s%s", folders[i], file_name);
        file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return file;
}

bool open_library(char *why, size_t why_bytes) {
    void *file = open_file();
    if (!file) {
        snprintf(why, why_bytes,
                 "%s of CUDA is not found; install it, or name it in the environment variable "
                 "FM_CUBLASLT",
                 file_name);
        return false;
    }
    const struct {
        const char *name;
        void *ret_function;
    } wanted[] = {
#define FM_WANTED(name) {#name, &functions.name},
        FM_LIBRARY_FUNCTIONS(FM_WANTED)
#undef FM_WANTED
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        void *found = dlsym(file, wanted[i].name);
        memcpy(wanted[i].ret_function, &found, sizeof found); /* ISO C casts no function */
        if (found) continue;
        snprintf(why, why_bytes, "%s has no function %s", file_name, wanted[i].name);
        dlclose(file);
        return false;
    }
    return true;
}

} // namespace fm_cuda

using fm_cuda::functions;

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    return functions.cublasLtCreate(handle);
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
    return functions.cublasLtGetStatusString(status);
}

size_t cublasLtGetVersion(void) {
    return functions.cublasLtGetVersion();
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream) {
    return functions.cublasLtMatmul(handle, product, alpha, a, a_layout, b, b_layout, beta, c,
                                    c_layout, d, d_layout, algo, workspace, workspace_bytes,
                                    stream);
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result) {
    return functions.cublasLtMatmulAlgoCheck(handle, product, a, b, c, d, algo, result);
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *value, size_t bytes, size_t *written) {
    return functions.cublasLtMatmulAlgoConfigGetAttribute(algo, attribute, value, bytes, written);
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    const void *value, size_t bytes) {
    return functions.cublasLtMatmulAlgoConfigSetAttribute(algo, attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t result[],
                                              int *found) {
    return functions.cublasLtMatmulAlgoGetHeuristic(handle, product, a, b, c, d, preference, most,
                                                    result, found);
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t handle, cublasComputeType_t compute,
                                      cudaDataType_t scale, cudaDataType_t a, cudaDataType_t b,
                                      cudaDataType_t c, cudaDataType_t d, int id,
                                      cublasLtMatmulAlgo_t *algo) {
    return functions.cublasLtMatmulAlgoInit(handle, compute, scale, a, b, c, d, id, algo);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t product, size_t bytes,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
    return functions.cublasLtMatmulDescInit_internal(product, bytes, compute, scale);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
    return functions.cublasLtMatmulDescSetAttribute(product, attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     size_t bytes) {
    return functions.cublasLtMatmulPreferenceInit_internal(preference, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes) {
    return functions.cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t bytes,
                                                 cudaDataType type, uint64_t rows, uint64_t columns,
                                                 int64_t stride) {
    return functions.cublasLtMatrixLayoutInit_internal(layout, bytes, type, rows, columns, stride);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes) {
    return functions.cublasLtMatrixLayoutSetAttribute(layout, attribute, value, bytes);
}
