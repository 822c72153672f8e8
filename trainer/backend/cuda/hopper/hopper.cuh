/* hopper.cuh: the room of kernels for compute capability 9.0 (H100, H200), as the files outside see
 * it. They use warp-group products, the copy engine and clusters, which no other device has all of.
 * Everything that they do, the portable kernels do on every device from 8.0 on.
 *
 * The room is compiled for 9.0a alone. It holds kernels and their launches; the files that choose
 * between them and the portable ones are outside, and this is the only header of the room that
 * they include. */
#ifndef FM_BACKEND_CUDA_HOPPER_CUH
#define FM_BACKEND_CUDA_HOPPER_CUH

#include "trainer/backend/cuda/attention/attention.cuh"
#include "trainer/backend/cuda/core/kernel_set.cuh"
#include "trainer/backend/cuda/pair/outer.cuh"

namespace fm_cuda {

enum { LINE_ROWS = 128, LINE_COLUMNS = 128 }; /* of the tiles of linear.cu */

#define FM_HOPPER(result, name, ...) result name(__VA_ARGS__);
#include "trainer/backend/cuda/hopper/entries.h"

/* Whether this program was built with the room (room.cu or none.cu). */
bool hopper_is_built(void);

} // namespace fm_cuda

#endif
