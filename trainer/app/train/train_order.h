/* train_order.h: which sample a run uses at which step and slot, how many samples a step has, and
 * the ledger that records it.
 *
 * Places number the samples of a run in the order in which it uses them, from 0. In strict order
 * place p takes sample p. Out of order it takes the sample that arrives next. That sample then has
 * the recycling cycles and the slot of the place instead of its own. So all samples of a step have
 * the same number of cycles, and no two of them share a dropout mask.
 *
 * The ledger records the sample of each place. A run that replays a ledger asks its feed for these
 * samples, by number. The feed then receives samples in strict order and holds those that are not
 * yet due; the ledger says how many these are at most. */
#ifndef FM_TRAINER_TRAIN_ORDER_H
#define FM_TRAINER_TRAIN_ORDER_H

#include "trainer/app/samples/feed.h"
#include "trainer/app/train/train_run.h"

/* FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_train_order_create(fm_train_run *run, fm_error *reterr);
/* Closes the ledger and frees the order, if there is one. */
void fm_train_order_destroy(fm_train_run *run);

/* -- batches */

/* Sets the samples of each step: those of the configuration, or those of --batch-schedule, whose
 * first batch becomes the configuration's. FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_train_order_set_batches(fm_train_run *run, fm_error *reterr);
/* Checks whether several ranks can share these batches. FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_train_order_check_batches(const fm_train_run *run, fm_error *reterr);
/* The score that the last batch waits for, as --batch-schedule names it; "": none. */
const char *fm_train_order_awaited_score(const fm_train_run *run);
/* Finds how far the batch schedule is at the checkpoint. FM_ERR_USAGE when the two do not fit. */
FM_MUST_USE fm_status fm_train_order_find_batches(fm_train_run *run, fm_error *reterr);
/* Steps of the stream, whose batch is the first, that the run may need. */
uint64_t fm_train_order_stream_steps(const fm_train_run *run);
/* Begins the last batch with the next step, once an evaluation has its score. FM_ERR_IO. */
FM_MUST_USE fm_status fm_train_order_read_scores(fm_train_run *run, fm_error *reterr);
/* Samples of the step after `step` steps. */
uint32_t fm_train_batch_at(const fm_train_run *run, uint64_t step);
/* Samples of the step that is being queued. */
static inline uint32_t fm_train_batch(const fm_train_run *run) {
    return fm_train_batch_at(run, run->queued_step);
}

/* -- preparing */

/* Finds the order of samples: that of --order, or of the ledger that is replayed. The errors of
 * fm_ledger_read; FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_train_order_find(fm_train_run *run, fm_error *reterr);
/* The order as --order has it. */
const char *fm_train_order_name(const fm_train_run *run);
/* Whether place p takes the next sample that is known beforehand: no sample is late or early. */
bool fm_train_order_is_strict(const fm_train_run *run);
/* A hash of the order and of what is replayed. */
uint64_t fm_train_order_hash(const fm_train_run *run);
/* Completes the feed's options with the order. FM_ERR_USAGE when ranks that share a sample would
 * have to hold more than they can. */
FM_MUST_USE fm_status fm_train_order_ask(const fm_train_run *run, fm_feed *feed, fm_error *reterr);
/* Checks whether the run can continue in this order. Call it once the state is loaded and the
 * source of samples, which has `epoch_samples` of them, is open. FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_train_order_begin(fm_train_run *run, uint64_t epoch_samples,
                                           fm_error *reterr);

/* -- the ledger */

/* Opens DIR/ledger. The errors of fm_ledger_open. */
FM_MUST_USE fm_status fm_train_order_open_ledger(fm_train_run *run, fm_error *reterr);
/* Writes the places that were taken, and for the second also syncs the file. FM_ERR_IO,
 * FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_train_order_write_ledger(fm_train_run *run, fm_error *reterr);
FM_MUST_USE fm_status fm_train_order_sync_ledger(fm_train_run *run, fm_error *reterr);

/* -- samples */

/* The place of slot `slot` of the step after `step` steps. */
uint64_t fm_train_place(const fm_train_run *run, uint64_t step, uint32_t slot);
/* Samples that the run had used before this process. */
uint64_t fm_train_first_place(const fm_train_run *run);
/* The number of the sample that a slot of the step after `step` steps takes, or FM_FEED_ANY. */
uint64_t fm_train_order_wanted(const fm_train_run *run, uint64_t step, uint32_t slot);
/* Whether the run that is replayed has skipped its sample there. */
bool fm_train_order_leaves_out(const fm_train_run *run, uint64_t step, uint32_t slot);
/* Counts the sample as done with. FM_ERR_DATA when the ledger that is replayed has another one
 * there. */
FM_MUST_USE fm_status fm_train_order_deliver(fm_train_run *run, const fm_train_sample *sample,
                                             bool is_skipped, fm_error *reterr);

#endif
