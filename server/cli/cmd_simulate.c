/* cmd_simulate.c: foldmill simulate: how long the ranks of a run would wait for samples, and how
 * many servers they need. */
#include "proto/base/json_text.h"
#include "proto/base/plural.h"
#include "proto/wire.h"
#include "server/cli/commands.h"
#include "server/cli/http_get.h"
#include "server/cli/read_input.h"
#include "server/simulate/simulation.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES ((size_t)3 << 30)

enum { TIMEOUT_MS = 5000, MOST_ORDERS = 8 };

static const char description[] =
    "Simulates the servers and the synchronous ranks of a run, with measured preparation times\n"
    "of samples. A step begins when every rank has its samples, so the slowest sample of all\n"
    "ranks decides. The exposed wait of a step is the time from the end of the previous step to\n"
    "its beginning.\n\n"
    "--times is the address of a running server, http://HOST:PORT (foldmill serve --http), a\n"
    "saved copy of its /metrics, or a list. A list has one time in ms per line, and an optional\n"
    "count after it:\n\n"
    "  20 890\n"
    "  200 100\n"
    "  2000 10\n\n"
    "The orders are those of a stream: strict, bounded:W and free. The order `loader` is\n"
    "PyTorch's DataLoader in each rank, with the same workers divided among the ranks.\n\n"
    "Without --servers the command finds the smallest number of servers that keeps the waits\n"
    "below --max-stall per cent of the steps' time.\n\n"
    "--json prints one object: mean_ms, orders [{order, servers, workers, wait_ms {mean, p50,\n"
    "p99, max}, stall_percent, load_percent, samples_per_s, gbit_per_s}]. workers counts those\n"
    "of all servers, and gbit_per_s is the rate of each server. servers is 0 for an order that\n"
    "stalls too long with any number of servers.\n\n"
    "Exit codes: 0 done, 1 failed, 2 bad usage.\n\n"
    "Examples:\n"
    "  foldmill simulate --times http://127.0.0.1:7421 --ranks 8 --step-ms 280 \\\n"
    "      --servers 1\n"
    "  foldmill simulate --times times --ranks 256 --step-ms 650 --workers 32 \\\n"
    "      --sample-mb 6.8";

typedef struct simulate_settings {
    const char *times, *orders;
    uint64_t ranks, per_rank, servers, workers, ahead, steps, warm, seed;
    double step_ms, sample_mb, network_gbit, max_stall;
    bool json;
} simulate_settings;

typedef struct order_row {
    char name[24];
    fm_simulation plan;
    fm_simulated result;
    bool is_found; /* with so many servers */
} order_row;

static int parse(simulate_settings *set, int argc, char **argv) {
    const fm_option options[] = {
        {"times", FM_OPTION_STRING, &set->times, "WHAT",
         .help = "preparation times: http://HOST:PORT of a server, a file, or - for standard "
                 "input",
         .is_required = true},
        {"step-ms", FM_OPTION_F64, &set->step_ms, "MS",
         .help = "how long a step takes without waits", .is_required = true},
        {"ranks", FM_OPTION_U64, &set->ranks, "N",
         .help =
             "ranks that have a stream each; ranks that share a sample (--dap) count as one (1)",
         .min = 1, .max = FM_SIMULATED_MOST_RANKS},
        {"per-rank", FM_OPTION_U64, &set->per_rank, "N",
         .help = "samples of each rank per step (1)", .min = 1, .max = FM_LIMIT_GLOBAL_BATCH},
        {"servers", FM_OPTION_U64, &set->servers, "N",
         .help = "number of servers (the fewest that satisfy --max-stall)", .min = 1,
         .max = FM_SIMULATED_MOST_RANKS},
        {"workers", FM_OPTION_U64, &set->workers, "N",
         .help = "workers of each server, at most its cores (16)", .letter = 'j', .min = 1,
         .max = FM_SIMULATED_MOST_WORKERS},
        {"max-stall", FM_OPTION_F64, &set->max_stall, "PERCENT",
         .help = "allowed waits, in per cent of the steps' time (1)"},
        {"order", FM_OPTION_STRING, &set->orders, "LIST",
         .help = "orders, separated by commas (strict,bounded:32,free,loader)"},
        {"ahead", FM_OPTION_U64, &set->ahead, "N",
         .help = "samples that a rank receives ahead or uses: its credit (8)", .min = 1,
         .max = FM_LIMIT_CREDIT_ITEMS},
        {"sample-mb", FM_OPTION_F64, &set->sample_mb, "MB",
         .help = "size of a sample, for the network (0)"},
        {"network-gbit", FM_OPTION_F64, &set->network_gbit, "GBIT",
         .help = "rate of each server's network in Gbit/s (25)"},
        {"steps", FM_OPTION_U64, &set->steps, "N", .help = "measured steps (1000)", .letter = 'n',
         .min = 1, .max = 10000000},
        {"warm", FM_OPTION_U64, &set->warm, "N", .help = "steps before the measured ones (300)",
         .min = 0, .max = 10000000},
        {"seed", FM_OPTION_U64, &set->seed, "S", .help = "seed of the drawn times (0)"},
        {"json", FM_OPTION_FLAG, &set->json, NULL, .help = "print one JSON object"},
        {0}};
    const fm_command command = {
        .program = "foldmill simulate",
        .arguments = "--times WHAT --step-ms MS [options]",
        .summary = "plan servers: how long ranks would wait for samples",
        .description = description,
        .options = options,
    };
    int n_positional;
    return fm_cli_parse(&command, argc, argv, &n_positional);
}

