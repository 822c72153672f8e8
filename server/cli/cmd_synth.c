/* cmd_synth.c: foldmill synth: writes a synthetic dataset in the layout of an OpenFold tree.
 *
 *     DIR/mmcifs/9a0x.cif
 *     DIR/alignments/9a0x_A/{bfd_uniclust,mgnify,uniref90}_hits.a3m and pdb70_hits.hhr
 *     DIR/components.cif the chemical components of complexes
 *     DIR/synth.json     the options, by which --force knows a dataset of its own
 */
#include "featurizer/synth/components.h"
#include "featurizer/synth/synth.h"
#include "proto/base/directory.h"
#include "proto/base/file.h"
#include "proto/base/plural.h"
#include "server/cli/commands.h"
#include "proto/base/json_text.h"
#include "server/cli/output_note.h"
#include "server/cli/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PATH_BYTES = 4096, DEFAULT_CHAINS = 32 };

static const char note_name[] = "synth.json";

static const char description[] =
    "Draws protein families, structures and alignments from a seed, and writes them as the files\n"
    "that an OpenFold user has. These are DIR/mmcifs/<id>.cif, and DIR/alignments/<id>_<chain>/\n"
    "with three alignments and template hits. They pass through the same parsers as real files,\n"
    "and a small model can learn from them. The same options give the same bytes on every\n"
    "machine, and a larger --chains only adds files. DIR/synth.json records the options. --force\n"
    "completes or extends a dataset that has the same ones, and no other folder.\n\n"
    "--complexes makes entries that are complexes: proteins with RNA, DNA, ligands, ions and\n"
    "glycans, some of them in assemblies of several copies. Their chemical components are in\n"
    "DIR/components.cif, for build --complexes --components.\n\n"
    "--json prints one object: chains, entries, files, bytes, seconds, dataset.\n\n"
    "Exit codes: 0 all written, 1 failed (also when --force finds another dataset), 2 bad usage\n"
    "(also when the folder is not empty).\n\n"
    "Examples:\n"
    "  foldmill synth --chains 32 --seed 1 -o data\n"
    "  foldmill synth --chains 1000 --min-length 100 --max-length 400 -o large\n"
    "  foldmill synth --complexes 16 --max-length 60 -o complexes";

typedef struct synth_run {
    fm_synth_options options;
    uint64_t n_chain, n_complex; /* wanted; 0 of one of them */
    const char *out;
    bool force, quiet, json;
    fm_arena arena;
    uint64_t n_done, n_file, n_entry, n_byte;
} synth_run;

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Writes without syncing: after a crash, the dataset is simply written again. */
static fm_status write_file(synth_run *run, const char *path, fm_bytes content, fm_error *reterr) {
    fm_status status = fm_file_write_unsynced(path, content.data, content.size, reterr);
    if (status) return status;
    run->n_file++;
    run->n_byte += content.size;
    return FM_OK;
}

/* Whether as many chains or complexes as wanted are written. */
static bool is_done(const synth_run *run) {
    return run->options.complexes ? run->n_entry == run->n_complex : run->n_done == run->n_chain;
}

/* Writes the files into alignments/<id>_<chain>/. */
static fm_status write_folder(synth_run *run, const fm_synth_entry *entry, char auth_chain,
                              const fm_synth_file *files, uint32_t n_file, fm_error *reterr) {
    char path[PATH_BYTES];
    int length =
        snprintf(path, sizeof path, "%s/alignments/%s_%c", run->out, entry->id, auth_chain);
    fm_status status = fm_dir_make(path, reterr);
    for (uint32_t i = 0; !status && i < n_file; i++) {
        snprintf(path + length, sizeof path - (size_t)length, "/%s", files[i].name);
        status = write_file(run, path, files[i].content, reterr);
    }
    return status;
}

static fm_status write_chain(synth_run *run, const fm_synth_entry *entry, uint32_t slot,
                             fm_error *reterr) {
    fm_synth_file files[FM_SYNTH_MAX_FILES];
    uint32_t n_file;
    fm_arena_reset(&run->arena);
    fm_status status =
        fm_synth_alignments(&run->arena, &run->options, entry, slot, files, &n_file, reterr);
    if (status) return status;
    return write_folder(run, entry, entry->auth_chain[slot], files, n_file, reterr);
}

/* Writes the alignments of the entry's RNA. */
static fm_status write_strands(synth_run *run, const fm_synth_entry *entry, fm_error *reterr) {
    fm_synth_file file;
    if (!entry->recipe || !entry->recipe->is_rna) return FM_OK;
    fm_arena_reset(&run->arena);
    fm_status status = fm_synth_rna_alignment(&run->arena, &run->options, entry, &file, reterr);
    for (uint32_t s = 0; !status && s < entry->recipe->n_strand; s++)
        status = write_folder(run, entry, entry->auth_strand[s], &file, 1, reterr);
    return status;
}

