/* offer.c: see offer.h. */
#include "server/offer.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

bool fm_offer_is_by_hash(const fm_wire_hello *hello) {
    static const fm_sha256 zero;
    return memcmp(&hello->snapshot, &zero, sizeof zero) != 0;
}

static bool has_hash(const fm_sample_source *source, const fm_sha256 *hash) {
    return memcmp(&source->snapshot, hash, sizeof *hash) == 0;
}

static bool allows(const fm_access_token *token, const char *name) {
    return !token || fm_access_allows(token->snapshots, name);
}

/* -- which sources there are */

static bool has(const fm_sample_source *list, const fm_sample_source *source) {
    while (list && list != source)
        list = list->next;
    return list != NULL;
}

static void push(fm_sample_source **list, fm_sample_source *source) {
    source->next = *list;
    *list = source;
}

static void take_out(fm_sample_source **list, fm_sample_source *source) {
    while (*list != source)
        list = &(*list)->next;
    *list = source->next;
    source->next = NULL;
}

static void make_old(fm_offer *offer, fm_sample_source *source, uint64_t now_ms) {
    source->left_ms = now_ms;
    push(&offer->old, source);
    offer->n_old++;
}

void fm_offer_set(fm_offer *offer, fm_sample_source *const *list, size_t n, uint64_t now_ms) {
    fm_sample_source *before = offer->current;
    offer->current = NULL;
    offer->n_current = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        if (has(before, list[i])) take_out(&before, list[i]);
        assert(!has(offer->old, list[i]));
    }
    while (before) {
        fm_sample_source *source = before;
        take_out(&before, source);
        make_old(offer, source, now_ms);
    }
    for (size_t i = n; i > 0; i--)
        push(&offer->current, list[i - 1]);
}

void fm_offer_add_old(fm_offer *offer, fm_sample_source *source, uint64_t now_ms) {
    if (has(offer->current, source) || has(offer->old, source)) return;
    make_old(offer, source, now_ms);
}

fm_sample_source *fm_offer_take_unused(fm_offer *offer, uint64_t now_ms, uint32_t linger_ms) {
    for (fm_sample_source *source = offer->old; source; source = source->next) {
        if (source->n_user) source->left_ms = now_ms;
        if (source->n_user || now_ms - source->left_ms < linger_ms) continue;
        take_out(&offer->old, source);
        offer->n_old--;
        return source;
    }
    return NULL;
}

/* -- which one a client gets */

fm_status fm_offer_check_token(const fm_offer *offer, const fm_wire_hello *hello,
                               const fm_access_token *token, fm_error *reterr) {
    bool is_allowed = hello->snapshot_name[0] && allows(token, hello->snapshot_name);
    for (const fm_sample_source *at = offer->current; at && !hello->snapshot_name[0]; at = at->next)
        is_allowed = is_allowed || allows(token, at->snapshot_name);
    if (is_allowed) return FM_OK;
    return fm_fail(reterr, FM_ERR_DENIED,
                   hello->snapshot_name[0]
                       ? "this access token is not for the snapshot that was asked for"
                       : "this access token is not for a snapshot of this server");
}

/* Writes the names of current snapshots that the token allows, as many as fit. Returns out. */
static const char *list_names(const fm_offer *offer, const fm_access_token *token, char *out,
                              size_t out_bytes) {
    size_t at = 0;
    out[0] = '\0';
    for (const fm_sample_source *one = offer->current; one; one = one->next) {
        if (!allows(token, one->snapshot_name)) continue;
        size_t need = strlen(one->snapshot_name) + (at ? 2 : 0);
        bool fits = at + need + sizeof ", ..." <= out_bytes;
        snprintf(out + at, out_bytes - at, "%s%s", at ? ", " : "",
                 fits ? one->snapshot_name : "...");
        if (!fits) break;
        at += need;
    }
    return out;
}

static fm_status fail_unknown(const fm_offer *offer, const fm_wire_hello *hello,
                              const fm_access_token *token, fm_error *reterr) {
    char names[200], hash[FM_SHA256_HEX];
    list_names(offer, token, names, sizeof names);
    if (!fm_offer_is_by_hash(hello)) {
        return fm_fail(reterr, FM_ERR_NOT_FOUND,
                       "snapshot %.128s is not served here; there are: %s", hello->snapshot_name,
                       names);
    }
    fm_sha256_format(&hello->snapshot, hash);
    return fm_fail(reterr, FM_ERR_NOT_FOUND,
                   "snapshot %.100s%s%.16s... is not served, nor kept by a generation on disk; "
                   "served are: %s",
                   hello->snapshot_name, hello->snapshot_name[0] ? " " : "", hash, names);
}

static fm_sample_source *find_in(fm_sample_source *list, const fm_wire_hello *hello,
                                 const fm_access_token *token) {
    for (fm_sample_source *at = list; at; at = at->next) {
        const char *name = hello->snapshot_name;
        bool fits =
            name[0] ? strcmp(name, at->snapshot_name) == 0 : allows(token, at->snapshot_name);
        if (!fits) continue;
        if (!fm_offer_is_by_hash(hello) || has_hash(at, &hello->snapshot)) return at;
    }
    return NULL;
}

fm_status fm_offer_find(const fm_offer *offer, const fm_wire_hello *hello,
                        const fm_access_token *token, fm_sample_source **ret_source,
                        fm_error *reterr) {
    fm_status status = fm_offer_check_token(offer, hello, token, reterr);
    if (status) return status;
    *ret_source = find_in(offer->current, hello, token);
    if (!*ret_source && fm_offer_is_by_hash(hello)) *ret_source = find_in(offer->old, hello, token);
    return *ret_source ? FM_OK : fail_unknown(offer, hello, token, reterr);
}

/* -- for reports */

/* Returns the index in rows[0..n-1] of the row with the same snapshot and state, or n. A snapshot
 * may be open twice after a cache has returned to an older generation. */
static size_t find_row(const fm_report_snapshot *rows, size_t n, const fm_sample_source *source,
                       bool is_old) {
    char hash[FM_SHA256_HEX];
    fm_sha256_format(&source->snapshot, hash);
    for (size_t i = 0; i < n; i++) {
        bool is_same = rows[i].is_old == is_old && rows[i].generation == source->generation &&
                       strcmp(rows[i].hash, hash) == 0 &&
                       strcmp(rows[i].name, source->snapshot_name) == 0;
        if (is_same) return i;
    }
    return n;
}

static size_t describe_list(const fm_sample_source *list, bool is_old, fm_report_snapshot *rows,
                            size_t n, size_t capacity) {
    for (; list && n < capacity; list = list->next) {
        size_t at = find_row(rows, n, list, is_old);
        if (at == n) rows[n++] = (fm_report_snapshot){.is_old = is_old};
        fm_report_snapshot *row = &rows[at];
        snprintf(row->name, sizeof row->name, "%s", list->snapshot_name);
        fm_sha256_format(&list->snapshot, row->hash);
        row->generation = list->generation;
        row->n_chain = list->n_chain;
        row->n_user += list->n_user;
        row->n_sample += list->n_sample;
        row->n_byte += list->n_byte;
    }
    return n;
}

size_t fm_offer_describe(const fm_offer *offer, fm_report_snapshot *rows, size_t capacity) {
    size_t n = describe_list(offer->current, false, rows, 0, capacity);
    return describe_list(offer->old, true, rows, n, capacity);
}
