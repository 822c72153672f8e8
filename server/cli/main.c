/* main.c: the `foldmill` program: finds the command, runs it, and checks that its results could be
 * written. */
#include "proto/base/machine.h"
#include "proto/base/options_manual.h"
#include "server/cli/commands.h"
#include "server/cli/version.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

typedef struct command_entry {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} command_entry;

static const command_entry commands[] = {
    {"build", fm_cmd_build, "make a cache of training features from a dataset"},
    {"featurize", fm_cmd_featurize, "make a cache of chains to predict, from alignments"},
    {"merge", fm_cmd_merge, "make one cache from the shards of a shared job"},
    {"catalogue", fm_cmd_catalogue, "migrate, show or rebuild the catalogue of shared jobs"},
    {"verify", fm_cmd_verify, "check every byte of a cache"},
    {"inspect", fm_cmd_inspect, "show what a cache, or one chain of it, holds"},
    {"stats", fm_cmd_stats, "show lengths, depths, sizes and refusals of a cache"},
    {"snapshot", fm_cmd_snapshot, "name sets of chains for training and evaluation"},
    {"gc", fm_cmd_gc, "remove generations and shards that nothing refers to"},
    {"export", fm_cmd_export, "write the features of chains as .npz or safetensors"},
    {"parse", fm_cmd_parse, "read one input file and show or export what is in it"},
    {"components", fm_cmd_components, "read a dictionary of chemical components"},
    {"prepare", fm_cmd_prepare, "prepare descriptions of complexes for prediction"},
    {"score", fm_cmd_score, "compare a predicted complex with the true structure"},
    {"serve", fm_cmd_serve, "serve samples from a cache to trainers"},
    {"fetch", fm_cmd_fetch, "receive a stream from a server and measure it"},
    {"certs", fm_cmd_certs, "make a small authority and certificates for tls://"},
    {"simulate", fm_cmd_simulate, "plan servers: how long ranks would wait for samples"},
    {"forecast", fm_cmd_forecast, "plan a run: how long its steps take on a number of GPUs"},
    {"top", fm_cmd_top, "show what a server or a training run does"},
    {"plot", fm_cmd_plot, "draw the curves of training runs"},
    {"train", fm_cmd_train, "train a model on the samples of a server or a cache"},
    {"eval", fm_cmd_train, "score a checkpoint on the chains of a snapshot"},
    {"predict", fm_cmd_train, "predict structures from sequences with their alignments"},
    {"distill", fm_cmd_train, "predict the chains of a cache for self-distillation"},
    {"import", fm_cmd_train, "make a checkpoint from the weights of DeepMind or OpenFold"},
    {"export-weights", fm_cmd_train, "write the weights of a checkpoint for other programs"},
    {"doctor", fm_cmd_train, "look at this machine: what will not work, and what to do"},
    {"synth", fm_cmd_synth, "write a synthetic dataset"},
    {NULL, NULL, NULL},
};

int fm_cli_parse(const fm_command *command, int argc, char **argv, int *ret_positional) {
    fm_error error;
    switch (fm_options_parse(command, argc, argv, ret_positional, &error)) {
    case FM_OK: return -1;
    case FM_ERR_CANCELLED: return FM_EXIT_OK;
    default: return fm_program_report(command->program, &error);
    }
}

void fm_cli_catch_signals(void (*handler)(int signal_number)) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct sigaction before, action = {.sa_handler = handler};
        sigemptyset(&action.sa_mask);
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN) continue;
        sigaction(signals[i], &action, NULL);
    }
}

void fm_cli_survive_writes(void) {
    signal(SIGPIPE, SIG_IGN); /* Ctrl-C also ends the reader of `... 2>&1 | tee log` */
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit then fails with a message */
}

static const char summary[] = "from protein data to AlphaFold features, training and predictions";

static void print_usage(FILE *out) {
    fprintf(out,
            "foldmill - %s\n\n"
            "usage: foldmill COMMAND [options]\n"
            "       foldmill help COMMAND\n"
            "       foldmill --version [--verbose]\n\ncommands:\n",
            summary);
    for (const command_entry *entry = commands; entry->name; entry++)
        fprintf(out, "  %-14s %s\n", entry->name, entry->summary);
}

