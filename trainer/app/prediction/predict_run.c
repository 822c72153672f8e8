/* predict_run.c: see predict_run.h. */
#include "trainer/app/prediction/predict_outputs.h"

#include "proto/base/directory.h"
#include "proto/base/file.h"
#include "proto/base/hash.h"
#include "proto/base/histogram.h"
#include "proto/base/json_text.h"
#include "proto/base/json_tree.h"
#include "proto/chem/atom14.h"
#include "proto/chem/residue.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/samples/sample_features.h"
#include "trainer/metrics/confidence.h"
#include "trainer/predict/pictures.h"
#include "trainer/predict/prediction.h"
#include "trainer/predict/text_file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { RUN_FORMAT = 1 };

typedef struct predictor {
    const fm_predict_run_options *options;
    fm_results *results;
    fm_predict_model model; /* the one that is loaded */
    uint32_t run;           /* position in results->run */
    fm_predict_pace pace;
    uint64_t begin_ns;  /* of the first chain; 0: none yet */
    double made_s;      /* of the predictions made */
    double made_cost;   /* and their cost_of */
    double passed_cost; /* of all chains so far, for the mean */
    uint64_t n_passed;
    fm_arena arena; /* of one chain */
} predictor;

/* -- names of files */

/* Finds the path of a file of the current prediction, which is not its structure. */
static fm_status path_of(const predictor *p, const char *chain, const char *ending,
                         char out[FM_PREDICT_PATH_BYTES], fm_error *reterr) {
    const fm_result_run *run = &p->results->run[p->run];
    return p->options->outputs->find_path(p->options, chain, run, ending, out, reterr);
}

/* Finds the path of a structure. Outputs that select have two: of a kept and of a rejected one. */
static fm_status structure_path(const predictor *p, const char *chain, bool is_kept,
                                char out[FM_PREDICT_PATH_BYTES], fm_error *reterr) {
    const fm_result_run *run = &p->results->run[p->run];
    return p->options->outputs->find_structure(p->options, chain, run, is_kept, out, reterr);
}

static fm_status make_folders(const predictor *p, const char *chain, fm_error *reterr) {
    return p->options->outputs->make_folders(p->options, chain, reterr);
}

/* -- what a prediction was made from */

/* Whether a prediction's structure is one of the results. */
static bool is_kept(const predictor *p, double mean_plddt) {
    return !p->options->outputs->selects || mean_plddt >= p->options->least_plddt;
}

/* Formats a digest of the inputs, weights and settings of a prediction. The least pLDDT is none of
 * them, because it only decides where a structure is stored. */
static void format_key(const predictor *p, const fm_sample *sample, char out[FM_SHA256_HEX]) {
    static const char title[] = "foldmill prediction 4\n";
    const fm_predict_run_options *o = p->options;
    char settings[320];
    int n = snprintf(settings, sizeof settings, "%u %a %d %d %d %s %s %s %d %llu", o->n_recycle,
                     o->model[0].recycle_tol, (int)o->model[0].dropout, (int)o->writes_pdb,
                     o->outputs->number, o->model[0].device, o->model[0].dtype, o->software,
                     (int)o->model[0].set, (unsigned long long)p->results->run[p->run].seed);
    if (o->model[0].n_draw > 1) {
        n +=
            snprintf(settings + n, sizeof settings - (size_t)n, " ensemble %u", o->model[0].n_draw);
    }
    if (o->model[0].groups) { /* parts change results by rounding */
        n += snprintf(settings + n, sizeof settings - (size_t)n, " dap %d",
                      (int)o->model[0].groups->layout.dap);
    }
    fm_sha256_state *state = fm_sha256_create();
    fm_sha256_update(state, title, sizeof title);
    fm_sha256_update(state, settings, (size_t)n);
    fm_sha256_update(state, p->model.hash.bytes, sizeof p->model.hash.bytes);
    /* The header has the sample's number in the stream, on which nothing depends. */
    fm_sha256_update(state, sample->name, strlen(sample->name) + 1);
    for (uint32_t t = 0; t < sample->n_tensor; t++)
        fm_sha256_update(state, sample->tensor[t].data, sample->tensor[t].bytes);
    const fm_sha256 hash = fm_sha256_digest(state);
    fm_sha256_destroy(state);
    fm_sha256_format(&hash, out);
}

