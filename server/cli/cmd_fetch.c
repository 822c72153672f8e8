/* cmd_fetch.c: foldmill fetch: receives a stream as a trainer would, and reports its speed. */
#include "proto/backoff.h"
#include "proto/base/hash.h"
#include "proto/base/histogram.h"
#include "proto/base/json_text.h"
#include "proto/base/plural.h"
#include "proto/batch.h"
#include "proto/limits.h"
#include "proto/supply.h"
#include "proto/template_date.h"
#include "server/cli/commands.h"
#include "server/cli/fetch_save.h"
#include "server/cli/progress.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    NAMES_ARENA_BYTES = 1 << 20, /* of a sample's arrays in a file */
    SLAB_ALIGN = 4096,
    DRAW_MS = 200,
};

static const char description[] =
    "Connects to a server, receives every sample of a stream, checks each one completely, and\n"
    "prints rates and waiting times. --digest prints one hash over all samples in the order of\n"
    "their index. It depends on the snapshot, plan, seed and steps alone, and not on the order\n"
    "of delivery, threads or servers.\n\n"
    "With several addresses, for example tls://a:7420,b:7420, the stream continues from another\n"
    "server when one is lost, and moves to a quicker one.\n\n"
    "--save DIR keeps each sample as the file DIR/INDEX.npz, where INDEX has 12 digits. Tensors\n"
    "of one recycling cycle are named NAME.CYCLE. The command can be interrupted and run again:\n"
    "files are complete or missing, and complete files are kept. DIR/fetch.json records the\n"
    "stream, and a folder of another stream is refused.\n\n"
    "--json prints one object: snapshot, snapshot_hash, chains, end (delivered, shutdown,\n"
    "closed), samples, skipped, bytes, seconds, samples_per_s, mb_per_s, wait_ms {p50, p90,\n"
    "p99, max}, servers [{url, samples, lost}]; with --digest also digest, with --save also\n"
    "written, kept.\n\n"
    "Exit codes: 0 all delivered, 1 failed, 2 bad usage, 3 samples were skipped or the server\n"
    "ended the stream early; stopped by a signal: 143 SIGTERM, 130 SIGINT, 129 SIGHUP.\n\n"
    "Examples:\n"
    "  foldmill fetch --data unix:/run/foldmill.sock --steps 100\n"
    "  foldmill fetch --data tls://host:7420 --tls-ca ca.crt --token-file token \\\n"
    "      --steps 50 --plan af2-initial --digest";

typedef struct fetch_settings {
    const char *data, *plan, *group, *order, *snapshot, *snapshot_hash, *max_template_date;
    const char *save, *format; /* NULL: samples are not kept */
    fm_credentials credentials;
    uint64_t steps, first_step, seed, batch, crop, n_cluster, n_extra, cycles, credit, wait_ms,
        timeout_s;
    uint64_t full_wait_s;
    bool digest, skip, json, quiet;
} fetch_settings;

/* One received sample, for the digest. */
typedef struct sample_row {
    uint64_t index, hash;
} sample_row;

typedef struct fetch_run {
    const fetch_settings *set;
    fm_supply *supply;
    fm_wire_opened opened;
    fm_arena arena;
    uint8_t *slab;
    sample_row *rows; /* only with --digest */
    uint64_t n_row, rows_capacity;
    uint64_t n_sample, n_skipped, n_byte, start_ns, end_ns;
    uint64_t drawn_ns; /* when the line of progress was drawn */
    bool draws;
    fm_wire_reason reason;
    fm_histogram waits; /* ns */
    fm_fetch_save save;
} fetch_run;

