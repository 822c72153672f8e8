/* plot_data.c: see plot_data.h. */
#include "server/cli/plot_data.h"

#include "proto/base/json_tree.h"
#include "server/cli/run_folder.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_ROOM = 256, MOST_LINE_BYTES = 1 << 20 };

static fm_plot_series *find_or_add(fm_plot_table *table, const char *name) {
    for (size_t i = 0; i < table->n; i++)
        if (strcmp(table->series[i].name, name) == 0) return &table->series[i];
    if (table->n == FM_PLOT_MOST_SERIES || strlen(name) >= sizeof table->series[0].name) {
        return NULL;
    }
    fm_plot_series *series = &table->series[table->n++];
    *series = (fm_plot_series){.n = 0};
    snprintf(series->name, sizeof series->name, "%s", name);
    return series;
}

static fm_status add_value(fm_plot_series *series, double step, double value, fm_error *reterr) {
    if (series->n == series->room) {
        size_t room = series->room ? 2 * series->room : FIRST_ROOM;
        double *steps = realloc(series->step, room * sizeof *steps);
        if (steps) series->step = steps;
        double *values = steps ? realloc(series->value, room * sizeof *values) : NULL;
        if (!values) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the steps of a run");
        series->value = values;
        series->room = room;
    }
    series->step[series->n] = step;
    series->value[series->n++] = value;
    return FM_OK;
}

static fm_status add_line(fm_plot_table *table, const char *line, size_t bytes, fm_error *reterr) {
    fm_json *row = fm_json_parse(line, bytes);
    double step = fm_json_get_number(fm_json_get_member(row, "step"), NAN);
    fm_status status = FM_OK;
    if (!(step >= 0)) {
        status = fm_fail(reterr, FM_ERR_CORRUPT, "found '%.*s', expected an object with a step",
                         bytes > 40 ? 40 : (int)bytes, line);
    }
    fm_json_member member;
    bool any = !status && fm_json_first_member(row, &member);
    for (; any && !status; any = fm_json_next_member(row, &member)) {
        double value = fm_json_get_number(member.value, NAN);
        if (!isfinite(value) || strcmp(member.name, "step") == 0) continue;
        fm_plot_series *series = find_or_add(table, member.name);
        if (series) status = add_value(series, step, value, reterr);
    }
    fm_json_free(row);
    return status;
}

static fm_status read_rows(FILE *file, const char *path, fm_plot_table *table, fm_error *reterr) {
    char *line = NULL;
    size_t room = 0;
    fm_status status = FM_OK;
    ssize_t n = 0;
    for (uint32_t number = 1; !status && (n = getline(&line, &room, file)) > 0; number++) {
        if (line[n - 1] != '\n') break;
        if (n > MOST_LINE_BYTES) {
            status = fm_fail(reterr, FM_ERR_LIMIT, "a line of %zd bytes is too long", n);
        } else {
            status = add_line(table, line, (size_t)n - 1, reterr);
        }
        if (status && reterr) {
            (void)fm_error_in(reterr, path);
            reterr->line = number;
            reterr->column = 1;
        }
    }
    if (!status && ferror(file)) {
        status = fm_fail_in(reterr, FM_ERR_IO, path, "cannot read: %s", strerror(errno));
    }
    free(line);
    return status;
}

static fm_status read_table(const char *folder, const char *file_name, fm_plot_table *table,
                            fm_error *reterr) {
    char path[PATH_MAX];
    int fd;
    fm_status opened = fm_run_folder_open(folder, file_name, path, &fd, reterr);
    if (opened) return opened;
    FILE *file = fdopen(fd, "r");
    if (!file) {
        close(fd);
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for reading metrics");
    }
    fm_status status = read_rows(file, path, table, reterr);
    fclose(file);
    return status;
}

static void name_run(fm_plot_run *run) {
    size_t end = strlen(run->folder), begin;
    while (end > 1 && run->folder[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && run->folder[begin - 1] != '/'; begin--)
        ;
    snprintf(run->name, sizeof run->name, "%.*s", (int)(end - begin), run->folder + begin);
}

fm_status fm_plot_read(const char *folder, fm_plot_run *run, fm_error *reterr) {
    *run = (fm_plot_run){.folder = folder};
    name_run(run);
    fm_error error;
    fm_status steps = read_table(folder, "metrics.jsonl", &run->steps, &error);
    if (steps && steps != FM_ERR_NOT_FOUND) {
        if (reterr) *reterr = error;
        return steps;
    }
    fm_status status = read_table(folder, "eval.jsonl", &run->scores, reterr);
    if (status && status != FM_ERR_NOT_FOUND) return status;
    if (run->steps.n || run->scores.n) return FM_OK;
    if (steps) {
        if (reterr) *reterr = error;
        return steps;
    }
    return fm_fail_in(reterr, FM_ERR_NOT_FOUND, folder, "the run has no finished step yet");
}

void fm_plot_free(fm_plot_run *run) {
    fm_plot_table *const tables[] = {&run->steps, &run->scores};
    for (size_t t = 0; t < 2; t++) {
        for (size_t i = 0; i < tables[t]->n; i++) {
            free(tables[t]->series[i].step);
            free(tables[t]->series[i].value);
        }
        tables[t]->n = 0;
    }
}

const fm_plot_series *fm_plot_find(const fm_plot_table *table, const char *name) {
    for (size_t i = 0; i < table->n; i++)
        if (strcmp(table->series[i].name, name) == 0) return &table->series[i];
    return NULL;
}
