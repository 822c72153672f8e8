/* train_queue.c: see train_queue.h. */
#include "trainer/app/train/train_queue.h"

#include "trainer/app/train/train_run.h"

fm_status fm_train_drain(fm_train_run *run, uint64_t left, fm_error *reterr) {
    const fm_train_queue *queue = &run->queue;
    fm_status status = FM_OK;
    while (!status && queue->n_queued - queue->n_collected > left)
        status = queue->collect(run, reterr);
    return status;
}