static int parse(fetch_settings *set, int argc, char **argv) {
    const fm_option options[] = {
        {"data", FM_OPTION_STRING, &set->data, "URL",
         .help = "the server: unix:PATH, tls://HOST:PORT or tcp://HOST:PORT; or several, "
                 "separated by commas",
         .is_required = true},
        {"steps", FM_OPTION_U64, &set->steps, "N", .help = "the number of steps", .letter = 'n',
         .min = 1, .max = FM_LIMIT_STEP, .is_required = true},
        {"plan", FM_OPTION_STRING, &set->plan, "NAME", .help = "the sampling plan (tiny)"},
        {"seed", FM_OPTION_U64, &set->seed, "S", .help = "the seed of the run (0)"},
        {"first-step", FM_OPTION_U64, &set->first_step, "N", .help = "the first step (0)", .min = 0,
         .max = FM_LIMIT_STEP},
        {"group", FM_OPTION_STRING, &set->group, "g/G",
         .help = "only the samples of group g of G (0/1)"},
        {"order", FM_OPTION_STRING, &set->order, "ORDER",
         .help = "strict, bounded:W or free (strict)"},
        {"snapshot", FM_OPTION_STRING, &set->snapshot, "NAME",
         .help = "the snapshot to ask for (the server's first)"},
        {"snapshot-hash", FM_OPTION_STRING, &set->snapshot_hash, "SHA256",
         .help = "the hash of the snapshot to ask for, current or older"},
        {"batch", FM_OPTION_U64, &set->batch, "B", .help = "samples per step (from the plan)",
         .min = 1, .max = FM_LIMIT_GLOBAL_BATCH},
        {"crop", FM_OPTION_U64, &set->crop, "N_RES",
         .help = "residues or tokens of a crop (from the plan)", .min = 1, .max = FM_LIMIT_N_RES},
        {"msa-clusters", FM_OPTION_U64, &set->n_cluster, "N",
         .help = "clustered MSA rows; of complexes, the rows of a cycle (from the plan)", .min = 1,
         .max = FM_LIMIT_N_CLUSTER},
        {"extra-msa", FM_OPTION_U64, &set->n_extra, "N",
         .help = "extra MSA rows; of complexes, the atoms of a crop (from the plan)", .min = 1,
         .max = FM_LIMIT_N_EXTRA},
        {"cycles", FM_OPTION_U64, &set->cycles, "N",
         .help = "the most recycling cycles (from the plan)", .min = 1, .max = FM_LIMIT_N_CYCLE},
        {"max-template-date", FM_OPTION_STRING, &set->max_template_date, "DATE",
         .help = "ignore templates released after YYYY-MM-DD; query: after the chain's own "
                 "structure; any: none (from the plan)"},
        {"credit", FM_OPTION_U64, &set->credit, "N",
         .help = "samples that the server may send ahead (8)", .min = 1, .max = 4096},
        {"wait", FM_OPTION_U64, &set->wait_ms, "MS",
         .help = "how long to try to connect, also after the server is lost (0)", .min = 0,
         .max = 3600000},
        {"full-wait", FM_OPTION_U64, &set->full_wait_s, "S",
         .help = "how long to keep asking a server that has no room (0)", .min = 0, .max = 86400},
        {"data-timeout", FM_OPTION_U64, &set->timeout_s, "S",
         .help = "give up when no sample comes for so long (600)", .min = 1, .max = 86400},
        FM_CREDENTIALS_OPTIONS(&set->credentials, FM_CREDENTIALS_TOKEN_HELP),
        {"skip", FM_OPTION_FLAG, &set->skip, NULL,
         .help = "continue after unreadable samples, and name each"},
        {"save", FM_OPTION_STRING, &set->save, "DIR", .help = "write each sample to a file in DIR"},
        {"format", FM_OPTION_STRING, &set->format, "npz|safetensors",
         .help = "the format of these files (npz)"},
        {"digest", FM_OPTION_FLAG, &set->digest, NULL, .help = "print the hash of all samples"},
        {"json", FM_OPTION_FLAG, &set->json, NULL, .help = "print one JSON object"},
        {"quiet", FM_OPTION_FLAG, &set->quiet, NULL, .help = "no progress", .letter = 'q'},
        {0}};
    const fm_command command = {
        .program = "foldmill fetch",
        .arguments = "--data URL --steps N [options]",
        .summary = "receive a stream from a server and measure it",
        .description = description,
        .options = options,
    };
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    return code;
}

