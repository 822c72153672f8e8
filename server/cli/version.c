/* version.c: see version.h. */
#include "server/cli/version.h"

#include "server/cli/commands.h"

#include <gnu/libc-version.h>
#include <stdio.h>

int fm_version_print(bool is_verbose) {
    printf("foldmill %s\n", FM_VERSION);
    if (!is_verbose) return FM_EXIT_OK;
    printf("commit: %s\n", FM_COMMIT);
    printf("compiler: %s, C library %s (running with %s)\n", FM_COMPILER, FM_C_LIBRARY,
           gnu_get_libc_version());
    printf("libraries: %s\n", FM_LIBRARIES);
    printf("without: %s\n", FM_WITHOUT);
    fflush(stdout);
    char name[] = "--version", option[] = "--verbose";
    char *words[] = {name, option, NULL};
    return fm_cmd_train(2, words);
}
