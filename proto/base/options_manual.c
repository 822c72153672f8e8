/* options_manual.c: see options_manual.h. */
#include "proto/base/options_manual.h"

#include <ctype.h>
#include <string.h>

/* The day of the version that CHANGELOG.md describes; pages of one version are the same bytes. */
static const char edition[] = "2026-11-28";

/* -- roff */

void fm_roff_print_text(FILE *out, const char *text, size_t bytes) {
    /* A line of roff that begins with a dot or an apostrophe is a request. */
    if (bytes && (text[0] == '.' || text[0] == '\'')) fputs("\\&", out);
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\\') {
            fputs("\\e", out);
        } else if (text[i] == '-') {
            fputs("\\-", out); /* a hyphen that can be copied into a command */
        } else {
            fputc(text[i], out);
        }
    }
}

static void put_text(FILE *out, const char *text) {
    fm_roff_print_text(out, text, strlen(text));
}

void fm_roff_print_head(FILE *out, const char *program, const char *summary) {
    fputs(".TH \"", out);
    for (const char *at = program; *at; at++)
        fputc(*at == ' ' ? '-' : toupper((unsigned char)*at), out);
    fprintf(out, "\" 1 \"%s\" foldmill\n.SH NAME\n", edition);
    for (const char *at = program; *at; at++)
        fputs(*at == ' ' || *at == '-' ? "\\-" : (const char[]){*at, 0}, out);
    fputs(" \\- ", out);
    put_text(out, summary);
    fputc('\n', out);
}

static void begin_table(FILE *out, bool is_first) {
    /* Tables keep their columns, so they have a font of one width. */
    fputs(is_first ? ".nf\n.ft CW\n" : ".PP\n.nf\n.ft CW\n", out);
}

static void end_table(FILE *out) {
    fputs(".ft R\n.fi\n", out);
}

void fm_roff_print_description(FILE *out, const char *text) {
    bool is_table = false, is_first = true;
    while (*text) {
        size_t bytes = strcspn(text, "\n");
        const char *next = text + bytes + (text[bytes] == '\n');
        if (bytes) {
            bool is_row = *text == ' ';
            if (is_row && !is_table) begin_table(out, is_first);
            if (!is_row && is_table) end_table(out);
            is_table = is_row;
            fm_roff_print_text(out, text, bytes);
            fputc('\n', out);
            is_first = false;
        } else if (is_table && *next == ' ') {
            fputc('\n', out);
        } else if (*next && *next != '\n' && *next != ' ') {
            if (is_table) end_table(out);
            is_table = false;
            if (!is_first) fputs(".PP\n", out);
        }
        text = next;
    }
    if (is_table) end_table(out);
}

static void put_option(FILE *out, const fm_option *option) {
    fputs(".TP\n\\fB\\-\\-", out);
    put_text(out, option->name);
    fputs("\\fR", out);
    if (option->value_name) {
        fputs(" \\fI", out);
        put_text(out, option->value_name);
        fputs("\\fR", out);
    }
    if (option->letter) fprintf(out, ", \\fB\\-%c\\fR", option->letter);
    fputc('\n', out);
    put_text(out, option->help);
    fputs(option->is_required ? " (required)\n" : "\n", out);
}

void fm_options_print_manual(const fm_command *command, FILE *out) {
    fm_roff_print_head(out, command->program, command->summary);
    fputs(".SH SYNOPSIS\n\\fB", out);
    put_text(out, command->program);
    fputs("\\fR ", out);
    put_text(out, command->arguments);
    fputc('\n', out);
    if (command->description) {
        fputs(".SH DESCRIPTION\n", out);
        fm_roff_print_description(out, command->description);
    }
    fputs(".SH OPTIONS\n", out);
    for (const fm_option *option = command->options; option->name; option++)
        put_option(out, option);
    fputs(".TP\n\\fB\\-\\-help\\fR, \\fB\\-h\\fR\nshow this text\n"
          ".SH SEE ALSO\n.BR foldmill (1)\n",
          out);
}

/* -- completion */

void fm_options_print_words(const fm_command *command, FILE *out) {
    for (const fm_option *option = command->options; option->name; option++) {
        fprintf(out, "--%s\t%s\t%s\n", option->name, option->value_name ? option->value_name : "",
                option->help);
    }
    fputs("--help\t\tshow the help of the command\n", out);
}
