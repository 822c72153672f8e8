/* weights.c: see weights.h. */
#include "trainer/app/weights.h"

#include "proto/base/file.h"
#include "proto/base/log.h"
#include "proto/base/options.h"
#include "proto/base/plural.h"
#include "proto/base/program.h"
#include "trainer/app/settings/infer_preset.h"
#include "trainer/app/settings/network.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/foreign.h"

#include <stdio.h>
#include <string.h>

enum { N_SHOWN = 10 };

static const size_t arena_bytes = (size_t)1 << 32; /* address space for tables and reports */

static const char import_description[] =
    "Makes a checkpoint from the weights of another program. A new run starts from\n"
    "it with `foldmill train --from CHECKPOINT`. FILE is one of\n\n"
    "  .npz            DeepMind's params_model_*.npz\n"
    "  .safetensors    OpenFold's or foldmill's names, or a foldmill checkpoint\n"
    "  .pt, .ckpt      what PyTorch saved, with OpenFold's names\n"
    "  any             Protenix's names, of AlphaFold 3\n\n"
    "The content of the file decides what it is, not its name. Of a foldmill\n"
    "checkpoint, and of one of OpenFold's training, the moving average is used.\n"
    "Nothing of a PyTorch file is executed: only tables of numbers are read, and\n"
    "a file that asks for anything else is refused.\n\n"
    "Without --preset, the preset is the one whose model fits the file. The number\n"
    "of blocks, templates, the structure module and the aligned error head are read\n"
    "from the file. Train with the same sizes: the command prints those that differ\n"
    "from the preset. If no preset fits, --preset and --config FILE give the sizes.\n\n"
    "The first arrays that are missing, extra or of another shape are listed with\n"
    "what was expected, and the others counted. In that case nothing is written.\n\n"
    "Examples:\n"
    "  foldmill import params_model_1.npz --out model_1.safetensors\n"
    "  foldmill train --data URL --preset af2-finetuning \\\n"
    "      --from model_1.safetensors\n\n"
    "Exit codes: 0 done, 1 failed, 2 bad usage";

static const char export_description[] =
    "Writes the weights of a foldmill checkpoint with the names and layouts of\n"
    "another program. The weights are the moving average, which evaluation uses, or\n"
    "with --set model the parameters themselves.\n\n"
    "  --format safetensors    names: openfold (the default), foldmill, deepmind\n"
    "  --format npz            names: deepmind (the default), openfold, foldmill\n\n"
    "Without --format, the format is npz if the name of FILE ends in .npz, and\n"
    "safetensors otherwise. A model of AlphaFold 3 has foldmill's names only; they\n"
    "are those of Protenix, its reference.\n\n"
    "Examples:\n"
    "  foldmill export-weights run/checkpoint-000000075000.safetensors \\\n"
    "      --out params_model_1.npz\n\n"
    "Exit codes: 0 done, 1 failed, 2 bad usage";

/* -- the parameters of a configuration, on the host */

typedef struct host_model {
    fm_arena arena;
    fm_params params;
} host_model;

static fm_status make_model(const fm_train_config *config, host_model *model, fm_error *reterr) {
    fm_status status =
        fm_network_of(config)->list_parameters(config, &model->arena, &model->params, reterr);
    if (status) return status;
    return fm_params_allocate(&model->params, fm_kernels_cpu(FM_ELEMENT_F32), reterr);
}

static void free_model(host_model *model) {
    fm_params_release(&model->params);
    fm_arena_fini(&model->arena);
}

/* Loads the parameters of a checkpoint. Their sizes come from the settings that it stores. */
static fm_status load_model(const char *path, host_model *model, fm_train_config *ret_config,
                            fm_error *reterr) {
    fm_checkpoint_state state;
    fm_status status = fm_arena_init(&model->arena, arena_bytes, reterr);
    if (!status) status = fm_checkpoint_peek_named(path, &model->arena, &state, reterr);
    if (!status) status = fm_train_config_read_stored(state.config, path, ret_config, reterr);
    if (!status) status = make_model(ret_config, model, reterr);
    return status ? status : fm_checkpoint_load(path, &model->params, &state, reterr);
}

