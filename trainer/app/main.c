/* main.c: the `foldmill-train` program: finds the command, runs it, and checks that its results
 * could be written. It has the commands that need the model. */
#include "proto/base/machine.h"
#include "proto/base/program.h"
#include "trainer/app/doctor/doctor.h"
#include "trainer/app/evaluation/eval_command.h"
#include "trainer/app/prediction/predict.h"
#include "trainer/app/train/train.h"
#include "trainer/app/weights.h"

#include <errno.h>
#include <stdbool.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static bool is_one_of(const char *word, const char *name, const char *letter) {
    return strcmp(word, name) == 0 || strcmp(word, letter) == 0;
}

static void print_usage(FILE *out) {
    fprintf(out,
            "foldmill-train - train AlphaFold2-class models on the samples of a feature server\n\n"
            "usage: foldmill-train train --data URL [options]\n"
            "       foldmill-train eval --checkpoint FILE --data URL --out DIR [options]\n"
            "       foldmill-train predict INPUT... --weights FILE --out DIR [options]\n"
            "       foldmill-train distill --cache DIR --weights FILE --out DIR [options]\n"
            "       foldmill-train import FILE --out CHECKPOINT [options]\n"
            "       foldmill-train export-weights CHECKPOINT --out FILE [options]\n"
            "       foldmill-train doctor [options]\n"
            "       foldmill-train COMMAND --help\n"
            "       foldmill-train --version\n");
}

static int print_version(bool is_verbose) {
    printf("foldmill-train %s\n", FM_VERSION);
    if (is_verbose) printf("GPUs: %s\n", FM_GPUS);
    return FM_EXIT_OK;
}

static int run(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[] = {{"train", fm_train_main},     {"eval", fm_eval_main},
                    {"predict", fm_predict_main}, {"distill", fm_distill_main},
                    {"import", fm_import_main},   {"export-weights", fm_export_weights_main},
                    {"doctor", fm_doctor_main}};
    if (argc < 2) {
        print_usage(stderr);
        return FM_EXIT_USAGE;
    }
    if (is_one_of(argv[1], "--version", "-V")) {
        return print_version(argc > 2 && is_one_of(argv[2], "--verbose", "-v"));
    }
    if (is_one_of(argv[1], "--help", "-h")) {
        print_usage(stdout);
        return FM_EXIT_OK;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(argv[1], commands[i].name) != 0) continue;
        if (argc == 3 && is_one_of(argv[2], "--version", "-V")) return print_version(false);
        return commands[i].run(argc - 1, argv + 1);
    }
    fprintf(stderr,
            "foldmill-train: unknown command '%s'; foldmill-train --help lists the commands\n",
            argv[1]);
    return FM_EXIT_USAGE;
}

/* Results go to standard output, which may be a full disk. */
int main(int argc, char **argv) {
    fm_machine_begin();
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit on file sizes then fails with a message */
    int code = run(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    fprintf(stderr, "foldmill-train: cannot write the results to standard output: %s\n",
            errno ? strerror(errno) : "write error");
    return code == FM_EXIT_OK ? FM_EXIT_FAILED : code;
}
