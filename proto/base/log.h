/* log.h: logs one event per line, `time level event key=value ...`, on standard error.
 *
 *     2026-11-20T09:30:01.123Z info listening address=tcp://127.0.0.1:7420 chains=22
 *
 * Programs and the server log; libraries below them return errors instead. Values with spaces or
 * control bytes are quoted and escaped, so that one event is always one line, even with bytes from
 * a peer. Each line is one write(2), so lines of several threads do not mix.
 *
 * A program whose log may be a pipe calls fm_log_start_dropping. From then on no call waits for
 * the reader of the log, and an event that peers cause cannot fill the log. Lines that do not
 * fit are dropped, counted and reported. */
#ifndef FM_BASE_LOG_H
#define FM_BASE_LOG_H

#include "proto/base/status.h"

typedef enum fm_log_level { FM_LOG_ERROR, FM_LOG_WARN, FM_LOG_INFO, FM_LOG_DEBUG } fm_log_level;

/* Drops events below this level from now on. The initial level is FM_LOG_INFO. The state of the log
 * is the only mutable global of the project. */
void fm_log_set_level(fm_log_level level);

/* `event` is a fixed word, a string literal; `format` gives the `key=value` pairs, quoted where
 * needed, or is "". */
void fm_log(fm_log_level level, const char *event, const char *format, ...) FM_PRINTF(3, 4);

/* Lines of one event: `burst` at once, then `per_s` each second. per_s 0: no limit. */
typedef struct fm_log_rate {
    uint32_t burst, per_s;
} fm_log_rate;

/* From now on fm_log never waits. A line is dropped when nobody reads the pipe, terminal or socket
 * behind standard error, and when its event has used up its rate. The next line that is written
 * follows a line `log_dropped lines=N` or has the key `suppressed=N`. A regular file is written to
 * as before. Call it before threads are started; a second call changes the rate. */
void fm_log_start_dropping(fm_log_rate rate);

/* Lines that were not written since the start of the process. Any thread may call it. */
typedef struct fm_log_losses {
    uint64_t n_dropped, n_suppressed; /* nobody read; above the rate of the event */
} fm_log_losses;

fm_log_losses fm_log_get_losses(void);

/* Writes `text` into out as a log value, always terminated: as it is when it is plain, otherwise
 * quoted with the escapes \" \\ \xNN. Escaped are control characters (also U+0080 to U+009F), bytes
 * that are not UTF-8, and characters that break lines or reverse the direction of text. A text that
 * does not fit is cut and ends with "..."; out_bytes >= 8. Returns out. */
const char *fm_log_quote(char *out, size_t out_bytes, const char *text);

#endif