/* -- the commands */

/* The file that a command writes. */
typedef struct output {
    const char *path; /* --out */
    bool replace;
    /* Refuses a file that the command does not write, so that --replace takes its like only. */
    fm_status (*check_old)(const char *path, fm_error *reterr);
} output;

static fm_status check_output(const output *out, fm_error *reterr) {
    bool is_old;
    fm_status status = fm_file_find_old(out->path, out->replace, &is_old, reterr);
    return status || !is_old ? status : out->check_old(out->path, reterr);
}

/* Whether a failure to read says nothing about what a file is. */
static bool is_unread(fm_status status) {
    return status == FM_ERR_IO || status == FM_ERR_NOMEM;
}

typedef fm_status run_command(const void *set, const char *path, fm_error *reterr);

/* Parses the arguments of a command that reads one file and needs --out, and runs it. */
static int parse_and_run(const fm_command *command, int argc, char **argv, const output *out,
                         run_command *run, const void *set) {
    fm_error error;
    int n_positional;
    fm_status status = fm_options_parse(command, argc, argv, &n_positional, &error);
    if (status == FM_ERR_CANCELLED) return FM_EXIT_OK;
    if (!status && !out->path) {
        status = fm_fail(&error, FM_ERR_USAGE, "--out is required; usage: %s %s", command->program,
                         command->arguments);
    }
    if (!status) status = fm_file_refuse_input(out->path, argv[0], &error);
    if (!status) status = check_output(out, &error);
    if (!status) status = run(set, argv[0], &error);
    return status ? fm_program_report(command->program, &error) : FM_EXIT_OK;
}

/* -- import */

typedef struct import_settings {
    const char *preset, *config;
    output out;
    uint64_t seed;
    bool verbose;
    fm_import_options allow;
} import_settings;

/* A checkpoint of a run cannot be made again, as that of an import can. */
static fm_status check_old_import(const char *path, fm_error *reterr) {
    fm_arena arena;
    fm_checkpoint_state state;
    fm_status status = fm_arena_init(&arena, arena_bytes, reterr);
    if (status) return status;
    status = fm_checkpoint_peek(path, &arena, &state, reterr);
    fm_arena_fini(&arena);
    if (is_unread(status) || (!status && state.samples == 0)) return status;
    return fm_fail_in(reterr, FM_ERR_USAGE, path,
                      "--out: found a file that this command did not write, expected none or a "
                      "checkpoint without training; choose another name");
}

/* Writes the checkpoint of a run that has not begun. */
static fm_status save(const import_settings *set, const fm_train_config *config,
                      const fm_params *params, fm_error *reterr) {
    char text[FM_TRAIN_CONFIG_TEXT_BYTES];
    fm_train_config_format(config, text);
    const fm_checkpoint_state state = {.seed = set->seed, .token = "", .config = text};
    return fm_checkpoint_save(set->out.path, params, &state, reterr);
}

/* The settings of the model: those of --preset and --config, or of the preset that fits the
 * file. */
static fm_status choose_config(const import_settings *set, const fm_weights_file *file,
                               const char *path, fm_arena *arena, fm_train_config *ret_config,
                               fm_error *reterr) {
    if (set->preset) return fm_train_config_load(set->preset, set->config, ret_config, reterr);
    fm_inferred_preset found;
    fm_status status = fm_preset_infer(file, set->config, arena, &found, ret_config, reterr);
    if (status) return fm_error_in(reterr, path);
    const char *with = *found.changes ? " with " : "";
    if (found.n_difference) {
        fprintf(stderr,
                "no preset fits the file; the nearest is %s%s%s, where %zu array%s. "
                "Give --preset and --config for a model of other sizes.\n",
                found.name, with, found.changes, found.n_difference,
                found.n_difference == 1 ? " differs" : "s differ");
    } else {
        printf("preset    %s%s%s, found by the %s of the file\n", found.name, with, found.changes,
               found.is_stored ? "settings" : "arrays");
    }
    char assumed[FM_PRESET_ASSUMED_BYTES] = "";
    if (!found.is_stored) fm_preset_list_assumed(ret_config, assumed);
    if (*assumed) printf("assumed   %s: no array shows them; --config sets them\n", assumed);
    return FM_OK;
}