/* -- inputs */

static fm_status check(const simulate_settings *set, fm_error *reterr) {
    const double day_ms = 86400e3;
    const struct {
        const char *name;
        double value, most;
        bool may_be_zero;
    } rows[] = {{"--step-ms", set->step_ms, day_ms, false},
                {"--sample-mb", set->sample_mb, 1e6, true},
                {"--network-gbit", set->network_gbit, 1e6, false},
                {"--max-stall", set->max_stall, 1e6, true}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const double value = rows[i].value;
        bool is_in = (value > 0 || (rows[i].may_be_zero && value == 0)) && value <= rows[i].most;
        if (is_in) continue;
        return fm_fail(reterr, FM_ERR_USAGE, "%s: found %g, expected %s0 and at most %g",
                       rows[i].name, value, rows[i].may_be_zero ? "at least " : "more than ",
                       rows[i].most);
    }
    return FM_OK;
}

static fm_status read_times(const char *from, fm_prepare_times *ret_times, fm_error *reterr) {
    fm_status status;
    if (strstr(from, "://")) {
        char *body;
        size_t bytes;
        status = fm_cli_http_get(from, "/metrics", TIMEOUT_MS, &body, &bytes, reterr);
        if (status) return status;
        status =
            fm_prepare_times_parse((fm_bytes){(const uint8_t *)body, bytes}, ret_times, reterr);
        free(body);
    } else {
        fm_arena arena;
        fm_bytes text;
        status = fm_arena_init(&arena, ARENA_BYTES, reterr);
        if (status) return status;
        status = fm_cli_read_input(from, &arena, &text, reterr);
        if (!status) status = fm_prepare_times_parse(text, ret_times, reterr);
        fm_arena_fini(&arena);
    }
    if (status && reterr) (void)fm_error_in(reterr, fm_cli_input_name(from));
    return status;
}

static fm_status parse_order(const char *word, order_row *row, fm_error *reterr) {
    static const fm_simulated_order orders[] = {[FM_WIRE_STRICT] = FM_SIMULATED_STRICT,
                                                [FM_WIRE_BOUNDED] = FM_SIMULATED_BOUNDED,
                                                [FM_WIRE_FREE] = FM_SIMULATED_FREE};
    snprintf(row->name, sizeof row->name, "%s", word);
    if (strcmp(word, "loader") == 0) {
        row->plan.order = FM_SIMULATED_LOADER;
        return FM_OK;
    }
    uint32_t order;
    if (fm_wire_order_parse(word, &order, &row->plan.window, NULL)) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--order: found '%s', expected strict, bounded:W with W from 1 to %u, "
                       "free or loader",
                       word, FM_LIMIT_WINDOW);
    }
    row->plan.order = orders[order];
    return FM_OK;
}

