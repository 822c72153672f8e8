/* kernel_set.cu: asks the device once; see kernel_set.cuh. */
#include "trainer/backend/cuda/core/common.cuh"
#include "trainer/backend/cuda/core/kernel_set.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace fm_cuda {

enum { LEAST_MAJOR = 8, EARLY_CODE = 90, MOST_BLOCKS = 4096 };
enum { LEAST_SHARED = 101376, H100_SHARED = 232448 }; /* LEAST_SHARED: every kernel fits */

struct device_facts {
    kernel_set set;
    int64_t shared, blocks; /* blocks: multiprocessors; 0 without a device */
    bool is_early;
    char refusal[256];
};

/* The code of this kernel stands for that of all portable ones, which are compiled alike. */
__global__ void code_probe_kernel(void) {
}

/* The number that a variable has, 0 if it is not set. Otherwise it is in [least, most], or *refusal
 * says that it is not. */
static int64_t read_number(const char *name, int64_t least, int64_t most, device_facts *f) {
    const char *text = getenv(name);
    if (!text) return 0;
    char *end = NULL;
    errno = 0;
    int64_t value = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && errno == 0 && value >= least && value <= most) return value;
    snprintf(f->refusal, sizeof f->refusal,
             "%s: found '%.40s', expected a number from %lld to %lld", name, text, (long long)least,
             (long long)most);
    return 0;
}

/* What the environment asks for, after what the device has. */
static void read_environment(device_facts *f, const cudaDeviceProp *device) {
    int64_t shared = read_number("FM_CUDA_SHARED", LEAST_SHARED, H100_SHARED, f);
    int64_t blocks = read_number("FM_CUDA_BLOCKS", 1, MOST_BLOCKS, f);
    if (shared) f->shared = min_size(shared, f->shared);
    if (blocks) f->blocks = blocks;
    const char *asked = getenv("FM_CUDA_KERNELS");
    if (!asked) return;
    if (strcmp(asked, "portable") == 0) {
        f->set = KERNELS_PORTABLE;
    } else if (strcmp(asked, "hopper") != 0) {
        snprintf(f->refusal, sizeof f->refusal,
                 "FM_CUDA_KERNELS: found '%.40s', expected portable or hopper", asked);
    } else if (!hopper_is_built()) {
        snprintf(f->refusal, sizeof f->refusal,
                 "FM_CUDA_KERNELS asks for hopper, which this program was built without");
    } else if (f->set != KERNELS_HOPPER && device) {
        snprintf(f->refusal, sizeof f->refusal,
                 "FM_CUDA_KERNELS asks for hopper, which needs compute capability 9.0; the CUDA "
                 "device (%.100s) has %d.%d",
                 device->name, device->major, device->minor);
    }
}

static device_facts facts_without_device(void) {
    device_facts f = {};
    f.set = hopper_is_built() ? KERNELS_HOPPER : KERNELS_PORTABLE;
    f.shared = H100_SHARED;
    read_environment(&f, NULL);
    return f;
}

static void refuse_device(device_facts *f, const cudaDeviceProp *device) {
    if (device->major < LEAST_MAJOR) {
        snprintf(f->refusal, sizeof f->refusal,
                 "the CUDA device (%.100s) has compute capability %d.%d; the kernels need 8.0 or "
                 "later (A100, RTX 30 series)",
                 device->name, device->major, device->minor);
    } else {
        snprintf(f->refusal, sizeof f->refusal,
                 "this program has no kernels for the CUDA device (%.80s, compute capability "
                 "%d.%d); it was built for " FM_CUDA_BUILT " (FM_CUDA_ARCHS)",
                 device->name, device->major, device->minor);
    }
}

static device_facts ask_device(void) {
    int count = 0, number = 0;
    cudaDeviceProp device;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0 ||
        cudaGetDevice(&number) != cudaSuccess ||
        cudaGetDeviceProperties(&device, number) != cudaSuccess) {
        (void)cudaGetLastError();
        device_facts f = facts_without_device();
        if (!f.refusal[0]) {
            snprintf(f.refusal, sizeof f.refusal,
                     "there is no CUDA device that this program can use");
        }
        return f;
    }
    device_facts f = {};
    f.shared = (int64_t)device.sharedMemPerBlockOptin, f.blocks = device.multiProcessorCount;
    bool is_hopper = device.major == 9 && device.minor == 0 && hopper_is_built();
    f.set = is_hopper ? KERNELS_HOPPER : KERNELS_PORTABLE;
    cudaFuncAttributes code;
    if (device.major < LEAST_MAJOR ||
        cudaFuncGetAttributes(&code, code_probe_kernel) != cudaSuccess) {
        (void)cudaGetLastError();
        refuse_device(&f, &device);
        return f;
    }
    f.is_early = code.ptxVersion >= EARLY_CODE;
    read_environment(&f, &device);
    return f;
}

static device_facts &facts(void) {
    static device_facts only = ask_device(); /* by the first caller, others wait for it */
    return only;
}

kernel_set kernels_in_use(void) {
    return facts().set;
}

int64_t shared_of_block(void) {
    return facts().shared;
}

bool has_early_launch(void) {
    return facts().is_early;
}

int64_t n_multiprocessor(void) {
    if (facts().blocks == 0) {
        call_failed("n_multiprocessor", "there is no CUDA device", __FILE__, __LINE__);
    }
    return facts().blocks;
}

void pretend_device(kernel_set set, int64_t shared_bytes) {
    facts().set = set, facts().shared = shared_bytes;
}

void find_set_refusal(char *out, size_t out_bytes) {
    snprintf(out, out_bytes, "%s", facts().refusal);
}

} // namespace fm_cuda

const char *fm_cuda_kernel_set(void) {
    return fm_cuda::uses_hopper() ? "hopper" : "portable";
}