static fm_status write_entry(synth_run *run, uint32_t index, fm_error *reterr) {
    char path[PATH_BYTES];
    fm_bytes content;
    fm_synth_entry entry = fm_synth_entry_of(&run->options, index);
    fm_arena_reset(&run->arena);
    fm_status status = fm_synth_mmcif(&run->arena, &run->options, &entry, &content, reterr);
    if (status) return status;
    snprintf(path, sizeof path, "%s/mmcifs/%s.cif", run->out, entry.id);
    status = write_file(run, path, content, reterr);
    for (uint32_t slot = 0; !status && slot < entry.n_chain && !is_done(run); slot++) {
        status = write_chain(run, &entry, slot, reterr);
        run->n_done += !status;
    }
    if (!status) status = write_strands(run, &entry, reterr);
    run->n_entry++;
    return status;
}

/* Writes the components of complexes. */
static fm_status write_components(synth_run *run, fm_error *reterr) {
    char path[PATH_BYTES];
    fm_bytes content;
    fm_arena_reset(&run->arena);
    fm_status status = fm_synth_components_text(&run->arena, &content, reterr);
    if (status) return status;
    snprintf(path, sizeof path, "%s/components.cif", run->out);
    return write_file(run, path, content, reterr);
}

/* Without --force, files are only written to an empty or new folder. */
static fm_status check_folder(const synth_run *run, fm_error *reterr) {
    char path[PATH_BYTES];
    bool empty = true, has_note = false;
    if (run->force) return FM_OK; /* the note decides */
    fm_status status = fm_directory_is_empty(run->out, NULL, &empty, reterr);
    if (status == FM_ERR_NOT_FOUND) return FM_OK; /* it is made below */
    if (status || empty) return status;
    snprintf(path, sizeof path, "%s/%s", run->out, note_name);
    status = fm_output_has_file(path, &has_note, reterr);
    if (status) return status;
    return fm_fail(reterr, FM_ERR_USAGE,
                   "-o: found '%s' with files in it, expected a new or empty folder%s", run->out,
                   has_note ? " (or --force, which completes a stopped synth of the same options)"
                            : "");
}

/* Makes the folders, unless the one to write to has files of others, or of other options: the
 * dataset would be a mixture, and files of the same names would be lost. */
static fm_status make_folders(synth_run *run, fm_error *reterr) {
    const fm_synth_options *options = &run->options;
    char path[PATH_BYTES], note[FM_OUTPUT_NOTE_BYTES];
    snprintf(note, sizeof note,
             "{\"seed\": %" PRIu64 ", \"min_length\": %" PRIu32 ", \"max_length\": %" PRIu32
             ", \"depth\": %" PRIu32 ", \"min_depth\": %" PRIu32 ", \"stockholm\": %s%s}\n",
             options->seed, options->min_length, options->max_length, options->max_depth,
             options->min_depth, options->stockholm ? "true" : "false",
             options->complexes ? ", \"complexes\": true" : "");
    fm_status status = fm_dir_make(run->out, reterr);
    if (!status) {
        status = fm_output_note_check(run->out, note_name, note, "a dataset of other options",
                                      &run->arena, reterr);
    }
    snprintf(path, sizeof path, "%s/mmcifs", run->out);
    if (!status) status = fm_dir_make(path, reterr);
    snprintf(path, sizeof path, "%s/alignments", run->out);
    return status ? status : fm_dir_make(path, reterr);
}

static void write_json(const synth_run *run, double seconds) {
    fm_json_writer json;
    fm_json_begin(&json, stdout);
    fm_json_put_u64(&json, "chains", run->n_done);
    fm_json_put_u64(&json, "entries", run->n_entry);
    fm_json_put_u64(&json, "files", run->n_file);
    fm_json_put_u64(&json, "bytes", run->n_byte);
    fm_json_put_f64(&json, "seconds", seconds, 3);
    fm_json_put_string(&json, "dataset", run->out);
    fm_json_end(&json);
}

static const char *unit_of(uint64_t n_entry, bool complexes) {
    if (complexes) return n_entry == 1 ? "complex" : "complexes";
    return n_entry == 1 ? "entry" : "entries";
}

