/* world.h: finds which rank of a run this process is: a child of `foldmill train --ranks N`, or one
 * that torchrun, MPI or Slurm has started.
 *
 *     foldmill    FOLDMILL_RANK, FOLDMILL_RANKS, FOLDMILL_LOCAL_RANK, FOLDMILL_MEETING,
 *                 FOLDMILL_BEGAN_NS, FOLDMILL_MEETING_SECRET
 *     torchrun    RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT
 *     Open MPI    OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK
 *     other MPI   PMI_RANK, PMI_SIZE, MPI_LOCALRANKID
 *     Slurm       SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_NODELIST
 *
 * The first of these that has a rank and a size counts. A size of 1 is a process like any other.
 * FOLDMILL_MEETING_SECRET counts with every launcher, which must hand it to all ranks. */
#ifndef FM_TRAINER_WORLD_H
#define FM_TRAINER_WORLD_H

#include "trainer/dist/meeting.h"

#include <stdbool.h>

typedef struct fm_world {
    int32_t rank, size, local_rank; /* local: among the processes of this host */
    const char *launcher;           /* "foldmill", "torchrun", ... */
    uint64_t began_ns;  /* when the command that started this rank began, by this host's monotonic
                        * clock; 0: unknown */
    bool crosses_hosts; /* the ranks of a sample may be on several hosts; set by the command line */
    double patience_s;  /* that a rank may give no sign; 0: 20. Set by the command line */
    char meeting[FM_MEETING_ADDRESS_BYTES];
    char secret[FM_MEETING_SECRET_BYTES + 1]; /* of the meeting; empty: none */
} fm_world;

/* The launcher of the ranks that `foldmill train` and `foldmill predict` start. */
extern const char fm_world_own_launcher[];

/* The variables that it sets. */
extern const char fm_world_rank_name[], fm_world_size_name[], fm_world_local_name[],
    fm_world_meeting_name[], fm_world_began_name[], fm_world_secret_name[];

/* Makes the GPU of this rank the first that CUDA finds: that with the number of the rank on its
 * host among those of $CUDA_VISIBLE_DEVICES, or among all. The other GPUs stay visible behind it,
 * since ranks write to each other's memory. Call it before CUDA is used. */
void fm_world_put_gpu_first(const fm_world *world);

/* *ret_found: this process is one of several ranks. `meet`: the address of the meeting that the
 * command line gives, or NULL. FM_ERR_USAGE for a variable that is no number in its range, for a
 * secret that is too short or too long, and where neither `meet` nor the environment says where
 * the ranks meet. */
FM_MUST_USE fm_status fm_world_find(const char *meet, bool *ret_found, fm_world *ret_world,
                                    fm_error *reterr);

#endif
