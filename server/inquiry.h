/* inquiry.h: how another thread asks the thread of the loop for a report, and waits for it.
 *
 * The loop answers between two events, so the answer is consistent, and the wait shows whether the
 * loop is alive at all. */
#ifndef FM_SERVER_INQUIRY_H
#define FM_SERVER_INQUIRY_H

#include "server/web/report.h"

typedef struct fm_inquiry fm_inquiry;

/* Returns NULL when there is no memory. */
fm_inquiry *fm_inquiry_create(void);
/* Nobody asks any more. NULL is allowed. */
void fm_inquiry_destroy(fm_inquiry *inquiry);

/* Calls wake(context) and waits for the answer, which belongs to the caller; NULL when none came
 * within `timeout_ms`. Any thread but the loop's. */
fm_web_report *fm_inquiry_ask(fm_inquiry *inquiry, void (*wake)(void *context), void *context,
                              uint32_t timeout_ms);

/* True when somebody waits for an answer. */
bool fm_inquiry_is_open(fm_inquiry *inquiry);
/* Gives the answer, or NULL when there is none. The report is freed if nobody waits any more. */
void fm_inquiry_answer(fm_inquiry *inquiry, fm_web_report *report);
/* The loop ends: whoever waits gets NULL, and so does everybody who asks from now on. */
void fm_inquiry_end(fm_inquiry *inquiry);

#endif
