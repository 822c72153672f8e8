/* options_manual.h: a command's table as a manual page, and as words for completion in shells.
 *
 * `foldmill COMMAND --help=man` and `--help=words` print them, so that both always agree with the
 * text of --help. */
#ifndef FM_BASE_OPTIONS_MANUAL_H
#define FM_BASE_OPTIONS_MANUAL_H

#include "proto/base/options.h"

/* Prints text that comes between words of roff, with everything that roff would read escaped. */
void fm_roff_print_text(FILE *out, const char *text, size_t bytes);

/* Prints the description of a command in roff: paragraphs, and preformatted lines as they are. */
void fm_roff_print_description(FILE *out, const char *text);

/* Prints the begin of a manual page of section 1, up to its summary. A blank in the name of a
 * program becomes a hyphen: "foldmill-build". */
void fm_roff_print_head(FILE *out, const char *program, const char *summary);

/* Prints the whole page of a command (man(7)). */
void fm_options_print_manual(const fm_command *command, FILE *out);

/* Prints a line for each option: "--name", the name of its value or nothing, and its explanation,
 * with tabs between them. */
void fm_options_print_words(const fm_command *command, FILE *out);

#endif
