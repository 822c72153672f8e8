/* cofold_jobs.c: see cofold_jobs.h. */
#include "trainer/app/prediction/cofold_jobs.h"

#include "proto/base/json_tree.h"
#include "proto/base/program.h"
#include "proto/description_files.h"
#include "trainer/app/common/beside.h"
#include "trainer/app/common/stop.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The work of listing. */
typedef struct listing {
    const fm_predict_settings *set;
    fm_cofold_jobs *jobs;
    fm_arena arena;      /* of paths */
    fm_name_list inputs; /* all files, those of folders among them */
    char folder[PATH_MAX];
} listing;

/* Copies the texts, each of which may be NULL. */
static fm_status add_job(fm_cofold_jobs *jobs, const char *path, const char *name, const char *why,
                         fm_error *reterr) {
    if (jobs->n == jobs->most) {
        const uint32_t most = jobs->most ? 2 * jobs->most : 64;
        fm_cofold_job *more = realloc(jobs->job, most * sizeof *more);
        if (!more) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of inputs");
        jobs->job = more;
        jobs->most = most;
    }
    fm_cofold_job *job = &jobs->job[jobs->n++];
    *job = (fm_cofold_job){path ? strdup(path) : NULL, name ? strdup(name) : NULL,
                           why ? strdup(why) : NULL};
    if ((path && !job->path) || (name && !job->name) || (why && !job->why)) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of inputs");
    }
    return FM_OK;
}

static fm_status refuse(listing *l, const char *name, const char *why, fm_error *reterr) {
    fprintf(stderr, "%s: %s\n", l->set->command->program, why);
    return add_job(l->jobs, NULL, name, why, reterr);
}

/* -- folders */

static fm_status add_input(listing *l, const char *path, fm_error *reterr) {
    fm_name_list *to = &l->inputs;
    if (to->n == to->max) {
        const size_t max = to->max ? 2 * to->max : 64;
        const char **more = realloc(to->name, max * sizeof *more);
        if (!more) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of inputs");
        to->name = more;
        to->max = max;
    }
    to->name[to->n++] = path;
    return FM_OK;
}

/* A folder stands for its files, in the order of their names. */
static fm_status expand(listing *l, const char *path, fm_error *reterr) {
    fm_name_list list;
    fm_error why = {0};
    bool is_folder;
    fm_status status = fm_description_files_list(path, true, &l->arena, &is_folder, &list, &why);
    if (status || (is_folder && list.n == 0)) {
        char text[FM_ERROR_TEXT_BYTES];
        if (!status) {
            fm_fail_in(&why, FM_ERR_DATA, path, "found no description and no prepared job");
        }
        fm_error_format(&why, text, sizeof text);
        status = refuse(l, path, text, reterr);
    } else if (!is_folder) {
        status = add_input(l, path, reterr);
    }
    for (size_t i = 0; i < list.n && !status; i++)
        status = add_input(l, list.name[i], reterr);
    free(list.name);
    return status;
}

/* -- descriptions */

static char *word(const char *text) {
    return (char *)(uintptr_t)text; /* exec does not change its words */
}

/* Runs `foldmill prepare` for all descriptions. *ret_tree is its report. */
static fm_status prepare(listing *l, fm_json **ret_tree, fm_error *reterr) {
    enum { MOST_OPTIONS = 16 };
    char **argv = calloc(l->inputs.n + MOST_OPTIONS, sizeof *argv), *text = NULL;
    size_t n = 0, bytes;
    int code;
    if (!argv) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of inputs");
    argv[n++] = word(fm_beside_name);
    argv[n++] = word("prepare");
    argv[n++] = word("--json");
    argv[n++] = word("--components");
    argv[n++] = word(l->set->components);
    argv[n++] = word("--out");
    argv[n++] = l->folder;
    if (l->set->single_sequence) argv[n++] = word("--single-sequence");
    argv[n++] = word("--");
    for (size_t i = 0; i < l->inputs.n; i++)
        if (!fm_description_is_prepared(l->inputs.name[i])) argv[n++] = word(l->inputs.name[i]);
    fm_status status = fm_beside_run(argv, &fm_stop_cancel, &text, &bytes, &code, reterr);
    free(argv);
    if (!status) *ret_tree = fm_json_parse(text, bytes);
    free(text);
    if (status || fm_json_is_array(fm_json_get_member(*ret_tree, "jobs"))) return status;
    return fm_fail(reterr, FM_ERR_DATA,
                   "the descriptions cannot be prepared; the line above says why");
}

/* Takes the jobs of an input from the report, where they stand together from *at on. */
static fm_status take_jobs(listing *l, const fm_json *report, const char *input, size_t *at,
                           fm_error *reterr) {
    fm_status status = FM_OK;
    for (; *at < fm_json_count(report) && !status; ++*at) {
        const fm_json *row = fm_json_get_element(report, *at);
        const char *from = fm_json_get_text(fm_json_get_member(row, "input"));
        const char *job = fm_json_get_text(fm_json_get_member(row, "job"));
        const char *file = fm_json_get_text(fm_json_get_member(row, "file"));
        const char *why = fm_json_get_text(fm_json_get_member(row, "reason"));
        if (!from || strcmp(from, input) != 0) break;
        status = file ? add_job(l->jobs, file, NULL, NULL, reterr)
                      : refuse(l, job && *job ? job : input, why ? why : "refused", reterr);
    }
    return status;
}

static fm_status list_inputs(listing *l, fm_error *reterr) {
    bool any = false;
    size_t at = 0;
    fm_json *tree = NULL;
    for (size_t i = 0; i < l->inputs.n; i++)
        any = any || !fm_description_is_prepared(l->inputs.name[i]);
    fm_status status = any && l->set->components ? prepare(l, &tree, reterr) : FM_OK;
    const fm_json *report = fm_json_get_member(tree, "jobs");
    for (size_t i = 0; i < l->inputs.n && !status; i++) {
        const char *input = l->inputs.name[i];
        char why[PATH_MAX + 128];
        if (fm_description_is_prepared(input)) {
            status = add_job(l->jobs, input, NULL, NULL, reterr);
        } else if (l->set->components) {
            status = take_jobs(l, report, input, &at, reterr);
        } else {
            snprintf(why, sizeof why,
                     "%.4000s: descriptions need a dictionary of components: --components FILE",
                     input);
            status = refuse(l, input, why, reterr);
        }
    }
    fm_json_free(tree);
    return status;
}

fm_status fm_cofold_jobs_list(const fm_predict_settings *set, fm_cofold_jobs *jobs,
                              fm_error *reterr) {
    listing l = {.set = set, .jobs = jobs};
    *jobs = (fm_cofold_jobs){.n = 0};
    if (snprintf(l.folder, sizeof l.folder, "%s/inputs", set->out) >= PATH_MAX) {
        return fm_fail_in(reterr, FM_ERR_USAGE, set->out, "the path is too long");
    }
    fm_status status = fm_arena_init(&l.arena, (size_t)1 << 34, reterr);
    for (uint32_t i = 0; i < set->n_input && !status; i++)
        status = expand(&l, set->input[i], reterr);
    if (!status) status = list_inputs(&l, reterr);
    free(l.inputs.name);
    fm_arena_fini(&l.arena);
    return status;
}

void fm_cofold_jobs_release(fm_cofold_jobs *jobs) {
    for (uint32_t i = 0; i < jobs->n; i++) {
        free(jobs->job[i].path);
        free(jobs->job[i].name);
        free(jobs->job[i].why);
    }
    free(jobs->job);
    *jobs = (fm_cofold_jobs){.n = 0};
}
