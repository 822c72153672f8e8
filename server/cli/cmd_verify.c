/* cmd_verify.c: foldmill verify: checks every byte of a cache. */
#include "proto/base/directory.h"
#include "proto/base/histogram.h"
#include "server/cli/commands.h"
#include "proto/base/json_text.h"
#include "server/cli/open_cache.h"
#include "server/cli/progress.h"

#include <stdio.h>
#include <string.h>

/* Address space for one chain at a time. */
#define ARENA_BYTES ((size_t)16 << 30)
/* How often the progress line is drawn. */
#define SHOW_NS 200000000u

/* When the progress line began and when it was drawn last. */
typedef struct verify_line {
    uint64_t start_ns, shown_ns;
} verify_line;

static void show(void *context, uint64_t done_bytes, uint64_t all_bytes) {
    verify_line *line = context;
    uint64_t now = fm_clock_ns();
    if (now - line->shown_ns < SHOW_NS || !done_bytes) return;
    line->shown_ns = now;
    double seconds = (double)(now - line->start_ns) * 1e-9, done = (double)done_bytes;
    char eta[32];
    fm_progress_draw("%3.0f %%  %.1f of %.1f MB  %.1f MB/s  ETA %s",
                     100.0 * done / (double)all_bytes, done / 1e6, (double)all_bytes / 1e6,
                     done / 1e6 / seconds,
                     fm_progress_format_eta(seconds, done / (double)all_bytes, eta));
}

static void print_check(const fm_store_info *info, const fm_store_check *check) {
    char hex[FM_SHA256_HEX];
    fm_sha256_format(&info->content, hex);
    printf("generation: %llu\n", (unsigned long long)info->generation);
    printf("chains: %u\n", check->n_chain - info->n_complex);
    if (info->n_complex) printf("complexes: %u\n", info->n_complex);
    printf("refused: %u\n", info->n_refused);
    printf("parts: %u, %.1f MB decoded\n", check->n_blob, (double)check->decoded_bytes / 1e6);
    printf("shards: %u, %.1f MB\n", check->n_shard, (double)check->stored_bytes / 1e6);
    printf("content: %s\n", hex);
}

static void print_json(const fm_store_info *info, const fm_store_check *check) {
    fm_json_writer json;
    fm_json_begin(&json, stdout);
    fm_json_put_u64(&json, "generation", info->generation);
    fm_json_put_hash(&json, "content", &info->content);
    fm_json_put_u64(&json, "chains", check->n_chain - info->n_complex);
    fm_json_put_u64(&json, "complexes", info->n_complex);
    fm_json_put_u64(&json, "refused", info->n_refused);
    fm_json_put_u64(&json, "parts", check->n_blob);
    fm_json_put_u64(&json, "decoded_bytes", check->decoded_bytes);
    fm_json_put_u64(&json, "shards", check->n_shard);
    fm_json_put_u64(&json, "shard_bytes", check->stored_bytes);
    fm_json_end(&json);
}

static fm_status verify(const char *path, bool json, fm_error *reterr) {
    fm_arena arena;
    fm_store *store;
    fm_store_check check;
    fm_status status = fm_cli_open_store(path, &store, reterr);
    if (status) return status;
    status = fm_arena_init(&arena, ARENA_BYTES, reterr);
    if (!status) {
        verify_line line = {.start_ns = fm_clock_ns(), .shown_ns = fm_clock_ns()};
        const fm_store_watch watch = {&line, show};
        bool terminal = fm_progress_has_terminal();
        status = fm_store_verify(store, terminal ? &watch : NULL, &arena, &check, reterr);
        if (terminal) fm_progress_clear();
        fm_arena_fini(&arena);
    }
    if (!status) (json ? print_json : print_check)(fm_store_get_info(store), &check);
    fm_store_close(store);
    return status;
}

int fm_cmd_verify(int argc, char **argv) {
    const char *cache = NULL;
    bool json = false;
    const fm_option options[] = {
        {"cache", FM_OPTION_STRING, &cache, "DIR", "the cache to check", .is_required = true},
        {"json", FM_OPTION_FLAG, &json, NULL, .help = "print one JSON object"},
        {0}};
    const fm_command command = {
        .program = "foldmill verify",
        .arguments = "--cache DIR [--json]",
        .summary = "check every byte of a cache",
        .description =
            "Reads every shard and checks its SHA-256, and then every entry in it. Of each chain\n"
            "it checks every part (content hash, encoding, the profile against the rows of the\n"
            "MSA), and the parts against each other. It also checks the manifest against the\n"
            "shards, the notes and refusals of the build, and the snapshot 'all'. It prints\n"
            "counts and the content digest. Two caches with the same digest hold the same chains\n"
            "with the same features, however and wherever they were built.\n\n"
            "foldmill build mends a damaged cache. Remove the shard that this command names, or\n"
            "CURRENT where it names another file, and build again. Intact shards are reused.\n\n"
            "--json prints one object: generation, content, chains, complexes, refused,\n"
            "parts, decoded_bytes, shards, shard_bytes.\n\n"
            "Exit codes: 0 whole, 1 damaged (with what and where) or not readable, 2 bad usage.",
        .options = options,
    };
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_error error;
    fm_status status = verify(cache, json, &error);
    if (!status) return FM_EXIT_OK;
    code = fm_program_report(command.program, &error);
    if (status == FM_ERR_CORRUPT) {
        bool is_shard = strstr(error.source, "/shards/");
        fm_path_kind kind;
        bool is_absent =
            is_shard && !fm_path_look(error.source, &kind, NULL) && kind == FM_PATH_ABSENT;
        if (is_absent) {
            fprintf(stderr, "%s: to mend it, run foldmill build again\n", command.program);
        } else {
            fprintf(stderr, "%s: to mend it, remove %s%s and run foldmill build again\n",
                    command.program, is_shard ? error.source : cache, is_shard ? "" : "/CURRENT");
        }
    }
    return code;
}
