/* snapshot.c: see snapshot.h and snapshot_encode.h. */
#include "cache/snapshot/snapshot.h"

#include "cache/snapshot/snapshot_encode.h"
#include "cache/snapshot/snapshot_text.h"
#include "cache/store/store_open.h"
#include "proto/base/directory.h"
#include "proto/base/file.h"
#include "proto/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SNAPSHOT_BYTES_MAX ((size_t)8 << 30)

enum {
    WEIGHT_MIN = 256, /* residues: AlphaFold2 draws chains by max(min(N_res, 512), 256) */
    WEIGHT_MAX = 512,
};

uint32_t fm_snapshot_weight(uint32_t n_res) {
    return n_res < WEIGHT_MIN ? WEIGHT_MIN : n_res > WEIGHT_MAX ? WEIGHT_MAX : n_res;
}

fm_status fm_snapshot_encode_all(const fm_generation *generation, const uint32_t *weight,
                                 fm_arena *arena, fm_bytes *ret_bytes, fm_error *reterr) {
    fm_snapshot_line *line = fm_arena_alloc_array(arena, generation->n_chain, sizeof *line);
    if (!line) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < generation->n_chain; i++) {
        line[i] = (fm_snapshot_line){weight[i], fm_generation_chain_hash(generation, i),
                                     generation->names + generation->chain[i].name_at};
    }
    const fm_snapshot_text text = {.n_line = generation->n_chain, .line = line};
    return fm_snapshot_encode(&text, arena, ret_bytes, reterr);
}

/* -- reading */

/* The chain of that name. Lines and chains are both sorted, so it is mostly the one after `before`.
 */
static fm_status find_after(const fm_store *store, uint32_t before, const char *name,
                            uint32_t *ret_chain, fm_error *reterr) {
    uint32_t next = before + 1;
    if (next < store->info.n_chain && strcmp(fm_store_chain_name(store, next), name) == 0) {
        *ret_chain = next;
        return FM_OK;
    }
    return fm_store_find(store, name, ret_chain, reterr);
}

static fm_status match(const fm_store *store, const fm_snapshot_text *text, fm_arena *arena,
                       fm_snapshot *ret_snapshot, fm_error *reterr) {
    uint32_t *chain = fm_arena_alloc_array(arena, text->n_line, sizeof *chain);
    uint32_t *weight = fm_arena_alloc_array(arena, text->n_line, sizeof *weight);
    uint8_t *share_of = text->shares.n ? fm_arena_alloc(arena, text->n_line) : NULL;
    if (!chain || !weight || (text->shares.n && !share_of)) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < text->n_line; i++) {
        const fm_snapshot_line *line = &text->line[i];
        uint32_t before = i ? chain[i - 1] : UINT32_MAX; /* + 1 = the first chain */
        fm_status status = find_after(store, before, line->name, &chain[i], reterr);
        fm_sha256 hash = status ? line->parts : fm_store_chain_hash(store, chain[i]);
        if (status || memcmp(&hash, &line->parts, sizeof hash) != 0) {
            return fm_fail_at(reterr, FM_ERR_DATA, fm_snapshot_line_number(text, i), 0, 0,
                              "chain %s is not in the cache with the parts the snapshot names",
                              line->name);
        }
        weight[i] = line->weight;
        if (share_of) share_of[i] = (uint8_t)fm_shares_find(&text->shares, line->name);
    }
    *ret_snapshot = (fm_snapshot){.n_chain = text->n_line,
                                  .chain = chain,
                                  .weight = weight,
                                  .shares = text->shares,
                                  .share_of = share_of};
    return FM_OK;
}

/* "no snapshot 'x'; there are: all, a, b" */
static fm_status fail_unknown(const fm_store *store, const char *name, const char *folder,
                              fm_arena *arena, fm_error *reterr) {
    char list[256] = "all";
    size_t at = 3;
    fm_name_list names;
    fm_status status = fm_directory_list(folder, false, FM_LIMIT_N_CHAIN, arena, &names, reterr);
    if (status && status != FM_ERR_NOT_FOUND) return status;
    for (size_t i = 0; i < names.n && at + 2 < sizeof list; i++) {
        int put = snprintf(list + at, sizeof list - at, ", %s", names.name[i]);
        at += put > 0 && (size_t)put < sizeof list - at ? (size_t)put : 0;
        list[at] = '\0';
    }
    free(names.name);
    status = fm_fail(reterr, FM_ERR_NOT_FOUND, "no snapshot '%.64s'; there are: %s", name, list);
    if (reterr) fm_error_in(reterr, store->path);
    return status;
}

bool fm_snapshot_is_name(const char *name) {
    size_t length = strlen(name);
    if (length < 1 || length > FM_LIMIT_NAME_BYTES || name[0] == '.') return false;
    for (const char *c = name; *c; c++) {
        if ((uint8_t)*c <= 0x20 || *c == 0x7f || *c == '/') return false;
    }
    return true;
}

fm_status fm_snapshot_read(const fm_store *store, const char *name, fm_arena *arena,
                           fm_bytes *ret_bytes, fm_error *reterr) {
    char folder[PATH_MAX], path[2 * PATH_MAX];
    snprintf(folder, sizeof folder, "%.4000s/snapshots", store->path);
    snprintf(path, sizeof path, "%s/%.255s", folder, name);
    if (strcmp(name, "all") == 0) {
        return fm_generation_read_all(store->path, &store->generation, arena, ret_bytes, reterr);
    }
    if (!fm_snapshot_is_name(name)) return fail_unknown(store, name, folder, arena, reterr);
    fm_status status = fm_file_read(arena, path, SNAPSHOT_BYTES_MAX, ret_bytes, reterr);
    return status == FM_ERR_NOT_FOUND ? fail_unknown(store, name, folder, arena, reterr) : status;
}

fm_status fm_snapshot_open(const fm_store *store, const char *name, fm_arena *arena,
                           fm_snapshot *ret_snapshot, fm_error *reterr) {
    fm_bytes bytes = {0};
    fm_snapshot_text text;
    fm_snapshot snapshot;
    fm_status status = fm_snapshot_read(store, name, arena, &bytes, reterr);
    if (status) return status;
    status = fm_snapshot_decode(bytes, arena, &text, reterr);
    if (!status) status = match(store, &text, arena, &snapshot, reterr);
    if (status) return reterr ? fm_error_in(reterr, name) : status;
    snapshot.hash = fm_sha256_of(bytes.data, bytes.size);
    *ret_snapshot = snapshot;
    return FM_OK;
}
