/* report_metrics.c: a report in the text format of Prometheus; see report.h.
 *
 * A label's value escapes backslash, quote and line feed, and nothing else; bytes that are not
 * UTF-8 become U+FFFD, since a scraper refuses the whole page for one such byte. */
#include "proto/base/utf8.h"
#include "server/web/report.h"

#include <inttypes.h>
#include <string.h>

static void put_label(FILE *out, const char *text) {
    const uint8_t *at = (const uint8_t *)text;
    size_t left = strlen(text);
    while (left) {
        size_t size = fm_utf8_size(at, left);
        if (size == 0) {
            fputs("\xef\xbf\xbd", out);
            size = 1;
        } else if (*at == '\\' || *at == '"') {
            fprintf(out, "\\%c", *at);
        } else if (*at == '\n') {
            fputs("\\n", out);
        } else {
            fwrite(at, 1, size, out);
        }
        at += size;
        left -= size;
    }
}

static void put_head(FILE *out, const char *name, const char *kind, const char *help) {
    fprintf(out, "# HELP foldmill_%s %s\n# TYPE foldmill_%s %s\n", name, help, name, kind);
}

static void put_values(FILE *out, const fm_web_report *report) {
    put_head(out, "info", "gauge", "The server; the value is always 1.");
    fputs("foldmill_info{version=\"", out);
    put_label(out, report->version);
    fputs("\"} 1\n", out);
    put_head(out, "uptime_seconds", "gauge", "Seconds since the server began.");
    fprintf(out, "foldmill_uptime_seconds %.1f\n", report->uptime_s);
    put_head(out, "memory_limit_bytes", "gauge", "The budget for samples (--max-memory).");
    fprintf(out, "foldmill_memory_limit_bytes %" PRIu64 "\n", report->memory_limit_bytes);
    uint64_t n_waiting = 0;
    for (size_t i = 0; i < report->n_stream; i++)
        n_waiting += report->stream[i].credit_items == 0 && report->stream[i].n_pending > 0;
    put_head(out, "streams_waiting_for_credit", "gauge",
             "Streams with samples that their clients have no room for.");
    fprintf(out, "foldmill_streams_waiting_for_credit %" PRIu64 "\n", n_waiting);
    for (size_t i = 0; i < report->n_value; i++) {
        const fm_report_value *value = &report->value[i];
        put_head(out, value->name, value->is_gauge ? "gauge" : "counter", value->help);
        fprintf(out, "foldmill_%s %" PRIu64 "\n", value->name, value->value);
    }
}

/* The labels of a consumer's row, without the braces around them. */
static void put_consumer_labels(FILE *out, const fm_report_consumer *consumer) {
    fputs("peer=\"", out);
    put_label(out, consumer->peer);
    fputs("\",consumer=\"", out);
    put_label(out, consumer->agent);
    fputc('"', out);
}

/* One line of a histogram; `bound` is NULL except for buckets, `consumer` for the whole server. */
static void put_sample(FILE *out, const char *name, const char *suffix,
                       const fm_report_consumer *consumer, const char *bound) {
    fprintf(out, "foldmill_%s%s", name, suffix);
    if (consumer || bound) fputc('{', out);
    if (consumer) put_consumer_labels(out, consumer);
    if (bound) fprintf(out, "%sle=\"%s\"", consumer ? "," : "", bound);
    fputs(consumer || bound ? "} " : " ", out);
}

/* The histogram's own buckets are finer than a scraper wants: each of these bounds takes all
 * values that are certainly below it. */
static void put_histogram(FILE *out, const char *name, const fm_report_consumer *consumer,
                          const fm_histogram *times) {
    static const struct {
        const char *text;
        uint64_t ns;
    } bounds[] = {
        {"0.0001", 100000},  {"0.001", 1000000},  {"0.005", 5000000},  {"0.01", 10000000},
        {"0.025", 25000000}, {"0.05", 50000000},  {"0.1", 100000000},  {"0.25", 250000000},
        {"0.5", 500000000},  {"1", 1000000000},   {"2.5", 2500000000}, {"5", 5000000000},
        {"10", 10000000000}, {"30", 30000000000}, {"60", 60000000000}, {"300", 300000000000}};
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        put_sample(out, name, "_bucket", consumer, bounds[i].text);
        fprintf(out, "%" PRIu64 "\n", fm_histogram_count_below(times, bounds[i].ns));
    }
    put_sample(out, name, "_bucket", consumer, "+Inf");
    fprintf(out, "%" PRIu64 "\n", times->n);
    put_sample(out, name, "_sum", consumer, NULL);
    fprintf(out, "%.9f\n", (double)times->sum / 1e9);
    put_sample(out, name, "_count", consumer, NULL);
    fprintf(out, "%" PRIu64 "\n", times->n);
}

static void put_times(FILE *out, const char *name, const char *help, const fm_histogram *times) {
    put_head(out, name, "histogram", help);
    put_histogram(out, name, NULL, times);
}

static void put_snapshot_label(FILE *out, const char *name, const fm_report_snapshot *snapshot) {
    fprintf(out, "foldmill_%s{snapshot=\"", name);
    put_label(out, snapshot->name);
    fprintf(out, "\",generation=\"%" PRIu64 "\",snapshot_hash=\"%s\",old=\"%d\"} ",
            snapshot->generation, snapshot->hash, snapshot->is_old);
}

