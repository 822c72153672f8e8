/* cmd_stats.c: foldmill stats: what the chains of a cache are like, as histograms of text and,
 * with --svg, as a picture. */
#include "cache/store/refusals.h"
#include "cache/store/store.h"
#include "server/cli/commands.h"
#include "server/cli/stats_svg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES ((size_t)16 << 30)

enum { BAR_CELLS = 50, SEQUENCE_HEADER_BYTES = 64, N_REASON = 10, REASON_BYTES = 96 };

/* One line a power of two; bucket b holds values of b bits. */
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
    printf("\n%s: %llu chains, %llu to %llu %s, mean %.1f\n", values->title,
           (unsigned long long)values->n_value, (unsigned long long)values->min,
           (unsigned long long)values->max, values->unit,
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

/* What was counted, for the picture. */
enum { LENGTHS, DEPTHS, BYTES, N_HISTOGRAM };

typedef struct stats {
    fm_stats_histogram histogram[N_HISTOGRAM];
    fm_stats_part part[FM_N_PART];
    int n_part;
} stats;

/* -- parts */

static void print_parts(const fm_store *store, stats *all) {
    uint64_t stored[FM_N_PART] = {0}, decoded[FM_N_PART] = {0};
    uint32_t n[FM_N_PART] = {0}, n_chain = fm_store_get_info(store)->n_chain;
    for (uint32_t chain = 0; chain < n_chain; chain++) {
        for (int k = 1; k <= FM_N_PART; k++) {
            fm_store_part part;
            if (!fm_store_get_part(store, chain, (fm_part_kind)k, &part)) continue;
            n[k - 1]++;
            stored[k - 1] += part.stored_bytes;
            decoded[k - 1] += part.decoded_bytes;
        }
    }
    printf("\n%-10s %10s %14s %14s %8s\n", "part", "chains", "stored/chain", "decoded/chain",
           "ratio");
    for (int k = 0; k < FM_N_PART; k++) {
        if (!n[k]) continue;
        printf("%-10s %10u %14.0f %14.0f %8.2f\n", fm_part_name((fm_part_kind)(k + 1)), n[k],
               (double)stored[k] / n[k], (double)decoded[k] / n[k],
               (double)decoded[k] / (double)(stored[k] ? stored[k] : 1));
        all->part[all->n_part++] =
            (fm_stats_part){fm_part_name((fm_part_kind)(k + 1)), (double)stored[k] / n[k]};
    }
}

static void print_sizes(const fm_store *store, stats *all) {
    uint32_t n_chain = fm_store_get_info(store)->n_chain;
    for (uint32_t chain = 0; chain < n_chain; chain++) {
        fm_store_part part;
        uint64_t sum = 0;
        for (int k = 1; k <= FM_N_PART; k++) {
            if (!fm_store_get_part(store, chain, (fm_part_kind)k, &part)) continue;
            sum += part.stored_bytes;
            if (k == FM_PART_SEQUENCE)
                fm_stats_add(&all->histogram[LENGTHS], part.decoded_bytes - SEQUENCE_HEADER_BYTES);
        }
        fm_stats_add(&all->histogram[BYTES], sum);
    }
    print_powers(&all->histogram[LENGTHS]);
    print_powers(&all->histogram[BYTES]);
}

/* Depths are in the MSAs, which must be read: of at most `sample` chains, evenly spaced. */
static fm_status print_depths(const fm_store *store, uint64_t sample, stats *all, fm_arena *arena,
                              fm_error *reterr) {
    uint32_t n_chain = fm_store_get_info(store)->n_chain;
    uint64_t n = sample && sample < n_chain ? sample : n_chain;
    for (uint64_t i = 0; i < n; i++) {
        fm_record record;
        fm_arena_reset(arena);
        fm_status status =
            fm_store_load(store, (uint32_t)(i * n_chain / n), arena, &record, reterr);
        if (status) return status;
        if (record.msa) fm_stats_add(&all->histogram[DEPTHS], record.msa->n_seq);
    }
    print_powers(&all->histogram[DEPTHS]);
    return FM_OK;
}

/* -- quarantine */

typedef struct reason_count {
    char text[REASON_BYTES];
    uint32_t n;
} reason_count;

/* The sentence without its place, numbers as N: refusals of one kind look alike then. */
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

static fm_status print_quarantine(const char *cache, fm_arena *arena, fm_error *reterr) {
    fm_refusals refusals;
    fm_arena_reset(arena);
    fm_status status = fm_refusals_read(cache, arena, &refusals, reterr);
    if (status) return status;
    printf("\nquarantine: %u chains\n", refusals.n);
    reason_count *reason = fm_arena_alloc_array(arena, refusals.n, sizeof *reason);
    if (!reason) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < refusals.n; i++) {
        squeeze(refusals.refusal[i].reason, reason[i].text);
        reason[i].n = 1;
    }
    uint32_t kept = 0;
    if (refusals.n) qsort(reason, refusals.n, sizeof *reason, compare_texts);
    for (uint32_t i = 0; i < refusals.n; i++) {
        if (kept && strcmp(reason[i].text, reason[kept - 1].text) == 0)
            reason[kept - 1].n++;
        else
            reason[kept++] = reason[i];
    }
    if (kept) qsort(reason, kept, sizeof *reason, compare_counts);
    for (uint32_t i = 0; i < kept && i < N_REASON; i++)
        printf("%10u  %s\n", reason[i].n, reason[i].text);
    if (kept > N_REASON) printf("and %u other reasons\n", kept - N_REASON);
    return FM_OK;
}