static const command_entry *find_command(const char *name) {
    for (const command_entry *entry = commands; entry->name; entry++) {
        if (strcmp(entry->name, name) == 0) return entry;
    }
    return NULL;
}

static int fail_unknown(const char *name) {
    const char *names[sizeof commands / sizeof commands[0]];
    size_t n = 0;
    for (const command_entry *entry = commands; entry->name; entry++)
        names[n++] = entry->name;
    const char *nearest = fm_options_nearest(name, names, n);
    if (name[0] == '-') {
        fprintf(stderr,
                "foldmill: found '%s' in place of a command; options come after it, as in "
                "foldmill COMMAND --help\n",
                name);
        return FM_EXIT_USAGE;
    }
    fprintf(stderr, "foldmill: unknown command '%s'; ", name);
    if (nearest) fprintf(stderr, "did you mean '%s'? ", nearest);
    fprintf(stderr, "foldmill --help lists the commands\n");
    return FM_EXIT_USAGE;
}

static bool is_one_of(const char *word, const char *name, const char *letter) {
    return strcmp(word, name) == 0 || strcmp(word, letter) == 0;
}

/* The page that lists the commands' pages. */
static void print_manual(FILE *out) {
    fm_roff_print_head(out, "foldmill", summary);
    fputs(".SH SYNOPSIS\n\\fBfoldmill\\fR \\fICOMMAND\\fR [options]\n.SH COMMANDS\n", out);
    for (const command_entry *entry = commands; entry->name; entry++) {
        fputs(".TP\n\\fB", out);
        fm_roff_print_text(out, entry->name, strlen(entry->name));
        fputs("\\fR\n", out);
        fm_roff_print_text(out, entry->summary, strlen(entry->summary));
        fputc('\n', out);
    }
}

/* The help of the program itself, in the form that --help=FORM names. */
static int print_help(const char *form) {
    if (strcmp(form, "text") == 0) {
        print_usage(stdout);
    } else if (strcmp(form, "man") == 0) {
        print_manual(stdout);
    } else if (strcmp(form, "words") == 0) {
        for (const command_entry *entry = commands; entry->name; entry++)
            printf("%s\t\t%s\n", entry->name, entry->summary);
    } else {
        fprintf(stderr, "foldmill: --help: found '%s', expected text, man or words\n", form);
        return FM_EXIT_USAGE;
    }
    return FM_EXIT_OK;
}

/* `foldmill help` and `foldmill help COMMAND`. */
static int help(int argc, char **argv) {
    if (argc < 2) return print_help("text");
    const command_entry *entry = find_command(argv[1]);
    if (!entry) return fail_unknown(argv[1]);
    char option[] = "--help";
    char *words[] = {argv[1], option, NULL};
    return entry->run(2, words);
}

static int run(int argc, char **argv) {
    if (argc < 2) {
        print_usage(stderr);
        return FM_EXIT_USAGE;
    }
    if (strcmp(argv[1], "help") == 0) return help(argc - 1, argv + 1);
    const char *form = fm_options_help_form(argv[1]);
    if (form) return print_help(form);
    if (is_one_of(argv[1], "--version", "-V")) {
        return fm_version_print(argc > 2 && is_one_of(argv[2], "--verbose", "-v"));
    }
    const command_entry *entry = find_command(argv[1]);
    if (!entry) return fail_unknown(argv[1]);
    if (argc > 2 && is_one_of(argv[2], "--version", "-V")) return fm_version_print(false);
    return entry->run(argc - 1, argv + 1);
}

/* Results that could not be written are a failure even if the command returns success: a full disk
 * behind a redirection must not look like success. */
static int close_stdout(int code) {
    errno = 0;
    bool is_whole = fflush(stdout) == 0 && !ferror(stdout);
    /* EBADF: the program was started without a standard output, and had nothing to write. */
    if (is_whole) is_whole = fclose(stdout) == 0 || errno == EBADF;
    int reason = errno;
    if (is_whole) return code;
    fprintf(stderr, "foldmill: cannot write the results to standard output%s%s\n",
            reason ? ": " : "", reason ? strerror(reason) : "");
    return code == FM_EXIT_USAGE ? code : FM_EXIT_FAILED;
}

int main(int argc, char **argv) {
    fm_machine_begin();
    return close_stdout(run(argc, argv));
}
