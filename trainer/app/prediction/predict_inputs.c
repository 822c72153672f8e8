/* predict_inputs.c: see predict_inputs.h. */
#include "trainer/app/prediction/predict_inputs.h"

#include "proto/base/directory.h"
#include "proto/base/file.h"
#include "proto/base/json_tree.h"
#include "proto/base/program.h"
#include "trainer/app/common/beside.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/samples/private_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The cache of prepared files. Its name begins with a dot, so listings do not show it. */
static const char made_cache[] = ".features";

struct fm_predict_inputs {
    fm_predict_inputs_options options;
    char made[PATH_MAX]; /* the cache that was made; "" = none */
    fm_private_server *server;
    uint64_t *only; /* [n_only] */
    uint32_t n_only, n_refused;
    fm_refused_input *refused; /* [n_refused] */
};

/* -- files */

static char *word(const char *text) {
    return (char *)(uintptr_t)text; /* exec does not write to it */
}

/* Reports the inputs that were refused, and keeps them for the summary. */
static fm_status take_report(fm_predict_inputs *in, const char *text, size_t bytes,
                             fm_error *reterr) {
    fm_json *tree = fm_json_parse(text, bytes);
    const fm_json *refusals = fm_json_get_member(tree, "refusals");
    fm_status status = FM_OK;
    size_t n = fm_json_count(refusals);
    in->refused = calloc(n + 1, sizeof *in->refused);
    for (size_t i = 0; i < n && in->refused && !status; i++) {
        const fm_json *refusal = fm_json_get_element(refusals, i);
        const char *name = fm_json_get_text(fm_json_get_member(refusal, "chain"));
        const char *why = fm_json_get_text(fm_json_get_member(refusal, "reason"));
        fm_refused_input *refused = &in->refused[in->n_refused++];
        fprintf(stderr, "%s: %s\n", in->options.program, why ? why : "refused");
        *refused = (fm_refused_input){strdup(name ? name : ""), strdup(why ? why : "refused")};
        if (!refused->name || !refused->why) status = FM_ERR_NOMEM;
    }
    fm_json_free(tree);
    if (in->refused && !status) return FM_OK;
    return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of inputs");
}

/* Runs `foldmill featurize` for the files. */
static fm_status make_cache(fm_predict_inputs *in, fm_error *reterr) {
    enum { MOST_OPTIONS = 16 };
    const fm_predict_inputs_options *o = &in->options;
    char **argv = calloc(o->n_input + MOST_OPTIONS, sizeof *argv), *text, jobs[32];
    size_t n = 0, bytes;
    int code;
    if (!argv) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of inputs");
    argv[n++] = word(fm_beside_name);
    argv[n++] = word("featurize");
    argv[n++] = word("--json");
    argv[n++] = word("--quiet");
    argv[n++] = word("--cache");
    argv[n++] = in->made;
    if (o->alignments) argv[n++] = word("--alignments");
    if (o->alignments) argv[n++] = word(o->alignments);
    if (o->templates) argv[n++] = word("--templates");
    if (o->templates) argv[n++] = word(o->templates);
    if (o->single_sequence) argv[n++] = word("--single-sequence");
    if (o->jobs) {
        snprintf(jobs, sizeof jobs, "--jobs=%llu", (unsigned long long)o->jobs);
        argv[n++] = jobs;
    }
    argv[n++] = word("--");
    for (uint32_t i = 0; i < o->n_input; i++)
        argv[n++] = word(o->input[i]);
    fm_status status = fm_beside_run(argv, &fm_stop_cancel, &text, &bytes, &code, reterr);
    free(argv);
    if (status) return status;
    status = take_report(in, text, bytes, reterr);
    free(text);
    if (status) return status;
    if (code == FM_EXIT_OK || code == FM_EXIT_PARTIAL) return FM_OK;
    if (in->n_refused) {
        if (o->n_input == 1) {
            return fm_fail(reterr, FM_ERR_DATA, "the only input cannot be predicted");
        }
        return fm_fail(reterr, FM_ERR_DATA, "none of the %u inputs can be predicted", o->n_input);
    }
    return fm_fail(reterr, code == FM_EXIT_USAGE ? FM_ERR_USAGE : FM_ERR_IO,
                   "the inputs cannot be prepared; the line above says why");
}

/* -- chosen chains */

