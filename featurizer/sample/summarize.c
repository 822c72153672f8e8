/* summarize.c: counts each class in every column of a cluster and sums its deletions; see msa.h.
 *
 * Members are processed cluster by cluster, so that the counters of one cluster, 23 bytes per
 * column, stay in the nearest cache. The counters are bytes. A cluster of more than 255 rows is
 * counted in runs of 255, and each run is added to separate 32-bit counters. Few clusters are that
 * large, so the byte counters are nearly always the final result. */
#include "featurizer/sample/msa.h"
#include "featurizer/sample/rows.h"

#include <string.h>

enum { RUN = 255 }; /* rows that byte counters can count */
enum { AHEAD = 2 }; /* rows to prefetch ahead */

/* The clusters and their sums. */
typedef struct sums {
    const fm_part_msa *part;
    const fm_msa_choice *choice;
    const fm_msa_masked *masked;
    uint32_t crop_start, n_res;
    const uint32_t *size;   /* [n_centre] centre and members */
    const uint32_t *member; /* rows of the MSA, ordered by cluster */
    uint32_t *deletion_sum; /* [n_centre, n_res] */
    uint8_t *count;         /* [n_centre, n_res, 23]; not used for large clusters */
    uint32_t n_large;
    uint32_t *large; /* [n_large] clusters of more than RUN rows */
    uint32_t *wide;  /* [n_large, n_res, 23] their counts */
    uint8_t *types;  /* [n_res] restypes of the current row */
    const fm_row_kernels *kernels;
} sums;

/* Counts one row of the crop. */
static void count_row(const uint8_t *restrict types, size_t n_res, uint8_t *restrict count) {
    for (size_t i = 0; i < n_res; i++, count += FM_N_MSA_CLASS)
        count[types[i]]++;
}

static void flush(uint8_t *restrict count, size_t n, uint32_t *restrict wide) {
    for (size_t i = 0; i < n; i++)
        wide[i] += count[i];
    memset(count, 0, n);
}

static void prefetch_row(const sums *s, size_t row) {
    size_t at = row * s->part->n_res + s->crop_start;
    fm_row_prefetch(s->part->msa + at, s->n_res);
    fm_row_prefetch(s->part->deletion_matrix + at, s->n_res * sizeof(uint16_t));
}

/* Counts cluster c, whose members are `member`; `wide` is NULL for a cluster of at most RUN
 * rows. */
static void add_cluster(const sums *s, uint32_t c, const uint32_t *member, uint32_t *wide) {
    const fm_part_msa *part = s->part;
    size_t n_count = (size_t)s->n_res * FM_N_MSA_CLASS, n_res = part->n_res;
    uint8_t *count = s->count + c * n_count;
    uint32_t *sum = s->deletion_sum + (size_t)c * s->n_res;
    memset(count, 0, n_count);
    for (uint32_t k = 0; k < s->size[c]; k++) {
        uint32_t row = k == 0 ? s->choice->row[c] : member[k - 1];
        const uint8_t *ids = k == 0 ? s->masked->msa + c * n_res : part->msa + row * n_res;
        if (k + AHEAD < s->size[c]) prefetch_row(s, member[k + AHEAD - 1]);
        s->kernels->restypes(ids + s->crop_start, s->n_res, s->types);
        s->kernels->add_deletions(part->deletion_matrix + row * n_res + s->crop_start, s->n_res,
                                  sum);
        count_row(s->types, s->n_res, count);
        if (wide && (k % RUN == RUN - 1 || k + 1 == s->size[c])) flush(count, n_count, wide);
    }
}

/* Counts the rows of each cluster and lists the members in the order of their clusters. */
static void order_members(const fm_msa_choice *choice, const uint32_t *cluster_of_member,
                          uint32_t *size, uint32_t *end, uint32_t *member) {
    uint32_t n_member = choice->n_row - choice->n_centre, sum = 0;
    for (uint32_t c = 0; c < choice->n_centre; c++)
        size[c] = 1;
    for (uint32_t m = 0; m < n_member; m++)
        size[cluster_of_member[m]]++;
    for (uint32_t c = 0; c < choice->n_centre; c++) {
        end[c] = sum; /* where c's next member goes */
        sum += size[c] - 1;
    }
    for (uint32_t m = 0; m < n_member; m++)
        member[end[cluster_of_member[m]]++] = choice->row[choice->n_centre + m];
}

