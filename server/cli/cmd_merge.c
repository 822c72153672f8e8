/* cmd_merge.c: foldmill merge: what the workers of a shared job built becomes one cache. */
#include "cache/build/merge.h"
#include "server/cli/build_report.h"
#include "server/cli/commands.h"

#include <stdio.h>
#include <unistd.h>

#define ARENA_BYTES ((size_t)24 << 30)

static void show_progress(void *context, uint32_t done, uint32_t n) {
    (void)context;
    fprintf(stderr, "\r\033[Kshard %u of %u", done + 1, n);
}

static int merge(const fm_merge_options *options) {
    fm_arena arena;
    fm_error error;
    fm_merge_report report;
    fm_status status = fm_arena_init(&arena, ARENA_BYTES, &error);
    if (!status) {
        status = fm_merge_run(options, &arena, &report, &error);
        if (options->progress) fprintf(stderr, "\r\033[K");
    }
    if (!status) {
        printf("shards    %u of the job (%.1f MB): %u were there, %u linked, %u copied (%.1f MB)\n",
               report.n_shard, (double)report.shard_bytes / 1e6,
               report.n_shard - report.n_linked - report.n_copied, report.n_linked, report.n_copied,
               (double)report.copied_bytes / 1e6);
        if (report.n_left) printf("left out  %u items that are not done\n", report.n_left);
        fm_build_print_generation(stdout, options->cache, &report.build);
    }
    int code = status                                    ? fm_cli_report("foldmill merge", &error)
               : report.build.n_refused || report.n_left ? FM_EXIT_PARTIAL
                                                         : FM_EXIT_OK;
    fm_arena_fini(&arena);
    return code;
}

int fm_cmd_merge(int argc, char **argv) {
    fm_merge_options options = {.cache = NULL};
    fm_option_list from = {.n = 0};
    bool quiet = false;
    const fm_option table[] = {
        {"catalogue", FM_OPTION_STRING, &options.where, "WHERE",
         "the catalogue: postgresql://..., or a file (required)", .letter = 0},
        {"cache", FM_OPTION_STRING, &options.cache, "DIR",
         "the cache that gets the generation (required)", .letter = 0},
        {"job", FM_OPTION_STRING, &options.job, "NAME", "the job; 'build' when not given",
         .letter = 0},
        {"from", FM_OPTION_LIST, &from, "DIR",
         "a cache that has shards of the job; may be given again. Those that the catalogue names "
         "are looked at by themselves",
         .letter = 0},
        {"partial", FM_OPTION_FLAG, &options.partial, NULL,
         "merge what is done while other chains are not", .letter = 0},
        {"quiet", FM_OPTION_FLAG, &quiet, NULL, "no progress", .letter = 'q'},
        {0}};
    const fm_command command = {
        .program = "foldmill merge",
        .arguments = "--catalogue WHERE --cache DIR [--from DIR ...] [options]",
        .summary = "make one cache of what the workers of a shared job built",
        .description =
            "Workers (foldmill build --catalogue) leave shards in caches of their own. This makes\n"
            "one generation of them that refers to the shards. A shard that does not lie in DIR\n"
            "yet is linked there when it is on the same file system, else copied: from where the\n"
            "catalogue says its worker put it, or from a cache named by --from. Each is hashed\n"
            "before anything of it is used. The content digest is that of a build by one process.\n"
            "The generation that was there stays in force until the end, and when this fails.\n\n"
            "Exit codes: 0 all chains merged, 3 some were refused or, with --partial, are not\n"
            "done, 1 failed, 2 bad usage.\n\n"
            "Example: foldmill merge --catalogue postgresql://db/foldmill --cache /fast/cache \\\n"
            "             --from /nfs/worker1 --from /nfs/worker2",
        .options = table,
    };
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_error error;
    if (!options.where || !options.cache) {
        (void)fm_fail(&error, FM_ERR_USAGE, "--catalogue WHERE and --cache DIR are required");
        return fm_cli_report(command.program, &error);
    }
    options.from = from.value;
    options.n_from = from.n;
    if (!quiet && isatty(STDERR_FILENO)) options.progress = show_progress;
    return merge(&options);
}
