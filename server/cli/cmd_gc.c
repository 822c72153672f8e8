/* cmd_gc.c: foldmill gc: removes the files that no remaining generation refers to. */
#include "cache/snapshot/gc.h"
#include "server/cli/commands.h"
#include "proto/base/json_text.h"
#include "server/cli/open_cache.h"

#include <stdio.h>

#define ARENA_BYTES ((size_t)24 << 30)

static void print_report(const fm_gc_options *options, const fm_gc_report *report) {
    const char *removed = options->dry_run ? "to remove" : "removed";
    printf("generations  %u kept", report->n_generation_kept);
    if (report->n_generation_held) printf(" (%u in use by a server)", report->n_generation_held);
    printf(", %u %s\n", report->n_generation_removed, removed);
    printf("shards       %u kept (%.1f MB), %u %s (%.1f MB)\n", report->n_shard_kept,
           (double)report->kept_bytes / 1e6, report->n_shard_removed, removed,
           (double)report->removed_bytes / 1e6);
}

static void print_json(const fm_gc_options *options, const fm_gc_report *report) {
    fm_json_writer json;
    fm_json_begin(&json, stdout);
    fm_json_put_bool(&json, "dry_run", options->dry_run);
    fm_json_put_u64(&json, "generations_kept", report->n_generation_kept);
    fm_json_put_u64(&json, "generations_removed", report->n_generation_removed);
    fm_json_put_u64(&json, "generations_in_use", report->n_generation_held);
    fm_json_put_u64(&json, "shards_kept", report->n_shard_kept);
    fm_json_put_u64(&json, "shards_removed", report->n_shard_removed);
    fm_json_put_u64(&json, "kept_bytes", report->kept_bytes);
    fm_json_put_u64(&json, "removed_bytes", report->removed_bytes);
    fm_json_end(&json);
}

static fm_status collect(const char *cache, const fm_gc_options *options, bool json,
                         fm_error *reterr) {
    fm_arena arena;
    fm_gc_report report;
    fm_status status = fm_arena_init(&arena, ARENA_BYTES, reterr);
    if (status) return status;
    status = fm_gc_run(cache, options, &arena, &report, reterr);
    fm_arena_fini(&arena);
    if (status) return fm_cli_explain_cache(cache, status, reterr);
    (json ? print_json : print_report)(options, &report);
    return FM_OK;
}

int fm_cmd_gc(int argc, char **argv) {
    const char *cache = NULL;
    bool dry_run = false, json = false;
    uint64_t keep = 0;
    const fm_option table[] = {
        {"cache", FM_OPTION_STRING, &cache, "DIR", "the cache to clean", .is_required = true},
        {"keep", FM_OPTION_U64, &keep, "N",
         "also keep the N newest generations besides the current one (0)", .min = 0,
         .max = 1000000},
        {"dry-run", FM_OPTION_FLAG, &dry_run, NULL,
         "show what would be removed, and remove nothing", .letter = 'n'},
        {"json", FM_OPTION_FLAG, &json, NULL, .help = "print one JSON object"},
        {0}};
    const fm_command command = {
        .program = "foldmill gc",
        .arguments = "--cache DIR [--keep N] [--dry-run] [--json]",
        .summary = "remove generations and shards that nothing refers to",
        .description =
            "Keeps the current generation, the generations that pinned snapshots need (foldmill\n"
            "snapshot pin), and every shard that these refer to. Removes older generations and\n"
            "all other shards, including those of a killed build. Generations that a server on\n"
            "this machine reads are kept until it is done with them; a server elsewhere can still\n"
            "read its own to the end. The command fails while a build runs.\n\n"
            "--json prints one object: dry_run, generations_kept, generations_removed,\n"
            "generations_in_use (of the kept ones), shards_kept, shards_removed, kept_bytes,\n"
            "removed_bytes.\n\n"
            "Exit codes: 0 done, 1 failed, 2 bad usage.",
        .options = table,
    };
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_error error;
    const fm_gc_options options = {.keep_newest = (uint32_t)keep, .dry_run = dry_run};
    fm_status status = collect(cache, &options, json, &error);
    return status ? fm_program_report(command.program, &error) : FM_EXIT_OK;
}
