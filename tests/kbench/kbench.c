/* kbench.c: the program kbench: options, child processes under a watchdog, a line for each result,
 * the JSON file, and a short table at the end. The cases are in kbench_*.cu. */
#include "tests/kbench/kbench.h"
#include "proto/base/options.h"
#include "tests/testing/watchdog.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_CASES = 512, MOST_PARTS = 8, TEXT = 160, SKIPPED = 77 };

static const double PEAK_FLOPS = 790e12, PEAK_BYTES = 4.25e12;

typedef struct timing {
    char name[24];
    double warm, cold, flops, bytes, peer; /* ms, ms; peer 0: none */
    double held, joules, mhz;              /* when calls go on for seconds, ms; 0: not measured */
} timing;

typedef struct result {
    timing part[MOST_PARTS];
    int n_part;
    timing next; /* the energy of the part that is reported next */
    double error, tolerance;
    char worst[32], oracle[32]; /* oracle "none": not compared */
    char failure[TEXT];         /* "" = none */
    double seconds;             /* that the case took, with the oracle */
    bool was_left_out;
} result;

typedef struct kbench {
    kbench_options options;
    const char *json;
    FILE *json_file;
    long json_end; /* where the next result goes */
    int n_written;
    int n_case, current; /* current: whose lines were printed last */
    double since;        /* when the last case was over */
    char device[TEXT];
    result results[MOST_CASES];
} kbench;

/* -- numbers */

static double floor_ms(const timing *t) {
    return 1e3 * fmax(t->flops / PEAK_FLOPS, t->bytes / PEAK_BYTES);
}

/* The share of the roofline, in percent. */
static double share(const timing *t, double ms) {
    return ms > 0 ? 100 * floor_ms(t) / ms : 0;
}

static bool is_compared(const result *r) {
    return r->oracle[0] != '\0' && strcmp(r->oracle, "none") != 0;
}

static bool is_wrong(const result *r) {
    return is_compared(r) && !(r->error <= r->tolerance);
}

static const char *verdict(const result *r) {
    if (r->was_left_out) return "not run";
    if (r->failure[0]) return "FAILED";
    if (is_wrong(r)) return "WRONG";
    return is_compared(r) ? "ok" : "not compared";
}

/* The part that represents the case: the sum of all when there are several. */
static const timing *whole(const result *r) {
    return r->n_part > 0 ? &r->part[r->n_part - 1] : NULL;
}

/* -- JSON */

static void put_number(FILE *f, const char *name, double value) {
    if (isfinite(value)) {
        fprintf(f, ", \"%s\": %.9g", name, value);
    } else {
        fprintf(f, ", \"%s\": null", name);
    }
}

static void put_text(FILE *f, const char *name, const char *text) {
    fprintf(f, "\"%s\": \"", name);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', f);
        fputc((unsigned char)*text < 32 ? ' ' : *text, f);
    }
    fputc('"', f);
}

static void put_parts(FILE *f, const result *r) {
    fprintf(f, ", \"parts\": [");
    for (int i = 0; i < r->n_part; i++) {
        const timing *t = &r->part[i];
        fprintf(f, "%s{", i ? ", " : "");
        put_text(f, "part", t->name);
        put_number(f, "warm_ms", t->warm);
        put_number(f, "cold_ms", t->cold);
        put_number(f, "flops", t->flops);
        put_number(f, "bytes", t->bytes);
        put_number(f, "floor_ms", floor_ms(t));
        put_number(f, "warm_share", share(t, t->warm) / 100);
        put_number(f, "cold_share", share(t, t->cold) / 100);
        if (t->peer > 0) put_number(f, "peer_ms", t->peer);
        if (t->held > 0) {
            put_number(f, "held_ms", t->held);
            put_number(f, "joules", t->joules);
            put_number(f, "mhz", t->mhz);
        }
        fprintf(f, "}");
    }
    fprintf(f, "]");
}

/* The file is complete JSON after every result. */
static void end_json(kbench *k) {
    k->json_end = ftell(k->json_file);
    fprintf(k->json_file, "\n]}\n");
    fflush(k->json_file);
}

