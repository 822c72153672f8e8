/* kernel_set.cuh: which kernels run on the current device, and what they may ask of it.
 *
 * There are two rooms of kernels. The portable ones run from compute capability 8.0 on. Those of
 * hopper/ need 9.0 (H100, H200); they are used there if the program was built with them. All is
 * found once, by the first call, since the devices of a process are of one kind.
 *
 * Tests make a device look like another one with three environment variables:
 *
 *     FM_CUDA_KERNELS=portable|hopper    the set, where the device can run it
 *     FM_CUDA_SHARED=BYTES               at most so much shared memory for a portable kernel's
 *                                        block: 101376 is that of RTX cards
 *     FM_CUDA_BLOCKS=N                   the multiprocessors that grids and sums assume */
#ifndef FM_BACKEND_CUDA_KERNEL_SET_CUH
#define FM_BACKEND_CUDA_KERNEL_SET_CUH

#include <stddef.h>
#include <stdint.h>

namespace fm_cuda {

enum kernel_set { KERNELS_PORTABLE, KERNELS_HOPPER };

/* The set of the current device. Without a device, hopper/ where it was built, so that plans are
 * those of an H100. Calls nothing of CUDA that could fail, so it needs no device. */
kernel_set kernels_in_use(void);
inline bool uses_hopper(void) {
    return kernels_in_use() == KERNELS_HOPPER;
}

/* Bytes of shared memory that a block may ask for: 232,448 on an H100, 166,912 on an A100, 101,376
 * on RTX cards. Without a device those of an H100. */
int64_t shared_of_block(void);

/* Whether the code that this device runs waits for the kernel before it (early.cuh). */
bool has_early_launch(void);

/* Chooses as if the device had this set and so much shared memory. For tests of choices that need
 * no device; no kernel may run afterwards. */
void pretend_device(kernel_set set, int64_t shared_bytes);

/* Writes why no kernels run on the current device, a clause without a full stop; "" when they do.
 * Also names a value of the environment variables above that is not understood. */
void find_set_refusal(char *out, size_t out_bytes);

} // namespace fm_cuda

#endif
