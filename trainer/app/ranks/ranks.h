/* ranks.h: what a process has of the other ranks of its run: the meeting, the board of its host,
 * the communicators, and the thread that watches the others.
 *
 * All functions but fm_ranks_stay_near, fm_ranks_fail and fm_ranks_close are collective: every rank
 * calls them in the same order. */
#ifndef FM_TRAINER_RANKS_H
#define FM_TRAINER_RANKS_H

#include "trainer/app/ranks/world.h"
#include "trainer/dist/groups.h"
#include "trainer/tensor/params.h"

typedef struct fm_ranks fm_ranks;

/* Waits for all ranks, and begins to watch those of this host. `program` is the command's name for
 * messages; it must outlive the ranks. The errors of fm_meeting_open and fm_board_open, and
 * FM_ERR_CANCELLED when a signal asks this process to stop before all ranks have met (stop.h). */
FM_MUST_USE fm_status fm_ranks_open(const char *program, const fm_world *world,
                                    const fm_layout *layout, fm_ranks **ret_ranks,
                                    fm_error *reterr);

/* Binds this rank to the cores and the memory near its GPU (cores.h); nothing changes on the CPU. A
 * rank that cannot be bound computes elsewhere, so an error is only logged. It is not collective.
 * Call it before threads that work are started. */
void fm_ranks_stay_near(const fm_kernels *kernels);

/* Makes the communicators; the groups are valid as long as `ranks`. `device`: "cpu", or "cuda" for
 * a GPU of each rank. The errors of fm_topology_check, unless the world lets samples cross hosts,
 * and of fm_shm_groups_open or fm_device_groups_create. */
FM_MUST_USE fm_status fm_ranks_join(fm_ranks *ranks, const char *device, const fm_kernels *kernels,
                                    const fm_groups **ret_groups, fm_error *reterr);

int32_t fm_ranks_rank(const fm_ranks *ranks);
int32_t fm_ranks_size(const fm_ranks *ranks);

/* Says that this rank works from now on, or no longer. Meanwhile it waits for nothing but exchanges
 * and gathers. So it is taken for one that hangs if it uses no time of a processor and waits for
 * neither. Ranks with GPUs say nothing, because they wait for these. Returns what was said before.
 * Not collective. */
bool fm_ranks_note_work(fm_ranks *ranks, bool works);

/* fm_meeting_gather with a limit that no rank that works reaches. */
FM_MUST_USE fm_status fm_ranks_gather(fm_ranks *ranks, const void *own, size_t bytes, void *all,
                                      fm_error *reterr);

/* What must be the same on all ranks before the first step, each as a hash. */
typedef enum fm_paper {
    FM_PAPER_PROGRAM,
    FM_PAPER_CONFIGURATION,
    FM_PAPER_SEED,
    FM_PAPER_OPTIONS, /* of the command line, as far as steps depend on them */
    FM_PAPER_DEVICE,
    FM_PAPER_CHECKPOINT, /* the parameters and where the run goes on */
    FM_PAPER_DATA,       /* the snapshot that its server has */
    FM_PAPER_BRANCHES,   /* the exchanges between the branches of a block */
    FM_PAPER_SCHEDULE,   /* all exchanges; compared between ranks of the same branch */
    FM_PAPERS
} fm_paper;

typedef struct fm_papers {
    uint64_t paper[FM_PAPERS];
} fm_papers;

/* The first rank of the run that must have the same paper as `rank`. Not collective. */
int32_t fm_ranks_compared_with(const fm_layout *layout, int32_t rank, fm_paper paper);

/* Compares the papers of all ranks. `status`: what this rank's preparations came to, with its
 * error in *reterr; the first rank's that failed is the result for all. FM_ERR_USAGE, naming the
 * rank, its process and host, and the paper, where one differs. *ret_is_met: all ranks have come,
 * so all return the same. */
FM_MUST_USE fm_status fm_ranks_compare(fm_ranks *ranks, const fm_papers *own, fm_status status,
                                       bool *ret_is_met, fm_error *reterr);

/* The hash of this program's file; 0 when it cannot be read. */
uint64_t fm_paper_of_program(void);
/* The hash of the parameters, moments and average. */
uint64_t fm_paper_of_parameters(const fm_params *params);
/* Waits until all ranks have come here, then takes leave. */
void fm_ranks_leave(fm_ranks *ranks);

/* Ends the run for all ranks of this host, because this one has failed alone: prints the reason,
 * unless another has ended the run already. Who supervises this process hears the reason in either
 * case. */
void fm_ranks_fail(fm_ranks *ranks, const fm_error *error);
/* Whether the run was ended for this host's ranks, so that this process has only to go. */
bool fm_ranks_is_over(const fm_ranks *ranks);

/* Collective unless a rank has failed; call it after the trainer is destroyed. NULL is allowed. */
void fm_ranks_close(fm_ranks *ranks);

#endif
