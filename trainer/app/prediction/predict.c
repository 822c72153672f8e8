/* predict.c: see predict.h. It runs both commands and prints their lines. */
#include "trainer/app/prediction/predict.h"

#include "proto/base/histogram.h"
#include "proto/base/machine.h"
#include "proto/base/plural.h"
#include "proto/base/program.h"
#include "trainer/app/common/folder_lock.h"
#include "trainer/app/common/progress.h"
#include "trainer/app/common/results_folder.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/device/choose_device.h"
#include "trainer/app/prediction/cofold_command.h"
#include "trainer/app/prediction/cofold_ranks.h"
#include "trainer/app/prediction/predict_group.h"
#include "trainer/app/prediction/predict_inputs.h"
#include "trainer/app/prediction/predict_options.h"
#include "trainer/app/prediction/predict_pages.h"
#include "trainer/app/prediction/predict_print.h"
#include "trainer/app/prediction/predict_ranks.h"
#include "trainer/app/prediction/predict_run.h"
#include "trainer/app/prediction/predict_tables.h"
#include "trainer/app/samples/private_server.h"
#include "trainer/app/settings/network.h"
#include "trainer/backend/cpu_threads.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* -- lines for people */

typedef struct progress {
    const fm_predict_settings *set;
    bool has_terminal;
    bool has_line; /* on the terminal, without a newline */
    uint64_t begin_ns;
    fm_predict_pace pace; /* after the last chain */
} progress;

static void clear_line(progress *p) {
    if (p->has_line) fputs("\r\033[K", stderr);
    p->has_line = false;
}

static void end_line(progress *p) {
    if (p->has_line) fputc('\n', stderr);
    p->has_line = false;
}

/* Prints a line; the terminal's is cut to its width, and the next one replaces it. */
static void print_line(const progress *p, char *text) {
    if (p->has_line) fm_progress_cut(text);
    fprintf(stderr, p->has_line ? "%s" : "%s\n", text);
}

static void show_model(void *context, uint32_t model, const fm_predict_model *loaded) {
    progress *p = context;
    if (p->set->quiet) return;
    char text[256];
    fm_infer_describe(loaded->infer, text, sizeof text);
    clear_line(p);
    fprintf(stderr, "model     %s: %s; %s; %s, %s\n", p->set->name[model], loaded->about, text,
            loaded->config.model.n_template ? "templates" : "no templates",
            loaded->config.model.structure.n_aligned_error_bin ? "pTM" : "no pTM");
}

/* Says once that no hit of a chain of files fits the structures of --templates. */
static void note_templates(const fm_predict_settings *set, const fm_result_chain *chain,
                           const fm_result_run *run) {
    const fm_json *hits = fm_json_get_member(chain->about, "hits");
    int64_t n_hit = 0, n_mapped = 0;
    bool is_first = run->model == set->name[0] && run->seed == set->seed[0];
    if (!set->templates || !is_first) return;
    if (!fm_json_get_integer(fm_json_get_member(hits, "hits"), &n_hit) || n_hit == 0) return;
    if (!fm_json_get_integer(fm_json_get_member(hits, "mapped"), &n_mapped) || n_mapped) return;
    fprintf(stderr, "%s: %s: none of its %lld template hit%s is used; no structure in %s fits\n",
            set->command->program, chain->name, (long long)n_hit, fm_plural((uint64_t)n_hit),
            set->templates);
}

/* A long chain takes minutes, so a terminal shows which one is running. */
static void show_chain(void *context, const fm_result_chain *chain, const fm_result_run *run,
                       const fm_predict_pace *pace) {
    progress *p = context;
    if (p->set->quiet || !p->has_terminal) return;
    char text[256];
    clear_line(p);
    snprintf(text, sizeof text, "%llu/%llu  %.40s  %u residues  %.60s  running",
             (unsigned long long)pace->n_done + 1, (unsigned long long)pace->n_all, chain->name,
             chain->n_res, run->name);
    p->has_line = true;
    print_line(p, text);
}