/* The sequence and its pLDDT, for the page. `letters` is [n_res] bytes to work with. */
static void put_residues(fm_json_writer *json, const fm_prediction *prediction, char *letters) {
    for (uint32_t i = 0; i < prediction->n_res; i++)
        letters[i] = fm_restype_letters[prediction->aatype[i]];
    fm_json_put_text(json, "sequence", letters, prediction->n_res);
    fm_json_open_array(json, "plddt");
    for (uint32_t i = 0; i < prediction->n_res; i++)
        fm_json_put_exact_f32(json, NULL, prediction->plddt[i]);
    fm_json_close(json);
}

/* What --resume ranks, keeps and shows again has all its digits, so that a continued command ends
 * with the files of one that was not stopped. */
static fm_status write_run(predictor *p, const fm_prediction *prediction, const char *key,
                           const fm_result *r, fm_error *reterr) {
    char path[FM_PREDICT_PATH_BYTES], *letters = fm_arena_alloc(&p->arena, prediction->n_res);
    fm_text_file file;
    fm_json_writer json;
    const fm_result_run *run = &p->results->run[p->run];
    if (!letters) return fm_arena_full(&p->arena, reterr);
    fm_status status = path_of(p, prediction->chain, "_run.json", path, reterr);
    if (!status) status = fm_text_file_open(&file, reterr);
    if (status) return status;
    fm_json_begin(&json, file.out);
    fm_json_put_u64(&json, "format", RUN_FORMAT);
    fm_json_put_string(&json, "key", key);
    fm_json_put_string(&json, "software", p->options->software);
    fm_json_put_string(&json, "weights", p->options->model[p->run / p->options->n_seed].path);
    fm_json_put_hash(&json, "weights_sha256", &p->model.hash);
    fm_json_put_u64(&json, "seed", run->seed);
    fm_json_put_u64(&json, "recycles", p->options->n_recycle);
    fm_json_put_f64(&json, "recycle_tol", p->options->model[0].recycle_tol, 4);
    fm_json_put_bool(&json, "dropout", p->options->model[0].dropout);
    fm_json_put_u64(&json, "ensemble", p->options->model[0].n_draw);
    fm_json_put_u64(&json, "msa_clusters", (uint64_t)p->model.config.data.max_msa_clusters);
    fm_json_put_u64(&json, "extra_msa", (uint64_t)p->model.config.data.max_extra_msa);
    fm_json_put_u64(&json, "cycles", r->n_cycle);
    fm_json_put_exact(&json, "mean_plddt", r->mean_plddt);
    fm_json_put_exact(&json, "ptm", r->ptm);
    fm_json_put_exact(&json, "max_pae", r->max_pae);
    fm_json_put_exact(&json, "ca_change", r->ca_change);
    fm_json_put_f64(&json, "record_s", r->record_s, 6);
    fm_json_put_f64(&json, "run_s", r->run_s, 6);
    put_residues(&json, prediction, letters);
    fm_json_end(&json);
    return fm_text_file_commit(&file, path, reterr);
}

/* Sets *ret_is to whether a file is there with something in it: a file system that lost its last
 * writes may leave empty files. */
static fm_status is_file(const char *path, bool *ret_is, fm_error *reterr) {
    fm_path_kind kind = FM_PATH_ABSENT;
    uint64_t bytes = 0;
    fm_status status = fm_path_size(path, &kind, &bytes, reterr);
    *ret_is = !status && kind == FM_PATH_FILE && bytes > 0;
    return status;
}

/* Moves a structure between the folders of kept and of rejected ones. */
static fm_status move_structure(const predictor *p, const char *chain, const char *from,
                                const char *to, fm_error *reterr) {
    fm_status status = make_folders(p, chain, reterr);
    if (status || rename(from, to) == 0) return status;
    return fm_fail_in(reterr, FM_ERR_IO, from, "cannot move to %s: %s", to, strerror(errno));
}

/* Sets *ret_has to whether a prediction's structure and scores exist, and moves the structure where
 * it belongs: with another least pLDDT, a kept one may have been rejected and the reverse. What is
 * missing is predicted again. The first rank of a group moves files while the others look for them.
 * So all look first at the place from which a file may be moved. */
