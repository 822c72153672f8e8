/* state.h: tensors that outlive a pass: the batch, recycled values, loss terms, the step's scalars.
 *
 * All are declared first and then allocated together; after that their addresses never change. Two
 * recorded passes (the cycles without gradient and the last one) and the host's uploads therefore
 * use the same memory.
 *
 * Some tensors carry values from one pass to another for a while only. They are in a room: memory
 * of the owner, which may be used for other things before and after. */
#ifndef FM_TRAINER_STATE_H
#define FM_TRAINER_STATE_H

#include "proto/base/status.h"
#include "trainer/tensor/tensor.h"

/* AlphaFold 3 has one for each atom and diffusion block, of which there may be 192. */
enum { FM_STATE_TENSORS = 320 };
/* Offsets from here on are in the room. */
#define FM_STATE_ROOM ((int64_t)1 << 48)

typedef struct fm_state {
    fm_tensor tensor[FM_STATE_TENSORS];
    int64_t offset[FM_STATE_TENSORS]; /* bytes */
    int32_t n_tensor;
    int64_t bytes, room_bytes; /* of the state's own memory, and of the room */
    const fm_kernels *kernels;
    void *memory, *room; /* the owner sets `room`; it is not cleared */
} fm_state;

/* Declares a tensor and returns its position. `name` must outlive the state. */
int32_t fm_state_add(fm_state *state, const char *name, fm_element element, int rank,
                     const int64_t *shape);

/* The same for a tensor in the room. */
int32_t fm_state_add_to_room(fm_state *state, const char *name, fm_element element, int rank,
                             const int64_t *shape);

/* As fm_state_add, for a described tensor. If it is split over ranks, the state holds this rank's
 * part. */
int32_t fm_state_add_like(fm_state *state, const fm_tensor *description);

/* Allocates zeroed device memory for all tensors. On FM_ERR_NOMEM the message says how much was
 * asked for. */
FM_MUST_USE fm_status fm_state_allocate(fm_state *state, const fm_kernels *kernels,
                                        fm_error *reterr);
void fm_state_release(fm_state *state);

/* Device pointer of a tensor, after fm_state_allocate. */
void *fm_state_data(const fm_state *state, int32_t tensor);
/* Device pointer of an offset, which may be in the room. */
void *fm_state_at(const fm_state *state, int64_t offset);

/* A callback of the functions that compute inputs: writes a value to element `at` of a tensor. */
typedef void fm_state_put(void *context, int32_t tensor, int64_t at, double value);

#endif