static fm_status parse_orders(const simulate_settings *set, order_row *rows, uint32_t *ret_n,
                              fm_error *reterr) {
    double sample_gbit = set->sample_mb * 8e-3;
    const fm_simulation plan = {
        .n_rank = (uint32_t)set->ranks,
        .per_rank = (uint32_t)set->per_rank,
        .n_worker = (uint32_t)set->workers,
        .ahead = (uint32_t)set->ahead,
        .n_warm = (uint32_t)set->warm,
        .n_step = (uint32_t)set->steps,
        .step_ms = set->step_ms,
        .send_ms = sample_gbit / set->network_gbit * 1e3,
        .seed = set->seed,
    };
    const char *at = set->orders;
    bool is_more = true;
    for (*ret_n = 0; is_more; (*ret_n)++) {
        char word[24];
        size_t bytes = strcspn(at, ",");
        if (*ret_n == MOST_ORDERS || bytes >= sizeof word) {
            return fm_fail(reterr, FM_ERR_USAGE, "--order: found '%.40s', expected at most %d", at,
                           MOST_ORDERS);
        }
        snprintf(word, sizeof word, "%.*s", (int)bytes, at);
        rows[*ret_n] = (order_row){.plan = plan};
        fm_status status = parse_order(word, &rows[*ret_n], reterr);
        if (status) return status;
        is_more = at[bytes] == ',';
        at += bytes + is_more;
    }
    return FM_OK;
}

/* -- servers */

static double stall_percent(const order_row *row) {
    return 100 * row->result.wait_ms / row->result.steps_ms;
}

static fm_status simulate_with(order_row *row, uint32_t n_server, const simulate_settings *set,
                               const fm_prepare_times *times, fm_error *reterr) {
    row->plan.n_server = n_server;
    fm_status status = fm_simulate(&row->plan, times, &row->result, reterr);
    row->is_found = !status && stall_percent(row) <= set->max_stall;
    return status;
}

/* Looks for the fewest servers: doubles their number from the least that the mean time and the
 * network need, and halves the last gap. */
static fm_status find_servers(order_row *row, const simulate_settings *set,
                              const fm_prepare_times *times, fm_error *reterr) {
    double per_step = (double)set->ranks * (double)set->per_rank;
    double work = fm_prepare_times_mean(times) * per_step / set->step_ms / (double)set->workers;
    double sending = row->plan.send_ms * per_step / set->step_ms;
    uint32_t most = row->plan.n_rank, low = 0;
    if (work < sending) work = sending;
    if (row->plan.order == FM_SIMULATED_LOADER) {
        double least = ceil((double)set->ranks / (double)set->workers); /* a worker per rank */
        if (work < least) work = least;
    }
    uint32_t high = work < 1 ? 1 : work > most ? most : (uint32_t)ceil(work);
    fm_status status = simulate_with(row, high, set, times, reterr);
    while (!status && !row->is_found && high < most) {
        low = high;
        high = high < most / 2 ? 2 * high : most;
        status = simulate_with(row, high, set, times, reterr);
    }
    order_row found = *row;
    while (!status && found.is_found && high - low > 1 && low) {
        uint32_t middle = low + (high - low) / 2;
        status = simulate_with(row, middle, set, times, reterr);
        if (row->is_found) found = *row;
        *(row->is_found ? &high : &low) = middle;
    }
    *row = found;
    return status;
}

static fm_status run(const simulate_settings *set, const fm_prepare_times *times, order_row *rows,
                     uint32_t n, fm_error *reterr) {
    for (uint32_t i = 0; i < n; i++) {
        fm_status status = set->servers
                               ? simulate_with(&rows[i], (uint32_t)set->servers, set, times, reterr)
                               : find_servers(&rows[i], set, times, reterr);
        if (status) return status;
        if (set->servers) rows[i].is_found = true;
    }
    return FM_OK;
}

/* -- the report */

static double wait_ms(const order_row *row, uint32_t per_mille) {
    return (double)fm_histogram_percentile(&row->result.wait_ns, per_mille) * 1e-6;
}

static uint64_t workers_of(const order_row *row) {
    return (uint64_t)row->plan.n_server * row->plan.n_worker;
}

static double load_percent(const order_row *row) {
    return 100 * row->result.work_ms / (row->result.total_ms * (double)workers_of(row));
}

static double samples_per_s(const order_row *row) {
    return (double)row->result.n_sample / row->result.total_ms * 1e3;
}

static double gbit_per_s(const simulate_settings *set, const order_row *row) {
    return samples_per_s(row) * set->sample_mb * 8e-3 / row->plan.n_server;
}