static fm_status has_structure(const predictor *p, const char *chain, double mean_plddt,
                               bool *ret_has, fm_error *reterr) {
    char from[FM_PREDICT_PATH_BYTES], to[FM_PREDICT_PATH_BYTES];
    const bool keeps = is_kept(p, mean_plddt);
    bool has_scores = false;
    *ret_has = false;
    fm_status status = path_of(p, chain, "_scores.json", to, reterr);
    if (!status) status = is_file(to, &has_scores, reterr);
    if (status || !has_scores) return status;
    status = structure_path(p, chain, keeps, to, reterr);
    if (!status && p->options->outputs->selects) {
        status = structure_path(p, chain, !keeps, from, reterr);
        if (!status) status = is_file(from, ret_has, reterr);
    }
    if (status) return status;
    if (!*ret_has) return is_file(to, ret_has, reterr);
    return p->options->only_computes ? FM_OK : move_structure(p, chain, from, to, reterr);
}

/* Reads an earlier prediction with the same key. *ret_found is false if there is none, or if what
 * is stored of it is damaged. */
static fm_status take_earlier(predictor *p, const char *chain, const char *key, fm_result *result,
                              bool *ret_found, fm_error *reterr) {
    char path[FM_PREDICT_PATH_BYTES];
    fm_bytes text;
    fm_json *tree = NULL;
    *ret_found = false;
    fm_status status = path_of(p, chain, "_run.json", path, reterr);
    if (status) return status;
    size_t mark = fm_arena_mark(&p->arena);
    status = fm_file_read(&p->arena, path, FM_PREDICT_RUN_BYTES, &text, reterr);
    if (!status) tree = fm_json_parse(text.data, text.size);
    fm_arena_rewind(&p->arena, mark);
    if (status) return status == FM_ERR_NOT_FOUND || status == FM_ERR_LIMIT ? FM_OK : status;
    const char *had = fm_json_get_text(fm_json_get_member(tree, "key"));
    double plddt = fm_json_get_number(fm_json_get_member(tree, "mean_plddt"), NAN);
    if (had && strcmp(had, key) == 0) status = has_structure(p, chain, plddt, ret_found, reterr);
    if (!status && *ret_found) {
        int64_t n_cycle = 0;
        (void)fm_json_get_integer(fm_json_get_member(tree, "cycles"), &n_cycle);
        *result =
            (fm_result){.is_done = true,
                        .is_resumed = true,
                        .n_cycle = (uint32_t)n_cycle,
                        .mean_plddt = plddt,
                        .ptm = fm_json_get_number(fm_json_get_member(tree, "ptm"), NAN),
                        .max_pae = fm_json_get_number(fm_json_get_member(tree, "max_pae"), NAN),
                        .ca_change = fm_json_get_number(fm_json_get_member(tree, "ca_change"), NAN),
                        .record_s = fm_json_get_number(fm_json_get_member(tree, "record_s"), NAN),
                        .run_s = fm_json_get_number(fm_json_get_member(tree, "run_s"), NAN)};
    }
    fm_json_free(tree);
    return status;
}

/* -- one chain */

/* Computes the aligned errors, some rows at a time: the logits of a long chain are large. */
static fm_status take_errors(predictor *p, fm_prediction *prediction, fm_result *result,
                             fm_error *reterr) {
    enum { PAIRS = 1 << 20 };
    uint32_t n = prediction->n_res, n_slab = PAIRS / n ? PAIRS / n : 1;
    float *pae = fm_arena_alloc_array(&p->arena, (size_t)n * n, sizeof *pae), *logits;
    double *tm = fm_arena_alloc_array(&p->arena, n, sizeof *tm);
    int64_t n_bin = 0;
    if (!pae || !tm) return fm_arena_full(&p->arena, reterr);
    for (uint32_t first = 0; first < n; first += n_slab) {
        uint32_t n_row = n - first < n_slab ? n - first : n_slab;
        size_t mark = fm_arena_mark(&p->arena);
        fm_status status = fm_infer_aligned_error(p->model.infer, first, n_row, &p->arena, &logits,
                                                  &n_bin, reterr);
        if (status) return status;
        fm_confidence_pae(logits, n_row, n, n_bin, pae + (size_t)first * n, tm + first);
        fm_arena_rewind(&p->arena, mark);
    }
    result->ptm = 0;
    for (uint32_t i = 0; i < n; i++)
        result->ptm = tm[i] > result->ptm ? tm[i] : result->ptm;
    result->max_pae = fm_confidence_error_centre(n_bin - 1, n_bin);
    prediction->pae = pae;
    prediction->ptm = result->ptm;
    prediction->max_pae = result->max_pae;
    return FM_OK;
}

