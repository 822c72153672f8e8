/* server.c: see server.h.
 *
 * Connections are admitted and listed in admission.h. Their streams are in turns.h, which says
 * whose job is begun next. This file joins both with the loop and the workers. */
#include "server/server.h"

#include "proto/address.h"
#include "proto/base/directory.h"
#include "proto/base/log.h"
#include "server/admission.h"
#include "server/board.h"
#include "server/consumers.h"
#include "server/inquiry.h"
#include "server/rates.h"
#include "server/takeover.h"
#include "server/turns.h"
#include "server/web/web.h"

#include <assert.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DEFAULT_MEMORY ((size_t)2 << 30)

enum {
    TICK_MS = 100,
    PEER_CONNECTIONS_MIN = 16,
    REPORT_MS = 2000, /* the loop must answer a question for a report within this time */
    N_ADDRESS = FM_SERVER_N_LISTEN_MAX + FM_SERVICE_N_SOCKET,
};

struct fm_server {
    fm_offer offer;
    fm_takeover *takeover; /* NULL when the sources never change */
    fm_loop *loop;
    fm_worker_pool *pool;
    fm_access *access;
    fm_accounts *accounts;
    fm_turns *turns;
    fm_conn_host host;
    fm_budget budget;
    fm_limits peer_limits;
    size_t n_listen;
    fm_listener *listeners[N_ADDRESS];
    fm_address addresses[N_ADDRESS];
    /* The file of a unix socket as this server made it; absent for others, and for one that was
     * handed over, whose file belongs to the process that made it. */
    fm_path_mark files[N_ADDRESS];
    char address_texts[N_ADDRESS][FM_ADDRESS_TEXT_BYTES];
    fm_service_manager *manager;
    fm_admission admission;
    uint32_t rates_ms;
    bool is_ending;
    bool is_reloading;
    bool is_turn_free; /* for the handshake of a waiting connection */
    _Atomic bool is_stop_wanted, is_reload_wanted;
    fm_rates rates;
    fm_counters counters;
    fm_board *board;
    fm_consumers *consumers;
    fm_inquiry *inquiry;
    fm_web *web; /* NULL without --http */
    const char *version;
    uint32_t n_job, linger_ms;
};

/* -- streams and their jobs */

static void update_gauges(fm_server *server) {
    fm_gauge(&server->counters, FM_COUNT_STREAMS, fm_turns_get_n_stream(server->turns));
    fm_gauge(&server->counters, FM_COUNT_MEMORY, server->budget.used_bytes);
    fm_gauge(&server->counters, FM_COUNT_JOBS, fm_worker_pool_busy(server->pool));
}

/* Destroys dropped streams that are idle, and begins jobs while the pool has room. */
static void dispatch(fm_server *server) {
    fm_turns_reap(server->turns);
    while (fm_worker_pool_has_room(server->pool)) {
        fm_job *job = fm_turns_next_job(server->turns);
        if (!job) break;
        fm_worker_pool_submit(server->pool, job);
    }
    update_gauges(server);
}

static void on_work_wanted(void *owner) {
    dispatch(owner);
}

static fm_status on_stream_opened(void *owner, const fm_account *payer, fm_server_stream *stream,
                                  fm_error *reterr) {
    fm_server *server = owner;
    fm_server_stream_set_send_times(stream, fm_board_get_send_times(server->board));
    fm_status status = fm_turns_add(server->turns, payer, stream, reterr);
    update_gauges(server);
    if (status) return status;
    const fm_report_stream *label = fm_server_stream_get_label(stream);
    fm_server_stream_set_consumer(stream,
                                  fm_consumers_begin(server->consumers, label->peer, label->agent,
                                                     fm_loop_now_ms(server->loop)));
    return FM_OK;
}

static void on_stream_dropped(void *owner, const fm_account *payer, fm_server_stream *stream) {
    fm_server *server = owner;
    fm_consumers_end(server->consumers, fm_server_stream_get_consumer(stream),
                     fm_loop_now_ms(server->loop));
    fm_turns_drop(server->turns, payer, stream);
    update_gauges(server);
}