/* Prints the lines about arrays that differ: the first of them, and the number of the others. A
 * model of other sizes differs in hundreds. */
static void print_differences(const char *text, bool all) {
    size_t n = 0, shown = 0;
    for (const char *at = text; *at; n++) {
        size_t length = strcspn(at, "\n");
        if (all || n < N_SHOWN) {
            fprintf(stderr, "%.*s\n", (int)length, at);
            shown++;
        }
        at += length + (at[length] == '\n');
    }
    if (n > shown) {
        fprintf(stderr, "and %zu more arrays; --verbose lists all. Is it the right --preset?\n",
                n - shown);
    }
}

static void print_import(const import_settings *set, const char *path, const fm_import_report *what,
                         const fm_params *params) {
    printf("read      %s: %zu arrays with %s names%s%s%s\n", path, what->n_array,
           fm_weight_names_word(what->naming), *what->prefix ? " after the prefix '" : "",
           what->prefix, *what->prefix ? "'" : "");
    if (what->n_missing) {
        printf("missing   %zu array%s initial values\n", what->n_missing,
               what->n_missing == 1 ? " keeps its" : "s keep their");
    }
    if (what->n_extra) {
        printf("extra     %zu array%s of the file ignored\n", what->n_extra,
               fm_plural(what->n_extra));
    }
    if (what->n_outside && *what->prefix) {
        char quoted[256];
        printf("left out  %zu array%s without the prefix, such as %s\n", what->n_outside,
               fm_plural(what->n_outside), fm_log_quote(quoted, sizeof quoted, what->outside));
    }
    printf("wrote     %s: %lld parameters\n", set->out.path, (long long)params->n_value);
}

static fm_status import_open(const import_settings *set, const fm_weights_file *file,
                             const char *path, host_model *model, fm_error *reterr) {
    fm_train_config config;
    fm_import_report what;
    fm_status status = choose_config(set, file, path, &model->arena, &config, reterr);
    if (!status) status = make_model(&config, model, reterr);
    if (status) return status;
    /* The file may lack values that are drawn. */
    status = fm_network_of(&config)->draw(&model->params, set->seed, reterr);
    if (status) return status;
    status =
        fm_foreign_import_file(file, &model->params, &set->allow, &model->arena, &what, reterr);
    print_differences(what.text, set->verbose);
    if (status) {
        fm_error_in(reterr, path);
        return status;
    }
    status = save(set, &config, &model->params, reterr);
    if (!status) print_import(set, path, &what, &model->params);
    return status;
}

/* The arrays of a checkpoint are read by name, as those of other programs are. Only loading all of
 * it compares the hash of the content. */
static fm_status check_is_whole(const char *path, fm_error *reterr) {
    host_model model = {.params = {0}};
    fm_train_config ignored;
    fm_status status = load_model(path, &model, &ignored, reterr);
    free_model(&model);
    return status;
}

static fm_status import(const void *settings, const char *path, fm_error *reterr) {
    const import_settings *set = settings;
    host_model model = {.params = {0}};
    fm_weights_file *file = NULL;
    fm_status status = fm_arena_init(&model.arena, arena_bytes, reterr);
    if (!status) status = fm_checkpoint_refuse_folder(path, "a file of weights", reterr);
    if (!status && fm_checkpoint_is(path)) status = check_is_whole(path, reterr);
    if (!status) status = fm_weights_file_open_named(path, &file, reterr);
    if (!status) status = import_open(set, file, path, &model, reterr);
    fm_weights_file_close(file);
    free_model(&model);
    return status;
}

