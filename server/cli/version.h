/* version.h: what `foldmill --version` says of the program and of what it was built with. */
#ifndef FM_CLI_VERSION_H
#define FM_CLI_VERSION_H

#include <stdbool.h>

/* Prints the version. `is_verbose`: also the commit, the compiler, and the libraries with their
 * versions, and then what foldmill-train says of itself. Returns an exit code. */
int fm_version_print(bool is_verbose);

#endif