static void print_report(const simulate_settings *set, const fm_prepare_times *times,
                         const order_row *rows, uint32_t n) {
    printf("times     mean %.1f ms, p50 %.1f, p90 %.1f, p99 %.1f\n", fm_prepare_times_mean(times),
           fm_prepare_times_at(times, 0.5), fm_prepare_times_at(times, 0.9),
           fm_prepare_times_at(times, 0.99));
    printf("run       %llu rank%s, %llu sample%s each, steps of %g ms, %llu ahead\n",
           (unsigned long long)set->ranks, fm_plural(set->ranks), (unsigned long long)set->per_rank,
           fm_plural(set->per_rank), set->step_ms, (unsigned long long)set->ahead);
    printf("%-13s%8s%9s%10s%10s%10s%10s%9s%8s%11s%8s\n", "order", "servers", "workers", "mean ms",
           "p50 ms", "p99 ms", "max ms", "stall %", "load %", "samples/s", "Gbit/s");
    for (uint32_t i = 0; i < n; i++) {
        const order_row *row = &rows[i];
        if (!row->is_found) {
            printf("%-13s no number of servers keeps the waits below %g %%\n", row->name,
                   set->max_stall);
            continue;
        }
        printf("%-13s%8u%9llu%10.2f%10.2f%10.2f%10.2f%9.2f%8.1f%11.1f%8.2f\n", row->name,
               row->plan.n_server, (unsigned long long)workers_of(row),
               row->result.wait_ms / row->plan.n_step, wait_ms(row, 500), wait_ms(row, 990),
               (double)row->result.wait_ns.max * 1e-6, stall_percent(row), load_percent(row),
               samples_per_s(row), gbit_per_s(set, row));
    }
}

static void write_json(const simulate_settings *set, const fm_prepare_times *times,
                       const order_row *rows, uint32_t n) {
    fm_json_writer json;
    fm_json_begin(&json, stdout);
    fm_json_put_f64(&json, "mean_ms", fm_prepare_times_mean(times), 3);
    fm_json_open_array(&json, "orders");
    for (uint32_t i = 0; i < n; i++) {
        const order_row *row = &rows[i];
        fm_json_open_object(&json, NULL);
        fm_json_put_string(&json, "order", row->name);
        if (!row->is_found) {
            fm_json_put_u64(&json, "servers", 0);
            fm_json_close(&json);
            continue;
        }
        fm_json_put_u64(&json, "servers", row->plan.n_server);
        fm_json_put_u64(&json, "workers", workers_of(row));
        fm_json_open_object(&json, "wait_ms");
        fm_json_put_f64(&json, "mean", row->result.wait_ms / row->plan.n_step, 3);
        fm_json_put_f64(&json, "p50", wait_ms(row, 500), 3);
        fm_json_put_f64(&json, "p99", wait_ms(row, 990), 3);
        fm_json_put_f64(&json, "max", (double)row->result.wait_ns.max * 1e-6, 3);
        fm_json_close(&json);
        fm_json_put_f64(&json, "stall_percent", stall_percent(row), 3);
        fm_json_put_f64(&json, "load_percent", load_percent(row), 3);
        fm_json_put_f64(&json, "samples_per_s", samples_per_s(row), 3);
        fm_json_put_f64(&json, "gbit_per_s", gbit_per_s(set, row), 3);
        fm_json_close(&json);
    }
    fm_json_close(&json);
    fm_json_end(&json);
}

int fm_cmd_simulate(int argc, char **argv) {
    simulate_settings set = {.orders = "strict,bounded:32,free,loader",
                             .ranks = 1,
                             .per_rank = 1,
                             .workers = 16,
                             .ahead = 8,
                             .steps = 1000,
                             .warm = 300,
                             .network_gbit = 25,
                             .max_stall = 1};
    int code = parse(&set, argc, argv);
    if (code >= 0) return code;
    fm_error error;
    if (check(&set, &error)) return fm_program_report("foldmill simulate", &error);
    if (set.ahead < set.per_rank) set.ahead = set.per_rank;
    order_row *rows = calloc(MOST_ORDERS, sizeof *rows);
    fm_prepare_times times = {0};
    uint32_t n;
    fm_status status = rows ? parse_orders(&set, rows, &n, &error)
                            : fm_fail(&error, FM_ERR_NOMEM, "no memory for a simulation");
    if (!status) status = read_times(set.times, &times, &error);
    if (!status) status = run(&set, &times, rows, n, &error);
    if (!status) (set.json ? write_json : print_report)(&set, &times, rows, n);
    fm_prepare_times_fini(&times);
    free(rows);
    return status ? fm_program_report("foldmill simulate", &error) : FM_EXIT_OK;
}
