/* cmd_prepare.c: foldmill prepare: makes samples of descriptions of complexes, for prediction.
 * foldmill predict runs it for its inputs. */
#include "proto/base/file.h"
#include "proto/base/json_text.h"
#include "proto/base/plural.h"
#include "proto/description_files.h"
#include "server/cli/commands.h"
#include "server/cli/job_files.h"
#include "server/cli/read_input.h"

#include <search.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Address space: of a description and its jobs, and of the dictionary. */
#define ARENA_BYTES ((size_t)32 << 30)

enum { MOST_INPUTS = 1 << 20, PATH_BYTES = 4096 };

static const char program[] = "foldmill prepare";

static volatile sig_atomic_t stop_asked;

static void ask_stop(int signal_number) {
    stop_asked = signal_number;
    signal(signal_number, SIG_DFL);
}

static const char description[] =
    "Prepares complexes for prediction, so that a machine without a GPU can do this part. Each\n"
    "INPUT is a description: JSON of AlphaFold 3, AlphaFold Server or Protenix, YAML of Boltz,\n"
    "or FASTA (docs/reference/jobs.md), with one job or several; or a folder, whose files with\n"
    "the endings .json, .yaml, .yml, .fasta, .fa, .fas and .faa are taken, also with .gz, .xz\n"
    "or .zst. Alignments must exist already: foldmill does not search databases.\n\n"
    "Each job becomes the file DIR/NAME.npz, which replaces an earlier one. NAME is the job's\n"
    "name, as the results have it. `foldmill predict DIR` predicts all of them.\n\n"
    "A job that cannot be prepared is refused with the place and the reason, and the others are\n"
    "prepared. --json prints one object: jobs [{input, job, file, tokens, atoms, chains}], and of\n"
    "refused ones [{input, job, reason}], in the order of the inputs.\n\n"
    "Exit codes: 0 all jobs prepared, 3 some refused, 1 all refused or failed, 2 bad usage;\n"
    "stopped by a signal: 143 SIGTERM, 130 SIGINT, 129 SIGHUP.\n\n"
    "Examples:\n"
    "  foldmill prepare jobs/ --components components.foldcomp --out prepared\n"
    "  foldmill predict prepared/ --weights protenix.pt --out results --device cuda";

typedef struct preparation {
    const char *components, *out, *format_name;
    bool single_sequence, json, quiet;
    fm_job_format format;
    fm_components dictionary;
    fm_arena dictionary_arena, arena; /* arena: of one description */
    void *names;                      /* of jobs so far: a tree of tsearch(3) */
    fm_json_writer writer;
    uint64_t n_prepared, n_refused;
} preparation;

static int compare_names(const void *a, const void *b) {
    return strcmp(a, b);
}

/* -- the report */

static void put_place(preparation *p, const char *input, const char *job) {
    fm_json_open_object(&p->writer, NULL);
    fm_json_put_string(&p->writer, "input", input);
    fm_json_put_string(&p->writer, "job", job);
}

static void refuse(preparation *p, const char *input, const char *job, fm_error *why) {
    char text[FM_ERROR_TEXT_BYTES];
    (void)fm_error_in(why, input);
    fm_error_format(why, text, sizeof text);
    p->n_refused++;
    if (!p->json) {
        fprintf(stderr, "%s: %s\n", program, text);
        return;
    }
    put_place(p, input, job);
    fm_json_put_string(&p->writer, "reason", text);
    fm_json_close(&p->writer);
}

static void accept(preparation *p, const char *input, const fm_complex_job *job, const char *file,
                   const fm_assembly *a) {
    p->n_prepared++;
    if (p->json) {
        put_place(p, input, job->name);
        fm_json_put_string(&p->writer, "file", file);
        fm_json_put_u64(&p->writer, "tokens", a->n_token);
        fm_json_put_u64(&p->writer, "atoms", a->n_atom);
        fm_json_put_u64(&p->writer, "chains", a->n_chain);
        fm_json_close(&p->writer);
    } else if (!p->quiet) {
        printf("%s: %s, %u chain%s, %u tokens, %u atoms\n", file,
               fm_job_format_title((fm_job_format)job->format), a->n_chain, fm_plural(a->n_chain),
               a->n_token, a->n_atom);
    }
}

