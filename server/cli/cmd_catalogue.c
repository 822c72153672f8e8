/* cmd_catalogue.c: foldmill catalogue: migrates, shows or rebuilds the catalogue of shared jobs. */
#include "cache/build/catalogue_rebuild.h"
#include "server/cli/commands.h"
#include "proto/base/json_text.h"

#include "proto/base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES ((size_t)16 << 30)

enum { N_SHOWN = 20 };

typedef struct catalogue_arguments {
    const char *catalogue, *job;
    fm_option_list from;
    bool json, all;
} catalogue_arguments;

/* -- migrate */

static int migrate(const catalogue_arguments *arguments) {
    uint32_t n_applied, n_known;
    fm_error error;
    if (fm_catalogue_migrate(arguments->catalogue, 0, &n_applied, &n_known, &error)) {
        return fm_program_report("foldmill catalogue migrate", &error);
    }
    if (arguments->json) {
        fm_json_writer json;
        fm_json_begin(&json, stdout);
        fm_json_put_u64(&json, "schema", n_known);
        fm_json_put_u64(&json, "applied", n_applied);
        fm_json_end(&json);
    } else if (n_applied) {
        printf("schema %u: %u migrations applied\n", n_known, n_applied);
    } else {
        printf("schema %u: nothing to do\n", n_known);
    }
    return FM_EXIT_OK;
}

/* -- status */

static const char *state_word(fm_catalogue_state state) {
    return state == FM_CATALOGUE_REFUSED ? "refused" : fm_catalogue_state_name(state);
}

typedef struct listing {
    const catalogue_arguments *arguments;
    uint32_t n; /* seen */
} listing;

/* Prints text that other machines wrote. Control bytes are replaced, since a terminal would obey
 * them. */
static void print_text(const char *text) {
    char *plain = strdup(text);
    if (!plain) return;
    fm_utf8_make_plain(plain);
    fputs(plain, stdout);
    free(plain);
}

static fm_status print_item(void *context, const fm_catalogue_row *row, fm_error *reterr) {
    listing *list = context;
    (void)reterr;
    bool is_held = row->state == FM_CATALOGUE_LEASED;
    if (list->n++ >= N_SHOWN && !list->arguments->all) return FM_OK;
    printf("  ");
    print_text(row->name);
    printf("  ");
    if (is_held) {
        printf("attempt %u, ", row->attempt);
        print_text(row->worker);
        bool is_alive = row->due_ms > 0;
        printf(", lease %s %.1f s%s\n", is_alive ? "ends in" : "ended",
               (double)llabs((long long)row->due_ms) / 1e3, is_alive ? "" : " ago");
    } else {
        print_text(row->reason);
        printf("\n");
    }
    return FM_OK;
}

static fm_status print_worker(void *context, const fm_catalogue_worker *worker, fm_error *reterr) {
    listing *list = context;
    (void)reterr;
    if (!worker->n_leased && !worker->n_done) return FM_OK;
    if (list->n++ == 0) printf("workers\n");
    printf("  ");
    print_text(worker->name);
    printf("  %u done, %u leased, seen %.1f s ago, shards in ", worker->n_done, worker->n_leased,
           (double)worker->seen_ms / 1e3);
    print_text(worker->cache);
    printf("\n");
    return FM_OK;
}

static fm_status print_list(fm_catalogue *catalogue, const catalogue_arguments *arguments,
                            fm_catalogue_state state, const char *title, uint32_t n,
                            fm_error *reterr) {
    listing list = {arguments, 0};
    if (!n) return FM_OK;
    printf("%s\n", title);
    fm_status status = fm_catalogue_each_row(catalogue, 1u << state, print_item, &list, reterr);
    if (!status && list.n > N_SHOWN && !arguments->all) {
        printf("  and %u more (--all)\n", list.n - N_SHOWN);
    }
    return status;
}

