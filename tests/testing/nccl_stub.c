/* nccl_stub.c: a library in place of NCCL that communicates with nobody. The build gives its
 * NCCL_VERSION, and may make it lack a function or fail. Each function returns another number, by
 * which a test knows which one it has found. */
#include <stddef.h>

struct id {
    char at[128];
};

#ifndef WITHOUT_VERSION
int ncclGetVersion(int *ret_version) {
    *ret_version = NCCL_VERSION;
#ifdef VERSION_ERROR
    return VERSION_ERROR;
#else
    return 0;
#endif
}
#endif

int ncclGetUniqueId(struct id *ret_id) {
    (void)ret_id;
    return 1;
}

int ncclCommInitRank(void **ret_comm, int n, struct id id, int rank) {
    (void)ret_comm, (void)n, (void)id, (void)rank;
    return 2;
}

int ncclCommAbort(void *comm) {
    (void)comm;
    return 3;
}

int ncclCommGetAsyncError(void *comm, int *ret_error) {
    (void)comm, (void)ret_error;
    return 4;
}

int ncclGroupStart(void) {
    return 5;
}

int ncclGroupEnd(void) {
    return 6;
}

int ncclSend(const void *data, size_t n, int type, int peer, void *comm, void *stream) {
    (void)data, (void)n, (void)type, (void)peer, (void)comm, (void)stream;
    return 7;
}

#ifndef WITHOUT_RECV
int ncclRecv(void *data, size_t n, int type, int peer, void *comm, void *stream) {
    (void)data, (void)n, (void)type, (void)peer, (void)comm, (void)stream;
    return 8;
}
#endif

const char *ncclGetErrorString(int error) {
    return error ? "an error" : "none";
}
