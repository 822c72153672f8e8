/* read_input.h: the files that a command reads whole; "-" is standard input. */
#ifndef FM_CLI_READ_INPUT_H
#define FM_CLI_READ_INPUT_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"

#include "featurizer/complex/components.h"

#include <stdbool.h>

bool fm_cli_is_stdin(const char *path);

/* The path for messages: "standard input" for "-". */
const char *fm_cli_input_name(const char *path);

/* The file's bytes, or all of standard input; gzip is inflated. Memory is the arena's. Fails as
 * fm_file_read_text does; errors have fm_cli_input_name(path) as their source. */
FM_MUST_USE fm_status fm_cli_read_input(const char *path, fm_arena *arena, fm_bytes *ret_text,
                                        fm_error *reterr);

/* The components of a file: mmCIF text, or what foldmill components has written. Everything is in
 * the arena; errors have the path as their source. */
FM_MUST_USE fm_status fm_cli_read_components(const char *path, fm_arena *arena,
                                             fm_components *ret_components, fm_error *reterr);

/* Whether reading the components of a file takes little: it has been written by foldmill
 * components, or it is small. A file that cannot be looked at counts, because reading it tells. */
bool fm_cli_reads_components_fast(const char *path);

#endif
