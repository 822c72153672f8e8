/* cmd_train.c: foldmill train, eval, predict, distill, import, export-weights and doctor: replaces
 * this process by foldmill-train, the program that links the model (and CUDA and NCCL where they
 * are available). It is looked for in the folder of this program first, then on PATH. */
#include "server/cli/commands.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char program[] = "foldmill-train";

/* The path of foldmill-train in this program's folder; false when that folder is not known. */
static bool find_beside(char *out, size_t out_bytes) {
    ssize_t length = readlink("/proc/self/exe", out, out_bytes);
    if (length <= 0 || (size_t)length >= out_bytes) return false;
    out[length] = '\0';
    char *slash = strrchr(out, '/');
    if (!slash || (size_t)(slash + 1 - out) + sizeof program > out_bytes) return false;
    memcpy(slash + 1, program, sizeof program);
    return true;
}

int fm_cmd_train(int argc, char **argv) {
    char **handed = calloc((size_t)argc + 2, sizeof *handed);
    if (!handed) return FM_EXIT_FAILED;
    char name[sizeof program], path[PATH_MAX];
    memcpy(name, program, sizeof program);
    handed[0] = name;
    memcpy(handed + 1, argv, (size_t)argc * sizeof *argv);
    if (find_beside(path, sizeof path)) execv(path, handed);
    execvp(program, handed);
    fprintf(stderr,
            "foldmill %s: cannot start %s: %s; it must be in the folder of foldmill or on PATH\n",
            argv[0], program, strerror(errno));
    free(handed);
    return FM_EXIT_FAILED;
}