static int compare_numbers(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Asks for the number of a chain in the cache. */
static fm_status find_chain(const fm_predict_inputs *in, const char *name, uint64_t *ret_index,
                            fm_error *reterr) {
    char *argv[] = {word(fm_beside_name),    word("inspect"), word("--json"), word("--cache"),
                    word(in->options.cache), word("--chain"), word(name),     NULL};
    char *text;
    size_t bytes;
    int code;
    int64_t index = -1;
    fm_status status = fm_beside_run(argv, &fm_stop_cancel, &text, &bytes, &code, reterr);
    if (status) return status;
    fm_json *tree = fm_json_parse(text, bytes);
    bool found = fm_json_get_integer(fm_json_get_member(tree, "number"), &index) && index >= 0;
    fm_json_free(tree);
    free(text);
    if (code != 0 || !found) {
        return fm_fail(reterr, FM_ERR_NOT_FOUND, "--chain %.200s: the cache has no such chain",
                       name);
    }
    *ret_index = (uint64_t)index;
    return FM_OK;
}

static fm_status choose_chains(fm_predict_inputs *in, fm_error *reterr) {
    const fm_option_list *list = in->options.chain;
    if (!list || list->n == 0) return FM_OK;
    in->only = calloc(list->n, sizeof *in->only);
    if (!in->only) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of chains");
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < list->n && !status; i++)
        status = find_chain(in, list->value[i], &in->only[i], reterr);
    if (status) return status;
    qsort(in->only, list->n, sizeof *in->only, compare_numbers);
    for (uint32_t i = 0; i < list->n; i++) {
        if (in->n_only && in->only[in->n_only - 1] == in->only[i]) continue;
        in->only[in->n_only++] = in->only[i];
    }
    return FM_OK;
}

/* -- opening and closing */

static fm_status start_server(fm_predict_inputs *in, fm_error *reterr) {
    const fm_predict_inputs_options *o = &in->options;
    const fm_private_server_options options = {.cache = in->made[0] ? in->made : o->cache,
                                               .snapshot = o->snapshot,
                                               .jobs = o->jobs,
                                               .cancel = &fm_stop_cancel};
    return fm_private_server_start(&options, &in->server, reterr);
}

fm_status fm_predict_inputs_open(const fm_predict_inputs_options *options,
                                 fm_predict_inputs **ret_inputs, fm_error *reterr) {
    fm_predict_inputs *in = calloc(1, sizeof *in);
    if (!in) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the inputs");
    in->options = *options;
    fm_status status = FM_OK;
    if (options->n_input) {
        if (snprintf(in->made, sizeof in->made, "%s/%s", options->out, made_cache) >= PATH_MAX) {
            in->made[0] = '\0';
            status = fm_fail_in(reterr, FM_ERR_USAGE, options->out, "the path is too long");
        }
        /* An existing cache is left from a killed command. */
        if (!status && !options->server) status = fm_dir_remove(in->made, reterr);
        if (!status && !options->server) status = make_cache(in, reterr);
    }
    if (!status) status = choose_chains(in, reterr);
    if (!status && !options->data && !options->server) status = start_server(in, reterr);
    if (status) {
        fm_predict_inputs_close(in);
        return status;
    }
    *ret_inputs = in;
    return FM_OK;
}

void fm_predict_inputs_close(fm_predict_inputs *in) {
    if (!in) return;
    fm_private_server_stop(in->server);
    /* The next command removes what cannot be removed now. */
    if (in->made[0] && !in->options.server && fm_dir_remove(in->made, NULL)) in->made[0] = '\0';
    for (uint32_t i = 0; i < in->n_refused; i++) {
        free(in->refused[i].name);
        free(in->refused[i].why);
    }
    free(in->refused);
    free(in->only);
    free(in);
}

const char *fm_predict_inputs_url(const fm_predict_inputs *in) {
    if (in->options.server) return in->options.server;
    return in->options.data ? in->options.data : fm_private_server_address(in->server);
}

const uint64_t *fm_predict_inputs_only(const fm_predict_inputs *in, uint32_t *ret_n) {
    *ret_n = in->n_only;
    return in->n_only ? in->only : NULL;
}

fm_status fm_predict_inputs_about(void *inputs, const char *chain, fm_json **ret_about,
                                  fm_error *reterr) {
    const fm_predict_inputs *in = inputs;
    const char *cache = in->made[0] ? in->made : in->options.cache;
    char *argv[] = {word(fm_beside_name),
                    word("inspect"),
                    word("--json"),
                    word("--as-input"),
                    word(in->options.date),
                    word("--cache"),
                    word(cache),
                    word("--chain"),
                    word(chain),
                    NULL};
    char *text;
    size_t bytes;
    int code;
    *ret_about = NULL;
    if (!cache) return FM_OK;
    /* A rank ignores requests to stop here, because ranks stop together, before a chain. */
    fm_status status = fm_beside_run(argv, in->options.server ? NULL : &fm_stop_cancel, &text,
                                     &bytes, &code, reterr);
    if (status) return status;
    if (code == 0) *ret_about = fm_json_parse(text, bytes);
    free(text);
    return FM_OK;
}

const fm_refused_input *fm_predict_inputs_refused(const fm_predict_inputs *in, uint32_t *ret_n) {
    *ret_n = in->n_refused;
    return in->refused;
}