static void on_sample_sent(void *owner, const fm_work *work) {
    fm_server *server = owner;
    const fm_job *job = &work->job;
    fm_consumer_add(fm_server_stream_get_consumer(work->stream), job,
                    work->picked_ns - work->ready_ns);
    fm_histogram_add(&server->rates.prepare_ns, job->end_ns - job->begin_ns);
    fm_histogram_add(&server->rates.ready_ns, work->picked_ns - work->ready_ns);
    fm_sample_source *source = fm_server_stream_get_source(work->stream);
    const char *chain = source->name ? source->name(job->plan, job->index) : "-";
    fm_board_add_prepared(server->board, chain, job->index, job->end_ns - job->begin_ns);
    if (job->status) {
        fm_count(&server->counters, FM_COUNT_SAMPLES_FAILED, 1);
        fm_board_add_refused(server->board, chain, job->index, job->error.message,
                             fm_loop_now_ms(server->loop));
        return;
    }
    fm_board_add_sent(server->board, job->bytes, work->picked_ns - work->ready_ns);
    source->n_sample++;
    source->n_byte += job->bytes;
    fm_count(&server->counters, FM_COUNT_SAMPLES_SENT, 1);
    fm_count(&server->counters, FM_COUNT_SAMPLE_BYTES, job->bytes);
}

/* -- connections */

static void on_accepted(void *owner, fm_socket *socket) {
    fm_server *server = owner;
    fm_admission_take(&server->admission, socket, fm_loop_now_ms(server->loop));
}

static void on_greeted(void *owner, fm_conn *conn) {
    fm_server *server = owner;
    fm_admission_greeted(&server->admission, conn);
}

static void on_turn_free(void *owner) {
    fm_server *server = owner;
    server->is_turn_free = true;
    fm_loop_wake(server->loop); /* not here: the caller is in the middle of another connection */
}

static void on_conn_closed(void *owner, fm_conn *conn) {
    fm_server *server = owner;
    fm_admission_remove(&server->admission, conn);
    dispatch(server); /* blocks became free */
}

/* -- snapshots */

static void count_snapshots(fm_server *server) {
    fm_gauge(&server->counters, FM_COUNT_SNAPSHOTS, server->offer.n_current);
    fm_gauge(&server->counters, FM_COUNT_SNAPSHOTS_OLD, server->offer.n_old);
}

static bool on_look_for(void *owner, const fm_wire_hello *hello, uint64_t *ret_question) {
    fm_server *server = owner;
    if (!server->takeover) return false;
    *ret_question = fm_takeover_find(server->takeover, hello->snapshot_name, &hello->snapshot);
    return true;
}

/* Takes over the sources that the takeover's thread has opened and found. */
static void collect_news(fm_server *server) {
    fm_takeover_news news;
    if (!server->takeover || !fm_takeover_collect(server->takeover, &news)) return;
    uint64_t now_ms = fm_loop_now_ms(server->loop);
    if (news.has_list) fm_offer_set(&server->offer, news.list, news.n_list, now_ms);
    if (news.has_list && server->is_reloading) {
        server->is_reloading = false;
        fm_service_ready(server->manager);
    }
    for (size_t i = 0; i < news.n_found; i++)
        fm_offer_add_old(&server->offer, news.found[i], now_ms);
    fm_count(&server->counters, FM_COUNT_SNAPSHOTS_OPENED, news.change.n_opened);
    fm_count(&server->counters, FM_COUNT_SNAPSHOTS_FAILED, news.change.n_failed);
    count_snapshots(server);
    for (fm_conn *conn = server->admission.conns; conn; conn = fm_conn_get_next(conn)) {
        for (size_t i = 0; i < news.n_failed; i++)
            fm_conn_fail_question(conn, news.failed[i].question, news.failed[i].status);
        fm_conn_look_again(conn, news.answered);
    }
}

static void give_unused_back(fm_server *server) {
    uint64_t now_ms = fm_loop_now_ms(server->loop);
    for (;;) {
        fm_sample_source *source = fm_offer_take_unused(&server->offer, now_ms, server->linger_ms);
        if (!source) break;
        fm_takeover_give_back(server->takeover, source);
    }
    count_snapshots(server);
}