/* -- the command */

static fm_status write_picture(const char *path, const fm_store_info *info, const stats *all,
                               fm_error *reterr) {
    char hex[FM_SHA256_HEX], title[64], subtitle[200];
    fm_sha256_format(&info->content, hex);
    snprintf(title, sizeof title, "A cache of %u chains", info->n_chain);
    snprintf(subtitle, sizeof subtitle,
             "generation %llu, content %.16s, %u chains refused, %.1f MB on disk in %u shard%s",
             (unsigned long long)info->generation, hex, info->n_refused,
             (double)info->stored_bytes / 1e6, info->n_shard, info->n_shard == 1 ? "" : "s");
    const fm_stats_picture picture = {.title = title,
                                      .subtitle = subtitle,
                                      .histogram = all->histogram,
                                      .n_histogram = N_HISTOGRAM,
                                      .part = all->part,
                                      .n_part = all->n_part};
    return fm_stats_write_svg(path, &picture, reterr);
}

static fm_status show(const char *cache, uint64_t sample, const char *svg, fm_error *reterr) {
    fm_store *store;
    fm_arena arena = {0};
    stats all = {
        .histogram = {
            [LENGTHS] = {.title = "lengths", .unit = "residues", .heading = "Residues of a chain"},
            [DEPTHS] = {.title = "depths", .unit = "rows", .heading = "Rows of an alignment"},
            [BYTES] = {.title = "stored", .unit = "bytes", .heading = "Bytes stored of a chain"}}};
    fm_status status = fm_store_open(cache, &store, reterr);
    if (status) return status;
    const fm_store_info *info = fm_store_get_info(store);
    status = fm_arena_init(&arena, ARENA_BYTES, reterr);
    if (!status) {
        printf("generation %llu: %u chains, %u refused; %u shards, %.1f MB on disk\n",
               (unsigned long long)info->generation, info->n_chain, info->n_refused, info->n_shard,
               (double)info->stored_bytes / 1e6);
        print_parts(store, &all);
        print_sizes(store, &all);
        status = print_depths(store, sample, &all, &arena, reterr);
    }
    if (!status) status = print_quarantine(cache, &arena, reterr);
    if (!status && svg) status = write_picture(svg, info, &all, reterr);
    fm_arena_fini(&arena);
    fm_store_close(store);
    return status;
}

int fm_cmd_stats(int argc, char **argv) {
    const char *cache = NULL, *svg = NULL;
    uint64_t sample = 2000;
    const fm_option options[] = {
        {"cache", FM_OPTION_STRING, &cache, "DIR", "the cache to look at (required)", .letter = 0},
        {"sample", FM_OPTION_U64, &sample, "N",
         "chains whose MSA is read for depths, evenly spaced; 2000 when not given, 0 = all",
         .max = UINT32_MAX},
        {"svg", FM_OPTION_STRING, &svg, "FILE",
         .help = "also draw the histograms and the bytes of parts into FILE, as SVG"},
        {0}};
    const fm_command command = {
        .program = "foldmill stats",
        .arguments = "--cache DIR [--sample N] [--svg FILE]",
        .summary = "lengths, depths, bytes and refusals of a cache, as histograms",
        .description = "Bytes of each part stored and decoded, lengths and stored bytes of all\n"
                       "chains, depths of alignments, and the reasons of refusals by number.\n\n"
                       "Exit codes: 0 shown, 1 not readable, 2 bad usage.",
        .options = options,
    };
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_error error;
    fm_status status = cache ? show(cache, sample, svg, &error)
                             : fm_fail(&error, FM_ERR_USAGE, "--cache DIR is required");
    return status ? fm_cli_report(command.program, &error) : FM_EXIT_OK;
}
