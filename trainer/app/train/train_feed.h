/* train_feed.h: the server of a run's samples, and the stream from it. The works of train_stream.h
 * and train_complexes.h have one each. */
#ifndef FM_TRAINER_TRAIN_FEED_H
#define FM_TRAINER_TRAIN_FEED_H

#include "trainer/app/samples/feed.h"
#include "trainer/app/samples/private_server.h"
#include "trainer/app/train/train_run.h"

typedef struct fm_train_feed {
    const char *data;          /* address of the server of samples */
    fm_private_server *server; /* that this process has started; NULL = none */
    fm_feed feed;
} fm_train_feed;

/* Finds the server of samples. With --cache this process starts it, or the launcher of this rank
 * has done so. The errors of fm_private_server_start; FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_train_feed_find(const fm_train_run *run, bool is_rank, fm_train_feed *feed,
                                         fm_error *reterr);
/* Opens the stream where the run is, and begins the order of its samples. A server that comes back
 * must serve the same data from then on. The errors of fm_feed_open and fm_train_order_begin. */
FM_MUST_USE fm_status fm_train_feed_open(fm_train_run *run, fm_train_feed *feed, fm_error *reterr);
/* Stops the stream, and the server if this process started it. */
void fm_train_feed_close(fm_train_feed *feed);

/* Sets the changes to the server's plan, which the network's sizes ask for. */
void fm_train_feed_ask_for_sizes(const fm_train_config *config, fm_wire_open *stream);

/* The recycling cycles of a sample at `slot` of the step after `step` steps. */
uint32_t fm_train_feed_cycles(const fm_train_run *run, const fm_train_feed *feed, uint64_t step,
                              uint32_t slot);

/* Print where samples come from, how many came, and how long the run waited for them. */
void fm_train_feed_announce(const fm_train_run *run, const fm_train_feed *feed);
void fm_train_feed_print_samples(const fm_train_feed *feed);
void fm_train_feed_print_waits(const fm_train_feed *feed);

#endif
