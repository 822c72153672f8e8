/* train_feed.c: see train_feed.h. */
#include "trainer/app/train/train_feed.h"

#include "proto/base/log.h"
#include "proto/base/plural.h"
#include "proto/step_cycles.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/train/train_order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The snapshot that the run's own server serves, too. Evaluations of AlphaFold2 have a server of
 * their own. */
static const char *held_out_snapshot(const fm_train_run *run) {
    return run->config.network == FM_NETWORK_AF3 && !run->set->eval_data ? run->set->eval_snapshot
                                                                         : NULL;
}

fm_status fm_train_feed_find(const fm_train_run *run, bool is_rank, fm_train_feed *feed,
                             fm_error *reterr) {
    const fm_train_options *set = run->set;
    feed->data = set->data ? set->data : is_rank ? getenv(fm_private_server_name) : NULL;
    if (feed->data) return FM_OK;
    if (is_rank) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--cache starts a server for the ranks of --ranks or --gpus; ranks of "
                       "another launcher need a server and its address, --data");
    }
    fm_stop_catch(true);
    const fm_private_server_options options = {.cache = set->cache,
                                               .snapshot = set->snapshot,
                                               .other_snapshot = held_out_snapshot(run),
                                               .jobs = set->jobs,
                                               .cancel = &fm_stop_cancel};
    fm_status status = fm_private_server_start(&options, &feed->server, reterr);
    if (status) return status;
    feed->data = fm_private_server_address(feed->server);
    setenv(fm_private_server_name, feed->data, 1);
    return FM_OK;
}

/* Says what to do where the snapshot of the checkpoint is not found: the server answers with its
 * hash, but a user asks for it by name. Only an answer has a source, the server's address: a host
 * may not be found either. */
static fm_status explain_missing(const fm_train_run *run, fm_status status, fm_error *reterr) {
    static const fm_sha256 unknown;
    bool is_known = memcmp(&run->state.snapshot, &unknown, sizeof unknown) != 0;
    bool is_answer = reterr && reterr->source[0];
    if (status != FM_ERR_NOT_FOUND || !is_answer || !is_known || run->set->snapshot) return status;
    fm_error why = *reterr;
    return fm_fail_in(reterr, status, why.source,
                      "%.400s; if the run of the checkpoint had a --snapshot, give it again",
                      why.message);
}

void fm_train_feed_ask_for_sizes(const fm_train_config *config, fm_wire_open *stream) {
    const bool is_af3 = config->network == FM_NETWORK_AF3;
    stream->crop_size = (uint32_t)config->data.crop_size;
    stream->max_msa_clusters =
        (uint32_t)(is_af3 ? config->data.max_msa : config->data.max_msa_clusters);
    stream->max_extra_msa =
        (uint32_t)(is_af3 ? config->data.max_atoms : config->data.max_extra_msa);
    stream->max_cycle = (uint32_t)config->data.max_cycle;
    stream->max_template_date = config->data.max_template_date;
}

