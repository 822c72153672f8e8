/* takeover.h: opens and closes snapshots on a separate thread, beside the event loop.
 *
 *     loop: ask, find, give_back  ->  thread: library.h  ->  wake, loop: collect
 *
 * The loop never waits for a disk: it asks, continues with the sources that it has, and collects
 * the news later. The thread makes an update when it is asked to. If it follows the caches, it also
 * makes one when they have changed. It makes no update before the news of the last one are
 * collected.
 *
 * Sources belong to the library. The loop gives an old source back when it has no users, and does
 * not touch it afterwards. A source that the thread has found again in the meantime is not closed,
 * and is in the next news. */
#ifndef FM_SERVER_TAKEOVER_H
#define FM_SERVER_TAKEOVER_H

#include "server/library.h"

typedef struct fm_takeover fm_takeover;

enum { FM_TAKEOVER_N_FIND = 64 }; /* questions that can be open at a time */

typedef struct fm_takeover_news {
    bool has_list;                 /* the sources that are offered from now on: */
    fm_sample_source *const *list; /* [n_list] valid until the next collect */
    size_t n_list;
    fm_library_change change;                    /* of the updates since the last collect */
    fm_sample_source *found[FM_TAKEOVER_N_FIND]; /* [n_found] for clients that resume */
    size_t n_found;
    struct {
        uint64_t question;
        fm_status status;
    } failed[FM_TAKEOVER_N_FIND]; /* [n_failed] whether there is such a snapshot is not known */
    size_t n_failed;
    uint64_t answered; /* all questions up to this number were answered */
} fm_takeover_news;

/* Starts the thread. It looks for changes every follow_ms (0: only when it is asked) and calls
 * `wake` when there are news. The library belongs to the thread until fm_takeover_stop.
 * FM_ERR_NOMEM, FM_ERR_IO. */
FM_MUST_USE fm_status fm_takeover_start(fm_library *library, uint32_t follow_ms,
                                        void (*wake)(void *context), void *context,
                                        fm_takeover **ret_takeover, fm_error *reterr);
/* Waits for the thread, which first finishes the snapshot that it is opening. NULL is allowed. */
void fm_takeover_stop(fm_takeover *takeover);

/* Asks for an update. */
void fm_takeover_ask(fm_takeover *takeover);
/* Asks for a snapshot by name ("" = any) and hash. Returns the number of the question, the same one
 * for the same question; 0 when too many are open. */
uint64_t fm_takeover_find(fm_takeover *takeover, const char *name, const fm_sha256 *hash);
/* Gives back an old source that has no users. */
void fm_takeover_give_back(fm_takeover *takeover, fm_sample_source *source);
/* Collects the news; false when there are none. Call it on every wake and from time to time: the
 * thread keeps everything that the last news refer to unchanged until the next call. */
bool fm_takeover_collect(fm_takeover *takeover, fm_takeover_news *ret_news);

#endif
