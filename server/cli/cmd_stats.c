/* cmd_stats.c: foldmill stats: shows the lengths, depths, sizes and refusals of a cache as text
 * histograms, as one JSON object, or as a picture.
 *
 * The numbers are gathered first and then printed in one of these forms. */
#include "proto/base/plural.h"
#include "proto/base/svg.h"
#include "server/cli/commands.h"
#include "server/cli/inspect_json.h"
#include "server/cli/open_cache.h"
#include "server/cli/output_note.h"
#include "server/cli/stats_svg.h"
#include "server/cli/template_counts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ARENA_BYTES ((size_t)16 << 30)

enum { BAR_CELLS = 50, SEQUENCE_HEADER_BYTES = 64, N_REASON = 10, REASON_BYTES = 96 };

/* Prints one line per power of two; octave b holds the values of b bits. */
static void print_powers(const fm_stats_histogram *values) {
    uint64_t most = 1;
    int first = FM_STATS_N_OCTAVE, last = 0;
    for (int b = 0; b < FM_STATS_N_OCTAVE; b++) {
        if (!values->n[b]) continue;
        if (first > b) first = b;
        last = b;
        if (values->n[b] > most) most = values->n[b];
    }
    if (!values->n_value) return;
    printf("\n%s: %llu chain%s, %llu to %llu %s, mean %.1f\n", values->title,
           (unsigned long long)values->n_value, fm_plural(values->n_value),
           (unsigned long long)values->min, (unsigned long long)values->max, values->unit,
           (double)values->sum / (double)values->n_value);
    for (int b = first; b <= last; b++) {
        unsigned long long low = b ? 1ull << (b - 1) : 0, high = b ? (1ull << b) - 1 : 0;
        int cells = (int)((values->n[b] * BAR_CELLS + most - 1) / most);
        printf("%10llu .. %-10llu %9llu ", low, high, (unsigned long long)values->n[b]);
        for (int i = 0; i < cells; i++)
            putchar('#');
        putchar('\n');
    }
}

enum { LENGTHS, DEPTHS, BYTES, N_HISTOGRAM };

typedef struct reason_count {
    char text[REASON_BYTES];
    uint32_t n;
} reason_count;

/* All numbers of a cache. */
typedef struct stats {
    fm_stats_histogram histogram[N_HISTOGRAM];
    uint64_t stored[FM_PART_KIND_MAX], decoded[FM_PART_KIND_MAX]; /* bytes, by kind - 1 */
    uint32_t n_part[FM_PART_KIND_MAX];                            /* chains that have the part */
    fm_template_counts templates;
    uint32_t n_refused, n_reason;
    reason_count *reason; /* [n_reason] the most frequent first */
} stats;

/* -- parts */

static void count_parts(const fm_store *store, stats *all) {
    uint32_t n_chain = fm_store_get_info(store)->n_chain;
    for (uint32_t chain = 0; chain < n_chain; chain++) {
        uint64_t sum = 0;
        for (int k = 1; k <= FM_PART_KIND_MAX; k++) {
            fm_store_part part;
            if (!fm_store_get_part(store, chain, (fm_part_kind)k, &part)) continue;
            all->n_part[k - 1]++;
            all->stored[k - 1] += part.stored_bytes;
            all->decoded[k - 1] += part.decoded_bytes;
            sum += part.stored_bytes;
            if (k == FM_PART_SEQUENCE) {
                fm_stats_add(&all->histogram[LENGTHS], part.decoded_bytes - SEQUENCE_HEADER_BYTES);
            }
        }
        /* The rows of a complex are not in its slots, so that this sum would mislead. */
        if (fm_store_item_kind(store, chain) == FM_STORED_COMPLEX) continue;
        fm_stats_add(&all->histogram[BYTES], sum);
    }
}

static void print_parts(const stats *all) {
    printf("\n%-10s %10s %14s %14s %8s\n", "part", "chains", "stored/chain", "decoded/chain",
           "ratio");
    for (int k = 0; k < FM_PART_KIND_MAX; k++) {
        uint32_t n = all->n_part[k];
        if (!n) continue;
        printf("%-10s %10u %14.0f %14.0f %8.2f\n", fm_part_name((fm_part_kind)(k + 1)), n,
               (double)all->stored[k] / n, (double)all->decoded[k] / n,
               (double)all->decoded[k] / (double)(all->stored[k] ? all->stored[k] : 1));
    }
}