static fm_status parse_group(const char *text, fm_wire_open *params, fm_error *reterr) {
    unsigned g, n_group;
    char rest;
    if (sscanf(text, "%5u/%5u%c", &g, &n_group, &rest) != 2 || g >= n_group) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--group: found '%s', expected g/G with g < G, e.g. 0/2", text);
    }
    params->group = g;
    params->n_group = n_group;
    return FM_OK;
}

static fm_status make_params(const fetch_settings *set, fm_wire_open *params, fm_error *reterr) {
    *params = (fm_wire_open){
        .global_batch = (uint32_t)set->batch,
        .crop_size = (uint32_t)set->crop,
        .max_msa_clusters = (uint32_t)set->n_cluster,
        .max_extra_msa = (uint32_t)set->n_extra,
        .max_cycle = (uint32_t)set->cycles,
        .max_template_date =
            set->max_template_date ? fm_template_date_parse(set->max_template_date) : 0,
        .seed = set->seed,
        .first_step = set->first_step,
        .n_step = set->steps,
        .policy = set->skip ? FM_WIRE_SKIP : FM_WIRE_STOP,
        .credit_items = (uint32_t)set->credit,
        .credit_bytes = FM_LIMIT_FRAME_BYTES};
    if (set->max_template_date && !params->max_template_date) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--max-template-date: found '%.32s', expected a day as YYYY-MM-DD, query or "
                       "any",
                       set->max_template_date);
    }
    if (strlen(set->plan) > FM_WIRE_PLAN_BYTES) {
        return fm_fail(reterr, FM_ERR_USAGE, "a plan's name has at most %d bytes",
                       FM_WIRE_PLAN_BYTES);
    }
    fm_wire_text(params->plan, sizeof params->plan, set->plan);
    fm_status status = parse_group(set->group, params, reterr);
    if (status) return status;
    return fm_wire_order_parse(set->order, &params->order, &params->window, reterr);
}

static fm_status note_row(fetch_run *run, uint64_t index, fm_bytes sample, fm_error *reterr) {
    if (run->n_row == run->rows_capacity) {
        uint64_t capacity = run->rows_capacity * 2 + 1024;
        sample_row *grown = realloc(run->rows, capacity * sizeof *grown);
        if (!grown) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the digest");
        run->rows = grown;
        run->rows_capacity = capacity;
    }
    run->rows[run->n_row++] = (sample_row){index, fm_xxh3(sample.data, sample.size)};
    return FM_OK;
}

/* Whether there is a line of progress, for the handler of signals, too. */
static volatile sig_atomic_t has_line;

/* Draws how far the stream is, a few times a second. */
static void show_progress(fetch_run *run) {
    const uint64_t now = fm_clock_ns(), done = run->n_sample + run->n_skipped;
    if (!run->draws || now - run->drawn_ns < DRAW_MS * (uint64_t)1000000) return;
    const double seconds = (double)(now - run->start_ns) * 1e-9;
    const double part = (double)done / (double)run->opened.n_sample;
    char eta[32];
    run->drawn_ns = now;
    has_line = 1;
    fm_progress_draw("fetch %llu of %llu samples, %.1f samples/s, %.1f MB/s, %s left",
                     (unsigned long long)done, (unsigned long long)run->opened.n_sample,
                     (double)done / seconds, (double)run->n_byte * 1e-6 / seconds,
                     fm_progress_format_eta(seconds, part, eta));
}

/* Removes the line before another one is written. */
static void clear_progress(void) {
    if (has_line) fm_progress_clear();
    has_line = 0;
}

static void say_skipped(fetch_run *run, uint64_t index, const char *why) {
    run->n_skipped++;
    clear_progress();
    fprintf(stderr, "foldmill fetch: sample %llu skipped: %s\n", (unsigned long long)index, why);
}

/* A sample that came, but cannot be decoded: --skip leaves it out if its header says which it is.
 */
static fm_status take_damaged(fetch_run *run, const fm_client_event *event, fm_status status,
                              fm_error *reterr) {
    fm_sample head;
    if (fm_sample_decode_head(event->sample, &head, NULL)) return status;
    char text[FM_ERROR_TEXT_BYTES];
    char why[sizeof text + FM_LIMIT_NAME_BYTES + 32];
    fm_error_format(reterr, text, sizeof text);
    snprintf(why, sizeof why, "chain %s: received damaged: %s", head.name, text);
    if (!run->set->skip) {
        return fm_fail(reterr, status, "sample %llu: %s", (unsigned long long)head.index, why);
    }
    say_skipped(run, head.index, why);
    fm_supply_release(run->supply, 1, event->sample.size);
    return FM_OK;
}

