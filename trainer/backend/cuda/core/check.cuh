/* check.cuh: every call of the CUDA runtime and of cuBLASLt is checked, and a failure has a name.
 *
 * A failing call is a mistake of ours or a dying device; neither can be handled inside a step. So
 * the check prints one line with the failed call, the reason, and the thread's current op and
 * training step (where.h), and aborts. Kernels run asynchronously, so an earlier kernel may have
 * caused the error. Refusals that callers handle (no memory, nothing to capture) are not checked
 * with these macros. */
#ifndef FM_BACKEND_CUDA_CHECK_CUH
#define FM_BACKEND_CUDA_CHECK_CUH

#include <cuda_runtime.h>

namespace fm_cuda {

/* Prints the line and aborts. `why` is the library's text of the error. */
[[noreturn]] void call_failed(const char *call, const char *why, const char *file, int line);

inline void check_call(cudaError_t error, const char *call, const char *file, int line) {
    if (error != cudaSuccess) call_failed(call, cudaGetErrorString(error), file, line);
}

} // namespace fm_cuda

/* Aborts with a message unless the call returns cudaSuccess. */
#define FM_CUDA(call) ::fm_cuda::check_call((call), #call, __FILE__, __LINE__)

/* Stands after a launch: catches a configuration that the runtime refused, and any earlier error
 * that has surfaced since. */
#define FM_LAUNCHED() ::fm_cuda::check_call(cudaGetLastError(), "kernel launch", __FILE__, __LINE__)

#endif
