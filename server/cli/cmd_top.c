/* cmd_top.c: foldmill top: shows a server, or a training run, in a terminal.
 *
 * On a terminal the picture is drawn again every interval on the alternate screen, which leaves the
 * shell's own text alone. A picture is made in memory and written at once, so that it never
 * flickers. */
#include "proto/base/histogram.h"
#include "server/cli/commands.h"
#include "server/cli/http_get.h"
#include "server/cli/top_run.h"
#include "server/cli/top_server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { TIMEOUT_MS = 5000, ROWS_DEFAULT = 24 };

static const char description[] =
    "Shows what a server or a training run does, every two seconds until Ctrl-C. WHAT is the\n"
    "address of a server's HTTP listener (foldmill serve --http), as http://HOST:PORT, or the\n"
    "folder of a training run (foldmill train --out).\n\n"
    "Of a server: rates, memory, where the time of a sample goes, each consumer with its waits,\n"
    "refused samples and the chains that were slowest to prepare. Of a run: its step, its loss\n"
    "with all terms and scores, its rate, how long it waits for data, when it ends or that it has\n"
    "ended, its memory, and the held-out scores of its newest evaluation.\n\n"
    "Exit codes: 0 done, 1 failed, 2 bad usage; 130, 143, 129 ended by SIGINT, SIGTERM, SIGHUP.\n\n"
    "Examples:\n"
    "  foldmill top http://127.0.0.1:7421\n"
    "  foldmill top runs/first --once --json";

static volatile sig_atomic_t stopped_by;

static void on_signal(int number) {
    stopped_by = number;
}

typedef struct top_settings {
    const char *what;
    bool once, json;
    double interval_s;
} top_settings;

/* What one picture needs from the one before. */
typedef struct top_state {
    fm_json *report;
    uint64_t at_ns;
} top_state;

static size_t terminal_rows(void) {
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 2) return ROWS_DEFAULT - 1;
    return size.ws_row - 1u; /* the line feed after the last line must not scroll */
}

static fm_status show_server(const top_settings *set, top_state *state, size_t columns, size_t rows,
                             FILE *out, fm_error *reterr) {
    char *text;
    size_t bytes;
    fm_status status =
        fm_cli_http_get(set->what, "/report.json", TIMEOUT_MS, &text, &bytes, reterr);
    if (status) return status;
    uint64_t now = fm_clock_ns();
    fm_json *report = fm_json_parse(text, bytes);
    if (!fm_json_is_object(report)) {
        status = fm_fail_in(reterr, FM_ERR_CORRUPT, set->what, "the answer is no report");
    } else if (set->json) {
        fwrite(text, 1, bytes, out);
    } else {
        fm_top_draw_server(report, state->report, (double)(now - state->at_ns) / 1e9, columns, rows,
                           out);
    }
    free(text);
    fm_json_free(state->report);
    *state = (top_state){report, now};
    return status;
}

static bool is_url(const char *what) {
    return strstr(what, "://") != NULL;
}

/* An address from which samples are streamed has no report: that is on the HTTP listener. */
static bool is_stream_address(const char *what) {
    return strncmp(what, "unix:", 5) == 0 || strncmp(what, "tcp://", 6) == 0 ||
           strncmp(what, "tls://", 6) == 0;
}

static fm_status show(const top_settings *set, top_state *state, size_t columns, size_t rows,
                      FILE *out, fm_error *reterr) {
    if (is_url(set->what)) return show_server(set, state, columns, rows, out, reterr);
    return fm_top_draw_run(set->what, set->json, columns, out, reterr);
}

static void pause_for(double seconds) {
    struct timespec left = {.tv_sec = (time_t)seconds,
                            .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&left, NULL); /* a signal ends it early */
}

/* Draws over the old picture: each line erases what is right of it, the end what is below. Lines
 * that have no room are left out, because the terminal would scroll the first ones away. */
static void put_picture(const char *text, size_t rows) {
    fputs("\033[H", stdout);
    for (const char *at = text; *at && rows > 0; rows--) {
        size_t size = strcspn(at, "\n");
        fwrite(at, 1, size, stdout);
        fputs("\033[K\n", stdout);
        at += size + (at[size] == '\n');
    }
    fputs("\033[J", stdout);
    fflush(stdout);
}

/* A server that does not answer is shown as that, and asked again. */
static fm_status watch(const top_settings *set, fm_error *reterr) {
    top_state state = {0};
    fm_status status = FM_OK;
    fputs("\033[?1049h\033[?25l", stdout); /* the alternate screen, without a cursor */
    while (!stopped_by && !status) {
        char *text = NULL;
        size_t bytes = 0;
        FILE *out = open_memstream(&text, &bytes);
        if (!out) {
            status = fm_fail(reterr, FM_ERR_NOMEM, "no memory for the picture");
            break;
        }
        const size_t rows = terminal_rows();
        fm_status shown = show(set, &state, (size_t)fm_options_columns(stdout), rows, out, reterr);
        if (shown) {
            char message[FM_ERROR_TEXT_BYTES];
            fm_error_format(reterr, message, sizeof message);
            fprintf(out, "%s\n", message);
        }
        if (fclose(out) == 0) put_picture(text, rows);
        free(text);
        if (shown == FM_ERR_USAGE || shown == FM_ERR_NOMEM) status = shown;
        if (!status) pause_for(set->interval_s);
    }
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    fm_json_free(state.report);
    return status;
}

static fm_status show_once(const top_settings *set, fm_error *reterr) {
    top_state state = {0};
    fm_status status = show(set, &state, 0, 0, stdout, reterr);
    fm_json_free(state.report);
    return status;
}

int fm_cmd_top(int argc, char **argv) {
    top_settings set = {.interval_s = 2};
    const fm_option options[] = {
        {"once", FM_OPTION_FLAG, &set.once, NULL,
         .help = "show one picture and end; so does output that is no terminal"},
        {"json", FM_OPTION_FLAG, &set.json, NULL, .help = "with --once: print one JSON object"},
        {"interval", FM_OPTION_F64, &set.interval_s, "S", .help = "seconds between pictures (2)"},
        {0}};
    const fm_command command = {.program = "foldmill top",
                                .arguments = "WHAT [options]",
                                .summary = "show what a server or a training run does",
                                .description = description,
                                .options = options,
                                .min_positional = 1,
                                .max_positional = 1};
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_error error;
    set.what = argv[0];
    if (!(set.interval_s >= 0.1 && set.interval_s <= 3600)) {
        fm_fail(&error, FM_ERR_USAGE, "--interval: found %g, expected 0.1 to 3600 seconds",
                set.interval_s);
        return fm_program_report("foldmill top", &error);
    }
    if (is_stream_address(set.what)) {
        fm_fail(
            &error, FM_ERR_USAGE,
            "found '%s', an address of streams; expected the address of the server's HTTP "
            "listener, such as http://127.0.0.1:7421 (foldmill serve --http), or a run's folder",
            set.what);
        return fm_program_report("foldmill top", &error);
    }
    bool is_live = !set.once && !set.json && isatty(STDOUT_FILENO) == 1;
    if (is_live) fm_cli_catch_signals(on_signal);
    fm_status status = is_live ? watch(&set, &error) : show_once(&set, &error);
    if (status) return fm_program_report("foldmill top", &error);
    return stopped_by ? fm_cli_signal_code(stopped_by) : FM_EXIT_OK;
}
