/* mirror.h: copies of some tensors of a state in the host's memory, in which single elements are
 * written before the tensors that changed are uploaded.
 *
 * A mirror may have memory on the device, too. What is written early is uploaded there while the
 * device works on something else, and only copied when its time has come. */
#ifndef FM_TRAINER_STEP_AF3_MIRROR_H
#define FM_TRAINER_STEP_AF3_MIRROR_H

#include "proto/base/status.h"
#include "trainer/tensor/state.h"

typedef struct fm_mirror {
    const fm_state *state;
    uint8_t *host; /* owned; page-locked where the device is asynchronous */
    int64_t bytes;
    bool holds[FM_STATE_TENSORS];     /* the tensors that the host writes through this mirror */
    int64_t offset[FM_STATE_TENSORS]; /* bytes of those in `host` */
    int64_t count[FM_STATE_TENSORS];  /* elements */
    bool written[FM_STATE_TENSORS];   /* since the last fm_mirror_send or fm_mirror_send_early */
    bool early[FM_STATE_TENSORS];     /* on the device, since the last fm_mirror_send */
    fm_event *sent;                   /* the end of the last fm_mirror_send on the device */
    int32_t room;      /* the mirror's memory on the device, behind its tensors; 0: none */
    fm_stream *stream; /* of early uploads, as the next one; NULL: none */
    fm_event *arrived; /* the end of the last of them */
} fm_mirror;

/* Adds tensors to a mirror that is zeroed or has others, before fm_mirror_allocate. Numbers below 0
 * are skipped: a state may not have all. Writing a tensor that was not added is asserted. */
void fm_mirror_add(fm_mirror *mirror, const int32_t *tensor, int n);
/* Declares memory on the device for all tensors that were added. It does nothing where the device
 * does not work beside the host. */
void fm_mirror_declare_room(fm_mirror *mirror, fm_state *state, const fm_kernels *kernels);
/* Returns the bytes of host memory that the mirror of a state takes, or will take. */
int64_t fm_mirror_bytes(const fm_mirror *mirror, const fm_state *state);
/* The state must be allocated, and outlive the mirror. FM_ERR_NOMEM. Destroy the mirror after the
 * stream's work has ended. */
FM_MUST_USE fm_status fm_mirror_allocate(fm_mirror *mirror, const fm_state *state,
                                         fm_error *reterr);
void fm_mirror_fini(fm_mirror *mirror);

/* Waits until the device has taken what was sent. Call it before writing after fm_mirror_send or
 * fm_mirror_send_early. */
void fm_mirror_begin(fm_mirror *mirror);
/* Writes element `at` of a tensor, converted to its type. The context is the mirror, so writers of
 * features can call it. Several threads may write different elements of a tensor that has been
 * cleared since the last fm_mirror_send. */
void fm_mirror_put(void *context, int32_t tensor, int64_t at, double value);
/* Sets all elements of a tensor to 0, on the threads of cpu_threads.h. */
void fm_mirror_clear(fm_mirror *mirror, int32_t tensor);
/* The same for all tensors of the mirror. */
void fm_mirror_clear_all(fm_mirror *mirror);
/* Queues the upload of the tensors that were written since the last call. */
void fm_mirror_send(fm_mirror *mirror, fm_stream *stream);
/* Begins the upload of the tensors that were written, beside the work of other streams. They change
 * in the next fm_mirror_send, unless they have been written again. Without memory on the device it
 * does nothing. */
void fm_mirror_send_early(fm_mirror *mirror);

/* Reads `count` act or acc elements of device memory as doubles. Waits for the stream. `raw` has
 * room for 8 bytes per element. */
void fm_mirror_fetch(const fm_kernels *kernels, fm_stream *stream, const void *from,
                     fm_element element, int64_t count, void *raw, double *out);

#endif