static void show_result(void *context, const fm_result_chain *chain, const fm_result_run *run,
                        const fm_result *result, const fm_predict_pace *pace) {
    progress *p = context;
    p->pace = *pace;
    clear_line(p);
    if (!result->status) note_templates(p->set, chain, run);
    if (p->set->quiet) return;
    char score[64] = "failed";
    if (!result->status && isfinite(result->ptm)) {
        snprintf(score, sizeof score, "pLDDT %.1f  pTM %.3f", result->mean_plddt, result->ptm);
    } else if (!result->status) {
        snprintf(score, sizeof score, "pLDDT %.1f", result->mean_plddt);
    }
    char rate[64], text[384];
    p->has_line = p->has_terminal && pace->n_done < pace->n_all;
    snprintf(text, sizeof text, "%llu/%llu  %.40s  %u residues  %.60s  %s  %s%.2f s%s",
             (unsigned long long)pace->n_done, (unsigned long long)pace->n_all, chain->name,
             chain->n_res, run->name, score, result->is_resumed ? "done earlier, " : "",
             result->status ? 0.0 : result->run_s, fm_predict_format_pace(pace, rate));
    print_line(p, text);
}

/* -- the command */

typedef struct predict_models {
    fm_predict_model_options options[FM_PREDICT_MOST_MODELS];
    const char *name[FM_PREDICT_MOST_MODELS];
    fm_predict_model looked[FM_PREDICT_MOST_MODELS];
} predict_models;

/* Refuses networks that the command or the other files of weights do not have, and options of
 * another network. */
static fm_status check_networks(const fm_predict_settings *set, const predict_models *models,
                                fm_error *reterr) {
    fm_status status = FM_OK;
    const bool is_af3 = models->looked[0].config.network == FM_NETWORK_AF3;
    if (is_af3 && !set->command->predicts_once) return fm_cofold_check_settings(set, reterr);
    for (uint32_t m = 0; m < set->weights.n && !status; m++)
        status = fm_network_check_is_af2(&models->looked[m].config, set->command->program, reterr);
    return status ? status : fm_cofold_refuse_settings(set, reterr);
}

/* Reads the sizes of all models, so that unusable weights and a missing device are refused before
 * the work begins. */
static fm_status look_at_models(const fm_predict_settings *set, predict_models *models,
                                fm_error *reterr) {
    const fm_kernels *unused;
    /* The command that starts ranks leaves the devices to them. */
    fm_status status =
        set->ranks.n_rank > 1 ? FM_OK : fm_device_find(set->device, set->dtype, &unused, reterr);
    for (uint32_t m = 0; m < set->weights.n && !status; m++) {
        models->name[m] = set->name[m];
        models->options[m] = (fm_predict_model_options){
            .path = set->weights.value[m],
            .device = set->device,
            .dtype = set->dtype,
            .set = strcmp(set->set, "ema") == 0 ? FM_CHECKPOINT_EMA : FM_CHECKPOINT_MODEL,
            .recycle_tol = set->recycle_tol,
            .dropout = set->dropout,
            .n_draw = (uint32_t)set->ensemble,
            .n_cluster = set->n_cluster,
            .n_extra = set->n_extra,
            .memory_budget_gib = set->device_gib};
        status = fm_predict_model_look(&models->options[m], &models->looked[m], reterr);
    }
    return status ? status : check_networks(set, models, reterr);
}

static fm_predict_run_options run_options(const fm_predict_settings *set,
                                          const predict_models *models, fm_predict_inputs *inputs) {
    const uint64_t least = (uint64_t)64 << 20;
    uint64_t memory = set->memory_mib
                          ? set->memory_mib << 20
                          : fm_machine_fit(UINT64_MAX, fm_machine_memory(), 0.25, least);
    fm_predict_run_options options = {
        .chains = {.url = fm_predict_inputs_url(inputs),
                   .credentials = set->credentials,
                   .agent = set->command->program,
                   .plan = "predict",
                   .snapshot = set->snapshot,
                   .max_template_date = set->date_rule,
                   .max_length = (uint32_t)set->max_length,
                   .wait_ms = set->wait_ms,
                   .data_timeout_s = set->data_timeout_s,
                   .memory_bytes = memory},
        .n_model = set->weights.n,
        .n_seed = set->n_seed,
        .model = models->options,
        .looked = models->looked,
        .model_name = models->name,
        .seed = set->seed,
        .n_recycle = (uint32_t)fm_predict_settings_recycles(set),
        .out = set->out,
        .software = FM_VERSION,
        .resumes = set->resume,
        .writes_pdb = set->pdb,
        .outputs = set->command->outputs,
        .least_plddt = set->min_plddt,
        .about = set->command->outputs->write_pages ? fm_predict_inputs_about : NULL,
        .about_context = inputs};
    options.chains.only = fm_predict_inputs_only(inputs, &options.chains.n_only);
    options.refused = fm_predict_inputs_refused(inputs, &options.n_refused);
    return options;
}