/* Computes the confidences from the logits; arrays are in the arena. */
static fm_status take_confidence(predictor *p, fm_prediction *prediction, fm_result *result,
                                 fm_error *reterr) {
    double sum = 0;
    for (uint32_t i = 0; i < prediction->n_res; i++)
        sum += (double)prediction->plddt[i];
    result->mean_plddt = prediction->mean_plddt = sum / prediction->n_res;
    result->ptm = result->max_pae = NAN;
    bool has_errors = p->model.config.model.structure.n_aligned_error_bin > 2; /* else no scale */
    return has_errors ? take_errors(p, prediction, result, reterr) : FM_OK;
}

static fm_status draw_pae(const char *path, const fm_prediction *prediction, fm_error *reterr) {
    fm_text_file file;
    fm_status status = fm_text_file_open(&file, reterr);
    if (status) return status;
    fm_picture_pae(file.out, prediction);
    return fm_text_file_commit(&file, path, reterr);
}

static fm_status draw_trace(const char *path, const fm_prediction *prediction, fm_error *reterr) {
    fm_text_file file;
    fm_status status = fm_text_file_open(&file, reterr);
    if (status) return status;
    if (fm_picture_trace(file.out, prediction)) return fm_text_file_commit(&file, path, reterr);
    fm_text_file_discard(&file);
    return fm_fail_in(reterr, FM_ERR_NOMEM, path, "no memory for the picture");
}

static fm_status remove_file(const char *path, const fm_prediction *ignored, fm_error *reterr) {
    (void)ignored;
    if (unlink(path) == 0 || errno == ENOENT) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_IO, path, "cannot remove: %s", strerror(errno));
}

/* Writes the structure, and removes one that an earlier command stored in the other folder. */
static fm_status write_structure(const predictor *p, const fm_prediction *prediction,
                                 fm_error *reterr) {
    char path[FM_PREDICT_PATH_BYTES];
    const bool keeps = is_kept(p, prediction->mean_plddt);
    fm_status status = FM_OK;
    if (p->options->outputs->selects) {
        status = structure_path(p, prediction->chain, !keeps, path, reterr);
        if (!status) status = remove_file(path, NULL, reterr);
    }
    if (!status) status = structure_path(p, prediction->chain, keeps, path, reterr);
    return status ? status : fm_prediction_write_cif(path, prediction, reterr);
}

/* Writes the files of a prediction. Files of an earlier command that this one does not write belong
 * to other weights or settings, and are removed. _run.json is removed first: it vouches for the
 * others, and a kill must not leave it beside files of two commands. */
static fm_status write_prediction(const predictor *p, const fm_prediction *prediction,
                                  fm_error *reterr) {
    typedef fm_status writer(const char *path, const fm_prediction *what, fm_error *error);
    const fm_predict_run_options *o = p->options;
    const bool has_pictures = o->outputs->has_pictures;
    const struct {
        const char *ending;
        writer *write;
        bool is_wanted;
    } files[] = {{"_run.json", NULL, false}, /* written last, by write_run */
                 {".pdb", fm_prediction_write_pdb, o->writes_pdb && has_pictures},
                 {"_scores.json", fm_prediction_write_scores, true},
                 {"_pae.json", fm_prediction_write_pae, prediction->pae && has_pictures},
                 {"_pae.svg", draw_pae, prediction->pae && has_pictures},
                 {"_trace.svg", draw_trace, has_pictures}};
    fm_status status = FM_OK;
    for (size_t i = 0; i < sizeof files / sizeof files[0] && !status; i++) {
        char path[FM_PREDICT_PATH_BYTES];
        writer *act = files[i].is_wanted ? files[i].write : remove_file;
        status = path_of(p, prediction->chain, files[i].ending, path, reterr);
        if (!status) status = act(path, prediction, reterr);
        if (i == 0 && !status) status = write_structure(p, prediction, reterr);
    }
    return status;
}

