/* eval_files.c: the table and the summary of an evaluation as files; see eval_table.h. */
#include "trainer/metrics/eval_table.h"

#include "proto/base/csv.h"
#include "proto/base/exact.h"
#include "proto/base/file.h"
#include "proto/base/json_text.h"
#include "proto/base/json_tree.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    FORMAT = 1,
    MOST_SUMMARY_BYTES = 64 << 20,
    NUMBER_BYTES = FM_EXACT_BYTES,
    PATH_BYTES = 4096
};

static const char summary_name[] = "summary.json";

static fm_status no_path(const char *folder, fm_error *reterr) {
    return fm_fail_in(reterr, FM_ERR_USAGE, folder, "the path is too long");
}

/* Writes `value` so that it reads back unchanged; "" for NAN. */
static void format_number(double value, char out[NUMBER_BYTES]) {
    out[0] = '\0';
    if (isfinite(value)) fm_exact_f64(value, 6, out);
}

static fm_status name_file(const char *folder, const char *name, char out[PATH_BYTES],
                           fm_error *reterr) {
    if (snprintf(out, PATH_BYTES, "%s/%s", folder, name) < PATH_BYTES) return FM_OK;
    return no_path(folder, reterr);
}

/* Writes a text of a memory stream to folder/name, whole or not at all. */
static fm_status write_text(const char *folder, const char *name, const char *text, size_t bytes,
                            fm_error *reterr) {
    char path[PATH_BYTES];
    fm_status status = name_file(folder, name, path, reterr);
    return status ? status : fm_file_write_atomic(path, text, bytes, reterr);
}

/* -- chains.csv */

void fm_eval_put_cell(FILE *out, double value) {
    char text[NUMBER_BYTES];
    format_number(value, text);
    fprintf(out, ",%s", text);
}

static void put_row(FILE *out, const fm_eval_table *table, const fm_eval_chain *c) {
    const fm_structure_scores *s = &c->scores;
    const double scores[] = {s->lddt_ca, s->lddt,   s->rmsd,  s->drmsd, s->tm,
                             s->gdt_ts,  s->gdt_ha, c->plddt, c->loss};
    fm_csv_put(out, c->name);
    fprintf(out, ",%u,%u,%u,%u", c->n_res, c->status ? 0 : (unsigned)s->n, c->n_seq, c->n_templ);
    fm_eval_put_cell(out, c->resolution > 0 ? c->resolution : NAN);
    for (size_t i = 0; i < sizeof scores / sizeof scores[0]; i++)
        fm_eval_put_cell(out, c->status ? NAN : scores[i]);
    for (uint32_t t = 0; t < table->n_term; t++)
        fm_eval_put_cell(out, c->status ? NAN : c->term[t]);
    fputc(',', out);
    fm_csv_put(out, c->status ? c->why : "");
    fputc('\n', out);
}

fm_status fm_eval_write_csv(const char *folder, const fm_eval_table *table, fm_error *reterr) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a table");
    fputs("chain,n_res,n_known,n_seq,n_templ,resolution,lddt_ca,lddt,rmsd_ca,drmsd_ca,tm_score,"
          "gdt_ts,gdt_ha,plddt,loss",
          out);
    for (uint32_t t = 0; t < table->n_term; t++)
        fprintf(out, ",%s", table->term[t]);
    fputs(",failed\n", out);
    for (uint32_t i = 0; i < table->n; i++)
        put_row(out, table, &table->chain[i]);
    fm_status status = fclose(out) ? fm_fail(reterr, FM_ERR_NOMEM, "no memory for a table")
                                   : write_text(folder, "chains.csv", text, bytes, reterr);
    free(text);
    return status;
}

/* -- summary.json */

static void put_member(FILE *out, const char *name, const char *text) {
    fprintf(out, "  \"%s\": ", name);
    fm_json_put_quoted(out, text);
    fputs(",\n", out);
}

/* JSON has no NAN: null. */
static const char *json_number(double value, char out[NUMBER_BYTES]) {
    format_number(value, out);
    return out[0] ? out : "null";
}

size_t fm_eval_format_values(const fm_eval_summary *s, char *out, size_t out_bytes) {
    size_t at = 0;
    for (uint32_t i = 0; i < s->n_value; i++) {
        char number[NUMBER_BYTES];
        at += (size_t)snprintf(at < out_bytes ? out + at : NULL,
                               at < out_bytes ? out_bytes - at : 0, ",\"%s\":%s", s->value[i].name,
                               json_number(s->value[i].value, number));
    }
    return at;
}

static void put_calibration(FILE *out, const fm_eval_confidence *c) {
    fputs("  \"calibration\": [", out);
    for (int k = 0; k < FM_EVAL_CLASSES; k++) {
        char plddt[NUMBER_BYTES], lddt[NUMBER_BYTES];
        double n = (double)c->n[k];
        fprintf(out, "%s\n    {\"from\": %d, \"n_residue\": %" PRIu64, k ? "," : "", 10 * k,
                c->n[k]);
        fprintf(out, ", \"plddt\": %s", json_number(n > 0 ? c->plddt[k] / n : NAN, plddt));
        fprintf(out, ", \"lddt_ca\": %s}", json_number(n > 0 ? c->lddt[k] / n : NAN, lddt));
    }
    fputs("\n  ],\n", out);
}