static fm_status take_sample(fetch_run *run, const fm_client_event *event, fm_error *reterr) {
    fm_sample sample;
    fm_arena_reset(&run->arena);
    fm_status status = fm_sample_decode(event->sample, true, &run->arena, &sample, reterr);
    if (status) return take_damaged(run, event, status, reterr);
    run->n_sample++;
    run->n_byte += event->sample.size;
    if (run->set->digest) status = note_row(run, sample.index, event->sample, reterr);
    if (!status && run->set->save) {
        status = fm_fetch_save_sample(&run->save, &sample, &run->arena, reterr);
    }
    if (!status) fm_supply_release(run->supply, 1, event->sample.size);
    return status;
}

static fm_status take_stream(fetch_run *run, fm_error *reterr) {
    run->start_ns = fm_clock_ns();
    run->draws = !run->set->quiet && fm_progress_has_terminal();
    while (!run->reason) {
        fm_client_event event;
        show_progress(run);
        fm_status status =
            fm_supply_next(run->supply, run->slab, run->opened.max_sample_bytes, &event, reterr);
        if (status) return status;
        switch (event.kind) {
        case FM_CLIENT_SAMPLE:
            fm_histogram_add(&run->waits, event.wait_ns);
            status = take_sample(run, &event, reterr);
            break;
        case FM_CLIENT_SKIPPED:
            say_skipped(run, event.index, event.text);
            fm_supply_release(run->supply, 1, 0);
            break;
        case FM_CLIENT_END: run->reason = event.reason; break;
        }
        if (status) return status;
    }
    run->end_ns = fm_clock_ns();
    return FM_OK;
}

static fm_status parse_hash(const char *text, fm_sha256 *ret_hash, fm_error *reterr) {
    *ret_hash = (fm_sha256){0};
    bool is_hash = !text || (strlen(text) == FM_SHA256_HEX - 1 &&
                             !fm_sha256_parse(text, FM_SHA256_HEX - 1, ret_hash));
    if (is_hash) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE,
                   "--snapshot-hash: found '%.80s', expected 64 hexadecimal digits", text);
}

static void say_change(void *context, const fm_supply_change *change) {
    (void)context;
    clear_progress();
    fprintf(stderr, "foldmill fetch: continuing with %s: %s\n", change->to,
            change->why ? change->why : "it may be quicker");
}

/* Connects and opens the stream. A server that has no room is asked again for --full-wait. */
static fm_status connect_with_room(fetch_run *run, const fm_supply_options *options,
                                   const fm_wire_open *params, fm_error *reterr) {
    fm_backoff backoff = fm_backoff_begin(run->set->full_wait_s * 1000, fm_clock_ns());
    for (;;) {
        fm_error error;
        fm_status status = fm_supply_open(options, params, &run->supply, &run->opened, &error);
        if (!status) return FM_OK;
        uint32_t ms = status == FM_ERR_LIMIT ? fm_backoff_next(&backoff, fm_clock_ns()) : 0;
        if (!ms) {
            *reterr = error;
            return status;
        }
        fprintf(stderr, "foldmill fetch: the server has no room, asking again in %.1f s: %s\n",
                ms * 1e-3, error.message);
        struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
        nanosleep(&pause, NULL);
    }
}