static fm_status count_job(fm_catalogue *catalogue, fm_catalogue_counts *ret_counts,
                           fm_error *reterr) {
    fm_status status = fm_catalogue_count(catalogue, ret_counts, reterr);
    uint64_t n = 0;
    for (int i = 0; i < FM_N_CATALOGUE_STATE && !status; i++)
        n += ret_counts->n[i];
    if (status || n) return status;
    return fm_fail_in(reterr, FM_ERR_NOT_FOUND, catalogue->where,
                      "there is no job '%s'; foldmill build --catalogue starts one",
                      catalogue->options.job);
}

static fm_status print_status(fm_catalogue *catalogue, const catalogue_arguments *arguments,
                              fm_error *reterr) {
    fm_catalogue_counts counts;
    listing workers = {arguments, 0};
    fm_status status = count_job(catalogue, &counts, reterr);
    if (status) return status;
    const uint32_t *n = counts.n;
    printf("job          %s\n", catalogue->options.job);
    printf("done         %u\n", n[FM_CATALOGUE_DONE]);
    printf("waiting      %u\n", n[FM_CATALOGUE_PENDING]);
    printf("being built  %u", n[FM_CATALOGUE_LEASED]);
    if (counts.n_lapsed) printf(", %u of them with an expired lease", counts.n_lapsed);
    printf("\nrefused      %u\n", n[FM_CATALOGUE_REFUSED]);
    printf("shards       %u (%.1f MB)\n", counts.n_shard, (double)counts.shard_bytes / 1e6);
    status = fm_catalogue_each_worker(catalogue, print_worker, &workers, reterr);
    if (!status) {
        status = print_list(catalogue, arguments, FM_CATALOGUE_LEASED, "leases",
                            n[FM_CATALOGUE_LEASED], reterr);
    }
    if (!status) {
        status = print_list(catalogue, arguments, FM_CATALOGUE_REFUSED, "refused",
                            n[FM_CATALOGUE_REFUSED], reterr);
    }
    return status;
}

static fm_status write_item(void *context, const fm_catalogue_row *row, fm_error *reterr) {
    fm_json_writer *json = context;
    (void)reterr;
    fm_json_open_object(json, NULL);
    fm_json_put_string(json, "name", row->name);
    fm_json_put_string(json, "state", state_word(row->state));
    fm_json_put_u64(json, "attempt", row->attempt);
    fm_json_put_u64(json, "failures", row->failures);
    fm_json_put_i64(json, "due_ms", row->due_ms);
    fm_json_put_string(json, "worker", row->worker);
    fm_json_put_string(json, "reason", row->reason);
    fm_json_close(json);
    return FM_OK;
}

static fm_status write_worker(void *context, const fm_catalogue_worker *worker, fm_error *reterr) {
    fm_json_writer *json = context;
    (void)reterr;
    if (!worker->n_leased && !worker->n_done) return FM_OK;
    fm_json_open_object(json, NULL);
    fm_json_put_string(json, "name", worker->name);
    fm_json_put_string(json, "cache", worker->cache);
    fm_json_put_u64(json, "done", worker->n_done);
    fm_json_put_u64(json, "leased", worker->n_leased);
    fm_json_put_i64(json, "seen_ms_ago", worker->seen_ms);
    fm_json_close(json);
    return FM_OK;
}

/* Nothing is printed before the counts are read; an error after that leaves the object unfinished,
 * and the exit code says so. */