/* Prints the last line of a command that has done its work. */
static void print_outputs(const fm_predict_settings *set, const fm_predict_run_options *options,
                          const fm_results *results, const fm_predict_pace *pace, double all_s) {
    const uint64_t n_failed = fm_results_n_failed(results), n_made = pace->n_done - n_failed;
    const uint32_t n_same = fm_results_n_same(results);
    if (n_same) {
        printf("noted     %u chain%s whose seeds all gave the same structure: no rows are drawn of "
               "an alignment that is taken whole\n",
               n_same, fm_plural(n_same));
    }
    printf("outputs   %s/summary.csv, %llu prediction%s", set->out, (unsigned long long)n_made,
           fm_plural(n_made));
    if (pace->n_resumed) printf(" (%llu done earlier)", (unsigned long long)pace->n_resumed);
    if (n_failed) printf(", %llu failed", (unsigned long long)n_failed);
    if (options->n_refused) {
        printf(", %u input%s refused", options->n_refused, fm_plural(options->n_refused));
    }
    printf(", %.1f s", all_s);
    bool has_rate = options->outputs->says_rate && n_made > pace->n_resumed;
    if (has_rate) printf(", %.0f an hour", fm_predict_hourly_rate(pace));
    fputc('\n', stdout);
}

/* Says what a command has done that a signal or an error has ended. */
static void say_ended(const progress *p, fm_status status, const fm_results *results) {
    const uint64_t n = p->pace.n_done - fm_results_n_failed(results);
    const char *program = p->set->command->program;
    if (status == FM_ERR_CANCELLED && fm_stop_is_asked()) {
        fprintf(stderr, "%s: stopped by %s after %llu prediction%s%s\n", program,
                fm_stop_name(fm_stop_signal()), (unsigned long long)n, fm_plural(n),
                n ? "; --resume continues" : "");
    } else if (n) {
        fprintf(stderr, "%s: ended after %llu prediction%s; --resume continues\n", program,
                (unsigned long long)n, fm_plural(n));
    }
}

static fm_status run(fm_predict_settings *set, const predict_models *models,
                     fm_predict_inputs *inputs, double inputs_s, fm_results *results,
                     fm_error *reterr) {
    progress p = {.set = set, .has_terminal = isatty(STDERR_FILENO) == 1};
    fm_predict_run_options options = run_options(set, models, inputs);
    options.on_model = show_model;
    options.on_chain = show_chain;
    options.on_result = show_result;
    options.context = &p;
    p.begin_ns = fm_clock_ns();
    fm_status status = set->ranks.n_rank > 1
                           ? fm_predict_ranks_run(&set->ranks, &options, results, reterr)
                           : fm_predict_run(&options, results, reterr);
    double all_s = inputs_s + (double)(fm_clock_ns() - p.begin_ns) * 1e-9;
    end_line(&p);
    if (status) say_ended(&p, status, results);
    if (!status) status = fm_predict_write_tables(&options, results, reterr);
    if (!status && options.outputs->write_pages) {
        status = options.outputs->write_pages(&options, results, reterr);
    }
    if (!status) status = fm_predict_write_timings(&options, results, inputs_s, all_s, reterr);
    if (!status) {
        options.outputs->print(&options, results);
        print_outputs(set, &options, results, &p.pace, all_s);
    }
    return status;
}

/* server: the address of a server that serves these inputs already, or NULL. */
static fm_predict_inputs_options inputs_options(const fm_predict_settings *set,
                                                const char *server) {
    return (fm_predict_inputs_options){.program = set->command->program,
                                       .input = (const char *const *)set->input,
                                       .n_input = set->n_input,
                                       .alignments = set->alignments,
                                       .templates = set->templates,
                                       .single_sequence = set->single_sequence,
                                       .cache = set->cache,
                                       .data = set->data,
                                       .snapshot = set->snapshot,
                                       .chain = &set->chains,
                                       .date = set->date,
                                       .out = set->out,
                                       .jobs = set->jobs,
                                       .quiet = set->quiet,
                                       .server = server};
}