/* Lists the templates that the model used, if they are known. Their names are ID_CHAIN. */
static fm_status take_templates(predictor *p, const fm_result_chain *chain,
                                fm_prediction *prediction, fm_error *reterr) {
    const fm_json *list = fm_json_get_member(chain->about, "templates");
    size_t most = (size_t)p->model.config.model.n_template;
    if (most > chain->n_templ) most = chain->n_templ;
    if (most > FM_PREDICTION_TEMPLATES) most = FM_PREDICTION_TEMPLATES;
    for (size_t t = 0; t < fm_json_count(list) && t < most; t++) {
        const char *name =
            fm_json_get_text(fm_json_get_member(fm_json_get_element(list, t), "name"));
        const char *split = name ? strrchr(name, '_') : NULL;
        if (!split) continue;
        char *id = fm_arena_calloc(&p->arena, (size_t)(split - name) + 1, 1);
        if (!id) return fm_arena_full(&p->arena, reterr);
        memcpy(id, name, (size_t)(split - name));
        prediction->templ[prediction->n_templ++] = (fm_used_template){id, split + 1};
    }
    return FM_OK;
}

/* Predicts a chain that was decoded, and writes its files. */
static fm_status predict(predictor *p, const fm_sample *sample, const fm_result_chain *chain,
                         const char *key, fm_result *result, fm_error *reterr) {
    fm_features features;
    fm_infer_result from;
    const fm_result_run *run = &p->results->run[p->run];
    fm_status status = fm_features_of(sample, &features, reterr);
    if (!status) status = fm_infer_run(p->model.infer, &features, &p->arena, &from, reterr);
    if (status) return status;
    result->record_s = from.record_s;
    result->run_s = from.run_s;
    result->ca_change = from.ca_change;
    result->n_cycle = from.n_cycle;
    const size_t bytes = (size_t)features.n_res * FM_N_ATOM14 * 3 * sizeof *from.atoms;
    if (from.atoms) result->structure = fm_xxh3(from.atoms, bytes);
    if (p->options->only_computes) return FM_OK;
    fm_prediction prediction = {.chain = chain->name,
                                .model = run->model,
                                .software = p->options->software,
                                .seed = run->seed,
                                .n_res = features.n_res,
                                .aatype = features.aatype,
                                .atoms = from.atoms,
                                .plddt = from.plddt};
    status = take_confidence(p, &prediction, result, reterr);
    if (!status) status = take_templates(p, chain, &prediction, reterr);
    if (!status) status = write_prediction(p, &prediction, reterr);
    return status ? status : write_run(p, &prediction, key, result, reterr);
}

/* Removes what an earlier command wrote for a chain that has failed: a build takes every structure
 * of the folder. */
static fm_status take_back(const predictor *p, const char *chain, fm_error *reterr) {
    if (p->options->only_computes) return FM_OK;
    static const char *const endings[] = {"_run.json", "_scores.json"};
    char path[FM_PREDICT_PATH_BYTES];
    fm_status status = FM_OK;
    for (size_t i = 0; i < sizeof endings / sizeof endings[0] && !status; i++) {
        status = path_of(p, chain, endings[i], path, reterr);
        if (!status) status = remove_file(path, NULL, reterr);
    }
    for (int keeps = 0; keeps < 2 && !status; keeps++) {
        status = structure_path(p, chain, keeps, path, reterr);
        if (!status) status = remove_file(path, NULL, reterr);
    }
    return status;
}

static fm_status describe(predictor *p, const fm_held_chain *held, fm_sample *sample,
                          fm_result_chain *chain, fm_error *reterr) {
    char unknown[64];
    snprintf(unknown, sizeof unknown, "chain-%llu", (unsigned long long)held->index);
    if (!held->memory) return fm_results_name_chain(chain, unknown, reterr);
    fm_status status = fm_chains_decode(held, &p->arena, sample, reterr);
    if (status) return status;
    const fm_tensor_view *templates = fm_sample_find(sample, FM_T_TEMPLATE_AATYPE, FM_SHARED);
    chain->n_res = sample->n_res_chain;
    chain->n_seq = sample->n_seq_chain;
    chain->n_templ = templates ? templates->shape[0] : 0;
    return fm_results_name_chain(chain, sample->name, reterr);
}

