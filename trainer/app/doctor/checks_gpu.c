/* checks_gpu.c: the driver and the GPUs. The driver's library is opened as NCCL is, so every build
 * can look, also one without CUDA. */
#include "trainer/app/device/choose_device.h"
#include "trainer/app/doctor/doctor.h"
#include "trainer/dist/nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum {
    GPUS_MAX = 64,
    ATTRIBUTE_MAJOR = 75, /* of cuDeviceGetAttribute (cuda.h) */
    ATTRIBUTE_MINOR = 76,
};

/* The functions of the driver that are used; 0 is success, a device is a number. */
typedef struct driver {
    int (*init)(unsigned flags);
    int (*version)(int *ret_version);
    int (*count)(int *ret_count);
    int (*device)(int *ret_device, int number);
    int (*name)(char *out, int bytes, int device);
    int (*memory)(size_t *ret_bytes, int device);
    int (*attribute)(int *ret_value, int attribute, int device);
    int (*can_access)(int *ret_can, int device, int peer);
} driver;

static bool open_driver(driver *ret_driver) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return false;
    const struct {
        const char *name;
        void *target;
    } wanted[] = {{"cuInit", &ret_driver->init},
                  {"cuDriverGetVersion", &ret_driver->version},
                  {"cuDeviceGetCount", &ret_driver->count},
                  {"cuDeviceGet", &ret_driver->device},
                  {"cuDeviceGetName", &ret_driver->name},
                  {"cuDeviceTotalMem_v2", &ret_driver->memory},
                  {"cuDeviceGetAttribute", &ret_driver->attribute},
                  {"cuDeviceCanAccessPeer", &ret_driver->can_access}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        void *found = dlsym(library, wanted[i].name);
        if (!found) return false;
        memcpy(wanted[i].target, &found, sizeof found);
    }
    return true;
}

/* The version of the kernel's module, from /proc; "" when there is none. */
static void find_module(char *out, size_t bytes) {
    out[0] = '\0';
    FILE *file = fopen("/proc/driver/nvidia/version", "r");
    char line[256];
    if (file && fgets(line, sizeof line, file)) {
        const char *at = strstr(line, "Module");
        at = at ? at + 6 + strspn(at + 6, " ") : line;
        snprintf(out, bytes, "%.*s", (int)strcspn(at, " \n"), at);
    }
    if (file) fclose(file);
}

static void check_each(fm_findings *findings, const driver *cuda, int count) {
    for (int i = 0; i < count && i < GPUS_MAX; i++) {
        char name[64] = "";
        size_t bytes = 0;
        int device = 0, major = 0, minor = 0;
        if (cuda->device(&device, i) || cuda->name(name, sizeof name, device) ||
            cuda->memory(&bytes, device) || cuda->attribute(&major, ATTRIBUTE_MAJOR, device) ||
            cuda->attribute(&minor, ATTRIBUTE_MINOR, device)) {
            fm_findings_add(findings, FM_FINDING_BAD, "GPU",
                            "reset it, or leave it out with "
                            "CUDA_VISIBLE_DEVICES",
                            "%d does not answer", i);
            continue;
        }
        fm_findings_add(findings, FM_FINDING_OK, "GPU", "",
                        "%d: %s, %.1f GiB, compute capability %d.%d", i, name,
                        (double)bytes / 1073741824.0, major, minor);
    }
}

/* Whether every GPU can read every other one's memory. */
static void check_links(fm_findings *findings, const driver *cuda, int count) {
    int lacking = 0, first = -1, second = -1;
    for (int a = 0; a < count && a < GPUS_MAX; a++) {
        for (int b = 0; b < count && b < GPUS_MAX; b++) {
            int can = 0;
            if (a == b || (cuda->can_access(&can, a, b) == 0 && can)) continue;
            if (first < 0) first = a, second = b;
            lacking++;
        }
    }
    if (count < 2) return;
    if (lacking) {
        fm_findings_add(
            findings, FM_FINDING_BAD, "links",
            "ranks of one run need GPUs that can: choose them with CUDA_VISIBLE_DEVICES",
            "%d pairs cannot read each other's memory, the first is GPU %d and GPU %d", lacking,
            first, second);
    } else {
        fm_findings_add(findings, FM_FINDING_OK, "links", "",
                        "each of %d GPUs can read the memory of the others", count);
    }
}

static void check_nccl(fm_findings *findings, int count) {
    fm_nccl nccl;
    fm_error error;
    if (!fm_nccl_open(&nccl, &error)) {
        fm_findings_add(findings, FM_FINDING_OK, "NCCL", "", "version %d.%d.%d",
                        nccl.version / 10000, nccl.version / 100 % 100, nccl.version % 100);
        return;
    }
    fm_findings_add(findings, count > 1 ? FM_FINDING_SLOW : FM_FINDING_OK, "NCCL",
                    "runs over several hosts need it: install libnccl2, or set FM_NCCL to its file",
                    "%s", error.message);
}

void fm_doctor_check_gpus(fm_findings *findings, bool is_wanted) {
    const fm_finding_state absent = is_wanted ? FM_FINDING_BAD : FM_FINDING_OK;
    char module[64];
    find_module(module, sizeof module);
    driver cuda;
    int version = 0, count = 0, failed = 0;
    if (!open_driver(&cuda)) {
        fm_findings_add(findings, *module ? FM_FINDING_BAD : absent, "driver",
                        "install NVIDIA's driver; in a container, start it with --gpus all",
                        *module ? "version %s of the kernel module, but no libcuda.so.1"
                                : "none (no libcuda.so.1)%s",
                        module);
        return;
    }
    failed = cuda.init(0);
    if (!failed) failed = cuda.count(&count);
    if (!failed) failed = cuda.version(&version);
    if (failed || count == 0) {
        fm_findings_add(findings, absent, "driver",
                        "nvidia-smi says what the driver sees; CUDA_VISIBLE_DEVICES may hide GPUs",
                        "no GPU is usable (error %d of the driver)", failed);
        return;
    }
    fm_findings_add(findings, FM_FINDING_OK, "driver", "", "%s, for CUDA up to %d.%d",
                    *module ? module : "found", version / 1000, version % 1000 / 10);
    check_each(findings, &cuda, count);
    check_links(findings, &cuda, count);
    check_nccl(findings, count);
    const char *why = NULL;
    const fm_kernels *kernels = fm_device_cuda(FM_ELEMENT_F32, &why);
    if (kernels) {
        fm_findings_add(findings, FM_FINDING_OK, "kernels", "",
                        "this program computes on GPU 0 (%s)", kernels->device->processor());
    } else {
        fm_findings_add(findings, is_wanted ? FM_FINDING_BAD : FM_FINDING_SLOW, "kernels",
                        "training and predictions run on the CPU backend only", "%s", why);
    }
}