static void put_comparison(FILE *out, const fm_eval_summary *now, const fm_eval_about *about) {
    if (!about->against) return;
    fputs("  \"against\": {\n    \"file\": ", out);
    fm_json_put_quoted(out, about->against);
    for (uint32_t i = 0; i < now->n_value; i++) {
        char number[NUMBER_BYTES];
        double change = now->value[i].value - fm_eval_value(about->then, now->value[i].name);
        fprintf(out, ",\n    \"%s\": %s", now->value[i].name, json_number(change, number));
    }
    fputs("\n  },\n", out);
}

static void put_failed(FILE *out, const fm_eval_table *table) {
    bool any = false;
    fputs("  \"failed\": [", out);
    for (uint32_t i = 0; i < table->n; i++) {
        const fm_eval_chain *c = &table->chain[i];
        if (!c->status) continue;
        fprintf(out, "%s\n    {\"chain\": ", any ? "," : "");
        fm_json_put_quoted(out, c->name);
        fputs(", \"why\": ", out);
        fm_json_put_quoted(out, c->why);
        fputc('}', out);
        any = true;
    }
    fputs(any ? "\n  ]\n" : "]\n", out);
}

static void put_summary(FILE *out, const fm_eval_table *table, const fm_eval_summary *s,
                        const fm_eval_about *about) {
    char number[NUMBER_BYTES];
    fprintf(out, "{\n  \"format\": %d,\n", FORMAT);
    put_member(out, "checkpoint", about->checkpoint);
    put_member(out, "set", about->set);
    put_member(out, "snapshot", about->snapshot);
    put_member(out, "snapshot_hash", about->snapshot_hash);
    put_member(out, "device", about->device);
    put_member(out, "dtype", about->dtype);
    fprintf(out, "  \"step\": %" PRIu64 ",\n  \"seed\": %" PRIu64 ",\n  \"max_cycle\": %u,\n",
            about->step, about->seed, about->max_cycle);
    fprintf(out, "  \"seconds\": %s,\n", json_number(about->seconds, number));
    fprintf(out, "  \"n_chain\": %u,\n  \"n_failed\": %u,\n  \"n_residue\": %" PRIu64 ",\n",
            s->n_chain, s->n_failed, s->n_residue);
    for (uint32_t i = 0; i < s->n_value; i++)
        fprintf(out, "  \"%s\": %s,\n", s->value[i].name, json_number(s->value[i].value, number));
    put_calibration(out, &s->confidence);
    put_comparison(out, s, about);
    put_failed(out, table);
    fputs("}\n", out);
}

fm_status fm_eval_remove_summary(const char *folder, fm_error *reterr) {
    char path[PATH_BYTES];
    fm_status status = name_file(folder, summary_name, path, reterr);
    if (status || unlink(path) == 0 || errno == ENOENT) return status;
    return fm_fail_in(reterr, FM_ERR_IO, path, "cannot remove: %s", strerror(errno));
}

fm_status fm_eval_write_summary(const char *folder, const fm_eval_table *table,
                                const fm_eval_summary *summary, const fm_eval_about *about,
                                fm_error *reterr) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a summary");
    put_summary(out, table, summary, about);
    fm_status status = fclose(out) ? fm_fail(reterr, FM_ERR_NOMEM, "no memory for a summary")
                                   : write_text(folder, summary_name, text, bytes, reterr);
    free(text);
    return status;
}

/* Copies the members that are numbers; names are allocated in the arena. */
static fm_status take_values(const fm_json *tree, fm_arena *arena, fm_eval_summary *s,
                             fm_error *reterr) {
    fm_json_member member;
    bool any = fm_json_first_member(tree, &member);
    for (; any && s->n_value < FM_EVAL_VALUES; any = fm_json_next_member(tree, &member)) {
        double value = fm_json_get_number(member.value, NAN);
        if (isnan(value)) continue;
        char *name = fm_arena_alloc(arena, strlen(member.name) + 1);
        if (!name) return fm_arena_full(arena, reterr);
        memcpy(name, member.name, strlen(member.name) + 1);
        s->value[s->n_value].name = name;
        s->value[s->n_value++].value = value;
    }
    return FM_OK;
}

fm_status fm_eval_read_summary(const char *path, fm_arena *arena, fm_eval_summary *ret_summary,
                               fm_error *reterr) {
    fm_bytes text;
    fm_status status = fm_file_read(arena, path, MOST_SUMMARY_BYTES, &text, reterr);
    if (status) return status;
    fm_json *tree = fm_json_parse(text.data, text.size);
    int64_t format = 0, n_chain = 0;
    bool is_summary = fm_json_get_integer(fm_json_get_member(tree, "format"), &format) &&
                      format == FORMAT &&
                      fm_json_get_integer(fm_json_get_member(tree, "n_chain"), &n_chain);
    *ret_summary = (fm_eval_summary){.n_chain = (uint32_t)n_chain};
    status = is_summary
                 ? take_values(tree, arena, ret_summary, reterr)
                 : fm_fail_in(reterr, FM_ERR_FORMAT, path,
                              "expected the summary.json of an evaluation (format %d)", FORMAT);
    fm_json_free(tree);
    return status;
}
