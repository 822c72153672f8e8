/* top_server.c: see top_server.h. Lines are made in memory and cut to the width of the terminal, so
 * that the screen never scrolls. Names come from peers and files: bytes that a terminal would obey
 * are replaced. */
#include "server/cli/top_server.h"

#include "proto/base/plural.h"
#include "proto/base/status.h"
#include "proto/base/utf8.h"

#include <stdarg.h>
#include <string.h>

enum { LINE_BYTES = 512, N_RECENT = 10 };

/* The screen while it is drawn. */
typedef struct screen {
    FILE *out;
    size_t columns, rows; /* SIZE_MAX = no limit */
} screen;

FM_PRINTF(2, 3) static void draw(screen *on, const char *format, ...) {
    if (on->rows == 0) return;
    on->rows--;
    char line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fm_utf8_make_plain(line);
    fwrite(line, 1, fm_utf8_prefix(line, on->columns), on->out);
    fputc('\n', on->out);
}

static double number(const fm_json *object, const char *name) {
    return fm_json_get_number(fm_json_get_member(object, name), 0);
}

static const char *text_of(const fm_json *object, const char *name) {
    const char *text = fm_json_get_text(fm_json_get_member(object, name));
    return text ? text : "?";
}

static const char *format_bytes(double value, char out[16]) {
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    size_t unit = 0;
    for (; value >= 1000 && unit < 4; unit++)
        value /= 1000;
    snprintf(out, 16, "%.*f %s",
             value < 10 && unit    ? 2
             : value < 100 && unit ? 1
                                   : 0,
             value, units[unit]);
    return out;
}

static const char *format_ms(double value, char out[16]) {
    if (value >= 1000) {
        snprintf(out, 16, "%.2f s", value / 1000);
    } else {
        snprintf(out, 16, "%.*f ms", value < 10 ? 2 : value < 100 ? 1 : 0, value);
    }
    return out;
}

/* The mean of the last ten seconds. */
static double recent(const fm_json *report, const char *name) {
    const fm_json *values = fm_json_get_member(fm_json_get_member(report, "history"), name);
    size_t n = fm_json_count(values), first = n > N_RECENT ? n - N_RECENT : 0;
    double sum = 0;
    for (size_t i = first; i < n; i++)
        sum += fm_json_get_number(fm_json_get_element(values, i), 0);
    return n > first ? sum / (double)(n - first) : 0;
}

/* The snapshot of clients that ask for none, and how many others there are. */
static void draw_title(screen *on, const fm_json *report) {
    const fm_json *snapshots = fm_json_get_member(report, "snapshots");
    const fm_json *first = fm_json_get_element(snapshots, 0);
    char more[40] = "";
    size_t n = fm_json_count(snapshots);
    if (n > 1) snprintf(more, sizeof more, " and %zu more", n - 1);
    draw(on, "foldmill %s  snapshot %s%s  %.0f chain%s  generation %.0f  up %.0f s",
         text_of(report, "version"), text_of(first, "name"), more, number(first, "chains"),
         fm_plural((uint64_t)number(first, "chains")), number(first, "generation"),
         number(report, "uptime_s"));
}

static void draw_head(screen *on, const fm_json *report) {
    const fm_json *counters = fm_json_get_member(report, "counters");
    char a[16], b[16];
    draw_title(on, report);
    draw(on, "%8.1f samples/s  %10s/s  %.0f samples in all, %.0f refused",
         recent(report, "samples"), format_bytes(recent(report, "bytes"), a),
         number(counters, "samples_sent_total"), number(counters, "samples_failed_total"));
    draw(on, "%8.0f connections  %.0f streams  memory %s of %s", number(counters, "connections"),
         number(counters, "streams"), format_bytes(number(counters, "sample_memory_bytes"), a),
         format_bytes(number(report, "memory_limit_bytes"), b));
}

/* A server of one snapshot has all of this in its first line. */
static void draw_snapshots(screen *on, const fm_json *report) {
    const fm_json *snapshots = fm_json_get_member(report, "snapshots");
    if (fm_json_count(snapshots) < 2) return;
    draw(on, "%s", "");
    draw(on, "%10s %10s %7s  %s", "GENERATION", "CHAINS", "USERS", "SNAPSHOT");
    for (size_t i = 0; i < fm_json_count(snapshots); i++) {
        const fm_json *one = fm_json_get_element(snapshots, i);
        bool is_old = strcmp(text_of(one, "state"), "old") == 0;
        draw(on, "%10.0f %10.0f %7.0f  %s%s", number(one, "generation"), number(one, "chains"),
             number(one, "users"), text_of(one, "name"), is_old ? " (until its streams end)" : "");
    }
}

static void draw_times(screen *on, const fm_json *report) {
    static const char *const stages[] = {"prepare", "wait", "send"};
    draw(on, "%s", "");
    draw(on, "%-10s %10s %10s %10s %10s", "STAGE", "SAMPLES", "MEDIAN", "99 %", "LONGEST");
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++) {
        const fm_json *times = fm_json_get_member(fm_json_get_member(report, "times"), stages[i]);
        char a[16], b[16], c[16];
        draw(on, "%-10s %10.0f %10s %10s %10s", stages[i], number(times, "n"),
             format_ms(number(times, "p50_ms"), a), format_ms(number(times, "p99_ms"), b),
             format_ms(number(times, "max_ms"), c));
    }
}

