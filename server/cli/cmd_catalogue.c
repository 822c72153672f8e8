/* cmd_catalogue.c: foldmill catalogue migrate|status|rebuild: the catalogue of shared jobs. */
#include "cache/build/catalogue_rebuild.h"
#include "server/cli/commands.h"
#include "server/cli/json_text.h"

#include "proto/base/utf8.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES ((size_t)16 << 30)

enum { N_SHOWN = 20 };

typedef struct catalog_arguments {
    const char *catalogue, *job;
    fm_option_list from;
    bool json, all;
} catalog_arguments;

/* -- migrate */

static int migrate(const catalog_arguments *arguments) {
    uint32_t n_applied, n_known;
    fm_error error;
    if (fm_catalogue_migrate(arguments->catalogue, 0, &n_applied, &n_known, &error)) {
        return fm_cli_report("foldmill catalogue migrate", &error);
    }
    if (n_applied)
        printf("schema %u: %u migrations applied\n", n_known, n_applied);
    else
        printf("schema %u: nothing to do\n", n_known);
    return FM_EXIT_OK;
}

/* -- status */

typedef struct listing {
    const catalog_arguments *arguments;
    uint32_t n; /* seen */
} listing;

/* Text that others wrote: none of it reaches a terminal as a command. */
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
        printf(", %s %.1f s\n", row->due_ms > 0 ? "for another" : "ran out before",
               (double)llabs((long long)row->due_ms) / 1e3);
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
    printf("  %u done, %u held, seen %.1f s ago, shards in ", worker->n_done, worker->n_leased,
           (double)worker->seen_ms / 1e3);
    print_text(worker->cache);
    printf("\n");
    return FM_OK;
}

static fm_status print_list(fm_catalogue *catalogue, const catalog_arguments *arguments,
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
                      "there is no job '%s'; foldmill build --catalogue begins one",
                      catalogue->options.job);
}

static fm_status print_status(fm_catalogue *catalogue, const catalog_arguments *arguments,
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
    if (counts.n_lapsed) printf(", of which the leases of %u ran out", counts.n_lapsed);
    printf("\nquarantine   %u\n", n[FM_CATALOGUE_REFUSED]);
    printf("shards       %u (%.1f MB)\n", counts.n_shard, (double)counts.shard_bytes / 1e6);
    status = fm_catalogue_each_worker(catalogue, print_worker, &workers, reterr);
    if (!status) {
        status = print_list(catalogue, arguments, FM_CATALOGUE_LEASED, "leases",
                            n[FM_CATALOGUE_LEASED], reterr);
    }
    if (!status) {
        status = print_list(catalogue, arguments, FM_CATALOGUE_REFUSED, "in quarantine",
                            n[FM_CATALOGUE_REFUSED], reterr);
    }
    return status;
}

static fm_status write_item(void *context, const fm_catalogue_row *row, fm_error *reterr) {
    listing *list = context;
    (void)reterr;
    printf("%s\n    {\"name\": ", list->n++ ? "," : "");
    fm_json_print_string(stdout, row->name);
    printf(", \"state\": \"%s\", \"attempt\": %u, \"failures\": %u, \"due_ms\": %lld, \"worker\": ",
           fm_catalogue_state_name(row->state), row->attempt, row->failures,
           (long long)row->due_ms);
    fm_json_print_string(stdout, row->worker);
    printf(", \"reason\": ");
    fm_json_print_string(stdout, row->reason);
    printf("}");
    return FM_OK;
}

static fm_status write_worker(void *context, const fm_catalogue_worker *worker, fm_error *reterr) {
    listing *list = context;
    (void)reterr;
    if (!worker->n_leased && !worker->n_done) return FM_OK;
    printf("%s\n    {\"name\": ", list->n++ ? "," : "");
    fm_json_print_string(stdout, worker->name);
    printf(", \"cache\": ");
    fm_json_print_string(stdout, worker->cache);
    printf(", \"done\": %u, \"leased\": %u, \"seen_ms_ago\": %lld}", worker->n_done,
           worker->n_leased, (long long)worker->seen_ms);
    return FM_OK;
}

