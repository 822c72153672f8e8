/* cmd_merge.c: foldmill merge: makes one cache from the shards of a shared job. */
#include "cache/build/merge.h"
#include "proto/base/directory.h"
#include "proto/base/plural.h"
#include "server/cli/build_report.h"
#include "server/cli/commands.h"
#include "server/cli/open_cache.h"
#include "server/cli/progress.h"

#include <stdio.h>

#define ARENA_BYTES ((size_t)24 << 30)

static void show_progress(void *context, uint32_t done, uint32_t n) {
    (void)context;
    fm_progress_draw("shard %u of %u", done + 1, n);
}

static void print_report(const fm_merge_options *options, const fm_merge_report *report) {
    printf("shards    %u of the job (%.1f MB): %u were there, %u linked, %u copied (%.1f MB)\n",
           report->n_shard, (double)report->shard_bytes / 1e6,
           report->n_shard - report->n_linked - report->n_copied, report->n_linked,
           report->n_copied, (double)report->copied_bytes / 1e6);
    if (report->n_left) {
        printf("not done  %u item%s, which are not part of the cache\n", report->n_left,
               fm_plural(report->n_left));
    }
    fm_build_print_change(stdout, &report->build, "job");
    fm_build_print_generation(stdout, options->cache, &report->build);
}

static void print_json(const fm_merge_options *options, const fm_merge_report *report) {
    fm_json_writer json;
    fm_json_begin(&json, stdout);
    fm_build_json_generation(&json, options->cache, &report->build);
    fm_json_put_u64(&json, "shards", report->n_shard);
    fm_json_put_u64(&json, "shard_bytes", report->shard_bytes);
    fm_json_put_u64(&json, "linked", report->n_linked);
    fm_json_put_u64(&json, "copied", report->n_copied);
    fm_json_put_u64(&json, "copied_bytes", report->copied_bytes);
    fm_json_put_u64(&json, "not_done", report->n_left);
    fm_json_end(&json);
}

/* A folder that is mistyped, or not mounted, would be passed over in silence. */
static fm_status check_from(const fm_merge_options *options, fm_error *reterr) {
    for (uint32_t i = 0; i < options->n_from; i++) {
        fm_path_kind kind;
        fm_status status = fm_path_look(options->from[i], &kind, reterr);
        if (status) return status;
        if (kind == FM_PATH_FOLDER) continue;
        return fm_fail_in(reterr, FM_ERR_NOT_FOUND, options->from[i],
                          "--from: there is no such folder");
    }
    return FM_OK;
}

static int merge(const fm_merge_options *options, bool json) {
    fm_arena arena;
    fm_error error;
    fm_merge_report report;
    fm_status status = fm_arena_init(&arena, ARENA_BYTES, &error);
    if (!status) status = fm_cli_check_target("--cache", options->cache, NULL, &error);
    if (!status) status = check_from(options, &error);
    if (!status) {
        status = fm_merge_run(options, &arena, &report, &error);
        if (options->progress) fm_progress_clear();
    }
    if (!status) (json ? print_json : print_report)(options, &report);
    int code = status ? fm_program_report("foldmill merge", &error)
               : report.build.n_refused || report.n_left ? FM_EXIT_PARTIAL
                                                         : FM_EXIT_OK;
    fm_arena_fini(&arena);
    return code;
}

int fm_cmd_merge(int argc, char **argv) {
    fm_merge_options options = {.cache = NULL};
    fm_option_list from = {.n = 0};
    bool quiet = false, json = false, add = false, replace = false;
    const fm_option table[] = {
        {"catalogue", FM_OPTION_STRING, &options.where, "WHERE",
         "the catalogue: postgresql://..., or a file", .is_required = true},
        {"cache", FM_OPTION_STRING, &options.cache, "DIR", "the cache to write to",
         .is_required = true},
        {"job", FM_OPTION_STRING, &options.job, "NAME", .help = "the name of the job (build)"},
        {"from", FM_OPTION_LIST, &from, "DIR",
         .help =
             "a cache that has shards of the job, besides those that the catalogue names; may be "
             "repeated"},
        {"partial", FM_OPTION_FLAG, &options.partial, NULL,
         .help = "merge although some chains are not done"},
        {"add", FM_OPTION_FLAG, &add, NULL,
         .help = "keep the cache's chains of another dataset beside those of the job"},
        {"replace", FM_OPTION_FLAG, &replace, NULL,
         .help = "leave the cache's chains of another dataset out"},
        {"json", FM_OPTION_FLAG, &json, NULL, .help = "print one JSON object"},
        {"quiet", FM_OPTION_FLAG, &quiet, NULL, "no progress", .letter = 'q'},
        {0}};
    const fm_command command = {
        .program = "foldmill merge",
        .arguments = "--catalogue WHERE --cache DIR [--from DIR ...] [options]",
        .summary = "make one cache from the shards of a shared job",
        .description =
            "The workers of a job (foldmill build --catalogue) leave shards in their own caches.\n"
            "This command makes one generation that refers to these shards. A shard that DIR does\n"
            "not have yet comes from the folder that the catalogue records, or from a cache of\n"
            "--from. It is linked when it is on the same file system, and copied otherwise.\n"
            "Every shard is hashed before it is used. The content digest equals that of a build\n"
            "by one process. The previous generation stays in force until the new one is\n"
            "complete, and when the command fails.\n\n"
            "DIR may have chains already. Those of datasets with other names stay. DIR may have\n"
            "another dataset of the job's name, or both may have no name. Then the merge is\n"
            "refused: --add keeps DIR's chains, --replace leaves them out.\n\n"
            "--json prints one object: cache, generation, published, content, chains, complexes,\n"
            "refused, refused_by_reason {REASON: n}, refusals [{chain, reason}],\n"
            "proteins_of_complexes, proteins_without_cluster, stored_bytes, decoded_bytes, added,\n"
            "kept, left, shards, shard_bytes, linked, copied, copied_bytes, not_done.\n\n"
            "Exit codes: 0 all chains merged, 3 some are refused or, with --partial, not done, 1\n"
            "failed, 2 bad usage.\n\n"
            "Example:\n"
            "  foldmill merge --catalogue postgresql://db/foldmill --cache /fast/cache \\\n"
            "      --from /nfs/worker1 --from /nfs/worker2",
        .options = table,
    };
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    if (add && replace) {
        fm_error error;
        fm_fail(&error, FM_ERR_USAGE, "give either --add or --replace, not both");
        return fm_program_report(command.program, &error);
    }
    options.others = add       ? FM_BUILD_OTHERS_ADD
                     : replace ? FM_BUILD_OTHERS_REPLACE
                               : FM_BUILD_OTHERS_CHECK;
    options.from = from.value;
    options.n_from = from.n;
    if (!quiet && fm_progress_has_terminal()) options.progress = show_progress;
    fm_cli_survive_writes();
    return merge(&options, json);
}
