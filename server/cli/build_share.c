/* build_share.c: see build_share.h. */
#include "proto/base/plural.h"
#include "server/cli/build_share.h"

#include <string.h>

#define SECONDS_MAX 86400.0

void fm_build_share_list(fm_build_share_arguments *arguments,
                         fm_option out[FM_BUILD_SHARE_OPTIONS]) {
    const fm_option options[FM_BUILD_SHARE_OPTIONS] = {
        {"catalogue", FM_OPTION_STRING, &arguments->catalogue, "WHERE",
         .help =
             "share the job with other workers: postgresql://..., or a file for the workers of one "
             "machine"},
        {"job", FM_OPTION_STRING, &arguments->job, "NAME",
         .help = "with --catalogue: the name of the job (build)"},
        {"publish", FM_OPTION_STRING, &arguments->publish, "DIR",
         .help =
             "with --catalogue: copy sealed shards to DIR/shards, where foldmill merge finds them"},
        {"renew", FM_OPTION_FLAG, &arguments->renew, NULL,
         .help = "with --catalogue: replace the chains of the job by those of this dataset; what "
                 "is done "
                 "stays "
                 "done"},
        {"again", FM_OPTION_FLAG, &arguments->again, NULL,
         .help = "with --catalogue: as --renew, and check every chain again, done or refused"},
        {"lease", FM_OPTION_F64, &arguments->lease, "SECONDS",
         .help = "with --catalogue: a worker that is silent for so long loses its chains (60)"},
        {"heartbeat", FM_OPTION_F64, &arguments->heartbeat, "SECONDS",
         .help = "with --catalogue: how often leases are extended (a third of the lease)"},
        {"pause", FM_OPTION_F64, &arguments->pause, "SECONDS",
         .help = "with --catalogue: the time before a failed chain is tried again, doubled each "
                 "time (1)"},
        {"attempts", FM_OPTION_U64, &arguments->attempts, "N",
         "with --catalogue: after so many failures a chain is refused (5)", .min = 1, .max = 1000},
        {0}};
    memcpy(out, options, sizeof options);
}

static fm_status read_seconds(const char *name, double seconds, uint32_t *ret_ms,
                              fm_error *reterr) {
    if (!(seconds >= 0.0 && seconds <= SECONDS_MAX)) {
        return fm_fail(reterr, FM_ERR_USAGE, "--%s: found %g, expected 0 to %g seconds", name,
                       seconds, SECONDS_MAX);
    }
    *ret_ms = seconds > 0.0 && seconds < 1e-3 ? 1 : (uint32_t)(seconds * 1e3);
    return FM_OK;
}

static void report_waiting(const fm_error *error) {
    char text[FM_ERROR_TEXT_BYTES];
    fm_error_format(error, text, sizeof text);
    fprintf(stderr, "foldmill build: %s; trying again for half a minute\n", text);
}

fm_status fm_build_share_read(const fm_build_share_arguments *arguments, fm_build_share *ret_share,
                              fm_error *reterr) {
    fm_build_share share = {
        .where = arguments->catalogue,
        .catalogue = {.job = arguments->job, .max_failures = (uint32_t)arguments->attempts},
        .mode = arguments->again   ? FM_CATALOGUE_AGAIN
                : arguments->renew ? FM_CATALOGUE_RENEW
                                   : FM_CATALOGUE_JOIN,
        .publish = arguments->publish,
        .waiting = report_waiting};
    fm_status status = read_seconds("lease", arguments->lease, &share.catalogue.lease_ms, reterr);
    if (!status) {
        status = read_seconds("heartbeat", arguments->heartbeat, &share.heartbeat_ms, reterr);
    }
    if (!status) {
        status = read_seconds("pause", arguments->pause, &share.catalogue.backoff_ms, reterr);
    }
    if (status) return status;
    bool any = arguments->job || arguments->publish || arguments->renew || arguments->again ||
               share.catalogue.lease_ms || share.heartbeat_ms || share.catalogue.backoff_ms ||
               arguments->attempts;
    if (any && !arguments->catalogue) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--job, --publish, --renew, --again, --lease, --heartbeat, --pause and "
                       "--attempts need --catalogue WHERE");
    }
    uint32_t lease = share.catalogue.lease_ms ? share.catalogue.lease_ms : FM_CATALOGUE_LEASE_MS;
    if (share.heartbeat_ms >= lease) {
        return fm_fail(reterr, FM_ERR_USAGE, "--heartbeat must be shorter than --lease");
    }
    *ret_share = share;
    return FM_OK;
}

void fm_build_share_print(FILE *out, const fm_build_share *share,
                          const fm_build_share_report *report) {
    const uint32_t *n = report->job.n;
    fprintf(out, "worker    %s: %u item%s", report->worker, report->n_item,
            fm_plural(report->n_item));
    if (report->n_lost) fprintf(out, ", %u lost to other workers", report->n_lost);
    if (report->n_reconnect) {
        fprintf(out, ", %u connection%s lost", report->n_reconnect, fm_plural(report->n_reconnect));
    }
    fprintf(out, "\njob       %s: %u done, %u refused, %u being built, %u waiting\n",
            share->catalogue.job ? share->catalogue.job : "build", n[FM_CATALOGUE_DONE],
            n[FM_CATALOGUE_REFUSED], n[FM_CATALOGUE_LEASED], n[FM_CATALOGUE_PENDING]);
    if (n[FM_CATALOGUE_LEASED] + n[FM_CATALOGUE_PENDING] == 0) {
        fprintf(out, "next      foldmill merge --catalogue WHERE --cache DIR makes the cache\n");
    }
}

void fm_build_share_json(fm_json_writer *json, const fm_build_share *share,
                         const fm_build_share_report *report) {
    fm_json_open_object(json, "worker");
    fm_json_put_string(json, "name", report->worker);
    fm_json_put_u64(json, "items", report->n_item);
    fm_json_put_u64(json, "lost", report->n_lost);
    fm_json_put_u64(json, "connections_lost", report->n_reconnect);
    fm_json_close(json);
    fm_json_open_object(json, "job");
    fm_json_put_string(json, "name", share->catalogue.job ? share->catalogue.job : "build");
    fm_json_put_u64(json, "done", report->job.n[FM_CATALOGUE_DONE]);
    fm_json_put_u64(json, "refused", report->job.n[FM_CATALOGUE_REFUSED]);
    fm_json_put_u64(json, "leased", report->job.n[FM_CATALOGUE_LEASED]);
    fm_json_put_u64(json, "pending", report->job.n[FM_CATALOGUE_PENDING]);
    fm_json_close(json);
}
