/* shares.c: see shares.h. */
#include "cache/snapshot/shares.h"

#include "cache/source/names.h"
#include "proto/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_DECIMAL = 9 };

/* Reads a decimal of at most nine places above 0 and at most 1; returns 0 for any other text. */
static uint32_t parse_billionths(const char *text) {
    bool is_one = text[0] == '1';
    if (!is_one && text[0] != '0') return 0;
    uint32_t value = is_one ? FM_SHARE_ONE : 0, unit = FM_SHARE_ONE;
    if (text[1] == '\0') return value;
    if (text[1] != '.' || text[2] == '\0') return 0;
    for (const char *c = text + 2; *c; c++) {
        if (*c < '0' || *c > '9' || c - text >= 2 + N_DECIMAL) return 0;
        unit /= 10;
        value += (uint32_t)(*c - '0') * unit;
    }
    return value <= FM_SHARE_ONE ? value : 0;
}

static fm_status parse_one(const char *text, fm_arena *arena, fm_share *ret_share,
                           fm_error *reterr) {
    const char *equals = strchr(text, '=');
    uint32_t billionths = equals ? parse_billionths(equals + 1) : 0;
    size_t bytes = equals ? (size_t)(equals - text) : 0;
    if (!billionths || (bytes && !fm_name_is_dataset(text, bytes))) {
        return fm_fail(
            reterr, FM_ERR_USAGE,
            "--share: found '%.100s', expected a dataset's name, '=' and a decimal above "
            "0 and at most 1, of at most %d places",
            text, N_DECIMAL);
    }
    char *name = fm_arena_alloc(arena, bytes + 1);
    if (!name) return fm_arena_full(arena, reterr);
    memcpy(name, text, bytes);
    name[bytes] = '\0';
    *ret_share = (fm_share){billionths, name};
    return FM_OK;
}

static int compare_shares(const void *a, const void *b) {
    const fm_share *x = a, *y = b;
    return strcmp(x->dataset, y->dataset);
}

static uint64_t sum_of(const fm_shares *shares) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < shares->n; i++)
        sum += shares->share[i].billionths;
    return sum;
}

fm_status fm_shares_parse(const char *const *text, uint32_t n, fm_arena *arena,
                          fm_shares *ret_shares, fm_error *reterr) {
    if (n > FM_LIMIT_N_SHARE) {
        return fm_fail(reterr, FM_ERR_USAGE, "--share: %u datasets, at most %u", n,
                       FM_LIMIT_N_SHARE);
    }
    fm_share *share = fm_arena_alloc_array(arena, n, sizeof *share);
    if (!share) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < n; i++) {
        fm_status status = parse_one(text[i], arena, &share[i], reterr);
        if (status) return status;
    }
    qsort(share, n, sizeof *share, compare_shares);
    for (uint32_t i = 1; i < n; i++) {
        if (strcmp(share[i - 1].dataset, share[i].dataset) != 0) continue;
        return fm_fail(reterr, FM_ERR_USAGE, "--share: the dataset '%s' is named twice",
                       share[i].dataset);
    }
    const fm_shares shares = {n, share};
    uint64_t sum = sum_of(&shares);
    if (n && sum != FM_SHARE_ONE) {
        return fm_fail(
            reterr, FM_ERR_USAGE, "--share: the shares add up to %llu.%09llu, expected 1",
            (unsigned long long)(sum / FM_SHARE_ONE), (unsigned long long)(sum % FM_SHARE_ONE));
    }
    *ret_shares = shares;
    return FM_OK;
}

bool fm_shares_are_canonical(const fm_shares *shares) {
    for (uint32_t i = 0; i < shares->n; i++) {
        if (shares->share[i].billionths == 0) return false;
        if (i && compare_shares(&shares->share[i - 1], &shares->share[i]) >= 0) return false;
    }
    return shares->n == 0 || (shares->n <= FM_LIMIT_N_SHARE && sum_of(shares) == FM_SHARE_ONE);
}

uint32_t fm_shares_find(const fm_shares *shares, const char *chain) {
    const char *bare = fm_name_in_dataset(chain);
    size_t bytes = bare == chain ? 0 : (size_t)(bare - chain) - 1;
    for (uint32_t i = 0; i < shares->n; i++) {
        const char *dataset = shares->share[i].dataset;
        if (strncmp(dataset, chain, bytes) == 0 && dataset[bytes] == '\0') return i;
    }
    return FM_NO_SHARE;
}

void fm_share_format(uint32_t billionths, char out[FM_SHARE_TEXT_BYTES]) {
    int n = snprintf(out, FM_SHARE_TEXT_BYTES, "%u.%09u", billionths / FM_SHARE_ONE % 10,
                     billionths % FM_SHARE_ONE);
    while (out[n - 1] == '0')
        out[--n] = '\0';
    if (out[n - 1] == '.') out[n - 1] = '\0';
}