static fm_status write_status(fm_catalogue *catalogue, const catalogue_arguments *arguments,
                              fm_error *reterr) {
    fm_catalogue_counts counts;
    fm_json_writer json;
    unsigned states = arguments->all ? ~0u : 1u << FM_CATALOGUE_LEASED | 1u << FM_CATALOGUE_REFUSED;
    fm_status status = count_job(catalogue, &counts, reterr);
    if (status) return status;
    fm_json_begin(&json, stdout);
    fm_json_put_string(&json, "job", catalogue->options.job);
    for (int i = 0; i < FM_N_CATALOGUE_STATE; i++)
        fm_json_put_u64(&json, state_word((fm_catalogue_state)i), counts.n[i]);
    fm_json_put_u64(&json, "lapsed", counts.n_lapsed);
    fm_json_put_u64(&json, "shards", counts.n_shard);
    fm_json_put_u64(&json, "shard_bytes", counts.shard_bytes);
    fm_json_open_array(&json, "workers");
    status = fm_catalogue_each_worker(catalogue, write_worker, &json, reterr);
    if (status) return status;
    fm_json_close(&json);
    fm_json_open_array(&json, "items");
    status = fm_catalogue_each_row(catalogue, states, write_item, &json, reterr);
    if (status) return status;
    fm_json_close(&json);
    fm_json_end(&json);
    return FM_OK;
}

static int show(const catalogue_arguments *arguments) {
    fm_catalogue *catalogue = NULL;
    fm_error error;
    const fm_catalogue_options options = {.job = arguments->job, .is_there = true};
    fm_status status = fm_catalogue_open(arguments->catalogue, &options, &catalogue, &error);
    if (!status) {
        status = arguments->json ? write_status(catalogue, arguments, &error)
                                 : print_status(catalogue, arguments, &error);
    }
    fm_catalogue_close(catalogue);
    return status ? fm_program_report("foldmill catalogue status", &error) : FM_EXIT_OK;
}

/* -- rebuild */

static fm_status rebuild_opened(const catalogue_arguments *arguments, const char *const *caches,
                                fm_arena *arena, fm_rebuild_report *report, fm_error *reterr) {
    fm_catalogue *catalogue = NULL;
    const fm_catalogue_options options = {
        .job = arguments->job, .worker = "foldmill catalogue rebuild", .cache = ""};
    fm_status status = fm_catalogue_open(arguments->catalogue, &options, &catalogue, reterr);
    if (!status) {
        status = fm_catalogue_rebuild(catalogue, caches, arguments->from.n, arena, report, reterr);
    }
    fm_catalogue_close(catalogue);
    return status;
}

static void print_rebuilt(const fm_rebuild_report *report) {
    printf("shards       %u read", report->n_shard);
    if (report->n_damaged) printf(", %u damaged and ignored", report->n_damaged);
    printf("\ndone         %u\nrefused      %u\n", report->n_done, report->n_refused);
    if (report->n_incomplete) printf("incomplete   %u, to be built again\n", report->n_incomplete);
}

static void write_rebuilt(const fm_rebuild_report *report) {
    fm_json_writer json;
    fm_json_begin(&json, stdout);
    fm_json_put_u64(&json, "shards", report->n_shard);
    fm_json_put_u64(&json, "damaged", report->n_damaged);
    fm_json_put_u64(&json, "done", report->n_done);
    fm_json_put_u64(&json, "refused", report->n_refused);
    fm_json_put_u64(&json, "incomplete", report->n_incomplete);
    fm_json_end(&json);
}

static int rebuild(const catalogue_arguments *arguments) {
    char *caches[FM_OPTION_LIST_MAX] = {0};
    fm_arena arena;
    fm_error error;
    fm_rebuild_report report = {0};
    fm_status status = fm_arena_init(&arena, ARENA_BYTES, &error);
    for (uint32_t i = 0; i < arguments->from.n && !status; i++) {
        caches[i] = realpath(arguments->from.value[i], NULL);
        if (!caches[i]) {
            status = fm_fail_in(&error, FM_ERR_NOT_FOUND, arguments->from.value[i],
                                "there is no such folder");
        }
    }
    if (!status) {
        status = rebuild_opened(arguments, (const char *const *)caches, &arena, &report, &error);
    }
    for (uint32_t i = 0; i < arguments->from.n; i++)
        free(caches[i]);
    fm_arena_fini(&arena);
    if (status) return fm_program_report("foldmill catalogue rebuild", &error);
    (arguments->json ? write_rebuilt : print_rebuilt)(&report);
    return FM_EXIT_OK;
}

/* -- the command */