/* -- rates */

static void log_rates(fm_server *server, uint64_t now_ms) {
    fm_rates_load load = {.n_connection = server->admission.n_admitted,
                          .n_job = fm_worker_pool_busy(server->pool),
                          .n_stream = fm_turns_get_n_stream(server->turns),
                          .memory_bytes = server->budget.used_bytes};
    fm_rates_log(&server->rates, &server->counters, &load, now_ms);
}

/* -- reports */

static bool fill_values(const fm_server *server, fm_web_report *report) {
    report->value = calloc(FM_N_COUNTER, sizeof report->value[0]);
    if (!report->value) return false;
    report->n_value = FM_N_COUNTER;
    for (size_t i = 0; i < FM_N_COUNTER; i++) {
        const fm_counter_row *row = &fm_counter_rows[i];
        report->value[i] = (fm_report_value){row->name, row->help, row->kind == FM_GAUGES,
                                             fm_counter_read(&server->counters, (fm_counter)i)};
    }
    return true;
}

static bool fill_streams(const fm_server *server, fm_web_report *report) {
    size_t n = fm_turns_get_n_stream(server->turns);
    report->stream = calloc(n + 1, sizeof report->stream[0]);
    if (!report->stream) return false;
    report->n_stream = fm_turns_describe(server->turns, report->stream, n);
    return true;
}

static bool fill_snapshots(const fm_server *server, fm_web_report *report) {
    size_t n = server->offer.n_current + server->offer.n_old;
    report->snapshot = calloc(n + 1, sizeof report->snapshot[0]);
    if (!report->snapshot) return false;
    report->n_snapshot = fm_offer_describe(&server->offer, report->snapshot, n);
    return true;
}

/* Returns NULL when there is no memory. */
static fm_web_report *make_report(const fm_server *server, uint64_t now_ms) {
    fm_web_report *report = calloc(1, sizeof *report);
    if (!report || !fill_values(server, report) || !fill_streams(server, report) ||
        !fm_consumers_describe(server->consumers, report) || !fill_snapshots(server, report)) {
        fm_report_free(report);
        return NULL;
    }
    snprintf(report->version, sizeof report->version, "%s", server->version);
    report->n_job = server->n_job;
    report->is_ending = server->is_ending;
    report->memory_limit_bytes = server->budget.max_bytes;
    fm_board_fill(server->board, now_ms, report);
    return report;
}

static void wake_loop(void *context) {
    fm_server *server = context;
    fm_loop_wake(server->loop);
}

/* On the thread of the HTTP listener. */
static fm_web_report *ask_for_report(void *context) {
    fm_server *server = context;
    return fm_inquiry_ask(server->inquiry, wake_loop, server, REPORT_MS);
}

/* -- events of the loop */

/* Removes the file of a unix socket, unless another server has put its own in its place. */
static void remove_file(const fm_address *address, const fm_path_mark *file) {
    fm_path_mark now;
    const fm_path_mark none = {0};
    if (fm_path_mark_is_same(file, &none) || fm_path_mark_read(address->path, &now, NULL)) return;
    if (fm_path_mark_is_same(&now, file)) unlink(address->path);
}

static void close_listeners(fm_server *server) {
    for (size_t i = 0; i < server->n_listen; i++) {
        /* In this order: a server that starts now takes the file of a closed socket for stale and
         * replaces it, and must not lose its own. */
        remove_file(&server->addresses[i], &server->files[i]);
        fm_listener_close(server->listeners[i]);
    }
    server->n_listen = 0;
}

static void begin_end(fm_server *server) {
    if (server->is_ending) return;
    server->is_ending = true;
    fm_log(FM_LOG_INFO, "stopping", "connections=%u", server->admission.n_admitted);
    fm_service_stopping(server->manager);
    close_listeners(server);
    for (fm_conn *conn = server->admission.conns; conn; conn = fm_conn_get_next(conn))
        fm_conn_end(conn);
}