static void begin_json(kbench *k) {
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    fprintf(k->json_file, "{");
    put_text(k->json_file, "device", k->device);
    fprintf(k->json_file, ", ");
    put_text(k->json_file, "date", date);
    fprintf(k->json_file, ", ");
    put_text(k->json_file, "dtype", k->options.f32 ? "fp32" : "bf16");
    put_number(k->json_file, "peak_flops", PEAK_FLOPS);
    put_number(k->json_file, "peak_bytes_per_second", PEAK_BYTES);
    fprintf(k->json_file, ", \"cases\": [");
    end_json(k);
}

static void write_json(kbench *k, int i) {
    const result *r = &k->results[i];
    if (!k->json_file) return;
    if (k->json_end == 0) begin_json(k);
    fseek(k->json_file, k->json_end, SEEK_SET);
    fprintf(k->json_file, "%s\n{", k->n_written++ > 0 ? "," : "");
    put_text(k->json_file, "case", kbench_name(i));
    fprintf(k->json_file, ", ");
    put_text(k->json_file, "verdict", verdict(r));
    put_number(k->json_file, "seconds", r->seconds);
    if (r->failure[0]) {
        fprintf(k->json_file, ", ");
        put_text(k->json_file, "why", r->failure);
    }
    if (is_compared(r)) {
        put_number(k->json_file, "error", r->error);
        put_number(k->json_file, "tolerance", r->tolerance);
        fprintf(k->json_file, ", ");
        put_text(k->json_file, "worst_output", r->worst);
        fprintf(k->json_file, ", ");
        put_text(k->json_file, "oracle", r->oracle);
    }
    put_parts(k->json_file, r);
    fprintf(k->json_file, "}");
    end_json(k);
}

/* -- lines */

static void print_head(bool has_energy) {
    printf("%-46s %-8s %9s %9s %8s %8s %8s %6s %6s", "case", "part", "warm ms", "cold ms", "GFLOP",
           "MB", "floor ms", "warm %", "cold %");
    if (has_energy) printf(" %9s %8s %5s %5s", "held ms", "mJ", "W", "MHz");
    printf("\n");
}

static void print_part(const char *name, const timing *t) {
    printf("%-46s %-8s %9.4f %9.4f %8.1f %8.1f %8.4f %6.1f %6.1f", name, t->name, t->warm, t->cold,
           t->flops * 1e-9, t->bytes * 1e-6, floor_ms(t), share(t, t->warm), share(t, t->cold));
    if (t->held > 0) {
        printf(" %9.4f %8.2f %5.0f %5.0f", t->held, 1e3 * t->joules, 1e3 * t->joules / t->held,
               t->mhz);
    }
    if (t->peer > 0) printf("  peer %.3f (%.1fx)", t->peer, t->peer / t->warm);
    printf("\n");
}

static void copy_text(char *out, size_t size, const char *text) {
    snprintf(out, size, "%s", text);
}

/* -- the watchdog's calls */

static int prepare(void *context, int fd) {
    (void)context;
    return kbench_prepare(fd);
}

