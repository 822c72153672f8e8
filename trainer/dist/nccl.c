/* nccl.c: see nccl.h. */
#include "trainer/dist/nccl.h"

#include "trainer/dist/host.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { OLDEST = 22000, NEXT_MAJOR = 30000 };
static const char expected[] = "expected NCCL 2, version 2.20 or later";

/* dlsym returns a function as a data pointer. */
static bool find(void *file, const char *name, void *ret_function) {
    void *found = dlsym(file, name);
    memcpy(ret_function, &found, sizeof found);
    return found != NULL;
}

static fm_status lacks(const char *path, const char *name, fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_UNSUPPORTED, "%s: found no function %s, %s", path, name,
                   expected);
}

static fm_status find_version(void *file, const char *path, int *ret_version, fm_error *reterr) {
    static const char name[] = "ncclGetVersion";
    int (*get)(int *), version = 0;
    if (!find(file, name, &get)) return lacks(path, name, reterr);
    int error = get(&version);
    if (error) {
        return fm_fail(reterr, FM_ERR_UNSUPPORTED, "%s: %s failed with error %d, %s", path, name,
                       error, expected);
    }
    if (version < OLDEST || version >= NEXT_MAJOR) {
        int of_major = version < 10000 ? 1000 : 10000; /* until 2.8, and since */
        return fm_fail(reterr, FM_ERR_UNSUPPORTED, "%s: found NCCL %d.%d.%d, %s", path,
                       version / of_major, version % of_major / 100, version % 100, expected);
    }
    *ret_version = version;
    return FM_OK;
}

static fm_status find_all(void *file, const char *path, fm_nccl *nccl, fm_error *reterr) {
    const struct {
        const char *name;
        void *ret_function;
    } functions[] = {
        {"ncclGetUniqueId", &nccl->make_id}, {"ncclCommInitRank", &nccl->join},
        {"ncclCommAbort", &nccl->abort},     {"ncclCommGetAsyncError", &nccl->async_error},
        {"ncclGroupStart", &nccl->start},    {"ncclGroupEnd", &nccl->end},
        {"ncclSend", &nccl->send},           {"ncclRecv", &nccl->receive},
        {"ncclGetErrorString", &nccl->text}};
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (!find(file, functions[i].name, functions[i].ret_function)) {
            return lacks(path, functions[i].name, reterr);
        }
    }
    return FM_OK;
}

void fm_nccl_set_environment(void) {
    static const char threads[] = "NCCL_SOCKET_NTHREADS", sockets[] = "NCCL_NSOCKS_PERTHREAD";
    fm_host host;
    fm_host_find(&host);
    setenv("NCCL_HOSTID", host.id, 0);
    if (getenv(threads) || getenv(sockets)) return; /* their product is limited */
    setenv(threads, "4", 1);
    setenv(sockets, "4", 1);
}

fm_status fm_nccl_open(fm_nccl *ret_nccl, fm_error *reterr) {
    const char *own = getenv("FM_NCCL"), *path = own && own[0] ? own : "libnccl.so.2";
    void *file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!file) {
        return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                       "NCCL cannot be opened (%s); the environment variable FM_NCCL gives the "
                       "path of libnccl.so.2",
                       dlerror());
    }
    fm_nccl nccl;
    fm_status status = find_version(file, path, &nccl.version, reterr);
    if (!status) status = find_all(file, path, &nccl, reterr);
    if (status) {
        dlclose(file);
        return status;
    }
    *ret_nccl = nccl;
    return FM_OK;
}
