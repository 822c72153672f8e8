/* nccl.h: the functions of NCCL that are used, from the library of this host. It is opened when a
 * run asks for it, so no program needs it to start. Nothing here needs CUDA, so every build has it;
 * dist/cuda/comm_nccl.cu calls it. */
#ifndef FM_TRAINER_NCCL_H
#define FM_TRAINER_NCCL_H

#ifdef __cplusplus
extern "C" {
#endif

#include "proto/base/status.h"

typedef struct fm_nccl_id {
    char at[128];
} fm_nccl_id;

enum { FM_NCCL_IN_PROGRESS = 7 }; /* a result that is no error */

/* A result of 0 is success; `stream` is a cudaStream_t. */
typedef struct fm_nccl {
    int version; /* 22304 is 2.23.4 */
    int (*make_id)(fm_nccl_id *);
    int (*join)(void **comm, int n, fm_nccl_id id, int rank);
    int (*abort)(void *comm);
    int (*async_error)(void *comm, int *ret_error);
    int (*start)(void);
    int (*end)(void);
    int (*send)(const void *data, size_t n, int type, int peer, void *comm, void *stream);
    int (*receive)(void *data, size_t n, int type, int peer, void *comm, void *stream);
    const char *(*text)(int error);
} fm_nccl;

/* Tells NCCL by its environment, where that does not say it yet, on which host this process is
 * (dist/host.h), and to use 4 threads with 4 sockets each for a connection over sockets. One thread
 * fills only a part of a fast Ethernet. */
void fm_nccl_set_environment(void);

/* Opens the file that the environment variable FM_NCCL names, else libnccl.so.2. It stays open.
 * FM_ERR_UNSUPPORTED, naming the file, when it cannot be opened, lacks a function, or has another
 * version than NCCL 2 from 2.20 on. */
FM_MUST_USE fm_status fm_nccl_open(fm_nccl *ret_nccl, fm_error *reterr);

#ifdef __cplusplus
}
#endif

#endif
