/* eval_child.h: the evaluator beside a training run: a child process `foldmill-train eval --follow
 * RUN` that scores checkpoints during the run.
 *
 * The run hands a checkpoint over as a hard link in RUN/eval, which costs nothing and outlives the
 * pruning of old checkpoints. The run never waits for the child, unless they share a GPU. A child
 * that ends (killed, out of memory, no server) is started again after a pause that doubles up to
 * five minutes, and the log says why. While a child is slow or stopped, checkpoints wait for it.
 * The oldest of more than eight is dropped, and the log names it. At its end the run gives the
 * child some time for the waiting checkpoints. Then it ends the child, even one that is stopped. */
#ifndef FM_TRAINER_EVAL_CHILD_H
#define FM_TRAINER_EVAL_CHILD_H

#include "trainer/checkpoint/checkpoint.h"

typedef struct fm_eval_child fm_eval_child;

typedef struct fm_eval_child_options {
    const char *run;             /* the run's folder */
    const char *const *argument; /* [n_argument] of the child, beside --follow */
    uint32_t n_argument;
    const char *visible_gpu; /* what CUDA_VISIBLE_DEVICES is for the child; NULL: as here */
    bool is_on_cpu;          /* the child runs at a lower priority than the run's threads */
    const char *target;      /* "lddt_ca=0.8"; NULL: none */
    uint64_t last_step;      /* of the checkpoint that the run resumes from; 0: a new run */
} fm_eval_child_options;

/* True for a score of which more is better. */
bool fm_eval_child_is_rising(const char *name);

/* Checks the text of a target. FM_ERR_USAGE lists the scores. */
FM_MUST_USE fm_status fm_eval_child_check_target(const char *text, fm_error *reterr);

/* Prepares RUN/eval and RUN/eval.jsonl, whose lines after last_step are removed, and starts the
 * child. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_eval_child_start(const fm_eval_child_options *options,
                                          fm_eval_child **ret_child, fm_error *reterr);

/* Hands over the checkpoint at `path`. Failures are only logged. */
void fm_eval_child_take(fm_eval_child *evaluator, const char *path, fm_checkpoint_place place);

/* Restarts a child that has ended and reads new results, at most every tenth of a second. Returns
 * whether the target has been reached. Call it often. */
bool fm_eval_child_look(fm_eval_child *evaluator);

/* Waits until all checkpoints that were handed over are evaluated, the target is reached, wait_s
 * have passed or a signal asks to stop. */
void fm_eval_child_wait(fm_eval_child *evaluator, double wait_s);

/* The target, and the result that reached it. */
typedef struct fm_eval_child_target {
    char name[32];
    double wanted, value;
    uint64_t step;
    uint64_t reached_ns; /* the monotonic clock when the result came; 0: not reached */
} fm_eval_child_target;
const fm_eval_child_target *fm_eval_child_get_target(const fm_eval_child *evaluator);

/* Ends the child and frees everything; NULL is allowed. */
void fm_eval_child_stop(fm_eval_child *evaluator);

#endif
