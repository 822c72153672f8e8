/* recording.h: recorded work of a network, with everything that it runs on: parameters, its own or
 * borrowed ones, the state, tapes, their arenas, a stream and passes. The training steps of both
 * networks are made of one, and so is a prediction.
 *
 *     fm_recording_init         an empty table of parameters
 *     the owner                 adds parameters and takes their memory, declares and takes the
 *                               state, makes the optimiser
 *     fm_recording_plan         the owner records the tapes; chooses what is recomputed
 *     fm_recording_bind         arenas, scratch memory and stream; nothing is allocated later
 *     fm_recording_add_pass     for each pass
 *
 * The members are the owner's to use. */
#ifndef FM_TRAINER_STEP_RECORDING_H
#define FM_TRAINER_STEP_RECORDING_H

#include "proto/base/arena.h"
#include "trainer/autograd/tape.h"
#include "trainer/dist/groups.h"
#include "trainer/optim/optimizer.h"
#include "trainer/step/memory_budget.h"
#include "trainer/step/pass.h"

/* At most. */
enum { FM_RECORDING_TAPES = 6, FM_RECORDING_PASSES = 5, FM_RECORDING_ARENAS = 2 };

typedef struct fm_recording_options {
    const fm_kernels *kernels;
    const fm_groups *groups; /* the ranks that work on it together; NULL: one rank */
    int n_tape;
    unsigned with_gradient;   /* bits 1 << tape */
    int first_of_second;      /* tapes from this one on are in a second arena; n_tape: none are */
    int64_t scratch_elements; /* of sums over ranks, of the parameters' type */
    uint64_t seed;            /* of what the tapes draw */
    int64_t chunk_bytes;      /* as the next three: the field of each tape */
    bool chunks_triangles, spoils, rounds;
    bool direct; /* passes are never captured as graphs */
} fm_recording_options;

typedef struct fm_recording {
    fm_recording_options options;
    fm_arena arena; /* tables, and the host's scratch memory */
    fm_params params;
    fm_state state;
    int32_t clock, flag;    /* in the state: what draws depend on; a value that is not finite */
    fm_optimizer optimizer; /* or only its scalars, or nothing */
    fm_tape tape[FM_RECORDING_TAPES];
    void *memory[FM_RECORDING_ARENAS];
    void *scratch; /* NULL on one rank */
    fm_stream *stream;
    fm_pass pass[FM_RECORDING_PASSES];
    int n_pass;
    uint64_t *stamp; /* device memory: the owner's, then those of each tape; NULL: none */
} fm_recording;

/* Prepares *recording, which is zeroed, for `most_param` parameters. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_recording_init(fm_recording *recording,
                                        const fm_recording_options *options, int32_t most_param,
                                        fm_error *reterr);
/* Releases what the recording has, however far its creation came. Waits for the stream. Captured
 * exchanges and shared memory end first. */
void fm_recording_fini(fm_recording *recording);

/* Declares the clock and the flag in the state. */
void fm_recording_declare_clock(fm_recording *recording);

/* Discards the tapes, if there are any, and begins them anew, for the owner to record. */
FM_MUST_USE fm_status fm_recording_begin_tapes(fm_recording *recording, fm_error *reterr);
/* Plans the memory of all tapes. */
FM_MUST_USE fm_status fm_recording_plan_tapes(fm_recording *recording, fm_error *reterr);

/* Records with the least recomputation that fits; see fm_memory_budget_record. The owner has filled
 * everything of the budget except device, groups and taken_bytes. */
FM_MUST_USE fm_status fm_recording_plan(fm_recording *recording, const fm_memory_budget *budget,
                                        fm_error *reterr);

/* Takes the memory of arenas and sums, lets the other ranks read everything that exchanges may
 * send, and makes the stream. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_recording_bind(fm_recording *recording, fm_error *reterr);

/* Adds the next pass. All ranks of a sample capture it, or none does. */
void fm_recording_add_pass(fm_recording *recording, void (*queue)(void *context, fm_stream *stream),
                           void *context);

/* Makes passes store the device's clock: `n_own` stamps are the owner's. Graphs are captured again.
 * FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_recording_stamp(fm_recording *recording, size_t n_own, fm_error *reterr);

/* Stores the device's clock in the owner's stamp `at`, where there are stamps. */
void fm_recording_queue_stamp(const fm_recording *recording, int at, fm_stream *stream);

/* Reads a kept tensor of one element, f32 or f64. Waits for the stream. */
double fm_recording_read_scalar(const fm_recording *recording, int tape, fm_tensor_ref tensor);
/* Copies `count` elements of a kept tensor, from element `first` on, as f32 in the arena. Waits for
 * the stream. FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_recording_download(const fm_recording *recording, int tape,
                                            fm_tensor_ref tensor, size_t first, size_t count,
                                            fm_arena *arena, float **ret_values, fm_error *reterr);

/* Bytes of an arena, 0 or 1, which the largest of its tapes needs. */
int64_t fm_recording_arena_bytes(const fm_recording *recording, int arena);
/* Bytes of device memory that it has taken or, before fm_recording_bind, will take. */
int64_t fm_recording_bytes(const fm_recording *recording);

/* Writes a description such as "0.12 M parameters (2.4 MiB with moments and average), batch 1.0
 * MiB, step arena 10.1 MiB (saved 7.2, transient 3.0), 24 nodes, recompute none" to out; saved and
 * transient memory and the nodes are those of `tape`. `second` names the second arena. */
void fm_recording_describe(const fm_recording *recording, int tape, const char *second,
                           const char *recompute, char *out, size_t out_bytes);

#endif
