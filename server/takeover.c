/* takeover.c: see takeover.h. One lock guards the questions, the sources that were given back, and
 * the news; the thread holds it only between its steps. */
#include "server/takeover.h"

#include "proto/base/histogram.h"
#include "proto/base/log.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RETRY_MS = 30000 }; /* interval of trying again after a failure */

typedef struct question {
    uint64_t number;
    char name[FM_LIMIT_NAME_BYTES + 1];
    fm_sha256 hash;
} question;

struct fm_takeover {
    fm_library *library; /* the thread's */
    uint32_t follow_ms;
    void (*wake)(void *context);
    void *context;
    pthread_t thread;
    uint64_t retry_ns; /* used by the thread alone: when to try again; 0 = nothing failed */
    pthread_mutex_t lock;
    pthread_cond_t work;
    /* Under the lock. */
    bool is_stopping, is_asked, has_news;
    bool is_list_lent;                      /* the loop uses the library's list */
    question questions[FM_TAKEOVER_N_FIND]; /* [n_question] in the order of numbers */
    size_t n_question;
    uint64_t last_number;
    fm_sample_source *given_back; /* linked by next */
    fm_takeover_news news;
};

/* -- the thread: each step is called with the lock held, and returns with it */

static void close_given_back(fm_takeover *takeover) {
    fm_sample_source *source = takeover->given_back;
    takeover->given_back = source->next;
    source->next = NULL;
    pthread_mutex_unlock(&takeover->lock);
    fm_library_let_go(takeover->library, source);
    pthread_mutex_lock(&takeover->lock);
}

/* Removes a source that was found again from those that the loop gave back. */
static void undo_give_back(fm_takeover *takeover, fm_sample_source *found) {
    for (fm_sample_source **at = &takeover->given_back; *at; at = &(*at)->next) {
        if (*at != found) continue;
        *at = found->next;
        found->next = NULL;
        return;
    }
}

static void answer_question(fm_takeover *takeover) {
    question asked = takeover->questions[0];
    fm_sample_source *found = NULL;
    fm_error error;
    pthread_mutex_unlock(&takeover->lock);
    fm_status status = fm_library_find(takeover->library, asked.name, &asked.hash, &found, &error);
    if (status && status != FM_ERR_NOT_FOUND) {
        char text[FM_ERROR_TEXT_BYTES], why[900];
        fm_error_format(&error, text, sizeof text);
        fm_log(FM_LOG_ERROR, "find_failed", "why=%s", fm_log_quote(why, sizeof why, text));
    }
    pthread_mutex_lock(&takeover->lock);
    takeover->n_question--;
    memmove(takeover->questions, takeover->questions + 1,
            takeover->n_question * sizeof takeover->questions[0]);
    takeover->news.answered = asked.number;
    takeover->has_news = true;
    fm_takeover_news *news = &takeover->news;
    if (!status) {
        undo_give_back(takeover, found);
        news->found[news->n_found++] = found;
    } else if (status != FM_ERR_NOT_FOUND) {
        news->failed[news->n_failed].question = asked.number;
        news->failed[news->n_failed++].status = status;
    }
}

static void update(fm_takeover *takeover) {
    takeover->is_asked = false;
    pthread_mutex_unlock(&takeover->lock);
    fm_library_change change = fm_library_update(takeover->library);
    takeover->retry_ns = change.n_failed ? fm_clock_ns() + RETRY_MS * UINT64_C(1000000) : 0;
    pthread_mutex_lock(&takeover->lock);
    fm_takeover_news *news = &takeover->news;
    news->has_list = true;
    news->list = fm_library_get_list(takeover->library, &news->n_list);
    news->change.n_opened += change.n_opened;
    news->change.n_failed += change.n_failed;
    takeover->has_news = true;
}

/* The library's list must not change while the loop has it. */
static bool may_update(const fm_takeover *takeover) {
    return !takeover->news.has_list && !takeover->is_list_lent;
}

static bool may_answer(const fm_takeover *takeover) {
    return takeover->n_question && takeover->news.n_found < FM_TAKEOVER_N_FIND &&
           takeover->news.n_failed < FM_TAKEOVER_N_FIND;
}

static bool is_update_due(fm_takeover *takeover) {
    if (takeover->is_asked || !takeover->follow_ms) return takeover->is_asked;
    pthread_mutex_unlock(&takeover->lock);
    bool is_due = (takeover->retry_ns && fm_clock_ns() >= takeover->retry_ns) ||
                  fm_library_looks_changed(takeover->library);
    pthread_mutex_lock(&takeover->lock);
    return is_due;
}

/* Waits until something is asked, or for follow_ms. It checks first, because something may have
 * been asked while is_update_due read the disk. */