/* Converts all counts to u16 or u32 when some do not fit into a byte. */
static void *widen(const sums *s, fm_dtype dtype, fm_arena *arena) {
    size_t n_count = (size_t)s->n_res * FM_N_MSA_CLASS, n = s->choice->n_centre * n_count;
    void *all = fm_arena_alloc_array(arena, n, fm_dtype_bytes(dtype));
    if (!all) return NULL;
    uint16_t *narrow = all;
    uint32_t *full = all;
    for (size_t i = 0; i < n; i++) {
        if (dtype == FM_U16) {
            narrow[i] = s->count[i];
        } else {
            full[i] = s->count[i];
        }
    }
    for (size_t l = 0; l < s->n_large; l++) {
        const uint32_t *wide = s->wide + l * n_count;
        size_t first = s->large[l] * n_count;
        for (size_t i = 0; i < n_count; i++) {
            if (dtype == FM_U16) {
                narrow[first + i] = (uint16_t)wide[i];
            } else {
                full[first + i] = wide[i];
            }
        }
    }
    return all;
}

/* Moves the large clusters' counts to their place and chooses the narrowest dtype. */
static fm_status finish_counts(const sums *s, fm_arena *arena, fm_msa_profile *ret_profile,
                               fm_error *reterr) {
    size_t n_count = (size_t)s->n_res * FM_N_MSA_CLASS;
    uint32_t most = 0;
    for (size_t i = 0; i < s->n_large * n_count; i++)
        most = s->wide[i] > most ? s->wide[i] : most;
    ret_profile->count = s->count;
    ret_profile->dtype = FM_U8;
    if (most > UINT8_MAX) {
        ret_profile->dtype = most <= UINT16_MAX ? FM_U16 : FM_U32;
        ret_profile->count = widen(s, ret_profile->dtype, arena);
        return ret_profile->count ? FM_OK : fm_arena_full(arena, reterr);
    }
    for (size_t l = 0; l < s->n_large; l++) {
        for (size_t i = 0; i < n_count; i++)
            s->count[s->large[l] * n_count + i] = (uint8_t)s->wide[l * n_count + i];
    }
    return FM_OK;
}

static void add_clusters(sums *s) {
    const uint32_t *member = s->member;
    uint32_t n_large = 0;
    for (uint32_t c = 0; c < s->choice->n_centre; c++) {
        uint32_t *wide = NULL;
        if (s->size[c] > RUN) {
            wide = s->wide + (size_t)n_large * s->n_res * FM_N_MSA_CLASS;
            s->large[n_large++] = c;
        }
        add_cluster(s, c, member, wide);
        member += s->size[c] - 1;
    }
}

fm_status fm_msa_summarize(const fm_part_msa *part, const fm_msa_choice *choice,
                           const fm_msa_masked *masked, const uint32_t *cluster_of_member,
                           uint32_t crop_start, uint32_t n_res, fm_arena *arena,
                           fm_msa_profile *ret_profile, fm_error *reterr) {
    size_t n_centre = choice->n_centre, n_count = (size_t)n_res * FM_N_MSA_CLASS;
    uint32_t *size = fm_arena_alloc_array(arena, n_centre, sizeof *size);
    uint32_t *end = fm_arena_alloc_array(arena, n_centre, sizeof *end);
    uint32_t *member = fm_arena_alloc_array(arena, choice->n_row, sizeof *member);
    if (!size || !end || !member) return fm_arena_full(arena, reterr);
    order_members(choice, cluster_of_member, size, end, member);
    sums s = {.part = part,
              .choice = choice,
              .masked = masked,
              .crop_start = crop_start,
              .n_res = n_res,
              .size = size,
              .member = member,
              .deletion_sum = fm_arena_calloc(arena, n_centre * n_res, sizeof *s.deletion_sum),
              .count = fm_arena_alloc_array(arena, n_centre, n_count),
              .types = fm_arena_alloc(arena, n_res),
              .kernels = fm_row_kernels_best()};
    for (size_t c = 0; c < n_centre; c++)
        s.n_large += size[c] > RUN;
    s.large = fm_arena_alloc_array(arena, s.n_large, sizeof *s.large);
    s.wide = fm_arena_calloc(arena, s.n_large * n_count, sizeof *s.wide);
    if (!s.deletion_sum || !s.count || !s.types || !s.large || !s.wide) {
        return fm_arena_full(arena, reterr);
    }
    add_clusters(&s);
    ret_profile->deletion_sum = s.deletion_sum;
    ret_profile->size = size;
    return finish_counts(&s, arena, ret_profile, reterr);
}