/* -- one job */

/* Results of jobs are in folders of their names, so two jobs must not have one name. */
static fm_status take_name(preparation *p, const char *name, fm_error *reterr) {
    if (strlen(name) > FM_DESCRIPTION_NAME_MOST) {
        return fm_fail(reterr, FM_ERR_DATA,
                       "found a name of %zu bytes, '%.60s...', expected at "
                       "most %d",
                       strlen(name), name, FM_DESCRIPTION_NAME_MOST);
    }
    if (tfind(name, &p->names, compare_names)) {
        return fm_fail(reterr, FM_ERR_DATA, "a job before this one has the name %s, too", name);
    }
    char *copy = strdup(name);
    if (copy && tsearch(copy, &p->names, compare_names)) return FM_OK;
    free(copy);
    return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the names of jobs");
}

/* *ret_is_written: the error, if there is one, is not of the job but of the output. */
static fm_status prepare_job(preparation *p, const char *input, const fm_complex_job *job,
                             bool *ret_is_written, fm_error *reterr) {
    const fm_job_options options = fm_cli_job_options(p->single_sequence);
    fm_job_folder folder = fm_cli_job_folder(input, job);
    const fm_job_files files = {&folder, fm_cli_job_read_file};
    fm_job_warnings warnings = {0};
    char path[PATH_BYTES];
    fm_prepared_job *prepared = fm_arena_alloc(&p->arena, sizeof *prepared);
    *ret_is_written = false;
    if (!prepared) return fm_arena_full(&p->arena, reterr);
    if (job->refused) {
        *reterr = *job->refused;
        return reterr->status;
    }
    fm_status status = fm_job_prepare(job, &p->dictionary, &files, &options, &p->arena, &warnings,
                                      prepared, reterr);
    snprintf(path, sizeof path, "%.3000s: %.500s", input, job->name);
    fm_cli_job_print_warnings(program, path, &warnings);
    if (!status) status = take_name(p, job->folder, reterr);
    if (status) return status;
    *ret_is_written = true;
    if (snprintf(path, sizeof path, "%s/%s.npz", p->out, job->folder) >= PATH_BYTES) {
        return fm_fail_in(reterr, FM_ERR_USAGE, p->out, "the path is too long");
    }
    status = fm_cli_job_write(path, prepared, reterr);
    if (!status) accept(p, input, job, path, &prepared->assembly);
    return status;
}

/* -- one input */

static fm_status prepare_jobs(preparation *p, const char *input, const fm_jobs *jobs,
                              fm_error *reterr) {
    for (uint32_t i = 0; i < jobs->n; i++) {
        fm_error why = {0};
        bool is_written;
        if (stop_asked) return fm_fail(reterr, FM_ERR_CANCELLED, "stopped on request");
        const size_t mark = fm_arena_mark(&p->arena);
        fm_status status = prepare_job(p, input, &jobs->jobs[i], &is_written, &why);
        fm_arena_rewind(&p->arena, mark);
        if (status && (is_written || status == FM_ERR_NOMEM)) {
            *reterr = why;
            return status;
        }
        if (status) refuse(p, input, jobs->jobs[i].name, &why);
    }
    return FM_OK;
}

static fm_status prepare_file(preparation *p, const char *input, fm_error *reterr) {
    fm_job_warnings warnings = {0};
    fm_bytes text = {0};
    fm_jobs jobs;
    fm_error why = {0};
    fm_arena_reset(&p->arena);
    fm_status status = fm_cli_read_input(input, &p->arena, &text, &why);
    if (!status) {
        status = fm_jobs_read(text, input, p->format, &p->arena, &warnings, &jobs, &why);
        fm_cli_job_print_warnings(program, input, &warnings);
    }
    if (!status) return prepare_jobs(p, input, &jobs, reterr);
    refuse(p, input, "", &why);
    return FM_OK;
}

