/* main.c: the `foldmill-train` program: the commands that link the model. */
#include "trainer/train.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { EXIT_USAGE = 2 };

int main(int argc, char **argv) {
    if (argc >= 2 && strcmp(argv[1], "train") == 0) return fm_train_main(argc - 1, argv + 1);
    bool help = argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    fprintf(help ? stdout : stderr,
            "foldmill-train - train AlphaFold2-class models on a feature server's stream\n\n"
            "usage: foldmill-train train --data URL [options]\n");
    return help ? 0 : EXIT_USAGE;
}