int fm_import_main(int argc, char **argv) {
    import_settings set = {.out = {.check_old = check_old_import}};
    const fm_option options[] = {
        {"preset", FM_OPTION_STRING, &set.preset, "NAME",
         .help = "sizes of the model (those that fit FILE)"},
        {"config", FM_OPTION_STRING, &set.config, "FILE",
         .help = "changes to the preset, as an INI file"},
        {"out", FM_OPTION_STRING, &set.out.path, "FILE",
         .help = "the checkpoint to write (required)", .letter = 'o'},
        {"replace", FM_OPTION_FLAG, &set.out.replace, NULL,
         .help = "replace an earlier checkpoint of this command"},
        {"allow-missing", FM_OPTION_FLAG, &set.allow.allow_missing, NULL,
         .help = "arrays that FILE lacks keep initial values"},
        {"allow-extra", FM_OPTION_FLAG, &set.allow.allow_extra, NULL,
         .help = "arrays that the model lacks are ignored"},
        {"verbose", FM_OPTION_FLAG, &set.verbose, NULL, .help = "list every array that differs"},
        {"seed", FM_OPTION_U64, &set.seed, "S", .help = "seed of the initial values (0)"},
        {0}};
    const fm_command command = {.program = "foldmill import",
                                .arguments = "FILE --out CHECKPOINT [options]",
                                .summary =
                                    "make a checkpoint from the weights of DeepMind or OpenFold",
                                .description = import_description,
                                .options = options,
                                .min_positional = 1,
                                .max_positional = 1};
    return parse_and_run(&command, argc, argv, &set.out, import, &set);
}

/* -- export */

typedef struct export_settings {
    const char *format, *names, *set;
    output out;
} export_settings;

/* Names of weights have modules or folders; those of features have neither. */
static bool has_weights(const fm_weights_file *file) {
    size_t n = fm_weights_file_count(file), i = 0;
    while (i < n && strpbrk(fm_weights_file_at(file, i)->name, "./"))
        i++;
    return n > 0 && i == n;
}

static fm_status check_old_export(const char *path, fm_error *reterr) {
    fm_weights_file *file = NULL;
    bool is_checkpoint = fm_checkpoint_is(path);
    fm_status status = is_checkpoint ? FM_OK : fm_weights_file_open(path, &file, reterr);
    bool is_like = file && has_weights(file);
    fm_weights_file_close(file);
    if (is_unread(status) || is_like) return status;
    return fm_fail_in(reterr, FM_ERR_USAGE, path,
                      "--out: found a file that this command did not write, expected none or one "
                      "of exported weights; choose another name");
}

static fm_status parse_words(const export_settings *set, fm_weights_format *ret_format,
                             fm_weight_names *ret_names, bool *ret_average, fm_error *reterr) {
    size_t n_out = strlen(set->out.path);
    bool named_npz = n_out > 4 && strcmp(set->out.path + n_out - 4, ".npz") == 0;
    bool npz = set->format ? strcmp(set->format, "npz") == 0 : named_npz;
    if (set->format && !npz && strcmp(set->format, "safetensors") != 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "--format: found '%s', expected npz or safetensors",
                       set->format);
    }
    bool average = strcmp(set->set, "ema") == 0;
    if (!average && strcmp(set->set, "model") != 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "--set: found '%s', expected ema or model", set->set);
    }
    const char *names = set->names ? set->names : npz ? "deepmind" : "openfold";
    int n = 0;
    while (n < FM_N_NAMING && strcmp(names, fm_weight_names_word((fm_weight_names)n)) != 0)
        n++;
    if (n == FM_N_NAMING) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--names: found '%s', expected deepmind, openfold, openfold-1 or foldmill",
                       names);
    }
    *ret_format = npz ? FM_WEIGHTS_NPZ : FM_WEIGHTS_SAFETENSORS;
    *ret_names = (fm_weight_names)n;
    *ret_average = average;
    return FM_OK;
}