/* Prepares the inputs below the folder of the results, which is locked so that no other command
 * uses it, and predicts them. */
static fm_status prepare_and_run(fm_predict_settings *set, const predict_models *models,
                                 fm_results *results, uint32_t *ret_refused, fm_error *reterr) {
    const fm_predict_inputs_options options = inputs_options(set, NULL);
    fm_predict_inputs *inputs = NULL;
    uint64_t begin_ns = fm_clock_ns();
    fm_folder_lock lock = {.fd = -1};
    fm_status status = fm_folder_lock_take(set->out, &lock, reterr);
    if (!status) status = fm_predict_inputs_open(&options, &inputs, reterr);
    double inputs_s = (double)(fm_clock_ns() - begin_ns) * 1e-9;
    if (!status) (void)fm_predict_inputs_refused(inputs, ret_refused);
    if (!status) status = run(set, models, inputs, inputs_s, results, reterr);
    fm_predict_inputs_close(inputs);
    fm_folder_lock_end(set->out, &lock);
    return status;
}

/* Predicts complexes, while the folder of the results is locked. */
static fm_status run_cofold(const fm_predict_settings *set, predict_models *models,
                            fm_cofold_counts *ret_counts, fm_error *reterr) {
    fm_folder_lock lock = {.fd = -1};
    fm_status status = fm_folder_lock_take(set->out, &lock, reterr);
    if (!status) {
        status =
            fm_cofold_predict(set, &models->options[0], &models->looked[0], ret_counts, reterr);
    }
    fm_folder_lock_end(set->out, &lock);
    return status;
}

/* Makes all checks that need no work, before the work begins. ret_counts: of complexes. */
static fm_status check_and_run(fm_predict_settings *set, fm_results *results, uint32_t *ret_refused,
                               fm_cofold_counts *ret_counts, fm_error *reterr) {
    predict_models *models = calloc(1, sizeof *models);
    if (!models) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the models' settings");
    fm_status status = fm_results_folder_check(set->out, reterr);
    if (!status) status = look_at_models(set, models, reterr);
    if (!status && models->looked[0].config.network == FM_NETWORK_AF3) {
        status = run_cofold(set, models, ret_counts, reterr);
    } else if (!status) {
        status = prepare_and_run(set, models, results, ret_refused, reterr);
    }
    free(models);
    return status;
}

/* Predicts the chains of the server that the command has started. */
static fm_status run_chains_as_rank(const fm_predict_settings *set, const predict_models *models,
                                    fm_predict_group *group, fm_error *reterr) {
    const fm_predict_inputs_options options = inputs_options(set, getenv(fm_private_server_name));
    fm_predict_inputs *inputs = NULL;
    progress p = {.set = set};
    fm_status status = fm_predict_inputs_open(&options, &inputs, reterr);
    if (status) {
        fm_predict_group_fail(group, reterr);
    } else {
        fm_predict_run_options run = run_options(set, models, inputs);
        run.on_model = show_model;
        run.context = &p;
        status = fm_predict_rank_run(group, &run, reterr);
    }
    fm_predict_inputs_close(inputs);
    return status;
}

/* Predicts as one of the ranks that another process of this command has started. */
static fm_status predict_as_rank(const fm_predict_settings *set, predict_models *models,
                                 fm_error *reterr) {
    fm_predict_group *group = NULL;
    fm_status status = fm_predict_group_open(&set->ranks, set->device, set->dtype, &group, reterr);
    if (status) return status;
    status = look_at_models(set, models, reterr);
    if (status) {
        fm_predict_group_fail(group, reterr);
    } else if (models->looked[0].config.network == FM_NETWORK_AF3) {
        status = fm_cofold_rank_run(group, set, &models->options[0], &models->looked[0], reterr);
    } else {
        status = run_chains_as_rank(set, models, group, reterr);
    }
    fm_predict_group_close(group);
    return status;
}

