/* export_snapshot.c: see fm_export_snapshot of export_chain.h. */
#include "cache/snapshot/snapshot.h"
#include "proto/base/directory.h"
#include "proto/base/file.h"
#include "proto/base/histogram.h"
#include "server/cli/export_chain.h"
#include "server/cli/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRAW_MS = 200, NOTE_BYTES = 1 << 12, PATH_BYTES = 4096 };

/* -- what the files of a folder are made from */

static void format_note(const fm_export_options *options, const fm_store *store,
                        const fm_snapshot *snapshot, char out[NOTE_BYTES]) {
    char content[FM_SHA256_HEX], hash[FM_SHA256_HEX];
    fm_sha256_format(&fm_store_get_info(store)->content, content);
    fm_sha256_format(&snapshot->hash, hash);
    snprintf(out, NOTE_BYTES,
             "{\"content\": \"%s\", \"snapshot_hash\": \"%s\", \"stage\": \"%s\", "
             "\"format\": \"%s\", \"compat\": \"%s\", \"max_template_date\": \"%s\"}\n",
             content, hash, options->stage, fm_array_format_name(options->format),
             options->compat ? options->compat : "none",
             options->max_date ? options->max_date : "any");
}

/* An export begins in a folder without other files: one with the name of a chain would be kept as
 * the chain's features. A note that a killed export left half written is no such file. */
static fm_status check_empty(const char *folder, fm_arena *arena, fm_error *reterr) {
    enum { MOST = 64 };
    static const char own[] = "export.json.";
    const char *other = NULL;
    fm_entry_list list = {.entry = NULL};
    size_t mark = fm_arena_mark(arena);
    fm_status status = fm_directory_read(folder, MOST, arena, &list, reterr);
    if (status == FM_ERR_LIMIT) {
        other = "many";
        status = FM_OK;
    }
    for (size_t i = 0; i < list.n && !status && !other; i++)
        if (strncmp(list.entry[i].name, own, sizeof own - 1) != 0) other = list.entry[i].name;
    if (!status && other) {
        status = fm_fail_in(reterr, FM_ERR_EXISTS, folder,
                            "the folder has other files (%.100s) and no export.json; choose an "
                            "empty or a new folder",
                            other);
    }
    free(list.entry);
    fm_arena_rewind(arena, mark);
    return status;
}

static fm_status check_note(const char *folder, const char *note, fm_arena *arena,
                            fm_error *reterr) {
    char path[PATH_BYTES];
    fm_bytes found;
    snprintf(path, sizeof path, "%s/export.json", folder);
    fm_status status = fm_file_read(arena, path, NOTE_BYTES, &found, reterr);
    if (status == FM_ERR_NOT_FOUND) {
        status = check_empty(folder, arena, reterr);
        return status ? status : fm_file_write_atomic(path, note, strlen(note), reterr);
    }
    if (status) return status;
    if (found.size == strlen(note) && memcmp(found.data, note, found.size) == 0) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_EXISTS, path,
                      "the folder has an export of another cache, snapshot or stage, or with other "
                      "options, as this file says; choose another folder");
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

static fm_status has_file(const char *path, bool *ret_has, fm_error *reterr) {
    fm_path_kind kind;
    fm_status status = fm_path_look(path, &kind, reterr);
    if (status) return status;
    *ret_has = kind == FM_PATH_FILE;
    if (*ret_has || kind == FM_PATH_ABSENT) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_IO, path, "not a regular file");
}

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

static fm_status export_one(export_run *run, uint32_t chain, fm_error *reterr) {
    const char *name = fm_store_chain_name(run->store, chain);
    char path[PATH_BYTES];
    bool has;
    if (strchr(name, '/')) {
        return fm_fail(reterr, FM_ERR_DATA, "a chain's name with a '/' cannot name a file");
    }
    int n = snprintf(path, sizeof path, "%s/%s.%s", run->folder, name,
                     fm_array_format_name(run->options->format));
    if (n < 0 || (size_t)n >= sizeof path) {
        return fm_fail(reterr, FM_ERR_IO, "the path of %s is longer than %d bytes", name,
                       PATH_BYTES - 1);
    }
    fm_status status = has_file(path, &has, reterr);
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
        char text[FM_ERROR_SOURCE_BYTES + FM_ERROR_MESSAGE_BYTES + 64];
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
    char note[NOTE_BYTES];
    fm_status status = fm_snapshot_open(store, snapshot, arena, &chosen, reterr);
    if (!status) status = fm_dir_make(folder, reterr);
    if (status) return status;
    format_note(options, store, &chosen, note);
    status = check_note(folder, note, arena, reterr);
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
