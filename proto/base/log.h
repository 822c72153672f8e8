/* log.h: one line per event, `time level event key=value ...`, on standard error or a descriptor of
 * the caller's.
 *
 *     2026-11-20T09:30:01.123Z info listening address=tcp://127.0.0.1:7420 chains=22
 *
 * Programs and the server log; libraries below them return errors instead. Values with spaces or
 * control bytes are quoted and escaped, so that one event is one line whatever a peer sent. Lines
 * are written with one write(2). */
#ifndef FM_BASE_LOG_H
#define FM_BASE_LOG_H

#include "proto/base/status.h"

typedef enum fm_log_level { FM_LOG_ERROR, FM_LOG_WARN, FM_LOG_INFO, FM_LOG_DEBUG } fm_log_level;

/* The only mutable global of the project: what is quieter than this is dropped. Starts at
 * FM_LOG_INFO. */
void fm_log_set_level(fm_log_level level);

/* `event` is a fixed word or phrase; `format` builds `key=value` pairs already in form, or is "".
 */
void fm_log(fm_log_level level, const char *event, const char *format, ...) FM_PRINTF(3, 4);

/* Writes `text` into out (always terminated) as a log value: bare when plain, else quoted with \"
 * \\ \xNN. Returns out. Cut with "..." when it does not fit; out_bytes >= 8. */
const char *fm_log_quote(char *out, size_t out_bytes, const char *text);

#endif
