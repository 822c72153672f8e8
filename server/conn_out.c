/* conn_out.c: what a connection sends: control frames, and the samples of its streams in turn.
 *
 * fm_conn_pump moves ready samples from the streams into the ring and starts the next write. It is
 * called when input was handled, when a write has ended, and when a worker has finished a
 * sample. */
#include "server/conn_state.h"

#include "server/public_text.h"

enum { N_OUT_SAMPLE = 48 }; /* samples enter the ring while fewer entries are in use */

/* -- frames out */

void fm_conn_send(fm_conn *conn, const fm_wire_message *message) {
    if (conn->state == CONN_CLOSED) return;
    fm_out_frame *out =
        fm_out_push(&conn->out); /* FM_CONN_N_ANSWER leaves room for the last ones */
    out->head_bytes = fm_wire_encode(message, conn->n_sent++, out->head, sizeof out->head);
}

void fm_conn_send_error(fm_conn *conn, uint32_t stream, fm_wire_scope scope, fm_status status,
                        uint64_t index, const char *text) {
    fm_wire_message message = {.kind = FM_WIRE_ERROR, .stream = stream};
    message.error.status = (uint16_t)status;
    message.error.scope = (uint8_t)scope;
    message.error.index = index;
    fm_wire_text(message.error.text, sizeof message.error.text, text);
    /* Texts about streams and samples come from the cache and may name files. Those about the
     * connection are the server's own, and name snapshots such as "pdb/train". */
    if (scope != FM_WIRE_SCOPE_CONNECTION) fm_public_text(message.error.text);
    fm_conn_send(conn, &message);
}

void fm_conn_send_end(fm_conn *conn, uint32_t at, fm_wire_reason reason) {
    fm_wire_message message = {.kind = FM_WIRE_END, .stream = conn->streams[at].id};
    message.end.reason = reason;
    message.end.n_sent = fm_server_stream_get_n_sent(conn->streams[at].stream);
    fm_conn_send(conn, &message);
}

/* -- samples out */

static void push_sample(fm_conn *conn, uint32_t stream, fm_work *work) {
    fm_out_frame *out = fm_out_push(&conn->out);
    fm_wire_header header = {.kind = FM_WIRE_SAMPLE,
                             .stream = stream,
                             .body_bytes = (uint32_t)work->job.bytes,
                             .sequence = conn->n_sent++};
    fm_wire_header_encode(&header, out->head);
    out->head_bytes = FM_WIRE_HEADER_BYTES;
    out->work = work;
    conn->payer->n_byte += work->job.bytes;
    conn->host->sample_sent(conn->host->server, work);
}

/* Reports a sample that could not be made, in its place in the order. */
static void report_failure(fm_conn *conn, uint32_t at, fm_work *work) {
    fm_server_stream *stream = conn->streams[at].stream;
    bool stops = fm_server_stream_get_policy(stream) == FM_WIRE_STOP;
    char text[FM_ERROR_TEXT_BYTES];
    fm_error_format(&work->job.error, text, sizeof text);
    char quoted[700];
    fm_conn_log(conn, FM_LOG_ERROR, "sample_failed", "stream=%u index=%llu why=%s",
                conn->streams[at].id, (unsigned long long)work->job.index,
                fm_log_quote(quoted, sizeof quoted, text));
    conn->host->sample_sent(conn->host->server, work);
    fm_conn_send_error(conn, conn->streams[at].id,
                       stops ? FM_WIRE_SCOPE_STREAM : FM_WIRE_SCOPE_SAMPLE, work->job.status,
                       work->job.index, text);
    fm_server_stream_release(stream, work);
    if (stops) fm_conn_drop_stream(conn, at, "a sample could not be made");
}

/* Ends a stream whose peer has received all bytes that it may have. */
static void end_allowance(fm_conn *conn, uint32_t at) {
    fm_error error;
    fm_fail(&error, FM_ERR_LIMIT, "the %llu bytes that this token allows were sent",
            (unsigned long long)conn->payer->limits.n_byte);
    fm_conn_count(conn, FM_COUNT_BYTES_EXHAUSTED);
    fm_conn_send_error(conn, conn->streams[at].id, FM_WIRE_SCOPE_STREAM, error.status,
                       FM_WIRE_NO_INDEX, error.message);
    fm_conn_drop_stream(conn, at, "the allowance of bytes is used up");
}

/* Queues one sample of a stream, or its END; false when it has nothing to send. */
static bool send_one(fm_conn *conn, uint32_t at) {
    fm_server_stream *stream = conn->streams[at].stream;
    if (!stream || conn->out.n >= N_OUT_SAMPLE) return false;
    if (!fm_is_within_bytes(conn->payer)) {
        end_allowance(conn, at);
        return true;
    }
    fm_work *work = fm_server_stream_pick(stream);
    if (!work) {
        if (!fm_server_stream_is_delivered(stream)) return false;
        fm_conn_send_end(conn, at, FM_WIRE_DELIVERED);
        fm_conn_drop_stream(conn, at, "all samples were sent");
        return true;
    }
    if (work->job.status) {
        report_failure(conn, at, work);
    } else {
        push_sample(conn, conn->streams[at].id, work);
    }
    return true;
}

/* Streams take turns with one sample each, so that none starves the others. */
static void send_samples(fm_conn *conn) {
    bool any = true;
    while (any && conn->state == CONN_READY) {
        any = false;
        for (uint32_t i = 0; i < FM_LIMIT_N_STREAM && conn->state == CONN_READY; i++)
            any = send_one(conn, (conn->turn + i) % FM_LIMIT_N_STREAM) || any;
        conn->turn++;
    }
}

void fm_conn_flush(fm_conn *conn) {
    if (conn->state == CONN_CLOSED || conn->is_finished) return;
    fm_bytes runs[FM_CHANNEL_N_RUN];
    size_t n_run;
    if (fm_out_begin(&conn->out, runs, &n_run)) {
        if (!fm_channel_write(conn->channel, runs, n_run)) fm_conn_close(conn, "cannot write");
    } else if (conn->out.n == 0 && conn->state == CONN_DRAINING) {
        conn->is_finished = true;
        conn->progress_ms = conn->now_ms;
        fm_channel_finish(conn->channel);
    }
}

void fm_conn_pump(fm_conn *conn) {
    send_samples(conn);
    fm_conn_flush(conn);
}

void fm_conn_on_written(void *owner, bool failed) {
    fm_conn *conn = owner;
    conn->written_bytes += fm_out_end(&conn->out);
    if (conn->state == CONN_CLOSED) return;
    if (failed) {
        fm_conn_close(conn, "the peer is gone");
    } else {
        fm_conn_pump(conn);
    }
    conn->host->work_wanted(conn->host->server); /* blocks became free */
}
