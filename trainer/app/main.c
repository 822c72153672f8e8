/* main.c: the `foldmill-train` program: finds the command, runs it, and checks that its results
 * could be written. It has the commands that need the model. */
#include "trainer/app/train.h"
#include "trainer/app/weights.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { EXIT_USAGE = 2 };

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[] = {{"train", fm_train_main},
                    {"import", fm_import_main},
                    {"export-weights", fm_export_weights_main}};
    for (size_t i = 0; argc >= 2 && i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
    }
    bool help = argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    fprintf(help ? stdout : stderr,
            "foldmill-train - train AlphaFold2-class models on a feature server's stream\n\n"
            "usage: foldmill-train train --data URL [options]\n"
            "       foldmill-train import FILE --out CHECKPOINT [options]\n"
            "       foldmill-train export-weights CHECKPOINT --out FILE [options]\n");
    return help ? 0 : EXIT_USAGE;
}