static void run(void *context, int item, int fd) {
    (void)context;
    kbench_run(item, fd);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void hear_device(kbench *k, const char *name, int multiprocessors, double bytes) {
    k->since = now();
    if (k->device[0]) return; /* a later child's */
    snprintf(k->device, sizeof k->device, "%s", name);
    printf("kbench: %s, %d multiprocessors, %.0f GiB; %s; %d cases\n", k->device, multiprocessors,
           bytes / (1 << 30), k->options.f32 ? "f32" : "bf16", k->n_case);
    print_head(k->options.energy_seconds > 0);
    if (k->json_file && k->json_end == 0) begin_json(k);
}

/* A result is whole when the next case begins or all are over. */
static void finish(kbench *k, int next) {
    if (k->current == next) return;
    if (k->current >= 0) {
        k->since += k->results[k->current].seconds;
        write_json(k, k->current);
    }
    k->current = next;
}

static void hear(void *context, int item, const char *line) {
    kbench *k = context;
    char copy[FM_WATCHDOG_LINE], *at = copy, *field[8] = {NULL};
    copy_text(copy, sizeof copy, line);
    int n = 0;
    for (; n < 8 && at; n++)
        field[n] = strsep(&at, "\t");
    if (n == 4 && strcmp(field[0], "device") == 0) {
        hear_device(k, field[1], (int)strtol(field[2], NULL, 10), strtod(field[3], NULL));
    }
    if (item < 0) return;
    finish(k, item);
    result *r = &k->results[item];
    if (n == 5 && strcmp(field[0], "error") == 0) {
        r->error = strtod(field[1], NULL), r->tolerance = strtod(field[2], NULL);
        copy_text(r->worst, sizeof r->worst, field[3]);
        copy_text(r->oracle, sizeof r->oracle, field[4]);
        if (is_wrong(r)) {
            printf("%-46s WRONG: %s differs by %.2e, allowed %.1e\n", kbench_name(item), r->worst,
                   r->error, r->tolerance);
        }
    } else if (n == 4 && strcmp(field[0], "energy") == 0) {
        r->next.held = strtod(field[1], NULL), r->next.joules = strtod(field[2], NULL);
        r->next.mhz = strtod(field[3], NULL);
    } else if (n == 7 && strcmp(field[0], "part") == 0 && r->n_part < MOST_PARTS) {
        timing *t = &r->part[r->n_part++];
        *t = r->next, r->next = (timing){0};
        copy_text(t->name, sizeof t->name, field[1]);
        t->warm = strtod(field[2], NULL), t->cold = strtod(field[3], NULL);
        t->flops = strtod(field[4], NULL), t->bytes = strtod(field[5], NULL);
        t->peer = strtod(field[6], NULL);
        r->seconds = now() - k->since;
        print_part(kbench_name(item), t);
    } else if (n == 2 && strcmp(field[0], "failed") == 0) {
        copy_text(r->failure, sizeof r->failure, field[1]);
        printf("%-46s FAILED: %s\n", kbench_name(item), r->failure);
    }
    fflush(stdout);
}

static void lost(void *context, int item, const char *why) {
    kbench *k = context;
    result *r = &k->results[item];
    finish(k, item);
    copy_text(r->failure, sizeof r->failure, why);
    r->was_left_out = strcmp(why, "no time left") == 0;
    if (!r->was_left_out) printf("%-46s FAILED: %s\n", kbench_name(item), why);
    fflush(stdout);
}

/* -- the end */

static int print_table(const kbench *k) {
    int n_good = 0, n_bad = 0, n_left = 0;
    printf("\n%-46s %9s %9s %6s %6s %9s %8s  %s\n", "case", "warm ms", "cold ms", "cold %",
           "peer x", "error", "allowed", "");
    for (int i = 0; i < k->n_case; i++) {
        const result *r = &k->results[i];
        const timing *t = whole(r);
        if (r->was_left_out) {
            n_left++;
            continue;
        }
        bool is_bad = r->failure[0] || is_wrong(r);
        n_bad += is_bad, n_good += !is_bad;
        printf("%-46s", kbench_name(i));
        if (t) {
            printf(" %9.4f %9.4f %6.1f", t->warm, t->cold, share(t, t->cold));
        } else {
            printf(" %9s %9s %6s", "-", "-", "-");
        }
        if (t && t->peer > 0) {
            printf(" %6.1f", t->peer / t->warm);
        } else {
            printf(" %6s", "-");
        }
        if (is_compared(r)) {
            printf(" %9.1e %8.1e", r->error, r->tolerance);
        } else {
            printf(" %9s %8s", "-", "-");
        }
        printf("  %s%s%s\n", verdict(r), r->failure[0] ? ": " : "", r->failure);
    }
    printf("kbench: %d ok, %d failed or wrong, %d not run for lack of time\n", n_good, n_bad,
           n_left);
    return n_bad > 0;
}

static const char DESCRIPTION[] =
    "Each case is an entry of the CUDA backend's table at a shape of the published model's\n"
    "training, initial or (names with \"ft\") fine-tuning. It is run once and compared with naive\n"
    "kernels written for this (structure module, elements: the CPU backend), run again --repeats\n"
    "times, which must give the same bits, then timed by replays of CUDA graphs: warm, calls\n"
    "one after the other; cold, one call after 256 MB of other reads.\n"
    "\n"
    "Printed are medians in ms, the matrix products' FLOPs, ideal bytes (every operand once), the\n"
    "floor that these set (790 TFLOP/s, 4.25 TB/s) and the share of it that is reached; then how\n"
    "long others take at that shape, warm. A name with brackets is another path of the same\n"
    "kernel; a \"module\" is a whole sublayer.\n"
    "\n"
    "Cases run in a child process. One that crashes, or takes longer than --case-seconds, is\n"
    "reported, and the next go on in a fresh child. Lines come as cases end; --json is whole JSON\n"
    "after each of them.\n"
    "\n"
    "--energy runs each part for so many seconds more and prints the time, energy, power and\n"
    "clock of a call. At its power limit, which a few replays do not reach, a device lowers its\n"
    "clock. It does so in a training step, too.\n"
    "\n"
    "NAME selects cases whose name contains it; \"self test\" those that try the watchdog.\n"
    "\n"
    "Exit status: 0 all compared well; 1 a case failed or was wrong; 2 usage; 77 no device.";

static int list(const kbench *k) {
    for (int i = 0; i < k->n_case; i++)
        printf("%s\n", kbench_name(i));
    return 0;
}

/* Runs all cases; 0, or the exit status where nothing was run. */
static int run_cases(kbench *k, double case_seconds, double seconds) {
    const fm_watchdog dog = {.n_item = k->n_case,
                             .item_seconds = case_seconds,
                             .total_seconds = seconds,
                             .context = k,
                             .prepare = prepare,
                             .run = run,
                             .hear = hear,
                             .lost = lost};
    int ended = fm_watchdog_run(&dog);
    if (ended) {
        fprintf(stderr, ended == SKIPPED ? "kbench: no CUDA device\n" : "kbench: cannot begin\n");
    }
    return ended;
}

int main(int argc, char **argv) {
    static kbench k = {.current = -1};
    const char *dtype = "bf16";
    bool lists = false;
    uint64_t samples = 20, repeats = 2, case_seconds = 30, seconds = 0, energy = 0;
    const fm_option options[] = {
        {"json", FM_OPTION_STRING, &k.json, "FILE", .help = "write results there, too"},
        {"dtype", FM_OPTION_STRING, &dtype, "TYPE", .help = "bf16 or fp32 (bf16)"},
        {"list", FM_OPTION_FLAG, &lists, NULL, .help = "print the names of the cases and end"},
        {"no-oracle", FM_OPTION_FLAG, &k.options.no_oracle, NULL, .help = "times alone"},
        {"samples", FM_OPTION_U64, &samples, "N", .help = "replays of a median (20)", .min = 1,
         .max = 10000},
        {"repeats", FM_OPTION_U64, &repeats, "N",
         .help = "runs more, which must give the same bits (2)", .max = 10000},
        {"energy", FM_OPTION_U64, &energy, "S",
         .help = "measure energy, S seconds for each part (0: no)", .max = 60},
        {"case-seconds", FM_OPTION_U64, &case_seconds, "S",
         .help = "a case that takes longer hangs (30)", .min = 1, .max = 3600},
        {"seconds", FM_OPTION_U64, &seconds, "S",
         .help = "begin no case later than this (0: no limit)", .max = 86400},
        {0}};
    const fm_command command = {"kbench",
                                "[NAME...] [options]",
                                "times and checks the kernels of the CUDA backend",
                                DESCRIPTION,
                                options,
                                0,
                                FM_OPTION_LIST_MAX};
    fm_error error;
    int n_name = 0;
    fm_status status = fm_options_parse(&command, argc, argv, &n_name, &error);
    if (status == FM_ERR_CANCELLED) return 0;
    if (status) {
        fprintf(stderr, "kbench: %s\n", error.message);
        return 2;
    }
    if (strcmp(dtype, "bf16") != 0 && strcmp(dtype, "fp32") != 0) {
        fprintf(stderr, "kbench: --dtype '%s', expected bf16 or fp32\n", dtype);
        return 2;
    }
    k.options.select = (const char *const *)argv, k.options.n_select = n_name;
    k.options.f32 = strcmp(dtype, "fp32") == 0, k.options.samples = (int)samples;
    k.options.repeats = (int)repeats, k.options.energy_seconds = (double)energy;
    k.n_case = kbench_select(&k.options);
    if (k.n_case == 0 || k.n_case > MOST_CASES) {
        fprintf(stderr, "kbench: %d cases have such a name (--list prints all)\n", k.n_case);
        return 2;
    }
    if (lists) return list(&k);
    if (k.json && !(k.json_file = fopen(k.json, "w"))) {
        fprintf(stderr, "kbench: cannot write %s\n", k.json);
        return 2;
    }
    int ended = run_cases(&k, (double)case_seconds, (double)seconds);
    if (ended) return ended;
    finish(&k, -1);
    int rc = print_table(&k);
    if (k.json_file) fclose(k.json_file);
    return rc;
}