static fm_status write_status(fm_catalogue *catalogue, const catalog_arguments *arguments,
                              fm_error *reterr) {
    fm_catalogue_counts counts;
    listing workers = {arguments, 0}, items = {arguments, 0};
    unsigned states = arguments->all ? ~0u : 1u << FM_CATALOGUE_LEASED | 1u << FM_CATALOGUE_REFUSED;
    fm_status status = count_job(catalogue, &counts, reterr);
    if (status) return status;
    printf("{\n  \"job\": \"%s\",\n", catalogue->options.job);
    for (int i = 0; i < FM_N_CATALOGUE_STATE; i++)
        printf("  \"%s\": %u,\n", fm_catalogue_state_name((fm_catalogue_state)i), counts.n[i]);
    printf("  \"lapsed\": %u,\n  \"shards\": %u,\n  \"shard_bytes\": %llu,\n  \"workers\": [",
           counts.n_lapsed, counts.n_shard, (unsigned long long)counts.shard_bytes);
    status = fm_catalogue_each_worker(catalogue, write_worker, &workers, reterr);
    printf("],\n  \"items\": [");
    if (!status) status = fm_catalogue_each_row(catalogue, states, write_item, &items, reterr);
    printf("]\n}\n");
    return status;
}

static int show(const catalog_arguments *arguments) {
    fm_catalogue *catalogue = NULL;
    fm_error error;
    const fm_catalogue_options options = {.job = arguments->job, .is_there = true};
    fm_status status = fm_catalogue_open(arguments->catalogue, &options, &catalogue, &error);
    if (!status) {
        status = arguments->json ? write_status(catalogue, arguments, &error)
                                 : print_status(catalogue, arguments, &error);
    }
    fm_catalogue_close(catalogue);
    return status ? fm_cli_report("foldmill catalogue status", &error) : FM_EXIT_OK;
}

/* -- rebuild */

static fm_status rebuild_opened(const catalog_arguments *arguments, const char *const *caches,
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

static int rebuild(const catalog_arguments *arguments) {
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
    if (status) return fm_cli_report("foldmill catalogue rebuild", &error);
    printf("shards       %u read", report.n_shard);
    if (report.n_damaged) printf(", %u damaged and left aside", report.n_damaged);
    printf("\ndone         %u\nquarantine   %u\n", report.n_done, report.n_refused);
    if (report.n_incomplete) printf("incomplete   %u, to be built again\n", report.n_incomplete);
    return FM_EXIT_OK;
}

/* -- */

static const char description[] =
    "The catalogue says which chains of a job are to be built, who builds them, and where the\n"
    "shards lie. WHERE is the address of a PostgreSQL database (postgresql://user@host/name) or\n"
    "the path of a file, for the workers of one machine. docs/catalogue.md says more.\n\n"
    "    migrate   brings the database's schema up to date; needs the rights of its owner\n"
    "    status    counts, workers, leases, and what is in quarantine, why; --json for programs\n"
    "    rebuild   puts down what the shards in the caches of --from have of the job, after a\n"
    "              catalogue was lost; the next worker brings the list of what is missing\n\n"
    "Exit codes: 0 done, 1 failed, 2 bad usage.";

static int run(const char *action, const catalog_arguments *arguments, const char *program) {
    fm_error error;
    fm_status status = FM_OK;
    if (!arguments->catalogue) {
        status = fm_fail(&error, FM_ERR_USAGE, "--catalogue WHERE is required");
    } else if (strcmp(action, "migrate") == 0) {
        return migrate(arguments);
    } else if (strcmp(action, "status") == 0) {
        return show(arguments);
    } else if (strcmp(action, "rebuild") == 0 && arguments->from.n) {
        return rebuild(arguments);
    } else if (strcmp(action, "rebuild") == 0) {
        status = fm_fail(&error, FM_ERR_USAGE, "--from DIR, a cache with shards, is required");
    } else {
        status = fm_fail(&error, FM_ERR_USAGE,
                         "no action '%s'; expected migrate, status or rebuild", action);
    }
    (void)status;
    return fm_cli_report(program, &error);
}

int fm_cmd_catalogue(int argc, char **argv) {
    catalog_arguments arguments = {.catalogue = NULL};
    const fm_option table[] = {
        {"catalogue", FM_OPTION_STRING, &arguments.catalogue, "WHERE",
         "the catalogue: postgresql://..., or a file (required)", .letter = 0},
        {"job", FM_OPTION_STRING, &arguments.job, "NAME", "the job; 'build' when not given",
         .letter = 0},
        {"from", FM_OPTION_LIST, &arguments.from, "DIR",
         "rebuild: a cache whose shards are read; may be given again", .letter = 0},
        {"json", FM_OPTION_FLAG, &arguments.json, NULL, "status: as one JSON object", .letter = 0},
        {"all", FM_OPTION_FLAG, &arguments.all, NULL,
         "status: all leases and all of the quarantine; with --json all items", .letter = 0},
        {0}};
    const fm_command command = {
        .program = "foldmill catalogue",
        .arguments = "migrate|status|rebuild --catalogue WHERE [options]",
        .summary = "the catalogue of shared jobs: schema, status, made anew",
        .description = description,
        .options = table,
        .min_positional = 1,
        .max_positional = 1,
    };
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    return code >= 0 ? code : run(argv[0], &arguments, command.program);
}