static fm_status fetch(fetch_run *run, fm_error *reterr) {
    fm_wire_open params;
    fm_sha256 hash;
    fm_status status = make_params(run->set, &params, reterr);
    if (!status) status = parse_hash(run->set->snapshot_hash, &hash, reterr);
    if (!status && run->set->format) {
        run->save.format = FM_ARRAY_NPZ;
        status = fm_array_format_parse(run->set->format, &run->save.format, reterr);
    }
    if (!status && run->set->format && !run->set->save) {
        status = fm_fail(reterr, FM_ERR_USAGE, "--format needs --save DIR");
    }
    if (status) return status;
    const fm_supply_options options = {.client = {.url = run->set->data,
                                                  .credentials = run->set->credentials,
                                                  .agent = "foldmill fetch",
                                                  .snapshot_name = run->set->snapshot,
                                                  .snapshot = hash,
                                                  .retry_ms = (uint32_t)run->set->wait_ms,
                                                  .event_ms = (uint32_t)run->set->timeout_s * 1000},
                                       .resume_ms = (uint32_t)run->set->wait_ms,
                                       .on_change = say_change};
    status = connect_with_room(run, &options, &params, reterr);
    const size_t room = fm_sample_arena_bytes(run->opened.max_sample_bytes) + NAMES_ARENA_BYTES;
    if (!status) status = fm_arena_init(&run->arena, room, reterr);
    if (!status && run->set->save) {
        status = fm_fetch_save_begin(&run->save, fm_supply_get_welcome(run->supply), &params,
                                     &run->opened, &run->arena, reterr);
    }
    if (status) return status;
    size_t slab_bytes = (run->opened.max_sample_bytes / SLAB_ALIGN + 1) * SLAB_ALIGN;
    run->slab = aligned_alloc(SLAB_ALIGN, slab_bytes);
    if (!run->slab) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a slab");
    status = take_stream(run, reterr);
    clear_progress();
    return status;
}

/* -- the report */

static int by_index(const void *a, const void *b) {
    uint64_t left = ((const sample_row *)a)->index, right = ((const sample_row *)b)->index;
    return left < right ? -1 : left > right;
}

static fm_sha256 make_digest(fetch_run *run) {
    if (run->n_row) qsort(run->rows, run->n_row, sizeof run->rows[0], by_index);
    return fm_sha256_of(run->rows, run->n_row * sizeof run->rows[0]);
}

static void print_digest(fetch_run *run) {
    char text[FM_SHA256_HEX];
    fm_sha256 digest = make_digest(run);
    fm_sha256_format(&digest, text);
    printf("digest    %s\n", text);
}

static double wait_ms(const fetch_run *run, uint32_t permille) {
    return (double)fm_histogram_percentile(&run->waits, permille) * 1e-6;
}

static void print_servers(const fetch_run *run) {
    for (uint32_t i = 0; i < fm_supply_n_server(run->supply); i++) {
        const fm_supply_server server = fm_supply_get_server(run->supply, i);
        printf("server    %s  %llu sample%s, %u failed connection%s\n", server.url,
               (unsigned long long)server.n_sample, fm_plural(server.n_sample), server.n_lost,
               fm_plural(server.n_lost));
    }
}

static void print_report(fetch_run *run) {
    const fm_wire_welcome *welcome = fm_supply_get_welcome(run->supply);
    double seconds = (double)(run->end_ns - run->start_ns) * 1e-9;
    double n = (double)run->n_sample, mb = (double)run->n_byte * 1e-6;
    char hash[FM_SHA256_HEX];
    fm_sha256_format(&welcome->snapshot, hash);
    printf("snapshot  %s %.16s %u chain%s\n", welcome->snapshot_name, hash, welcome->n_chain,
           fm_plural(welcome->n_chain));
    printf("samples   %llu, %llu skipped, %.3f MB each\n", (unsigned long long)run->n_sample,
           (unsigned long long)run->n_skipped, n > 0 ? mb / n : 0);
    if (seconds > 0) {
        printf("rate      %.1f samples/s, %.1f MB/s, %.3f s\n", n / seconds, mb / seconds, seconds);
    }
    printf("wait ms   p50 %.3f  p90 %.3f  p99 %.3f  max %.3f\n", wait_ms(run, 500),
           wait_ms(run, 900), wait_ms(run, 990), (double)run->waits.max * 1e-6);
    if (fm_supply_n_server(run->supply) > 1) print_servers(run);
    if (run->set->save) {
        printf("files     %llu written, %llu kept -> %s\n", (unsigned long long)run->save.n_written,
               (unsigned long long)run->save.n_kept, run->set->save);
    }
    if (run->set->digest) print_digest(run);
    if (run->reason == FM_WIRE_SHUTDOWN) {
        printf("the server stopped before the end of the stream\n");
    }
}