static fm_status write_dataset(synth_run *run, fm_error *reterr) {
    double start = seconds_now(), shown = start;
    bool terminal = fm_progress_has_terminal() && !run->quiet;
    bool complexes = run->options.complexes;
    fm_status status = complexes ? write_components(run, reterr) : FM_OK;
    for (uint32_t index = 0; !status && !is_done(run); index++) {
        status = write_entry(run, index, reterr);
        double now = seconds_now();
        if (terminal && now - shown > 0.1) {
            fm_progress_draw("synth: %llu of %llu %s, %.1f MB",
                             (unsigned long long)(complexes ? run->n_entry : run->n_done),
                             (unsigned long long)(complexes ? run->n_complex : run->n_chain),
                             complexes ? "complexes" : "chains", (double)run->n_byte / 1e6);
            shown = now;
        }
    }
    if (terminal && shown > start) fm_progress_clear();
    if (status) return status;
    if (run->json) {
        write_json(run, seconds_now() - start);
        return FM_OK;
    }
    printf("synth: %llu chain%s in %llu %s, %llu file%s, %.1f MB, %.2f s -> %s\n",
           (unsigned long long)run->n_done, fm_plural(run->n_done),
           (unsigned long long)run->n_entry, unit_of(run->n_entry, complexes),
           (unsigned long long)run->n_file, fm_plural(run->n_file), (double)run->n_byte / 1e6,
           seconds_now() - start, run->out);
    return FM_OK;
}

static fm_status check_options(const synth_run *run, fm_error *reterr) {
    if (strlen(run->out) > PATH_BYTES - 128) {
        return fm_fail(reterr, FM_ERR_USAGE, "-o: found a path of %zu bytes, expected at most %d",
                       strlen(run->out), PATH_BYTES - 128);
    }
    if (run->options.min_length > run->options.max_length) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--min-length: found %u, expected at most --max-length %u",
                       run->options.min_length, run->options.max_length);
    }
    if (run->options.min_depth > run->options.max_depth) {
        return fm_fail(reterr, FM_ERR_USAGE, "--min-depth: found %u, expected at most --depth %u",
                       run->options.min_depth, run->options.max_depth);
    }
    if (run->n_chain && run->n_complex) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--complexes: found also --chains, expected one of them");
    }
    return check_folder(run, reterr);
}

int fm_cmd_synth(int argc, char **argv) {
    synth_run run = {.options = fm_synth_default_options()};
    uint64_t min_length = run.options.min_length, max_length = run.options.max_length;
    uint64_t depth = run.options.max_depth, min_depth = 0;
    const fm_option options[] = {
        {"chains", FM_OPTION_U64, &run.n_chain, "N", .help = "number of chains (32)", .min = 1,
         .max = 400000},
        {"complexes", FM_OPTION_U64, &run.n_complex, "N",
         .help = "number of complexes, in place of --chains", .min = 1, .max = 400000},
        {"seed", FM_OPTION_U64, &run.options.seed, "S",
         .help = "the seed that the dataset is drawn from (0)"},
        {"out", FM_OPTION_STRING, &run.out, "DIR", .help = "the folder to write to", .letter = 'o',
         .is_required = true},
        {"min-length", FM_OPTION_U64, &min_length, "N",
         .help = "residues of the shortest chain (30)", .min = 12, .max = 2000},
        {"max-length", FM_OPTION_U64, &max_length, "N",
         .help = "residues of the longest chain (220)", .min = 12, .max = 2000},
        {"depth", FM_OPTION_U64, &depth, "N",
         .help = "the most homologues of a family (2000); most families have far fewer", .min = 1,
         .max = 100000},
        {"min-depth", FM_OPTION_U64, &min_depth, "N",
         .help = "the fewest homologues of a family (as drawn)", .max = 100000},
        {"stockholm", FM_OPTION_FLAG, &run.options.stockholm,
         .help = "write uniref90 and mgnify hits as .sto, as AlphaFold's scripts do"},
        {"force", FM_OPTION_FLAG, &run.force,
         .help = "complete or extend a dataset of the same options"},
        {"quiet", FM_OPTION_FLAG, &run.quiet, .help = "no progress line", .letter = 'q'},
        {"json", FM_OPTION_FLAG, &run.json, .help = "print one JSON object"},
        {0}};
    const fm_command command = {"foldmill synth",
                                "-o DIR [options]",
                                "write a synthetic dataset",
                                description,
                                options,
                                0,
                                0};
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    run.options.min_length = (uint32_t)min_length;
    run.options.max_length = (uint32_t)max_length;
    run.options.max_depth = (uint32_t)depth;
    run.options.min_depth = (uint32_t)min_depth;
    fm_error error;
    fm_status status = check_options(&run, &error);
    run.options.complexes = run.n_complex > 0;
    if (!run.n_chain) run.n_chain = DEFAULT_CHAINS;
    if (!status) status = fm_arena_init(&run.arena, (size_t)8 << 30, &error);
    if (!status) status = make_folders(&run, &error);
    if (!status) status = write_dataset(&run, &error);
    fm_arena_fini(&run.arena);
    return status ? fm_program_report(command.program, &error) : FM_EXIT_OK;
}
