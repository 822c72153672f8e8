/* host.h: which host this process is on, as far as ranks work together through its memory.
 *
 * Two processes are on one host where each can open the memory of the other: through /proc, or by a
 * CUDA IPC handle. That is decided by the running system and by the process and IPC namespaces, so
 * containers that share neither are hosts of their own. Its name for people is another thing.
 *
 * The environment variable FOLDMILL_HOST takes the place of both. It is for containers whose host
 * cannot be told from others, and for trying a run of several hosts on one. */
#ifndef FM_TRAINER_HOST_H
#define FM_TRAINER_HOST_H

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FM_HOST_ID_BYTES = 128,
    FM_HOST_NAME_BYTES = 64,
};

typedef struct fm_host {
    char id[FM_HOST_ID_BYTES];     /* the same text for processes of one host; zeros behind it */
    char name[FM_HOST_NAME_BYTES]; /* for messages: "node7"; zeros behind it */
} fm_host;

/* The host of this process. */
void fm_host_find(fm_host *ret_host);

#ifdef __cplusplus
}
#endif

#endif