static void finish_end(fm_server *server) {
    bool is_over = !server->admission.conns && fm_turns_get_n_stream(server->turns) == 0;
    if (server->is_ending && is_over) fm_loop_stop(server->loop);
}

static void reload_files(fm_server *server) {
    fm_error error;
    char text[FM_ERROR_TEXT_BYTES], quoted[900];
    if (!fm_access_reload(server->access, &error)) {
        fm_log(FM_LOG_INFO, "reloaded", "connections=%u", server->admission.n_admitted);
        return;
    }
    fm_error_format(&error, text, sizeof text);
    fm_log(FM_LOG_ERROR, "reload_failed", "kept=\"what was read before\" why=%s",
           fm_log_quote(quoted, sizeof quoted, text));
}

static void reload(fm_server *server) {
    fm_service_reloading(server->manager);
    reload_files(server);
    server->is_reloading = server->takeover != NULL; /* until its news come */
    if (server->takeover) fm_takeover_ask(server->takeover);
    if (!server->is_reloading) fm_service_ready(server->manager);
}

static void on_wake(void *owner) {
    fm_server *server = owner;
    for (fm_job *job = fm_worker_pool_collect(server->pool), *next; job; job = next) {
        next = job->next;
        fm_work *work = job->owner;
        fm_conn *conn = fm_server_stream_get_owner(work->stream);
        fm_server_stream_finish_job(work->stream, job);
        if (conn) fm_conn_pump(conn);
    }
    dispatch(server);
    if (server->is_turn_free) {
        server->is_turn_free = false;
        fm_admission_begin_waiting(&server->admission);
    }
    if (atomic_exchange(&server->is_reload_wanted, false)) reload(server);
    collect_news(server);
    if (atomic_load(&server->is_stop_wanted)) begin_end(server);
    if (fm_inquiry_is_open(server->inquiry)) {
        fm_inquiry_answer(server->inquiry, make_report(server, fm_loop_now_ms(server->loop)));
    }
    finish_end(server);
}

static void on_tick(void *owner, uint64_t now_ms) {
    fm_server *server = owner;
    for (fm_conn *conn = server->admission.conns; conn; conn = fm_conn_get_next(conn))
        fm_conn_tick(conn, now_ms);
    fm_accounts_tick(server->accounts, now_ms);
    fm_turns_reclaim(server->turns);
    dispatch(server);
    collect_news(server);
    give_unused_back(server);
    fm_log_losses losses = fm_log_get_losses();
    fm_gauge(&server->counters, FM_COUNT_LOG_DROPPED, losses.n_dropped);
    fm_gauge(&server->counters, FM_COUNT_LOG_SUPPRESSED, losses.n_suppressed);
    if (now_ms - server->rates.begun_ms >= server->rates_ms) log_rates(server, now_ms);
    fm_board_tick(server->board, server->budget.used_bytes, now_ms);
    const fm_service_state state = {
        .n_connection = server->admission.n_admitted,
        .n_stream = fm_turns_get_n_stream(server->turns),
        .n_sample = fm_counter_read(&server->counters, FM_COUNT_SAMPLES_SENT),
        .n_byte = fm_counter_read(&server->counters, FM_COUNT_SAMPLE_BYTES)};
    fm_service_tick(server->manager, &state, now_ms);
    finish_end(server);
}

static void on_signal(void *owner, int number) {
    fm_server *server = owner;
    fm_log(FM_LOG_INFO, "signal", "number=%d", number);
    if (number == SIGHUP) {
        reload(server);
        return;
    }
    begin_end(server);
    finish_end(server);
}

/* -- creation and run */

static const fm_loop_events loop_events = {.wake = on_wake, .tick = on_tick, .signal = on_signal};

static fm_status serve_on(fm_server *server, int listening, const fm_address *bound,
                          fm_error *reterr) {
    size_t i = server->n_listen;
    fm_status status = fm_loop_listen(server->loop, listening, bound->kind, on_accepted, server,
                                      &server->listeners[i], reterr);
    if (status) return status;
    server->addresses[i] = *bound;
    fm_address_format(bound, server->address_texts[i]);
    server->n_listen++;
    return FM_OK;
}