static void rest(fm_takeover *takeover) {
    if (takeover->is_stopping || takeover->given_back || may_answer(takeover) ||
        (takeover->is_asked && may_update(takeover))) {
        return;
    }
    if (!takeover->follow_ms) {
        pthread_cond_wait(&takeover->work, &takeover->lock);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += takeover->follow_ms / 1000;
    until.tv_nsec += takeover->follow_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    (void)pthread_cond_timedwait(&takeover->work, &takeover->lock, &until);
}

static void *work(void *argument) {
    fm_takeover *takeover = argument;
    pthread_mutex_lock(&takeover->lock);
    while (!takeover->is_stopping) {
        if (takeover->given_back) {
            close_given_back(takeover);
        } else if (may_answer(takeover)) {
            answer_question(takeover);
            takeover->wake(takeover->context);
        } else if (may_update(takeover) && is_update_due(takeover)) {
            update(takeover);
            takeover->wake(takeover->context);
        } else {
            rest(takeover);
        }
    }
    pthread_mutex_unlock(&takeover->lock);
    return NULL;
}

/* -- the loop */

/* Starts the thread with all signals blocked, since the loop handles them. */
static bool start_thread(fm_takeover *takeover) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool is_started = pthread_create(&takeover->thread, NULL, work, takeover) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_started;
}

static void free_takeover(fm_takeover *takeover) {
    pthread_cond_destroy(&takeover->work);
    pthread_mutex_destroy(&takeover->lock);
    free(takeover);
}

fm_status fm_takeover_start(fm_library *library, uint32_t follow_ms, void (*wake)(void *context),
                            void *context, fm_takeover **ret_takeover, fm_error *reterr) {
    fm_takeover *takeover = calloc(1, sizeof *takeover);
    if (!takeover) return fm_fail(reterr, FM_ERR_NOMEM, "no memory to follow the caches");
    takeover->library = library;
    takeover->follow_ms = follow_ms;
    takeover->wake = wake;
    takeover->context = context;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&takeover->work, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&takeover->lock, NULL);
    if (!start_thread(takeover)) {
        free_takeover(takeover);
        return fm_fail(reterr, FM_ERR_IO, "the system starts no thread to follow the caches");
    }
    *ret_takeover = takeover;
    return FM_OK;
}

void fm_takeover_stop(fm_takeover *takeover) {
    if (!takeover) return;
    pthread_mutex_lock(&takeover->lock);
    takeover->is_stopping = true;
    pthread_cond_signal(&takeover->work);
    pthread_mutex_unlock(&takeover->lock);
    pthread_join(takeover->thread, NULL);
    free_takeover(takeover);
}

void fm_takeover_ask(fm_takeover *takeover) {
    pthread_mutex_lock(&takeover->lock);
    takeover->is_asked = true;
    pthread_cond_signal(&takeover->work);
    pthread_mutex_unlock(&takeover->lock);
}

static uint64_t add_question(fm_takeover *takeover, const char *name, const fm_sha256 *hash) {
    for (size_t i = 0; i < takeover->n_question; i++) {
        const question *asked = &takeover->questions[i];
        bool is_same =
            strcmp(asked->name, name) == 0 && memcmp(&asked->hash, hash, sizeof *hash) == 0;
        if (is_same) return asked->number;
    }
    if (takeover->n_question == FM_TAKEOVER_N_FIND) return 0;
    question *next = &takeover->questions[takeover->n_question++];
    next->number = ++takeover->last_number;
    fm_wire_text(next->name, sizeof next->name, name);
    next->hash = *hash;
    pthread_cond_signal(&takeover->work);
    return next->number;
}

uint64_t fm_takeover_find(fm_takeover *takeover, const char *name, const fm_sha256 *hash) {
    pthread_mutex_lock(&takeover->lock);
    uint64_t number = add_question(takeover, name, hash);
    pthread_mutex_unlock(&takeover->lock);
    return number;
}

void fm_takeover_give_back(fm_takeover *takeover, fm_sample_source *source) {
    pthread_mutex_lock(&takeover->lock);
    bool is_found_again = false;
    for (size_t i = 0; i < takeover->news.n_found; i++)
        is_found_again = is_found_again || takeover->news.found[i] == source;
    if (!is_found_again) {
        source->next = takeover->given_back;
        takeover->given_back = source;
        pthread_cond_signal(&takeover->work);
    }
    pthread_mutex_unlock(&takeover->lock);
}

bool fm_takeover_collect(fm_takeover *takeover, fm_takeover_news *ret_news) {
    pthread_mutex_lock(&takeover->lock);
    bool has_news = takeover->has_news, was_lent = takeover->is_list_lent;
    takeover->is_list_lent = false;
    if (has_news) {
        *ret_news = takeover->news;
        takeover->is_list_lent = ret_news->has_list;
        takeover->news = (fm_takeover_news){.answered = ret_news->answered};
        takeover->has_news = false;
    }
    if (has_news || was_lent) pthread_cond_signal(&takeover->work);
    pthread_mutex_unlock(&takeover->lock);
    return has_news;
}
