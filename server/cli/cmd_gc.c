/* cmd_gc.c: foldmill gc: removes what no generation that is kept names. */
#include "cache/snapshot/gc.h"
#include "server/cli/commands.h"

#include <stdio.h>

#define ARENA_BYTES ((size_t)24 << 30)

static fm_status collect(const char *cache, const fm_gc_options *options, fm_error *reterr) {
    fm_arena arena;
    fm_gc_report report;
    fm_status status = fm_arena_init(&arena, ARENA_BYTES, reterr);
    if (status) return status;
    status = fm_gc_run(cache, options, &arena, &report, reterr);
    fm_arena_fini(&arena);
    if (status) return status;
    const char *removed = options->dry_run ? "to remove" : "removed";
    printf("generations  %u kept, %u %s\n", report.n_generation_kept, report.n_generation_removed,
           removed);
    printf("shards       %u kept (%.1f MB), %u %s (%.1f MB)\n", report.n_shard_kept,
           (double)report.kept_bytes / 1e6, report.n_shard_removed, removed,
           (double)report.removed_bytes / 1e6);
    return FM_OK;
}

int fm_cmd_gc(int argc, char **argv) {
    const char *cache = NULL;
    bool dry_run = false;
    uint64_t keep = 0;
    const fm_option table[] = {
        {"cache", FM_OPTION_STRING, &cache, "DIR", "the cache to clean (required)", .letter = 0},
        {"keep", FM_OPTION_U64, &keep, "N",
         "also keep the N newest generations besides the current one; 0 when not given", .min = 0,
         .max = 1000000},
        {"dry-run", FM_OPTION_FLAG, &dry_run, NULL, "say what would go; remove nothing",
         .letter = 'n'},
        {0}};
    const fm_command command = {
        .program = "foldmill gc",
        .arguments = "--cache DIR [--keep N] [--dry-run]",
        .summary = "remove generations and shards that nothing names",
        .description =
            "Keeps the current generation, those that pinned snapshots need (foldmill snapshot\n"
            "pin), and every shard they name; removes older generations and all other shards,\n"
            "those of a killed build among them. Whoever has a generation open reads it to its\n"
            "end. Not while a build runs.\n\n"
            "Exit codes: 0 done, 1 failed, 2 bad usage.",
        .options = table,
    };
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_error error;
    const fm_gc_options options = {.keep_newest = (uint32_t)keep, .dry_run = dry_run};
    fm_status status = cache ? collect(cache, &options, &error)
                             : fm_fail(&error, FM_ERR_USAGE, "--cache DIR is required");
    return status ? fm_cli_report(command.program, &error) : FM_EXIT_OK;
}