static int run_rank(fm_predict_settings *set) {
    fm_error error;
    predict_models *models = calloc(1, sizeof *models);
    fm_status status = models ? predict_as_rank(set, models, &error) : FM_ERR_NOMEM;
    free(models);
    if (status == FM_ERR_USAGE) return FM_EXIT_USAGE;
    return status ? FM_EXIT_FAILED : FM_EXIT_OK;
}

static int code_of(const fm_results *results, uint32_t n_refused, const fm_cofold_counts *counts) {
    uint64_t n = (uint64_t)results->n_chain * results->n_run + counts->n_done + counts->n_failed +
                 counts->n_refused;
    uint64_t n_failed = fm_results_n_failed(results) + counts->n_failed + counts->n_refused;
    if (n && n_failed == n) return FM_EXIT_FAILED;
    return n_failed || n_refused ? FM_EXIT_PARTIAL : FM_EXIT_OK;
}

/* Predicts as the only process, or as the command that starts the ranks. */
static int run_alone(fm_predict_settings *set, const char *farewell) {
    fm_error error;
    fm_results results = {.chain = NULL};
    fm_cofold_counts counts = {0};
    uint32_t n_refused = 0;
    fm_stop_catch_saying(farewell);
    fm_status status = check_and_run(set, &results, &n_refused, &counts, &error);
    int code = FM_EXIT_OK;
    if (status == FM_ERR_CANCELLED && fm_stop_is_asked()) {
        code = 128 + fm_stop_signal();
    } else if (status) {
        code = fm_program_report(set->command->program, &error);
    } else {
        fm_predict_print_failed(set->command->program, &results);
        code = code_of(&results, n_refused, &counts);
    }
    fm_results_release(&results);
    return code;
}

static int count_cores(pid_t process) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    return sched_getaffinity(process, sizeof cores, &cores) < 0 ? 1 : CPU_COUNT(&cores);
}

/* Without --threads, each process uses its cores. Where the command has fewer cores than ranks,
 * the ranks share all of them, and each uses one thread. Beside a GPU, threads write features. */
static int count_threads(const fm_predict_settings *set, bool is_rank) {
    enum { MOST_CORES = 16, BESIDE_GPU = 8 };
    if (set->threads) return (int)set->threads;
    if (strcmp(set->device, "cpu") != 0) {
        const int own = count_cores(is_rank ? getppid() : 0) / set->ranks.n_rank;
        return own < 1 ? 1 : own < BESIDE_GPU ? own : BESIDE_GPU;
    }
    if (is_rank && count_cores(getppid()) < set->ranks.n_rank) return 1;
    const int n = count_cores(0);
    return n < MOST_CORES ? n : MOST_CORES;
}

static int run_command(fm_predict_settings *set, const char *farewell, int argc, char **argv) {
    fm_error error;
    char **line = calloc((size_t)argc + 1, sizeof *line); /* parsing moves the words of argv */
    if (!line) {
        fm_fail(&error, FM_ERR_NOMEM, "no memory for the command line");
        return fm_program_report(set->command->program, &error);
    }
    memcpy(line, argv, (size_t)argc * sizeof *line);
    set->ranks =
        (fm_predict_ranks_options){.program = set->command->program, .argc = argc, .argv = line};
    fm_status status = fm_predict_settings_parse(set, argc, argv, &error);
    const bool is_rank = fm_predict_group_is_rank();
    int code = FM_EXIT_OK;
    if (status) {
        code = status == FM_ERR_CANCELLED ? FM_EXIT_OK
                                          : fm_program_report(set->command->program, &error);
    } else {
        fm_cpu_use_threads(count_threads(set, is_rank));
        code = is_rank ? run_rank(set) : run_alone(set, farewell);
    }
    free(line);
    return code;
}

int fm_predict_main(int argc, char **argv) {
    fm_predict_settings set = fm_predict_settings_default(&fm_predict_command);
    return run_command(
        &set,
        "\nfoldmill predict: stopping after the chain or structure in hand; finished "
        "predictions stay; a second signal ends the process at once\n",
        argc, argv);
}

int fm_distill_main(int argc, char **argv) {
    fm_predict_settings set = fm_predict_settings_default(&fm_distill_command);
    return run_command(&set,
                       "\nfoldmill distill: stopping after the chain in hand; finished predictions "
                       "stay; a second signal ends the process at once\n",
                       argc, argv);
}