static const char description[] =
    "The catalogue of a job records which chains are to be built, which worker builds each, and\n"
    "which shards hold the results. WHERE is the address of a PostgreSQL database\n"
    "(postgresql://user@host/name), or the path of a file for the workers of one machine.\n"
    "docs/reference/catalogue.md explains it.\n\n"
    "  migrate   updates the schema of the database; needs the rights of its owner\n"
    "  status    shows counts, workers, leases, and the refused chains with their reasons\n"
    "  rebuild   restores a lost catalogue from the shards in the caches of --from;\n"
    "            the next worker adds the chains that are missing\n\n"
    "status --json prints one object: job, pending, leased, done, refused, lapsed, shards,\n"
    "shard_bytes, workers [{name, cache, done, leased, seen_ms_ago}], items [{name, state,\n"
    "attempt, failures, due_ms, worker, reason}]. rebuild --json: shards, damaged, done,\n"
    "refused, incomplete. migrate --json: schema, applied.\n\n"
    "Exit codes: 0 done, 1 failed, 2 bad usage.";

static int fail_usage(const char *program, const char *action) {
    static const char *const actions[] = {"migrate", "status", "rebuild"};
    fm_error error;
    const char *nearest = fm_options_nearest(action, actions, 3);
    if (nearest) {
        (void)fm_fail(&error, FM_ERR_USAGE, "no action '%s'; did you mean '%s'?", action, nearest);
    } else {
        (void)fm_fail(&error, FM_ERR_USAGE, "no action '%s'; expected migrate, status or rebuild",
                      action);
    }
    return fm_program_report(program, &error);
}

static int run(const char *action, const catalogue_arguments *arguments, const char *program) {
    fm_error error;
    const bool migrates = strcmp(action, "migrate") == 0, shows = strcmp(action, "status") == 0;
    const bool rebuilds = strcmp(action, "rebuild") == 0;
    if (!migrates && !shows && !rebuilds) return fail_usage(program, action);
    if (arguments->from.n && !rebuilds) {
        (void)fm_fail(&error, FM_ERR_USAGE, "--from is for rebuild; %s reads no cache", action);
    } else if (arguments->all && !shows) {
        (void)fm_fail(&error, FM_ERR_USAGE, "--all is for status");
    } else if (arguments->job && migrates) {
        (void)fm_fail(&error, FM_ERR_USAGE, "migrate is for all jobs: leave --job out");
    } else if (!arguments->from.n && rebuilds) {
        (void)fm_fail(&error, FM_ERR_USAGE,
                      "rebuild needs --from DIR, a cache with shards of the job");
    } else {
        return (migrates ? migrate : shows ? show : rebuild)(arguments);
    }
    return fm_program_report(program, &error);
}

int fm_cmd_catalogue(int argc, char **argv) {
    catalogue_arguments arguments = {.catalogue = NULL};
    const fm_option table[] = {
        {"catalogue", FM_OPTION_STRING, &arguments.catalogue, "WHERE",
         "the catalogue: postgresql://..., or a file", .is_required = true},
        {"job", FM_OPTION_STRING, &arguments.job, "NAME", .help = "the name of the job (build)"},
        {"from", FM_OPTION_LIST, &arguments.from, "DIR",
         .help = "rebuild: a cache whose shards are read; may be repeated"},
        {"json", FM_OPTION_FLAG, &arguments.json, NULL, .help = "print one JSON object"},
        {"all", FM_OPTION_FLAG, &arguments.all, NULL,
         .help = "status: list all leases and all refused chains; with --json, all items"},
        {0}};
    const fm_command command = {
        .program = "foldmill catalogue",
        .arguments = "migrate|status|rebuild --catalogue WHERE [options]",
        .summary = "migrate, show or rebuild the catalogue of shared jobs",
        .description = description,
        .options = table,
        .min_positional = 1,
        .max_positional = 1,
    };
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    return code >= 0 ? code : run(argv[0], &arguments, command.program);
}