/* Predicts a chain, or keeps an earlier prediction. An error of the chain is stored in its result.
 */
static fm_status run_chain(predictor *p, const fm_held_chain *held, fm_result_chain *chain,
                           fm_result *result, fm_error *reterr) {
    fm_sample sample;
    char key[FM_SHA256_HEX];
    fm_arena_reset(&p->arena);
    fm_status status = describe(p, held, &sample, chain, reterr);
    if (status) return status;
    *result = (fm_result){.is_done = true, .status = held->status};
    snprintf(result->why, sizeof result->why, "%s", held->why);
    bool may_have_files =
        p->options->outputs->selects && held->memory; /* else its name is not known */
    if (held->status) return may_have_files ? take_back(p, chain->name, reterr) : FM_OK;
    if (p->options->about && !chain->about && !p->options->only_computes) {
        status = p->options->about(p->options->about_context, chain->name, &chain->about, reterr);
        if (status) return status;
    }
    format_key(p, &sample, key);
    bool is_earlier = false;
    if (p->options->resumes) {
        status = take_earlier(p, chain->name, key, result, &is_earlier, reterr);
        if (status || is_earlier) return status;
    }
    status = p->options->only_computes ? FM_OK : make_folders(p, chain->name, reterr);
    if (!status && p->options->on_chain) {
        p->options->on_chain(p->options->context, chain, &p->results->run[p->run], &p->pace);
    }
    if (!status) status = predict(p, &sample, chain, key, result, reterr);
    if (status != FM_ERR_DATA && status != FM_ERR_LIMIT) return status;
    result->status = status;
    snprintf(result->why, sizeof result->why, "%.255s", reterr->message);
    return p->options->outputs->selects ? take_back(p, chain->name, reterr) : FM_OK;
}

/* -- all chains */

