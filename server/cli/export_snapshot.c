/* export_snapshot.c: see fm_export_snapshot of export_chain.h. */
#include "cache/snapshot/snapshot.h"
#include "proto/base/file.h"
#include "proto/base/histogram.h"
#include "proto/base/temporary.h"
#include "server/cli/export_chain.h"
#include "server/cli/output_note.h"
#include "server/cli/progress.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { DRAW_MS = 200, PATH_BYTES = 4096 };

/* -- what the files of a folder are made from */

static void format_note(const fm_export_options *options, const fm_store *store,
                        const fm_snapshot *snapshot, char out[FM_OUTPUT_NOTE_BYTES]) {
    char content[FM_SHA256_HEX], hash[FM_SHA256_HEX];
    fm_sha256_format(&fm_store_get_info(store)->content, content);
    fm_sha256_format(&snapshot->hash, hash);
    snprintf(out, FM_OUTPUT_NOTE_BYTES,
             "{\"content\": \"%s\", \"snapshot_hash\": \"%s\", \"stage\": \"%s\", "
             "\"format\": \"%s\", \"compat\": \"%s\", \"max_template_date\": \"%s\"}\n",
             content, hash, options->stage, fm_array_format_name(options->format),
             options->compat ? options->compat : "none",
             options->max_date ? options->max_date : "any");
}

/* -- the chains */

typedef struct export_run {
    const fm_export_options *options;
    const fm_store *store;
    const char *folder;
    fm_arena *arena;
    fm_export_report report;
    uint64_t start_ns, drawn_ns;
    bool draws;
} export_run;

static void draw(export_run *run, uint32_t done) {
    uint64_t now = fm_clock_ns();
    if (!run->draws || now - run->drawn_ns < (uint64_t)DRAW_MS * 1000000) return;
    run->drawn_ns = now;
    char eta[32];
    double seconds = (double)(now - run->start_ns) * 1e-9;
    fm_progress_draw("export %u of %u chains, %.1f chains/s, %s left", done, run->report.n_chain,
                     run->report.n_written / seconds,
                     fm_progress_format_eta(seconds, (double)done / run->report.n_chain, eta));
}

/* Whether the name can be that of a file, also while the file is written. */
static fm_status check_name(const export_run *run, const char *name, fm_error *reterr) {
    const size_t most =
        NAME_MAX - FM_TEMPORARY_END_BYTES - 1 - strlen(fm_array_format_name(run->options->format));
    if (strchr(name, '/')) {
        return fm_fail(reterr, FM_ERR_DATA, "a chain's name with a '/' cannot name a file");
    }
    if (strlen(name) <= most) return FM_OK;
    return fm_fail(reterr, FM_ERR_DATA,
                   "found a chain's name of %zu bytes, expected at most %zu for a file of this "
                   "format; --chain with -o writes it to a file of another name",
                   strlen(name), most);
}

static fm_status export_one(export_run *run, uint32_t chain, fm_error *reterr) {
    const char *name = fm_store_chain_name(run->store, chain);
    char path[PATH_BYTES];
    bool has;
    fm_status status = check_name(run, name, reterr);
    if (status) return status;
    int n = snprintf(path, sizeof path, "%s/%s.%s", run->folder, name,
                     fm_array_format_name(run->options->format));
    if (n < 0 || (size_t)n >= sizeof path) {
        return fm_fail(reterr, FM_ERR_IO, "the path of %s is longer than %d bytes", name,
                       PATH_BYTES - 1);
    }
    status = fm_output_has_file(path, &has, reterr);
    if (status) return status;
    if (has) {
        run->report.n_kept++;
        return FM_OK;
    }
    size_t mark = fm_arena_mark(run->arena);
    status = fm_export_chain(run->options, run->store, chain, path, run->arena, reterr);
    fm_arena_rewind(run->arena, mark);
    if (!status) run->report.n_written++;
    return status;
}

static fm_status export_all(export_run *run, const fm_snapshot *snapshot,
                            const volatile sig_atomic_t *stop_asked, fm_error *reterr) {
    for (uint32_t i = 0; i < snapshot->n_chain && !*stop_asked; i++) {
        fm_error error;
        draw(run, i);
        fm_status status = export_one(run, snapshot->chain[i], &error);
        if (status == FM_ERR_IO || status == FM_ERR_NOMEM) {
            *reterr = error;
            return status;
        }
        if (!status) continue;
        char text[FM_ERROR_TEXT_BYTES];
        fm_error_format(&error, text, sizeof text);
        if (run->draws) fm_progress_clear();
        fprintf(stderr, "foldmill export: %s: %s\n",
                fm_store_chain_name(run->store, snapshot->chain[i]), text);
        run->report.n_failed++;
    }
    return FM_OK;
}

fm_status fm_export_snapshot(const fm_export_options *options, const fm_store *store,
                             const char *snapshot, const char *folder, bool is_quiet,
                             const volatile sig_atomic_t *stop_asked, fm_arena *arena,
                             fm_export_report *ret_report, fm_error *reterr) {
    fm_snapshot chosen;
    char note[FM_OUTPUT_NOTE_BYTES];
    fm_status status = fm_snapshot_open(store, snapshot, arena, &chosen, reterr);
    if (!status) status = fm_dir_make(folder, reterr);
    if (status) return status;
    format_note(options, store, &chosen, note);
    status = fm_output_note_check(folder, "export.json", note,
                                  "an export of another cache, snapshot or stage, or with other "
                                  "options",
                                  arena, reterr);
    if (status) return status;
    export_run run = {.options = options,
                      .store = store,
                      .folder = folder,
                      .arena = arena,
                      .report = {.n_chain = chosen.n_chain},
                      .start_ns = fm_clock_ns(),
                      .draws = !is_quiet && fm_progress_has_terminal()};
    status = export_all(&run, &chosen, stop_asked, reterr);
    if (run.draws) fm_progress_clear();
    run.report.seconds = (double)(fm_clock_ns() - run.start_ns) * 1e-9;
    *ret_report = run.report;
    return status;
}
