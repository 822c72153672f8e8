/* hits.c: see hits.h. */
#include "featurizer/parse/hits.h"

#include <stdbool.h>
#include <string.h>

typedef struct flat {
    int32_t *index, *aligned_cols;
    double *sum_probs;
    char *name, *query, *hit;
    int32_t *indices_query, *indices_hit;
    int32_t *query_off, *hit_off, *column_off; /* [n_hit + 1] */
    size_t name_bytes, n_query, n_hit, n_column;
} flat;

static bool take_memory(const fm_hits *hits, fm_arena *arena, flat *f) {
    size_t n = hits->n_hit;
    f->index = fm_arena_alloc_array(arena, n, sizeof *f->index);
    f->aligned_cols = fm_arena_alloc_array(arena, n, sizeof *f->aligned_cols);
    f->sum_probs = fm_arena_alloc_array(arena, n, sizeof *f->sum_probs);
    f->name = fm_arena_alloc(arena, f->name_bytes);
    f->query = fm_arena_alloc(arena, f->n_query);
    f->hit = fm_arena_alloc(arena, f->n_hit);
    f->indices_query = fm_arena_alloc_array(arena, f->n_query, sizeof *f->indices_query);
    f->indices_hit = fm_arena_alloc_array(arena, f->n_column, sizeof *f->indices_hit);
    f->query_off = fm_arena_calloc(arena, n + 1, sizeof *f->query_off);
    f->hit_off = fm_arena_calloc(arena, n + 1, sizeof *f->hit_off);
    f->column_off = fm_arena_calloc(arena, n + 1, sizeof *f->column_off);
    return f->index && f->aligned_cols && f->sum_probs && f->name && f->query && f->hit &&
           f->indices_query && f->indices_hit && f->query_off && f->hit_off && f->column_off;
}

static void copy(void *to, const void *from, size_t size) {
    if (size) memcpy(to, from, size);
}

static void fill(const fm_hits *hits, flat *f) {
    size_t name_at = 0;
    for (size_t i = 0; i < hits->n_hit; i++) {
        const fm_hit *hit = &hits->hit[i];
        size_t query = (size_t)f->query_off[i], letters = (size_t)f->hit_off[i];
        size_t column = (size_t)f->column_off[i];
        f->index[i] = hit->index;
        f->aligned_cols[i] = hit->aligned_cols;
        f->sum_probs[i] = hit->sum_probs;
        if (i) f->name[name_at++] = '\n';
        copy(f->name + name_at, hit->name.data, hit->name.size);
        name_at += hit->name.size;
        copy(f->query + query, hit->query, hit->n_query);
        copy(f->indices_query + query, hit->indices_query, hit->n_query * sizeof(int32_t));
        copy(f->hit + letters, hit->hit, hit->n_hit);
        copy(f->indices_hit + column, hit->indices_hit, hit->n_column * sizeof(int32_t));
        f->query_off[i + 1] = (int32_t)(query + hit->n_query);
        f->hit_off[i + 1] = (int32_t)(letters + hit->n_hit);
        f->column_off[i + 1] = (int32_t)(column + hit->n_column);
    }
}

fm_status fm_hits_list_arrays(const fm_hits *hits, fm_arena *arena,
                              fm_array ret_arrays[FM_HITS_N_ARRAY], fm_error *reterr) {
    flat f = {0};
    uint64_t n = hits->n_hit;
    for (size_t i = 0; i < n; i++) {
        f.name_bytes += hits->hit[i].name.size + (i > 0);
        f.n_query += hits->hit[i].n_query;
        f.n_hit += hits->hit[i].n_hit;
        f.n_column += hits->hit[i].n_column;
    }
    if (f.n_query > INT32_MAX || f.n_hit > INT32_MAX) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the hits have more columns than 2147483647");
    }
    if (!take_memory(hits, arena, &f)) return fm_arena_full(arena, reterr);
    fill(hits, &f);
    const fm_array arrays[FM_HITS_N_ARRAY] = {
        {"index", "<i4", 1, {n}, f.index},
        {"name", "|u1", 1, {f.name_bytes}, f.name},
        {"aligned_cols", "<i4", 1, {n}, f.aligned_cols},
        {"sum_probs", "<f8", 1, {n}, f.sum_probs},
        {"col_off", "<i4", 1, {n + 1}, f.query_off},
        {"query", "|u1", 1, {f.n_query}, f.query},
        {"hit", "|u1", 1, {f.n_hit}, f.hit},
        {"hit_len_off", "<i4", 1, {n + 1}, f.hit_off},
        {"indices_query", "<i4", 1, {f.n_query}, f.indices_query},
        {"indices_hit", "<i4", 1, {f.n_column}, f.indices_hit},
        {"indices_hit_off", "<i4", 1, {n + 1}, f.column_off},
    };
    memcpy(ret_arrays, arrays, sizeof arrays);
    return FM_OK;
}