static fm_status listen_one(fm_server *server, const char *text, bool is_insecure,
                            fm_error *reterr) {
    fm_address asked, bound;
    fm_status status = fm_address_parse(text, &asked, reterr);
    if (status) return status;
    asked.is_insecure = is_insecure;
    int listening;
    status = fm_address_listen(&asked, &listening, &bound, reterr);
    if (!status) status = serve_on(server, listening, &bound, reterr);
    if (status) return status;
    if (bound.kind == FM_ADDRESS_UNIX) {
        status = fm_path_mark_read(bound.path, &server->files[server->n_listen - 1], reterr);
        if (status) return status;
    }
    uint32_t gid;
    bool has_group = bound.kind == FM_ADDRESS_UNIX && fm_access_get_group(server->access, &gid);
    return has_group ? fm_address_open_to_group(&bound, gid, reterr) : FM_OK;
}

static fm_status check_tokens(const fm_server_options *options, const fm_address *address,
                              fm_error *reterr) {
    if (address->kind != FM_ADDRESS_TCP || !options->credentials.token_file) return FM_OK;
    char text[FM_ADDRESS_TEXT_BYTES];
    return fm_fail(
        reterr, FM_ERR_USAGE,
        "tokens (--token-file) are not taken over %.200s, where others can read them: use "
        "a tls:// address",
        fm_address_format(address, text));
}

/* Options about clients that no address has would leave the user with a false idea of who may
 * connect. */
static fm_status check_use(const fm_server_options *options, bool has_tls, bool has_unix,
                           fm_error *reterr) {
    const fm_credentials *credentials = &options->credentials;
    if (has_tls && !credentials->tls_ca && !credentials->token_file && !options->is_open_to_all) {
        return fm_fail(
            reterr, FM_ERR_USAGE,
            "tls:// needs a way to tell who may connect: --token-file for tokens, --tls-ca "
            "for certificates of clients, or --open-to-all for whoever reaches the port");
    }
    const char *useless = has_tls                 ? NULL
                          : credentials->tls_cert ? "--tls-cert"
                          : credentials->tls_ca   ? "--tls-ca"
                                                  : NULL;
    if (useless) {
        return fm_fail(reterr, FM_ERR_USAGE, "%s has no use without a tls:// address to listen on",
                       useless);
    }
    /* The unit of systemd always gives it, whatever sockets its user has chosen. */
    const bool is_handed = options->handed && options->handed->n_data;
    if (!options->unix_group || has_unix || is_handed) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE,
                   "--unix-group has no use without a unix: address to listen on");
}

/* Reads the credentials, as far as the addresses need them. */
static fm_status open_access(fm_server *server, const fm_server_options *options,
                             fm_error *reterr) {
    bool has_tls = false, has_unix = false;
    fm_status status = FM_OK;
    for (size_t i = 0; !status && i < FM_SERVER_N_LISTEN_MAX && options->listen[i]; i++) {
        fm_address address;
        status = fm_address_parse(options->listen[i], &address, reterr);
        if (status) break;
        has_tls = has_tls || address.kind == FM_ADDRESS_TLS;
        has_unix = has_unix || address.kind == FM_ADDRESS_UNIX;
        status = check_tokens(options, &address, reterr);
    }
    for (size_t i = 0; !status && options->handed && i < options->handed->n_data; i++) {
        has_tls = has_tls || options->handed->data[i].address.kind == FM_ADDRESS_TLS;
        has_unix = has_unix || options->handed->data[i].address.kind == FM_ADDRESS_UNIX;
        status = check_tokens(options, &options->handed->data[i].address, reterr);
    }
    if (!status) status = check_use(options, has_tls, has_unix, reterr);
    if (status) return status;
    return fm_access_create(&options->credentials, has_tls, options->unix_group, &server->access,
                            reterr);
}

static uint32_t or_default(uint32_t value, uint32_t fallback) {
    return value ? value : fallback;
}

