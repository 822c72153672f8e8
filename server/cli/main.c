/* main.c: the `foldmill` program: finds the command and hands over. */
#include "server/cli/commands.h"

#include <stdio.h>
#include <string.h>

typedef struct command_entry {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} command_entry;

static const command_entry commands[] = {
    {"build", fm_cmd_build, "make a cache of training features from a dataset"},
    {"merge", fm_cmd_merge, "make one cache of what the workers of a shared job built"},
    {"catalogue", fm_cmd_catalogue, "the catalogue of shared jobs: schema, status, made anew"},
    {"verify", fm_cmd_verify, "check every byte of a cache"},
    {"inspect", fm_cmd_inspect, "say what a cache, or one chain of it, holds"},
    {"stats", fm_cmd_stats, "lengths, depths, bytes and refusals of a cache, as histograms"},
    {"snapshot", fm_cmd_snapshot, "name sets of chains for training and evaluation"},
    {"gc", fm_cmd_gc, "remove generations and shards that nothing names"},
    {"export", fm_cmd_export, "write a chain's features as a NumPy archive"},
    {"parse", fm_cmd_parse, "read one input file and show or export what is in it"},
    {"serve", fm_cmd_serve, "serve samples from a cache to trainers"},
    {"fetch", fm_cmd_fetch, "drain a stream of a server and print rates and waits"},
    {"train", fm_cmd_train, "train on what a server streams (foldmill-train)"},
    {"import", fm_cmd_train, "make a checkpoint of DeepMind's or OpenFold's weights"},
    {"export-weights", fm_cmd_train, "write a checkpoint's weights for others' programs"},
    {"synth", fm_cmd_synth, "write a synthetic dataset: structures, alignments, template hits"},
    {NULL, NULL, NULL},
};

int fm_cli_report(const char *name, const fm_error *error) {
    char text[FM_ERROR_SOURCE_BYTES + FM_ERROR_MESSAGE_BYTES + 64];
    fm_error_format(error, text, sizeof text);
    fprintf(stderr, "%s: %s\n", name, text);
    return error->status == FM_ERR_USAGE ? FM_EXIT_USAGE : FM_EXIT_FAILED;
}

int fm_cli_parse(const fm_command *command, int argc, char **argv, int *ret_positional) {
    fm_error error;
    switch (fm_options_parse(command, argc, argv, ret_positional, &error)) {
    case FM_OK: return -1;
    case FM_ERR_CANCELLED: return FM_EXIT_OK;
    default: return fm_cli_report(command->program, &error);
    }
}

static void print_usage(FILE *out) {
    fprintf(out, "foldmill - protein data in, AlphaFold2 training features out\n\n"
                 "usage: foldmill COMMAND [options]      foldmill COMMAND --help\n"
                 "       foldmill --version\n\ncommands:\n");
    for (const command_entry *entry = commands; entry->name; entry++) {
        fprintf(out, "  %-14s %s\n", entry->name, entry->summary);
    }
}

int main(int argc, char **argv) {
    if (argc < 2) {
        print_usage(stderr);
        return FM_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return FM_EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("foldmill %s\n", FM_VERSION);
        return FM_EXIT_OK;
    }
    for (const command_entry *entry = commands; entry->name; entry++) {
        if (strcmp(entry->name, argv[1]) == 0) return entry->run(argc - 1, argv + 1);
    }
    fprintf(stderr, "foldmill: unknown command '%s'; foldmill --help lists the commands\n",
            argv[1]);
    return FM_EXIT_USAGE;
}