/* The depth of an alignment is stored in its MSA, which must be read. At most `sample` chains are
 * read, evenly spaced; 0 reads all. */
static fm_status count_depths(const fm_store *store, uint64_t sample, stats *all, fm_arena *arena,
                              fm_error *reterr) {
    uint32_t n_chain = fm_store_get_info(store)->n_chain;
    uint64_t n = sample && sample < n_chain ? sample : n_chain;
    for (uint64_t i = 0; i < n; i++) {
        fm_record record;
        uint32_t chain = (uint32_t)(i * n_chain / n);
        if (fm_store_item_kind(store, chain) == FM_STORED_COMPLEX) continue;
        fm_arena_reset(arena);
        fm_status status = fm_store_load(store, chain, arena, &record, reterr);
        if (status) return status;
        if (record.msa) fm_stats_add(&all->histogram[DEPTHS], record.msa->n_seq);
    }
    return FM_OK;
}

/* Chains whose alignment is the query alone: the octave of values of one bit holds 1 and nothing
 * else. */
static uint64_t count_alone(const stats *all) {
    return all->histogram[DEPTHS].n[1];
}

static void print_alone(const stats *all) {
    uint64_t n = count_alone(all);
    if (!n) return;
    printf("%llu of %llu chains %s no row beside the query, as chains without alignments\n",
           (unsigned long long)n, (unsigned long long)all->histogram[DEPTHS].n_value,
           n == 1 ? "has" : "have");
}

/* -- refusals */

/* The sentence without its place and with N for numbers, so that refusals of one kind are equal. */
static void squeeze(const char *reason, char out[REASON_BYTES]) {
    const char *place = strstr(reason, ": ");
    const char *sentence = place ? place + 2 : reason;
    size_t at = 0;
    for (; *sentence && at + 2 < REASON_BYTES; sentence++) {
        bool digit = *sentence >= '0' && *sentence <= '9';
        if (digit && at && out[at - 1] == 'N') continue;
        out[at++] = digit ? 'N' : *sentence;
    }
    out[at] = '\0';
}

static int compare_texts(const void *a, const void *b) {
    return strcmp(((const reason_count *)a)->text, ((const reason_count *)b)->text);
}

static int compare_counts(const void *left, const void *right) {
    const reason_count *a = left, *b = right;
    if (a->n != b->n) return a->n > b->n ? -1 : 1;
    return strcmp(a->text, b->text);
}

/* Reads the refusals and counts equal reasons. The counts stay in the arena. */
static fm_status count_refusals(const char *cache, stats *all, fm_arena *arena, fm_error *reterr) {
    fm_refusals refusals;
    fm_arena_reset(arena);
    fm_status status = fm_refusals_read(cache, arena, &refusals, reterr);
    if (status) return status;
    reason_count *reason = fm_arena_alloc_array(arena, refusals.n, sizeof *reason);
    if (!reason) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < refusals.n; i++) {
        squeeze(refusals.refusal[i].reason, reason[i].text);
        reason[i].n = 1;
    }
    uint32_t kept = 0;
    if (refusals.n) qsort(reason, refusals.n, sizeof *reason, compare_texts);
    for (uint32_t i = 0; i < refusals.n; i++) {
        if (kept && strcmp(reason[i].text, reason[kept - 1].text) == 0) {
            reason[kept - 1].n++;
        } else {
            reason[kept++] = reason[i];
        }
    }
    if (kept) qsort(reason, kept, sizeof *reason, compare_counts);
    all->n_refused = refusals.n;
    all->n_reason = kept;
    all->reason = reason;
    return FM_OK;
}

static void print_refusals(const stats *all) {
    printf("\nrefused: %u chain%s\n", all->n_refused, fm_plural(all->n_refused));
    for (uint32_t i = 0; i < all->n_reason && i < N_REASON; i++)
        printf("%10u  %s\n", all->reason[i].n, all->reason[i].text);
    if (all->n_reason > N_REASON) printf("and %u other reasons\n", all->n_reason - N_REASON);
}

/* -- forms */

