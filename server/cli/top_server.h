/* top_server.h: draws the report of a server for `foldmill top`. */
#ifndef FM_CLI_TOP_SERVER_H
#define FM_CLI_TOP_SERVER_H

#include "proto/base/json_tree.h"

#include <stdio.h>

/* Writes at most `rows` lines of at most `columns` bytes; 0 = no limit. `earlier` is a report that
 * was taken `seconds` before, for rates of single consumers, or NULL. */
void fm_top_draw_server(const fm_json *report, const fm_json *earlier, double seconds,
                        size_t columns, size_t rows, FILE *out);

#endif