static uint64_t chains_in(const fm_report_snapshot *snapshot) {
    return snapshot->n_chain;
}
static uint64_t users_of(const fm_report_snapshot *snapshot) {
    return snapshot->n_user;
}
static uint64_t samples_from(const fm_report_snapshot *snapshot) {
    return snapshot->n_sample;
}
static uint64_t bytes_from(const fm_report_snapshot *snapshot) {
    return snapshot->n_byte;
}

static void put_snapshots(FILE *out, const fm_web_report *report) {
    static const struct {
        const char *name, *kind, *help;
        uint64_t (*field)(const fm_report_snapshot *snapshot);
    } rows[] = {
        {"snapshot_chains", "gauge", "Chains of a snapshot that is open.", chains_in},
        {"snapshot_users", "gauge", "Connections and streams that use a snapshot.", users_of},
        {"snapshot_samples_total", "counter", "Samples sent from a snapshot since it was opened.",
         samples_from},
        {"snapshot_bytes_total", "counter", "Bytes of those samples.", bytes_from},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        put_head(out, rows[r].name, rows[r].kind, rows[r].help);
        for (size_t i = 0; i < report->n_snapshot; i++) {
            put_snapshot_label(out, rows[r].name, &report->snapshot[i]);
            fprintf(out, "%" PRIu64 "\n", rows[r].field(&report->snapshot[i]));
        }
    }
}

/* -- consumers */

static uint64_t streams_of(const fm_report_consumer *consumer) {
    return consumer->n_stream;
}
static uint64_t samples_of(const fm_report_consumer *consumer) {
    return consumer->n_sample;
}
static uint64_t bytes_of(const fm_report_consumer *consumer) {
    return consumer->n_byte;
}
static uint64_t failed_of(const fm_report_consumer *consumer) {
    return consumer->n_failed;
}

static void put_consumer_values(FILE *out, const fm_web_report *report) {
    static const struct {
        const char *name, *kind, *help;
        uint64_t (*field)(const fm_report_consumer *consumer);
    } rows[] = {
        {"consumer_streams", "gauge", "Streams of one consumer that are open.", streams_of},
        {"consumer_samples_total", "counter", "Samples sent to one consumer.", samples_of},
        {"consumer_bytes_total", "counter", "Bytes of samples sent to one consumer.", bytes_of},
        {"consumer_failed_total", "counter", "Samples of one consumer that could not be made.",
         failed_of},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        put_head(out, rows[r].name, rows[r].kind, rows[r].help);
        for (size_t i = 0; i < report->n_consumer; i++) {
            put_sample(out, rows[r].name, "", &report->consumer[i], NULL);
            fprintf(out, "%" PRIu64 "\n", rows[r].field(&report->consumer[i]));
        }
    }
}

static void put_consumer_times(FILE *out, const fm_web_report *report) {
    put_head(out, "consumer_prepare_seconds", "histogram",
             "Time to make a sample of one consumer, on a worker.");
    for (size_t i = 0; i < report->n_consumer; i++) {
        put_histogram(out, "consumer_prepare_seconds", &report->consumer[i],
                      &report->consumer[i].times.prepare);
    }
    put_head(out, "consumer_wait_seconds", "histogram",
             "Time that a ready sample of one consumer waits for order, credit and its turn.");
    for (size_t i = 0; i < report->n_consumer; i++) {
        put_histogram(out, "consumer_wait_seconds", &report->consumer[i],
                      &report->consumer[i].times.wait);
    }
    put_head(out, "consumer_send_seconds", "histogram",
             "Time from the start of a write of samples of one consumer to its end.");
    for (size_t i = 0; i < report->n_consumer; i++) {
        put_histogram(out, "consumer_send_seconds", &report->consumer[i],
                      &report->consumer[i].times.send);
    }
}

/* -- refused samples */

static bool is_first_of_chain(const fm_web_report *report, uint32_t at) {
    for (uint32_t i = 0; i < at; i++)
        if (strcmp(report->refused[i].chain, report->refused[at].chain) == 0) return false;
    return true;
}

/* A gauge over the latest ones: counters by chain would have no bound. */
static void put_refused(FILE *out, const fm_web_report *report) {
    put_head(out, "chain_failed_recently", "gauge",
             "Of the latest samples that could not be made, how many are of one chain.");
    for (uint32_t i = 0; i < report->n_refused; i++) {
        if (!is_first_of_chain(report, i)) continue;
        uint32_t n = 0;
        for (uint32_t k = i; k < report->n_refused; k++)
            n += strcmp(report->refused[k].chain, report->refused[i].chain) == 0;
        fputs("foldmill_chain_failed_recently{chain=\"", out);
        put_label(out, report->refused[i].chain);
        fprintf(out, "\"} %" PRIu32 "\n", n);
    }
}

void fm_report_metrics(const fm_web_report *report, FILE *out) {
    put_values(out, report);
    put_snapshots(out, report);
    put_times(out, "prepare_seconds", "Time to make a sample, on a worker.",
              &report->times.prepare);
    put_times(out, "wait_seconds", "Time that a ready sample waits for order, credit and its turn.",
              &report->times.wait);
    put_times(out, "send_seconds", "Time from the start of a write of samples to its end.",
              &report->times.send);
    put_consumer_values(out, report);
    put_consumer_times(out, report);
    put_refused(out, report);
}