static void print_text(const fm_store_info *info, const stats *all) {
    const uint32_t n_chain = info->n_chain - info->n_complex;
    printf("generation %llu: %u chain%s, ", (unsigned long long)info->generation, n_chain,
           fm_plural(n_chain));
    if (info->n_complex) {
        printf("%u complex%s, ", info->n_complex, info->n_complex == 1 ? "" : "es");
    }
    printf("%u refused; %u shard%s, %.1f MB on disk\n", info->n_refused, info->n_shard,
           fm_plural(info->n_shard), (double)info->stored_bytes / 1e6);
    print_parts(all);
    print_powers(&all->histogram[LENGTHS]);
    print_powers(&all->histogram[BYTES]);
    print_powers(&all->histogram[DEPTHS]);
    print_alone(all);
    printf("\n");
    fm_template_print(stdout, &all->templates);
    print_refusals(all);
}

/* {"chains", "unit", "min", "max", "mean", "counts": [{"from", "to", "chains"}]} */
static void write_histogram(fm_json_writer *json, const char *key,
                            const fm_stats_histogram *values) {
    fm_json_open_object(json, key);
    fm_json_put_u64(json, "chains", values->n_value);
    fm_json_put_string(json, "unit", values->unit);
    fm_json_put_u64(json, "min", values->min);
    fm_json_put_u64(json, "max", values->max);
    fm_json_put_f64(json, "mean", (double)values->sum / (double)values->n_value, 3);
    fm_json_open_array(json, "counts");
    for (int b = 0; b < FM_STATS_N_OCTAVE; b++) {
        if (!values->n[b]) continue;
        fm_json_open_object(json, NULL);
        fm_json_put_u64(json, "from", b ? UINT64_C(1) << (b - 1) : 0);
        fm_json_put_u64(json, "to", b ? (UINT64_C(1) << b) - 1 : 0);
        fm_json_put_u64(json, "chains", values->n[b]);
        fm_json_close(json);
    }
    fm_json_close(json);
    fm_json_close(json);
}

static void write_json(const fm_store *store, const stats *all) {
    fm_json_writer json;
    fm_json_begin(&json, stdout);
    fm_inspect_json_info(&json, fm_store_get_info(store));
    fm_inspect_json_parts(&json, store);
    write_histogram(&json, "lengths", &all->histogram[LENGTHS]);
    write_histogram(&json, "stored", &all->histogram[BYTES]);
    write_histogram(&json, "depths", &all->histogram[DEPTHS]);
    fm_json_put_u64(&json, "query_alone", count_alone(all));
    fm_template_json(&json, &all->templates);
    fm_json_open_array(&json, "reasons");
    for (uint32_t i = 0; i < all->n_reason; i++) {
        fm_json_open_object(&json, NULL);
        fm_json_put_string(&json, "reason", all->reason[i].text);
        fm_json_put_u64(&json, "chains", all->reason[i].n);
        fm_json_close(&json);
    }
    fm_json_close(&json);
    fm_json_end(&json);
}

static fm_status write_picture(const char *path, const fm_store_info *info, const stats *all,
                               fm_error *reterr) {
    char hex[FM_SHA256_HEX], title[64], subtitle[200];
    fm_stats_part part[FM_PART_KIND_MAX];
    int n_part = 0;
    for (int k = 0; k < FM_PART_KIND_MAX; k++) {
        if (!all->n_part[k]) continue;
        part[n_part++] = (fm_stats_part){fm_part_name((fm_part_kind)(k + 1)),
                                         (double)all->stored[k] / all->n_part[k]};
    }
    fm_sha256_format(&info->content, hex);
    const uint32_t n_chain = info->n_chain - info->n_complex;
    int n = snprintf(title, sizeof title, "A cache of %u chain%s", n_chain, fm_plural(n_chain));
    if (info->n_complex) {
        snprintf(title + n, sizeof title - (size_t)n, " and %u complex%s", info->n_complex,
                 info->n_complex == 1 ? "" : "es");
    }
    snprintf(subtitle, sizeof subtitle,
             "generation %llu, content %.16s, %u chain%s refused, %.1f MB on disk in %u shard%s",
             (unsigned long long)info->generation, hex, info->n_refused, fm_plural(info->n_refused),
             (double)info->stored_bytes / 1e6, info->n_shard, fm_plural(info->n_shard));
    const fm_stats_picture picture = {.title = title,
                                      .subtitle = subtitle,
                                      .histogram = all->histogram,
                                      .n_histogram = N_HISTOGRAM,
                                      .part = part,
                                      .n_part = n_part};
    return fm_stats_write_svg(path, &picture, reterr);
}

