/* clusters.c: see clusters.h. */
#include "cache/snapshot/clusters.h"

#include "cache/source/names.h"
#include "proto/limits.h"

#include <stdlib.h>
#include <string.h>

static int fold(char c) {
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : (uint8_t)c;
}

static int compare_folded(const char *a, const char *b) {
    while (*a && fold(*a) == fold(*b)) {
        a++;
        b++;
    }
    return fold(*a) - fold(*b);
}

static int compare_members(const void *left, const void *right) {
    const fm_cluster_member *a = left, *b = right;
    int order = compare_folded(a->name, b->name);
    if (!order) order = strcmp(a->name, b->name);
    return order ? order : (a->cluster > b->cluster) - (a->cluster < b->cluster);
}

fm_status fm_clusters_parse(fm_bytes text, fm_arena *arena, fm_clusters *ret_clusters,
                            fm_error *reterr) {
    fm_name_words words;
    fm_status status = fm_name_words_begin(&words, text, arena, reterr);
    if (status) return status;
    fm_cluster_member *member =
        fm_arena_alloc_array(arena, words.n_max, sizeof *member); /* address space */
    uint32_t *size = fm_arena_alloc_array(arena, words.n_max, sizeof *size);
    if (!member || !size) return fm_arena_full(arena, reterr);
    uint32_t n = 0, n_cluster = 0;
    uint64_t line = 0;
    const char *name;
    while (!(status = fm_name_words_next(&words, &name, reterr)) && name) {
        if (words.line != line) size[n_cluster++] = 0;
        line = words.line;
        member[n++] = (fm_cluster_member){name, n_cluster - 1};
        size[n_cluster - 1]++;
    }
    if (status) return status;
    if (n) qsort(member, n, sizeof *member, compare_members);
    *ret_clusters = (fm_clusters){n_cluster, n, member, size};
    return FM_OK;
}

static uint32_t find_member(const fm_clusters *clusters, const char *name) {
    uint32_t low = 0, high = clusters->n_member, found = FM_NO_CLUSTER;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (compare_folded(clusters->member[middle].name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low < clusters->n_member; low++) {
        const fm_cluster_member *member = &clusters->member[low];
        if (compare_folded(member->name, name) != 0) break;
        if (strcmp(member->name, name) == 0) return member->cluster;
        if (found == FM_NO_CLUSTER || member->cluster < found) found = member->cluster;
    }
    return found;
}

uint32_t fm_clusters_find(const fm_clusters *clusters, const char *name) {
    const char *bare = fm_name_in_dataset(name);
    uint32_t found = find_member(clusters, name);
    return found == FM_NO_CLUSTER && bare != name ? find_member(clusters, bare) : found;
}