static fm_limits peer_limits_of(const fm_server_options *options) {
    fm_limits limits = options->peer;
    uint32_t n_connection = or_default(options->max_connection, 256) / 2;
    if (n_connection < PEER_CONNECTIONS_MIN) n_connection = PEER_CONNECTIONS_MIN;
    size_t memory_bytes = options->max_memory_bytes ? options->max_memory_bytes : DEFAULT_MEMORY;
    limits.n_connection = or_default(limits.n_connection, n_connection);
    limits.n_greeting = or_default(limits.n_greeting, (limits.n_connection + 1) / 2);
    limits.n_stream = or_default(limits.n_stream, 256);
    limits.requests_per_s = or_default(limits.requests_per_s, 1000);
    if (!limits.memory_bytes) limits.memory_bytes = memory_bytes / 2;
    return limits;
}

static void set_options(fm_server *server, const fm_server_options *options,
                        fm_sample_source *source) {
    size_t n_source = 1;
    fm_sample_source *const *sources =
        options->library ? fm_library_get_list(options->library, &n_source) : &source;
    fm_offer_set(&server->offer, sources, n_source, 0);
    server->linger_ms = or_default(options->linger_ms, 5000);
    server->budget.max_bytes =
        options->max_memory_bytes ? options->max_memory_bytes : DEFAULT_MEMORY;
    server->peer_limits = peer_limits_of(options);
    server->version = options->version ? options->version : "";
    server->manager = options->manager;
    server->n_job = or_default(options->n_job, 1);
    const uint32_t max_connection = or_default(options->max_connection, 256);
    const uint32_t n_unix_slot = or_default(options->n_unix_slot, max_connection / 16);
    server->admission = (fm_admission){
        .host = &server->host,
        .rules = {.max_connection = max_connection,
                  .n_unix_slot = n_unix_slot < max_connection ? n_unix_slot : max_connection - 1,
                  .max_greeting = or_default(options->n_greeting, (max_connection + 1) / 2),
                  .grace_ms = or_default(options->grace_ms, 250)}};
    server->rates_ms = or_default(options->rates_ms, 60000);
    server->host = (fm_conn_host){.offer = &server->offer,
                                  .budget = &server->budget,
                                  .counters = &server->counters,
                                  .hello_ms = or_default(options->hello_ms, 5000),
                                  .heartbeat_ms = or_default(options->heartbeat_ms, 5000),
                                  .stall_ms = or_default(options->stall_ms, 300000),
                                  .goodbye_ms = or_default(options->goodbye_ms, 2000),
                                  .idle_ms = or_default(options->idle_ms, 60000),
                                  .min_bytes_per_s =
                                      options->min_bytes_per_s ? options->min_bytes_per_s : 65536,
                                  .server = server,
                                  .work_wanted = on_work_wanted,
                                  .stream_opened = on_stream_opened,
                                  .stream_dropped = on_stream_dropped,
                                  .sample_sent = on_sample_sent,
                                  .turn_free = on_turn_free,
                                  .look_for = on_look_for,
                                  .greeted = on_greeted,
                                  .conn_closed = on_conn_closed};
}

static fm_status start_board(fm_server *server, fm_error *reterr) {
    server->board = fm_board_create(fm_loop_now_ms(server->loop));
    server->inquiry = fm_inquiry_create();
    server->consumers = fm_consumers_create();
    if (server->board && server->inquiry && server->consumers) return FM_OK;
    return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the reports of a server");
}

static fm_status start_web(fm_server *server, const fm_server_options *options, fm_error *reterr) {
    const fm_web_site site = {.context = server, .report = ask_for_report};
    const fm_service_socket *handed = options->handed ? &options->handed->http : NULL;
    if (handed && handed->fd) {
        return fm_web_start_on(handed->fd, &handed->address, &site, &server->web, reterr);
    }
    return options->http ? fm_web_start(options->http, options->credentials.is_insecure, &site,
                                        &server->web, reterr)
                         : FM_OK;
}

