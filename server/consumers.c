/* consumers.c: see consumers.h. */
#include "server/consumers.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fm_consumers {
    uint32_t n;                                 /* rows in use, without "other" */
    fm_report_consumer row[FM_CONSUMERS_N + 1]; /* [FM_CONSUMERS_N]: "other" */
    uint64_t idle_since_ms[FM_CONSUMERS_N + 1]; /* of a row without streams */
};

static fm_report_consumer *other_of(fm_consumers *consumers) {
    return &consumers->row[FM_CONSUMERS_N];
}

fm_consumers *fm_consumers_create(void) {
    fm_consumers *consumers = calloc(1, sizeof *consumers);
    if (!consumers) return NULL;
    snprintf(other_of(consumers)->peer, FM_REPORT_NAME_BYTES, "other");
    snprintf(other_of(consumers)->agent, FM_REPORT_NAME_BYTES, "other");
    return consumers;
}

void fm_consumers_destroy(fm_consumers *consumers) {
    free(consumers);
}

/* Moves the row's counts to "other". */
static void fold(fm_consumers *consumers, const fm_report_consumer *row) {
    fm_report_consumer *other = other_of(consumers);
    other->n_sample += row->n_sample;
    other->n_byte += row->n_byte;
    other->n_failed += row->n_failed;
    fm_histogram_merge(&other->times.prepare, &row->times.prepare);
    fm_histogram_merge(&other->times.wait, &row->times.wait);
    fm_histogram_merge(&other->times.send, &row->times.send);
}

/* Returns the row that has been idle for longest, if that is long enough; NULL otherwise. */
static fm_report_consumer *find_unused(fm_consumers *consumers, uint64_t now_ms) {
    fm_report_consumer *oldest = NULL;
    uint64_t since_ms = now_ms;
    for (uint32_t i = 0; i < FM_CONSUMERS_N; i++) {
        if (consumers->row[i].n_stream || consumers->idle_since_ms[i] >= since_ms) continue;
        since_ms = consumers->idle_since_ms[i];
        oldest = &consumers->row[i];
    }
    return oldest && now_ms - since_ms >= FM_CONSUMERS_KEPT_MS ? oldest : NULL;
}

/* Returns a row for a new consumer, or "other" when no row can be had. */
static fm_report_consumer *make_row(fm_consumers *consumers, const char *peer, const char *agent,
                                    uint64_t now_ms) {
    uint32_t n_of_peer = 0;
    for (uint32_t i = 0; i < consumers->n; i++)
        n_of_peer += strcmp(consumers->row[i].peer, peer) == 0;
    if (n_of_peer >= FM_CONSUMERS_N_OF_PEER) return other_of(consumers);
    fm_report_consumer *row = NULL;
    if (consumers->n < FM_CONSUMERS_N) {
        row = &consumers->row[consumers->n++];
    } else {
        row = find_unused(consumers, now_ms);
        if (!row) return other_of(consumers);
        fold(consumers, row);
    }
    *row = (fm_report_consumer){0};
    snprintf(row->peer, sizeof row->peer, "%s", peer);
    snprintf(row->agent, sizeof row->agent, "%s", agent);
    return row;
}

fm_report_consumer *fm_consumers_begin(fm_consumers *consumers, const char *peer, const char *agent,
                                       uint64_t now_ms) {
    fm_report_consumer *row = NULL;
    for (uint32_t i = 0; !row && i < consumers->n; i++) {
        fm_report_consumer *one = &consumers->row[i];
        bool is_same = strncmp(one->peer, peer, sizeof one->peer - 1) == 0 &&
                       strncmp(one->agent, agent, sizeof one->agent - 1) == 0;
        row = is_same ? one : NULL;
    }
    if (!row) row = make_row(consumers, peer, agent, now_ms);
    row->n_stream++;
    return row;
}

void fm_consumers_end(fm_consumers *consumers, fm_report_consumer *row, uint64_t now_ms) {
    assert(row->n_stream);
    row->n_stream--;
    consumers->idle_since_ms[row - consumers->row] = now_ms;
}

void fm_consumer_add(fm_report_consumer *row, const fm_job *job, uint64_t wait_ns) {
    fm_histogram_add(&row->times.prepare, job->end_ns - job->begin_ns);
    if (job->status) {
        row->n_failed++;
        return;
    }
    fm_histogram_add(&row->times.wait, wait_ns);
    row->n_sample++;
    row->n_byte += job->bytes;
}

bool fm_consumers_describe(const fm_consumers *consumers, fm_web_report *report) {
    const fm_report_consumer *other = &consumers->row[FM_CONSUMERS_N];
    bool has_other = other->n_stream || other->times.prepare.n;
    report->consumer = calloc(consumers->n + 1, sizeof report->consumer[0]);
    if (!report->consumer) return false;
    memcpy(report->consumer, consumers->row, consumers->n * sizeof report->consumer[0]);
    if (has_other) report->consumer[consumers->n] = *other;
    report->n_consumer = consumers->n + has_other;
    return true;
}
