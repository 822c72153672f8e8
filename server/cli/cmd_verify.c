/* cmd_verify.c: foldmill verify: a full check of a cache. */
#include "cache/store/store.h"
#include "proto/base/histogram.h"
#include "server/cli/commands.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Address space for one chain at a time. */
#define ARENA_BYTES ((size_t)16 << 30)
/* How often the line for people is drawn anew. */
#define SHOW_NS 200000000u

/* The line for people at a terminal. */
typedef struct verify_line {
    uint64_t start_ns, shown_ns;
} verify_line;

static void show(void *context, uint64_t done_bytes, uint64_t all_bytes) {
    verify_line *line = context;
    uint64_t now = fm_clock_ns();
    if (now - line->shown_ns < SHOW_NS || !done_bytes) return;
    line->shown_ns = now;
    double seconds = (double)(now - line->start_ns) * 1e-9, done = (double)done_bytes;
    unsigned long left = (unsigned long)(seconds * ((double)all_bytes - done) / done + 0.5);
    fprintf(stderr, "\r\033[K%3.0f %%  %.1f of %.1f MB  %.1f MB/s  ETA %lu:%02lu:%02lu",
            100.0 * done / (double)all_bytes, done / 1e6, (double)all_bytes / 1e6,
            done / 1e6 / seconds, left / 3600, left / 60 % 60, left % 60);
    fflush(stderr);
}

static void print_check(const fm_store_info *info, const fm_store_check *check) {
    char hex[FM_SHA256_HEX];
    fm_sha256_format(&info->content, hex);
    printf("generation: %llu\n", (unsigned long long)info->generation);
    printf("chains: %u\n", check->n_chain);
    printf("refused: %u\n", info->n_refused);
    printf("parts: %u, %.1f MB decoded\n", check->n_blob, (double)check->decoded_bytes / 1e6);
    printf("shards: %u, %.1f MB\n", check->n_shard, (double)check->stored_bytes / 1e6);
    printf("content: %s\n", hex);
}

static fm_status verify(const char *path, fm_error *reterr) {
    fm_arena arena;
    fm_store *store;
    fm_store_check check;
    fm_status status = fm_store_open(path, &store, reterr);
    if (status) return status;
    status = fm_arena_init(&arena, ARENA_BYTES, reterr);
    if (!status) {
        verify_line line = {.start_ns = fm_clock_ns(), .shown_ns = fm_clock_ns()};
        const fm_store_watch watch = {&line, show};
        bool terminal = isatty(STDERR_FILENO) == 1;
        status = fm_store_verify(store, terminal ? &watch : NULL, &arena, &check, reterr);
        if (terminal) fprintf(stderr, "\r\033[K");
        fm_arena_fini(&arena);
    }
    if (!status) print_check(fm_store_get_info(store), &check);
    fm_store_close(store);
    return status;
}

int fm_cmd_verify(int argc, char **argv) {
    const char *cache = NULL;
    const fm_option options[] = {
        {"cache", FM_OPTION_STRING, &cache, "DIR", "the cache to check (required)", .letter = 0},
        {0}};
    const fm_command command = {
        .program = "foldmill verify",
        .arguments = "--cache DIR",
        .summary = "check every byte of a cache",
        .description =
            "Reads every shard and checks its SHA-256, then every entry in it, every part of "
            "every\n"
            "chain (content hash, encoding, the profile against the rows), the chains' parts\n"
            "against each other, the manifest against the shards, the notes and refusals of the\n"
            "build and the snapshot 'all'. Prints counts and the content digest: two caches with\n"
            "the same digest hold the same chains with the same features, however and wherever\n"
            "they were built.\n\n"
            "A damaged cache is mended by foldmill build: remove the shard that is named here, or\n"
            "CURRENT where another file is, and build again. What is whole is reused.\n\n"
            "Exit codes: 0 whole, 1 damaged (says what and where) or not readable, 2 bad usage.",
        .options = options,
    };
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_error error;
    fm_status status =
        cache ? verify(cache, &error) : fm_fail(&error, FM_ERR_USAGE, "--cache DIR is required");
    if (!status) return FM_EXIT_OK;
    code = fm_cli_report(command.program, &error);
    if (status == FM_ERR_CORRUPT) {
        bool shard = strstr(error.source, "/shards/");
        fprintf(stderr, "%s: to mend it, remove %s%s and run foldmill build again\n",
                command.program, shard ? error.source : cache, shard ? "" : "/CURRENT");
    }
    return code;
}