/* The position of a chain in the table. */
static uint32_t position_of(const fm_chains_options *chains, uint64_t index) {
    uint32_t low = 0, high = chains->n_only;
    if (!chains->only) return (uint32_t)index;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (chains->only[middle] <= index) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static fm_status may_begin(const fm_predict_run_options *o, fm_error *reterr) {
    if (o->may_begin) return o->may_begin(o->may_begin_context, reterr);
    return fm_stop_is_asked() ? fm_fail(reterr, FM_ERR_CANCELLED, "stopped on request") : FM_OK;
}

/* The cost of a chain, up to a factor: times grow about with the square of the length. */
static double cost_of(const fm_held_chain *held) {
    return 1 + (double)held->n_res * held->n_res;
}

/* Counts a chain that took `seconds`, and estimates the time that is left. Chains that are not
 * received yet count as average ones, and none of them as predicted earlier. */
static void count_chain(predictor *p, const fm_chains *chains, uint32_t at, const fm_result *result,
                        double seconds) {
    fm_predict_pace *pace = &p->pace;
    uint32_t n_held = fm_chains_n_held(chains);
    double cost = cost_of(fm_chains_held(chains, at)), left = 0;
    p->passed_cost += cost;
    p->n_passed++;
    pace->n_done++;
    pace->n_resumed += result->is_resumed;
    if (!result->is_resumed && !result->status) {
        p->made_s += seconds;
        p->made_cost += cost;
    }
    for (uint32_t i = at + 1; i < n_held; i++)
        left += cost_of(fm_chains_held(chains, i));
    uint64_t n_unknown = pace->n_all - pace->n_done - (n_held - 1 - at);
    left += (double)n_unknown * (p->passed_cost + left) / (double)(p->n_passed + n_held - 1 - at);
    pace->elapsed_s = (double)(fm_clock_ns() - p->begin_ns) * 1e-9;
    pace->left_s = p->made_cost > 0 ? left * p->made_s / p->made_cost : NAN;
}

static fm_status run_piece(predictor *p, const fm_chains *chains, fm_error *reterr) {
    const fm_predict_run_options *o = p->options;
    for (uint32_t i = 0; i < fm_chains_n_held(chains); i++) {
        uint64_t begin_ns = fm_clock_ns();
        if (!p->begin_ns) p->begin_ns = begin_ns;
        const fm_held_chain *held = fm_chains_held(chains, i);
        fm_status status = may_begin(o, reterr);
        if (status) return status;
        fm_result_chain *chain = &p->results->chain[position_of(&o->chains, held->index)];
        fm_result *result = &chain->result[p->run];
        fm_error why = {.status = FM_OK};
        status = run_chain(p, held, chain, result, &why);
        if (status) {
            if (reterr) *reterr = why;
            return status;
        }
        count_chain(p, chains, i, result, (double)(fm_clock_ns() - begin_ns) * 1e-9);
        if (o->on_result) {
            o->on_result(o->context, chain, &p->results->run[p->run], result, &p->pace);
        }
    }
    return FM_OK;
}

fm_status fm_predict_make_results(const fm_predict_run_options *o, uint32_t n_chain,
                                  fm_results *results, fm_error *reterr) {
    if (results->chain) return FM_OK;
    fm_status status = fm_results_make(results, n_chain, o->n_model * o->n_seed, reterr);
    for (uint32_t k = 0; k < o->n_model * o->n_seed && !status; k++)
        fm_results_name_run(results, k, o->model_name[k / o->n_seed], o->seed[k % o->n_seed]);
    return status;
}

/* Makes the table when the number of chains is known. */
static fm_status make_results(predictor *p, uint32_t n_chain, fm_error *reterr) {
    if (p->results->chain && n_chain != p->results->n_chain) {
        return fm_fail(reterr, FM_ERR_DATA, "the server had %u chains and now has %u; start again",
                       p->results->n_chain, n_chain);
    }
    p->pace.n_all = (uint64_t)n_chain * (p->options->n_model * p->options->n_seed);
    return fm_predict_make_results(p->options, n_chain, p->results, reterr);
}

/* Runs all chains with the loaded model and one seed. */
static fm_status run_seed(predictor *p, uint64_t seed, fm_error *reterr) {
    fm_chains_options options = p->options->chains;
    fm_chains *chains;
    options.seed = seed;
    options.n_cycle = (p->options->n_recycle + 1) * p->options->model[0].n_draw;
    options.max_msa_clusters = (uint32_t)p->model.config.data.max_msa_clusters;
    options.max_extra_msa = (uint32_t)p->model.config.data.max_extra_msa;
    fm_status status = fm_chains_open(&options, &chains, reterr);
    if (status) return status;
    uint32_t n_received = 0, n_chain = fm_chains_n(chains);
    status = make_results(p, n_chain, reterr);
    while (!status && n_received < n_chain) {
        status = fm_chains_receive(chains, reterr);
        if (!status) status = run_piece(p, chains, reterr);
        n_received += fm_chains_n_held(chains);
    }
    fm_chains_close(chains);
    return status;
}

static fm_status run_model(predictor *p, uint32_t model, fm_error *reterr) {
    const fm_predict_run_options *o = p->options;
    p->model = o->looked[model];
    fm_status status = fm_predict_model_load(&o->model[model], &p->model, reterr);
    if (!status && o->on_model) o->on_model(o->context, model, &p->model);
    for (uint32_t s = 0; s < o->n_seed && !status; s++) {
        p->run = model * o->n_seed + s;
        fm_infer_seed(p->model.infer, o->seed[s]);
        status = run_seed(p, o->seed[s], reterr);
    }
    fm_predict_model_unload(&p->model);
    return status;
}

fm_status fm_predict_run(const fm_predict_run_options *options, fm_results *ret_results,
                         fm_error *reterr) {
    const size_t arena_bytes = (size_t)1 << 40; /* address space */
    predictor p = {.options = options, .results = ret_results};
    *ret_results = (fm_results){.chain = NULL};
    fm_status status = fm_arena_init(&p.arena, arena_bytes, reterr);
    for (uint32_t m = 0; m < options->n_model && !status; m++)
        status = run_model(&p, m, reterr);
    fm_arena_fini(&p.arena);
    return status;
}