static fm_status start(fm_server *server, const fm_server_options *options, fm_error *reterr) {
    fm_status status = fm_loop_create(&loop_events, server, TICK_MS, options->watch_signals,
                                      &server->loop, reterr);
    if (!status) status = fm_accounts_create(&server->accounts, reterr);
    if (!status) status = fm_turns_create(&server->counters, &server->turns, reterr);
    if (!status) status = start_board(server, reterr);
    if (!status) status = open_access(server, options, reterr);
    if (status) return status;
    server->host.access = server->access;
    server->host.accounts = server->accounts;
    server->host.peer_limits = &server->peer_limits;
    fm_rates_begin(&server->rates, &server->counters, fm_loop_now_ms(server->loop));
    size_t scratch_bytes =
        options->worker_memory_bytes ? options->worker_memory_bytes : (size_t)1 << 30;
    status = fm_worker_pool_create(or_default(options->n_job, 1), scratch_bytes, wake_loop, server,
                                   &server->pool, reterr);
    for (size_t i = 0; !status && i < FM_SERVER_N_LISTEN_MAX && options->listen[i]; i++)
        status = listen_one(server, options->listen[i], options->credentials.is_insecure, reterr);
    for (size_t i = 0; !status && options->handed && i < options->handed->n_data; i++) {
        const fm_service_socket *one = &options->handed->data[i];
        status = serve_on(server, one->fd, &one->address, reterr);
    }
    if (!status) status = start_web(server, options, reterr);
    if (!status && options->library) {
        status = fm_takeover_start(options->library, options->follow_ms, wake_loop, server,
                                   &server->takeover, reterr);
    }
    count_snapshots(server);
    return status;
}

fm_status fm_server_create(const fm_server_options *options, fm_sample_source *source,
                           fm_server **ret_server, fm_error *reterr) {
    fm_server *server = calloc(1, sizeof *server);
    if (!server) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a server");
    set_options(server, options, source);
    fm_status status = start(server, options, reterr);
    if (status) {
        fm_server_destroy(server);
        return status;
    }
    *ret_server = server;
    return FM_OK;
}

void fm_server_run(fm_server *server) {
    fm_service_ready(server->manager);
    fm_loop_run(server->loop);
    fm_inquiry_end(server->inquiry);
}

void fm_server_stop(fm_server *server) {
    atomic_store(&server->is_stop_wanted, true);
    fm_loop_wake(server->loop);
}

void fm_server_reload(fm_server *server) {
    atomic_store(&server->is_reload_wanted, true);
    fm_loop_wake(server->loop);
}

void fm_server_destroy(fm_server *server) {
    assert(!server->admission.conns);
    fm_web_stop(server->web);
    fm_takeover_stop(server->takeover);
    if (server->pool) fm_worker_pool_destroy(server->pool);
    close_listeners(server);
    if (server->loop) fm_loop_destroy(server->loop);
    fm_turns_destroy(server->turns);
    fm_accounts_destroy(server->accounts);
    fm_access_destroy(server->access);
    fm_inquiry_destroy(server->inquiry);
    fm_board_destroy(server->board);
    fm_consumers_destroy(server->consumers);
    free(server);
}

const char *fm_server_get_address(const fm_server *server, size_t i) {
    return i < N_ADDRESS && server->address_texts[i][0] ? server->address_texts[i] : NULL;
}

const char *fm_server_get_http_url(const fm_server *server) {
    return server->web ? fm_web_get_url(server->web) : NULL;
}

void fm_server_get_stats(const fm_server *server, fm_server_stats *ret_stats) {
    const fm_counters *now = &server->counters;
    *ret_stats = (fm_server_stats){
        .n_connection = fm_counter_read(now, FM_COUNT_CONNECTIONS),
        .n_stream = fm_counter_read(now, FM_COUNT_STREAMS),
        .n_accepted = fm_counter_read(now, FM_COUNT_ACCEPTED),
        .n_sample_sent = fm_counter_read(now, FM_COUNT_SAMPLES_SENT),
        .n_bytes_sent = fm_counter_read(now, FM_COUNT_SAMPLE_BYTES),
        .n_sample_failed = fm_counter_read(now, FM_COUNT_SAMPLES_FAILED),
        .memory_bytes = fm_counter_read(now, FM_COUNT_MEMORY),
    };
}

const fm_counters *fm_server_get_counters(const fm_server *server) {
    return &server->counters;
}