/* A model without names of another program is exported with its own, unless others were asked
 * for. */
static fm_status check_names(const export_settings *set, const fm_params *params,
                             fm_weight_names *names, fm_error *reterr) {
    if (fm_foreign_has_names(params, *names)) return FM_OK;
    if (!set->names) {
        *names = FM_NAMING_FOLDMILL;
        return FM_OK;
    }
    return fm_fail(reterr, FM_ERR_USAGE,
                   "--names: found %s, but a model of AlphaFold 3 has only foldmill, the names of "
                   "its reference",
                   set->names);
}

/* Names the settings of the model that a reader of the file cannot know and would take to be other
 * ones. The file is whole already, so that it cannot be read back is no failure of the command. */
static void print_lost(const char *path, const fm_train_config *config, fm_arena *arena) {
    fm_weights_file *file;
    fm_inferred_preset found;
    fm_train_config assumed;
    fm_error error;
    char lost[512] = "", why[FM_ERROR_TEXT_BYTES];
    fm_status status = fm_weights_file_open(path, &file, &error);
    if (!status) {
        status = fm_preset_infer(file, NULL, arena, &found, &assumed, &error);
        fm_weights_file_close(file);
    }
    if (status) {
        fm_error_format(&error, why, sizeof why);
        printf("not in it cannot be said: %s\n", why);
        return;
    }
    fm_preset_list_changes(&assumed, config, lost, sizeof lost);
    if (!*lost) return;
    printf("not in it %s; give these with --config when you import it, or export safetensors\n",
           lost);
}

static fm_status export_weights(const void *settings, const char *path, fm_error *reterr) {
    const export_settings *set = settings;
    fm_weights_format format = FM_WEIGHTS_NPZ;
    fm_weight_names names = FM_NAMING_DEEPMIND;
    bool average = true;
    host_model model = {.params = {0}};
    char text[FM_TRAIN_CONFIG_TEXT_BYTES];
    fm_train_config config;
    fm_status status = parse_words(set, &format, &names, &average, reterr);
    if (!status) status = load_model(path, &model, &config, reterr);
    if (!status) status = check_names(set, &model.params, &names, reterr);
    if (!status) {
        const void *flat = average ? model.params.ema : model.params.master;
        fm_preset_format_model(&config, text);
        status = fm_foreign_export(set->out.path, format, names, &model.params, flat, text,
                                   &model.arena, reterr);
    }
    if (!status) {
        printf("wrote     %s: %lld parameters with %s names\n", set->out.path,
               (long long)model.params.n_value, fm_weight_names_word(names));
        if (format == FM_WEIGHTS_NPZ) print_lost(set->out.path, &config, &model.arena);
    }
    free_model(&model);
    return status;
}

int fm_export_weights_main(int argc, char **argv) {
    export_settings set = {.set = "ema", .out = {.check_old = check_old_export}};
    const fm_option options[] = {{"out", FM_OPTION_STRING, &set.out.path, "FILE",
                                  .help = "the file to write (required)", .letter = 'o'},
                                 {"replace", FM_OPTION_FLAG, &set.out.replace, NULL,
                                  .help = "replace an earlier file of weights"},
                                 {"format", FM_OPTION_STRING, &set.format, "FORMAT",
                                  .help = "npz or safetensors (by the name of FILE)"},
                                 {"names", FM_OPTION_STRING, &set.names, "NAMES",
                                  .help = "deepmind, openfold, openfold-1 or foldmill"},
                                 {"set", FM_OPTION_STRING, &set.set, "SET",
                                  .help = "ema (the moving average) or model (ema)"},
                                 {0}};
    const fm_command command = {.program = "foldmill export-weights",
                                .arguments = "CHECKPOINT --out FILE [options]",
                                .summary = "write the weights of a checkpoint for other programs",
                                .description = export_description,
                                .options = options,
                                .min_positional = 1,
                                .max_positional = 1};
    return parse_and_run(&command, argc, argv, &set.out, export_weights, &set);
}