static fm_status prepare_input(preparation *p, const char *input, fm_error *reterr) {
    fm_arena names;
    fm_name_list list;
    fm_error why = {0};
    bool is_folder;
    fm_status status = fm_arena_init(&names, (size_t)1 << 30, reterr);
    if (status) return status;
    status = fm_description_files_list(input, false, &names, &is_folder, &list, &why);
    if (!status && is_folder && list.n == 0) {
        status = fm_fail(&why, FM_ERR_DATA, "found no description in the folder");
    }
    if (status) {
        refuse(p, input, "", &why);
        status = FM_OK;
    } else if (!is_folder) {
        status = prepare_file(p, input, reterr);
    }
    for (size_t i = 0; i < list.n && !status; i++)
        status = prepare_file(p, list.name[i], reterr);
    free(list.name);
    fm_arena_fini(&names);
    return status;
}

/* -- the command */

static fm_status begin(preparation *p, fm_error *reterr) {
    fm_status status = fm_cli_job_format(p->format_name, &p->format, reterr);
    if (!status) status = fm_arena_init(&p->dictionary_arena, ARENA_BYTES, reterr);
    if (!status) status = fm_arena_init(&p->arena, ARENA_BYTES, reterr);
    if (!status) {
        status =
            fm_cli_read_components(p->components, &p->dictionary_arena, &p->dictionary, reterr);
    }
    return status ? status : fm_dir_make(p->out, reterr);
}

static int prepare(preparation *p, char *const *input, int n_input) {
    fm_error error;
    fm_status status = begin(p, &error);
    if (status) return fm_program_report(program, &error);
    if (p->json) {
        fm_json_begin(&p->writer, stdout);
        fm_json_open_array(&p->writer, "jobs");
    }
    for (int i = 0; i < n_input && !status; i++)
        status = prepare_input(p, input[i], &error);
    if (p->json) {
        fm_json_close(&p->writer);
        fm_json_end(&p->writer);
    } else if (!status) {
        printf("%llu job%s prepared in %s, %llu refused\n", (unsigned long long)p->n_prepared,
               fm_plural(p->n_prepared), p->out, (unsigned long long)p->n_refused);
    }
    fflush(stdout);
    if (status == FM_ERR_CANCELLED && stop_asked) {
        (void)fm_program_report(program, &error);
        return fm_cli_signal_code(stop_asked);
    }
    if (status) return fm_program_report(program, &error);
    if (p->n_refused) return p->n_prepared ? FM_EXIT_PARTIAL : FM_EXIT_FAILED;
    return FM_EXIT_OK;
}

int fm_cmd_prepare(int argc, char **argv) {
    preparation p = {.components = NULL};
    const fm_option options[] = {
        {"components", FM_OPTION_STRING, &p.components, "FILE",
         .help = "the chemical components, as mmCIF or packed", .is_required = true},
        {"out", FM_OPTION_STRING, &p.out, "DIR", .help = "the folder of the prepared jobs",
         .letter = 'o', .is_required = true},
        {"format", FM_OPTION_STRING, &p.format_name, "NAME",
         .help = "alphafold3, server, protenix, boltz or fasta; else it is found"},
        {"single-sequence", FM_OPTION_FLAG, &p.single_sequence, NULL,
         .help = "chains without an alignment are accepted"},
        {"json", FM_OPTION_FLAG, &p.json, NULL, .help = "print the report as one JSON object"},
        {"quiet", FM_OPTION_FLAG, &p.quiet, NULL, .help = "no line for each job", .letter = 'q'},
        {0}};
    const fm_command command = {.program = program,
                                .arguments = "INPUT... --components FILE --out DIR [options]",
                                .summary = "prepare descriptions of complexes for prediction",
                                .description = description,
                                .options = options,
                                .min_positional = 1,
                                .max_positional = MOST_INPUTS};
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_cli_catch_signals(ask_stop);
    fm_cli_survive_writes();
    code = prepare(&p, argv, n_positional);
    tdestroy(p.names, free);
    fm_arena_fini(&p.arena);
    fm_arena_fini(&p.dictionary_arena);
    return code;
}