/* -- the command */

typedef struct stats_arguments {
    const char *cache, *svg;
    uint64_t sample;
    bool json;
} stats_arguments;

/* Another ending would be a file that its reader takes for something else. */
static fm_status check_svg(const char *path, fm_error *reterr) {
    size_t n = strlen(path);
    if (n >= 4 && strcasecmp(path + n - 4, ".svg") == 0) {
        return fm_output_check_like(path, "--svg", "SVG of foldmill", FM_SVG_BEGIN, reterr);
    }
    return fm_fail(reterr, FM_ERR_USAGE, "--svg: found '%.200s', expected a file that ends in .svg",
                   path);
}

static fm_status show(const stats_arguments *arguments, fm_error *reterr) {
    fm_store *store;
    fm_arena arena = {0};
    stats all = {
        .histogram = {
            [LENGTHS] = {.title = "lengths", .unit = "residues", .heading = "Residues of a chain"},
            [DEPTHS] = {.title = "depths", .unit = "rows", .heading = "Rows of an alignment"},
            [BYTES] = {.title = "stored", .unit = "bytes", .heading = "Bytes stored of a chain"}}};
    fm_status status = arguments->svg ? check_svg(arguments->svg, reterr) : FM_OK;
    if (!status) status = fm_cli_open_store(arguments->cache, &store, reterr);
    if (status) return status;
    const fm_store_info *info = fm_store_get_info(store);
    status = fm_arena_init(&arena, ARENA_BYTES, reterr);
    if (!status) {
        count_parts(store, &all);
        status = count_depths(store, arguments->sample, &all, &arena, reterr);
    }
    fm_arena_reset(&arena);
    if (!status) status = fm_template_count(store, &arena, &all.templates, reterr);
    if (!status) status = count_refusals(arguments->cache, &all, &arena, reterr);
    if (!status && arguments->json) write_json(store, &all);
    if (!status && !arguments->json) print_text(info, &all);
    if (!status && arguments->svg) status = write_picture(arguments->svg, info, &all, reterr);
    fm_arena_fini(&arena);
    fm_store_close(store);
    return status;
}

int fm_cmd_stats(int argc, char **argv) {
    stats_arguments arguments = {.sample = 2000};
    const fm_option options[] = {
        {"cache", FM_OPTION_STRING, &arguments.cache, "DIR", "the cache to show",
         .is_required = true},
        {"sample", FM_OPTION_U64, &arguments.sample, "N",
         "chains whose MSA is read for the depths, evenly spaced (2000); 0 reads all",
         .max = UINT32_MAX},
        {"svg", FM_OPTION_STRING, &arguments.svg, "FILE",
         .help =
             "also draw the histograms and the sizes of parts into FILE, as SVG; an earlier one "
             "is replaced"},
        {"json", FM_OPTION_FLAG, &arguments.json, NULL, .help = "print one JSON object"},
        {0}};
    const fm_command command = {
        .program = "foldmill stats",
        .arguments = "--cache DIR [--sample N] [--svg FILE] [--json]",
        .summary = "show lengths, depths, sizes and refusals of a cache",
        .description =
            "Shows the stored and decoded bytes of each part for the chains that have it.\n"
            "Assembly and entities are parts of complexes, and count these. Histograms show the\n"
            "lengths and the stored bytes of all chains, and the depths of alignments. The\n"
            "command also counts what became of the template hits, and the most frequent reasons\n"
            "of refusals.\n\n"
            "--json prints one object: generation, content, chains, complexes, refused, shards,\n"
            "shard_bytes, parts {NAME: {chains, stored_bytes, decoded_bytes}}, lengths, stored\n"
            "and depths {chains, unit, min, max, mean, counts [{from, to, chains}]}, query_alone,\n"
            "templates {chains_without_list, chains_without_hits, chains_without_template, hits,\n"
            "mapped, unmapped {REASON: n}}, reasons [{reason, chains}].\n\n"
            "Exit codes: 0 shown, 1 not readable, 2 bad usage.",
        .options = options,
    };
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_error error;
    fm_status status = show(&arguments, &error);
    return status ? fm_program_report(command.program, &error) : FM_EXIT_OK;
}
