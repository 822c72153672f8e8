/* log.h: logs one event per line, `time level event key=value ...`, on standard error.
 *
 *     2026-11-20T09:30:01.123Z info listening address=tcp://127.0.0.1:7420 chains=22
 *
 * Programs and the server log; libraries below them return errors instead. Values with spaces or
 * control bytes are quoted and escaped, so that one event is always one line, even with bytes from
 * a peer. Each line is one write(2), so lines of several threads do not mix. */
#ifndef FM_BASE_LOG_H
#define FM_BASE_LOG_H

#include "proto/base/status.h"

typedef enum fm_log_level { FM_LOG_ERROR, FM_LOG_WARN, FM_LOG_INFO, FM_LOG_DEBUG } fm_log_level;

/* Drops events below this level from now on. The initial level is FM_LOG_INFO. It is the only
 * mutable global of the project. */
void fm_log_set_level(fm_log_level level);

/* `event` is a fixed word; `format` gives the `key=value` pairs, quoted where needed, or is "". */
void fm_log(fm_log_level level, const char *event, const char *format, ...) FM_PRINTF(3, 4);

/* Writes `text` into out as a log value, always terminated: as it is when it is plain, otherwise
 * quoted with the escapes \" \\ \xNN. A text that does not fit is cut and ends with "...";
 * out_bytes >= 8. Returns out. */
const char *fm_log_quote(char *out, size_t out_bytes, const char *text);

#endif
