/* inquiry.c: see inquiry.h. One question is open at a time; `turn` is held by the thread that asks
 * it. */
#include "server/inquiry.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct fm_inquiry {
    pthread_mutex_t turn, lock;
    pthread_cond_t answered;
    bool is_open, is_over; /* under the lock */
    fm_web_report *report; /* under the lock; the answer */
};

fm_inquiry *fm_inquiry_create(void) {
    fm_inquiry *inquiry = calloc(1, sizeof *inquiry);
    if (!inquiry) return NULL;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&inquiry->answered, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&inquiry->turn, NULL);
    pthread_mutex_init(&inquiry->lock, NULL);
    return inquiry;
}

void fm_inquiry_destroy(fm_inquiry *inquiry) {
    if (!inquiry) return;
    pthread_cond_destroy(&inquiry->answered);
    pthread_mutex_destroy(&inquiry->turn);
    pthread_mutex_destroy(&inquiry->lock);
    free(inquiry);
}

static struct timespec time_in(uint32_t ms) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += ms / 1000;
    at.tv_nsec += ms % 1000 * 1000000L;
    if (at.tv_nsec >= 1000000000L) {
        at.tv_nsec -= 1000000000L;
        at.tv_sec++;
    }
    return at;
}

fm_web_report *fm_inquiry_ask(fm_inquiry *inquiry, void (*wake)(void *context), void *context,
                              uint32_t timeout_ms) {
    const struct timespec deadline = time_in(timeout_ms);
    pthread_mutex_lock(&inquiry->turn);
    pthread_mutex_lock(&inquiry->lock);
    int failed = 0;
    inquiry->is_open = !inquiry->is_over;
    if (inquiry->is_open) wake(context);
    while (inquiry->is_open && !failed)
        failed = pthread_cond_timedwait(&inquiry->answered, &inquiry->lock, &deadline);
    inquiry->is_open = false;
    fm_web_report *report = inquiry->report;
    inquiry->report = NULL;
    pthread_mutex_unlock(&inquiry->lock);
    pthread_mutex_unlock(&inquiry->turn);
    return report;
}

bool fm_inquiry_is_open(fm_inquiry *inquiry) {
    pthread_mutex_lock(&inquiry->lock);
    bool is_open = inquiry->is_open;
    pthread_mutex_unlock(&inquiry->lock);
    return is_open;
}

void fm_inquiry_answer(fm_inquiry *inquiry, fm_web_report *report) {
    pthread_mutex_lock(&inquiry->lock);
    if (inquiry->is_open) {
        inquiry->report = report;
        report = NULL;
        inquiry->is_open = false;
        pthread_cond_signal(&inquiry->answered);
    }
    pthread_mutex_unlock(&inquiry->lock);
    fm_report_free(report);
}

void fm_inquiry_end(fm_inquiry *inquiry) {
    pthread_mutex_lock(&inquiry->lock);
    inquiry->is_over = true;
    inquiry->is_open = false;
    pthread_cond_signal(&inquiry->answered);
    pthread_mutex_unlock(&inquiry->lock);
}