/* The samples that the same stream had sent in the earlier report; < 0 = it was not there. */
static double earlier_samples(const fm_json *earlier, const fm_json *stream) {
    const fm_json *streams = fm_json_get_member(earlier, "streams");
    for (size_t i = 0; i < fm_json_count(streams); i++) {
        const fm_json *one = fm_json_get_element(streams, i);
        if (number(one, "connection") == number(stream, "connection") &&
            number(one, "stream") == number(stream, "stream")) {
            return number(one, "samples");
        }
    }
    return -1;
}

static void draw_streams(screen *on, const fm_json *report, const fm_json *earlier,
                         double seconds) {
    const fm_json *streams = fm_json_get_member(report, "streams");
    draw(on, "%s", "");
    draw(on, "%-9s %-10s %10s %8s %7s %7s %10s %6s  %s", "GROUP", "ORDER", "SAMPLES", "RATE/S",
         "CREDIT", "PENDING", "WAIT 99 %", "FAILED", "SNAPSHOT, FROM");
    for (size_t i = 0; i < fm_json_count(streams); i++) {
        const fm_json *stream = fm_json_get_element(streams, i);
        char group[32], order[32] = "strict", rate[16] = "", wait[16];
        snprintf(group, sizeof group, "%.0f of %.0f", number(stream, "group") + 1,
                 number(stream, "groups"));
        if (number(stream, "window") > 0) {
            snprintf(order, sizeof order, "bounded:%.0f", number(stream, "window"));
        }
        double before = earlier_samples(earlier, stream);
        if (before >= 0 && seconds > 0) {
            snprintf(rate, sizeof rate, "%.1f", (number(stream, "samples") - before) / seconds);
        }
        draw(on, "%-9s %-10s %10.0f %8s %7.0f %7.0f %10s %6.0f  %s, %s %s", group, order,
             number(stream, "samples"), rate, number(stream, "credit"), number(stream, "pending"),
             format_ms(number(stream, "wait_p99_ms"), wait), number(stream, "failed"),
             text_of(stream, "snapshot"), text_of(stream, "peer"), text_of(stream, "agent"));
    }
    if (fm_json_count(streams) == 0) draw(on, "%s", "nobody is connected");
}

/* Where the time of each consumer's samples goes. One that is slow to take shows in SEND. */
static void draw_consumers(screen *on, const fm_json *report) {
    const fm_json *consumers = fm_json_get_member(report, "consumers");
    if (fm_json_count(consumers) == 0) return;
    draw(on, "%s", "");
    draw(on, "%7s %10s %10s %12s %10s %10s  %s", "STREAMS", "SAMPLES", "SENT", "PREPARE 99 %",
         "WAIT 99 %", "SEND 99 %", "CONSUMER");
    for (size_t i = 0; i < fm_json_count(consumers); i++) {
        const fm_json *one = fm_json_get_element(consumers, i);
        char sent[16], prepare[16], wait[16], send[16];
        draw(on, "%7.0f %10.0f %10s %12s %10s %10s  %s %s", number(one, "streams"),
             number(one, "samples"), format_bytes(number(one, "bytes"), sent),
             format_ms(number(fm_json_get_member(one, "prepare"), "p99_ms"), prepare),
             format_ms(number(fm_json_get_member(one, "wait"), "p99_ms"), wait),
             format_ms(number(fm_json_get_member(one, "send"), "p99_ms"), send),
             text_of(one, "peer"), text_of(one, "agent"));
    }
}

static void draw_chains(screen *on, const fm_json *report) {
    const fm_json *slowest = fm_json_get_member(report, "slowest");
    const fm_json *refused = fm_json_get_member(report, "refused");
    if (fm_json_count(refused)) {
        draw(on, "%s", "");
        draw(on, "%-16s %10s  %s", "REFUSED", "SAMPLE", "REASON");
    }
    for (size_t i = 0; i < fm_json_count(refused) && i < 5; i++) {
        const fm_json *one = fm_json_get_element(refused, i);
        draw(on, "%-16s %10.0f  %s", text_of(one, "chain"), number(one, "index"),
             text_of(one, "reason"));
    }
    draw(on, "%s", "");
    draw(on, "%-16s %10s %12s", "SLOWEST", "SAMPLE", "PREPARED IN");
    for (size_t i = 0; i < fm_json_count(slowest); i++) {
        const fm_json *one = fm_json_get_element(slowest, i);
        char a[16];
        draw(on, "%-16s %10.0f %12s", text_of(one, "chain"), number(one, "index"),
             format_ms(number(one, "prepare_ms"), a));
    }
}

void fm_top_draw_server(const fm_json *report, const fm_json *earlier, double seconds,
                        size_t columns, size_t rows, FILE *out) {
    screen on = {out, columns ? columns : SIZE_MAX, rows ? rows : SIZE_MAX};
    draw_head(&on, report);
    draw_times(&on, report);
    draw_streams(&on, report, earlier, seconds);
    draw_consumers(&on, report);
    draw_snapshots(&on, report);
    draw_chains(&on, report);
}