/* Connects at the place of the run. */
static fm_status connect_feed(fm_train_run *run, fm_train_feed *feed, fm_error *reterr) {
    const fm_train_options *set = run->set;
    const fm_train_config *config = &run->config;
    int32_t rank = run->ranks ? fm_ranks_rank(run->ranks) : 0;
    uint32_t group = (uint32_t)fm_layout_place(&run->layout, rank).dp;
    fm_loader_options options = {
        .supply = {.client = {.url = feed->data,
                              .credentials = set->credentials,
                              .agent = fm_train_program,
                              .snapshot_name = set->snapshot,
                              .snapshot = run->state.snapshot}},
        .stream = {.global_batch = (uint32_t)config->data.global_batch,
                   .seed = set->seed,
                   .n_step = fm_train_order_stream_steps(run),
                   .group = group,
                   .n_group = (uint32_t)run->layout.dp,
                   .policy = FM_WIRE_SKIP}, /* the run decides what a bad sample means */
        .n_slab = (uint32_t)set->ahead,
    };
    fm_train_feed_ask_for_sizes(config, &options.stream);
    fm_wire_text(options.stream.plan, sizeof options.stream.plan, config->data.plan);
    const char *exposed = fm_credentials_exposed(&set->credentials);
    if (exposed) {
        char quoted[300];
        fm_log(FM_LOG_WARN, "secret_exposed", "file=%s why=\"every user can read it; chmod 600\"",
               fm_log_quote(quoted, sizeof quoted, exposed));
    }
    feed->feed = (fm_feed){.options = options,
                           .wait_ms = (uint32_t)set->wait_ms,
                           .full_ms = set->full_wait_s * 1000,
                           .timeout_ms = set->data_timeout_s * 1000,
                           .server = feed->server};
    fm_status status = fm_train_order_ask(run, &feed->feed, reterr);
    if (!status) status = fm_feed_open(&feed->feed, &run->state.token, reterr);
    if (status) return explain_missing(run, status, reterr);
    /* A server that comes back must serve the same data. */
    run->state.snapshot = fm_loader_get_server(feed->feed.loader)->snapshot;
    feed->feed.options.supply.client.snapshot = run->state.snapshot;
    return FM_OK;
}

fm_status fm_train_feed_open(fm_train_run *run, fm_train_feed *feed, fm_error *reterr) {
    fm_status status = connect_feed(run, feed, reterr);
    if (status) return status;
    return fm_train_order_begin(run, fm_loader_get_stream(feed->feed.loader)->epoch_samples,
                                reterr);
}

uint32_t fm_train_feed_cycles(const fm_train_run *run, const fm_train_feed *feed, uint64_t step,
                              uint32_t slot) {
    const fm_wire_opened *stream = fm_loader_get_stream(feed->feed.loader);
    const uint64_t place = fm_train_place(run, step, slot);
    return fm_step_cycles(run->set->seed, place / stream->global_batch, stream->max_cycle);
}

void fm_train_feed_announce(const fm_train_run *run, const fm_train_feed *feed) {
    const fm_wire_welcome *server = fm_loader_get_server(feed->feed.loader);
    const uint32_t batch = fm_loader_get_stream(feed->feed.loader)->global_batch;
    char chains[32] = ""; /* a server counts no complexes beside chains */
    if (run->config.network == FM_NETWORK_AF2) {
        snprintf(chains, sizeof chains, ", %u chain%s", server->n_chain,
                 fm_plural(server->n_chain));
    }
    fprintf(stderr, "data      %s: snapshot %s%s, plan %s, %u sample%s per step\n",
            run->set->cache ? run->set->cache : feed->data, server->snapshot_name, chains,
            run->config.data.plan, batch, fm_plural(batch));
}

static double percentile_ms(const fm_histogram *histogram, uint32_t per_mille) {
    return (double)fm_histogram_percentile(histogram, per_mille) * 1e-6;
}

void fm_train_feed_print_samples(const fm_train_feed *feed) {
    fm_loader_stats stats = fm_feed_get_stats(&feed->feed);
    printf("samples   %llu received, %.1f MB\n", (unsigned long long)stats.n_sample,
           (double)stats.bytes / 1e6);
}

void fm_train_feed_print_waits(const fm_train_feed *feed) {
    fm_loader_stats stats = fm_feed_get_stats(&feed->feed);
    printf("wait ms   p50 %.3f  p90 %.3f  p99 %.3f  max %.3f\n",
           percentile_ms(&stats.ready_wait_ns, 500), percentile_ms(&stats.ready_wait_ns, 900),
           percentile_ms(&stats.ready_wait_ns, 990), percentile_ms(&stats.ready_wait_ns, 1000));
}

void fm_train_feed_close(fm_train_feed *feed) {
    fm_feed_close(&feed->feed);
    fm_private_server_stop(feed->server);
}
