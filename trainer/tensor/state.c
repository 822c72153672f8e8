/* state.c: see state.h. */
#include "trainer/tensor/state.h"

#include "trainer/tensor/plan.h"

#include <assert.h>

/* Adds a tensor at `base` plus *end, which grows by its bytes. */
static int32_t add(fm_state *state, const fm_tensor *description, int64_t base, int64_t *end) {
    assert(state->n_tensor < FM_STATE_TENSORS && !state->memory);
    fm_tensor *tensor = &state->tensor[state->n_tensor];
    *tensor = fm_tensor_like(description, description->name);
    tensor->pool = FM_POOL_STATE;
    state->offset[state->n_tensor] = base + *end;
    *end += fm_plan_round(fm_tensor_local_bytes(tensor));
    return state->n_tensor++;
}

int32_t fm_state_add_like(fm_state *state, const fm_tensor *description) {
    return add(state, description, 0, &state->bytes);
}

int32_t fm_state_add_to_room(fm_state *state, const char *name, fm_element element, int rank,
                             const int64_t *shape) {
    fm_tensor description;
    fm_tensor_init(&description, name, element, rank, shape);
    return add(state, &description, FM_STATE_ROOM, &state->room_bytes);
}

int32_t fm_state_add(fm_state *state, const char *name, fm_element element, int rank,
                     const int64_t *shape) {
    fm_tensor description;
    fm_tensor_init(&description, name, element, rank, shape);
    return fm_state_add_like(state, &description);
}

fm_status fm_state_allocate(fm_state *state, const fm_kernels *kernels, fm_error *reterr) {
    state->kernels = kernels;
    state->memory = kernels->alloc((size_t)state->bytes);
    if (!state->memory) {
        return fm_fail(reterr, FM_ERR_NOMEM,
                       "cannot allocate %.1f MiB of device memory for the batch",
                       (double)state->bytes / (1 << 20));
    }
    int64_t element_bytes = (int64_t)fm_element_bytes(kernels->act);
    assert(element_bytes > 0);
    int64_t count = state->bytes / element_bytes;
    kernels->fill(NULL, count, 0.0, state->memory);
    return FM_OK;
}

void fm_state_release(fm_state *state) {
    if (state->kernels) state->kernels->release(state->memory);
    state->memory = NULL;
}

void *fm_state_data(const fm_state *state, int32_t tensor) {
    assert(tensor >= 0 && tensor < state->n_tensor);
    return fm_state_at(state, state->offset[tensor]);
}

void *fm_state_at(const fm_state *state, int64_t offset) {
    const bool in_room = offset >= FM_STATE_ROOM;
    char *memory = in_room ? state->room : state->memory;
    assert(memory);
    return memory + (in_room ? offset - FM_STATE_ROOM : offset);
}
