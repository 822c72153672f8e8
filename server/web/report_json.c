/* report_json.c: a report as JSON; see report.h. */
#include "proto/base/json_text.h"
#include "server/web/report.h"

static double ms(uint64_t ns) {
    return (double)ns / 1e6;
}

static void put_times(fm_json_writer *json, const char *key, const fm_histogram *times) {
    fm_json_open_object(json, key);
    fm_json_put_u64(json, "n", times->n);
    fm_json_put_f64(json, "p50_ms", ms(fm_histogram_percentile(times, 500)), 3);
    fm_json_put_f64(json, "p90_ms", ms(fm_histogram_percentile(times, 900)), 3);
    fm_json_put_f64(json, "p99_ms", ms(fm_histogram_percentile(times, 990)), 3);
    fm_json_put_f64(json, "max_ms", ms(times->max), 3);
    fm_json_close(json);
}

static void put_head(fm_json_writer *json, const fm_web_report *report) {
    fm_json_put_string(json, "version", report->version);
    fm_json_put_u64(json, "jobs", report->n_job);
    fm_json_put_f64(json, "uptime_s", report->uptime_s, 1);
    fm_json_put_bool(json, "stopping", report->is_ending);
    fm_json_put_u64(json, "memory_limit_bytes", report->memory_limit_bytes);
    fm_json_open_object(json, "counters");
    for (size_t i = 0; i < report->n_value; i++)
        fm_json_put_u64(json, report->value[i].name, report->value[i].value);
    fm_json_close(json);
    fm_json_open_object(json, "times");
    put_times(json, "prepare", &report->times.prepare);
    put_times(json, "wait", &report->times.wait);
    put_times(json, "send", &report->times.send);
    fm_json_close(json);
}

/* One array per quantity, one number per second, the oldest first. */
static void put_history(fm_json_writer *json, const fm_web_report *report) {
    fm_json_open_object(json, "history");
    fm_json_open_array(json, "samples");
    for (uint32_t i = 0; i < report->n_second; i++)
        fm_json_put_u64(json, NULL, report->second[i].n_sample);
    fm_json_close(json);
    fm_json_open_array(json, "bytes");
    for (uint32_t i = 0; i < report->n_second; i++)
        fm_json_put_u64(json, NULL, report->second[i].n_byte);
    fm_json_close(json);
    fm_json_open_array(json, "memory_bytes");
    for (uint32_t i = 0; i < report->n_second; i++)
        fm_json_put_u64(json, NULL, report->second[i].memory_bytes);
    fm_json_close(json);
    fm_json_close(json);
}

static void put_stream(fm_json_writer *json, const fm_report_stream *stream) {
    fm_json_open_object(json, NULL);
    fm_json_put_u64(json, "connection", stream->connection);
    fm_json_put_u64(json, "stream", stream->stream);
    fm_json_put_string(json, "peer", stream->peer);
    fm_json_put_string(json, "agent", stream->agent);
    fm_json_put_string(json, "plan", stream->plan);
    fm_json_put_string(json, "snapshot", stream->snapshot);
    fm_json_put_u64(json, "generation", stream->generation);
    fm_json_put_u64(json, "group", stream->group);
    fm_json_put_u64(json, "groups", stream->n_group);
    fm_json_put_u64(json, "window", stream->window);
    fm_json_put_u64(json, "samples", stream->n_sample);
    if (stream->n_total == UINT64_MAX) {
        fm_json_put_string(json, "samples_in_all", NULL);
    } else {
        fm_json_put_u64(json, "samples_in_all", stream->n_total);
    }
    fm_json_put_u64(json, "bytes", stream->n_byte);
    fm_json_put_u64(json, "failed", stream->n_failed);
    fm_json_put_u64(json, "credit", stream->credit_items);
    fm_json_put_u64(json, "pending", stream->n_pending);
    fm_json_put_f64(json, "wait_p50_ms", ms(stream->wait_p50_ns), 3);
    fm_json_put_f64(json, "wait_p99_ms", ms(stream->wait_p99_ns), 3);
    fm_json_put_f64(json, "age_s", stream->age_s, 1);
    fm_json_close(json);
}

static void put_consumer(fm_json_writer *json, const fm_report_consumer *consumer) {
    fm_json_open_object(json, NULL);
    fm_json_put_string(json, "peer", consumer->peer);
    fm_json_put_string(json, "agent", consumer->agent);
    fm_json_put_u64(json, "streams", consumer->n_stream);
    fm_json_put_u64(json, "samples", consumer->n_sample);
    fm_json_put_u64(json, "bytes", consumer->n_byte);
    fm_json_put_u64(json, "failed", consumer->n_failed);
    put_times(json, "prepare", &consumer->times.prepare);
    put_times(json, "wait", &consumer->times.wait);
    put_times(json, "send", &consumer->times.send);
    fm_json_close(json);
}

static void put_chains(fm_json_writer *json, const fm_web_report *report) {
    fm_json_open_array(json, "slowest");
    for (uint32_t i = 0; i < report->n_slow; i++) {
        fm_json_open_object(json, NULL);
        fm_json_put_string(json, "chain", report->slow[i].chain);
        fm_json_put_u64(json, "index", report->slow[i].index);
        fm_json_put_f64(json, "prepare_ms", ms(report->slow[i].prepare_ns), 3);
        fm_json_close(json);
    }
    fm_json_close(json);
    fm_json_open_array(json, "refused");
    for (uint32_t i = 0; i < report->n_refused; i++) {
        fm_json_open_object(json, NULL);
        fm_json_put_string(json, "chain", report->refused[i].chain);
        fm_json_put_u64(json, "index", report->refused[i].index);
        fm_json_put_string(json, "reason", report->refused[i].reason);
        fm_json_put_f64(json, "age_s", report->refused[i].age_s, 1);
        fm_json_close(json);
    }
    fm_json_close(json);
}

static void put_snapshots(fm_json_writer *json, const fm_web_report *report) {
    fm_json_open_array(json, "snapshots");
    for (size_t i = 0; i < report->n_snapshot; i++) {
        const fm_report_snapshot *snapshot = &report->snapshot[i];
        fm_json_open_object(json, NULL);
        fm_json_put_string(json, "name", snapshot->name);
        fm_json_put_string(json, "hash", snapshot->hash);
        fm_json_put_u64(json, "generation", snapshot->generation);
        fm_json_put_u64(json, "chains", snapshot->n_chain);
        fm_json_put_u64(json, "users", snapshot->n_user);
        fm_json_put_u64(json, "samples", snapshot->n_sample);
        fm_json_put_u64(json, "bytes", snapshot->n_byte);
        fm_json_put_string(json, "state", snapshot->is_old ? "old" : "offered");
        fm_json_close(json);
    }
    fm_json_close(json);
}

void fm_report_json(const fm_web_report *report, FILE *out) {
    fm_json_writer json;
    fm_json_begin(&json, out);
    put_head(&json, report);
    put_snapshots(&json, report);
    put_history(&json, report);
    fm_json_open_array(&json, "streams");
    for (size_t i = 0; i < report->n_stream; i++)
        put_stream(&json, &report->stream[i]);
    fm_json_close(&json);
    fm_json_open_array(&json, "consumers");
    for (size_t i = 0; i < report->n_consumer; i++)
        put_consumer(&json, &report->consumer[i]);
    fm_json_close(&json);
    put_chains(&json, report);
    fm_json_end(&json);
}
