/* program.c: see program.h. */
#include "proto/base/program.h"

#include <stdio.h>

int fm_program_report(const char *name, const fm_error *error) {
    char text[FM_ERROR_TEXT_BYTES];
    fm_error_format(error, text, sizeof text);
    fprintf(stderr, "%s: %s\n", name, text);
    return error->status == FM_ERR_USAGE ? FM_EXIT_USAGE : FM_EXIT_FAILED;
}
