/* none.cu: stands in the place of this folder in programs that were built without it. Its functions
 * are never called, since kernels_in_use never says hopper there. */
#include "trainer/backend/cuda/hopper/hopper.cuh"

namespace fm_cuda {

bool hopper_is_built(void) {
    return false;
}

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define FM_HOPPER(result, name, ...)                                                               \
    result name(__VA_ARGS__) {                                                                     \
        call_failed(#name, "this program was built without hopper/", __FILE__, __LINE__);          \
    }
#include "trainer/backend/cuda/hopper/entries.h"

} // namespace fm_cuda