static void write_json(fetch_run *run) {
    static const char *const ends[] = {"", "delivered", "shutdown", "closed"};
    const fm_wire_welcome *welcome = fm_supply_get_welcome(run->supply);
    double seconds = (double)(run->end_ns - run->start_ns) * 1e-9;
    fm_json_writer json;
    fm_json_begin(&json, stdout);
    fm_json_put_string(&json, "snapshot", welcome->snapshot_name);
    fm_json_put_hash(&json, "snapshot_hash", &welcome->snapshot);
    fm_json_put_u64(&json, "chains", welcome->n_chain);
    fm_json_put_string(&json, "end", ends[run->reason]);
    fm_json_put_u64(&json, "samples", run->n_sample);
    fm_json_put_u64(&json, "skipped", run->n_skipped);
    fm_json_put_u64(&json, "bytes", run->n_byte);
    fm_json_put_f64(&json, "seconds", seconds, 6);
    fm_json_put_f64(&json, "samples_per_s", (double)run->n_sample / seconds, 3);
    fm_json_put_f64(&json, "mb_per_s", (double)run->n_byte * 1e-6 / seconds, 3);
    fm_json_open_object(&json, "wait_ms");
    fm_json_put_f64(&json, "p50", wait_ms(run, 500), 3);
    fm_json_put_f64(&json, "p90", wait_ms(run, 900), 3);
    fm_json_put_f64(&json, "p99", wait_ms(run, 990), 3);
    fm_json_put_f64(&json, "max", (double)run->waits.max * 1e-6, 3);
    fm_json_close(&json);
    fm_json_open_array(&json, "servers");
    for (uint32_t i = 0; i < fm_supply_n_server(run->supply); i++) {
        const fm_supply_server server = fm_supply_get_server(run->supply, i);
        fm_json_open_object(&json, NULL);
        fm_json_put_string(&json, "url", server.url);
        fm_json_put_u64(&json, "samples", server.n_sample);
        fm_json_put_u64(&json, "lost", server.n_lost);
        fm_json_close(&json);
    }
    fm_json_close(&json);
    if (run->set->save) {
        fm_json_put_u64(&json, "written", run->save.n_written);
        fm_json_put_u64(&json, "kept", run->save.n_kept);
    }
    if (run->set->digest) {
        fm_sha256 digest = make_digest(run);
        fm_json_put_hash(&json, "digest", &digest);
    }
    fm_json_end(&json);
}

/* There is nothing to save, so the handler ends the program. */
static void end_by_signal(int signal_number) {
    static const char text[] =
        "\nfoldmill fetch: stopped by a signal before the end of the stream\n";
    const size_t skip = has_line ? 0 : 1; /* the line of progress stays */
    ssize_t put = write(STDERR_FILENO, text + skip, sizeof text - 1 - skip);
    (void)put;
    _exit(fm_cli_signal_code(signal_number));
}

int fm_cmd_fetch(int argc, char **argv) {
    fetch_settings set = {
        .plan = "tiny", .group = "0/1", .order = "strict", .credit = 8, .timeout_s = 600};
    int code = parse(&set, argc, argv);
    if (code >= 0) return code;
    fetch_run run = {.set = &set, .save = {.folder = set.save}};
    const char *exposed = fm_credentials_exposed(&set.credentials);
    if (exposed) {
        fprintf(stderr, "foldmill fetch: warning: every user can read %s; chmod 600\n", exposed);
    }
    fm_cli_catch_signals(end_by_signal);
    fm_error error;
    fm_status status = fetch(&run, &error);
    if (status) {
        code = fm_program_report("foldmill fetch", &error);
    } else {
        (set.json ? write_json : print_report)(&run);
        bool whole = run.reason == FM_WIRE_DELIVERED && run.n_skipped == 0;
        code = whole ? FM_EXIT_OK : FM_EXIT_PARTIAL;
    }
    fm_supply_close(run.supply);
    fm_arena_fini(&run.arena);
    free(run.slab);
    free(run.rows);
    return code;
}
