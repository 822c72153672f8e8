/* store.c: opening a generation and loading chains. See store.h. */
#include "cache/store/store_open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Address space for a generation's arrays; pages become memory as files are read. */
#define GENERATION_ARENA_BYTES ((size_t)24 << 30)

/* Sets the shard's file as the error's source. */
static fm_status in_shard(const fm_store *store, uint32_t shard, fm_error *reterr) {
    char path[PATH_MAX];
    fm_shard_path(store->path, &store->generation.shard[shard].hash, path, sizeof path);
    return fm_error_in(reterr, path);
}

static fm_status open_shard(fm_store *store, uint32_t shard, fm_error *reterr) {
    const fm_shard_info *info = &store->generation.shard[shard];
    char path[PATH_MAX];
    if (!fm_shard_path(store->path, &info->hash, path, sizeof path)) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the cache's path is too long");
    }
    fm_status status = FM_OK;
    struct stat stat;
    int fd = store->fd[shard] = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &stat) != 0) {
        status = fm_fail(reterr, errno == ENOENT ? FM_ERR_CORRUPT : FM_ERR_IO,
                         "cannot open the shard: %s", strerror(errno));
    } else if ((uint64_t)stat.st_size != info->bytes) {
        status = fm_fail(reterr, FM_ERR_CORRUPT, "the shard has %lld bytes, the manifest says %llu",
                         (long long)stat.st_size, (unsigned long long)info->bytes);
    }
    if (status && reterr) fm_error_in(reterr, path);
    return status;
}

static fm_status open_shards(fm_store *store, fm_error *reterr) {
    uint32_t n = store->generation.n_shard;
    store->fd = malloc((n + 1) * sizeof *store->fd);
    if (!store->fd) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for %u shards", n);
    for (uint32_t i = 0; i < n; i++)
        store->fd[i] = -1;
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < n && !status; i++)
        status = open_shard(store, i, reterr);
    return status;
}

static void sum_up(fm_store *store) {
    const fm_generation *generation = &store->generation;
    fm_store_info info = {.generation = generation->number,
                          .n_chain = generation->n_chain,
                          .n_complex = generation->n_complex,
                          .n_refused = generation->n_refused,
                          .n_shard = generation->n_shard,
                          .content = generation->content};
    for (uint32_t i = 0; i < generation->n_shard; i++)
        info.stored_bytes += generation->shard[i].bytes;
    for (uint32_t i = 0; i < generation->n_blob; i++)
        info.decoded_bytes += generation->blob[i].decoded_bytes;
    store->info = info;
}

fm_status fm_store_open(const char *path, fm_store **ret_store, fm_error *reterr) {
    return fm_store_open_generation(path, 0, ret_store, reterr);
}

fm_status fm_store_open_generation(const char *path, uint64_t number, fm_store **ret_store,
                                   fm_error *reterr) {
    fm_store *store = calloc(1, sizeof *store);
    if (!store) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a store");
    int n = snprintf(store->path, sizeof store->path, "%s", path);
    fm_status status = FM_OK;
    if (n <= 0 || (size_t)n >= sizeof store->path) {
        status = fm_fail(reterr, FM_ERR_LIMIT, "the cache's path is too long");
    }
    if (!status) status = fm_arena_init(&store->arena, GENERATION_ARENA_BYTES, reterr);
    if (!status && number) {
        status = fm_generation_read_at(path, number, FM_GENERATION_SERVE, &store->arena,
                                       &store->generation, reterr);
    } else if (!status) {
        status = fm_generation_read(path, FM_GENERATION_SERVE, &store->arena, &store->generation,
                                    reterr);
    }
    if (!status) {
        store->checked = calloc((size_t)store->generation.n_blob + 1, sizeof *store->checked);
        if (!store->checked) status = fm_fail(reterr, FM_ERR_NOMEM, "no memory for a store");
    }
    if (!status) status = open_shards(store, reterr);
    if (status) {
        fm_store_close(store);
        return status;
    }
    sum_up(store);
    *ret_store = store;
    return FM_OK;
}

void fm_store_close(fm_store *store) {
    if (!store) return;
    for (uint32_t i = 0; store->fd && i < store->generation.n_shard; i++) {
        if (store->fd[i] >= 0) close(store->fd[i]);
    }
    free(store->fd);
    free(store->checked);
    fm_arena_fini(&store->arena);
    free(store);
}

const fm_store_info *fm_store_get_info(const fm_store *store) {
    return &store->info;
}

const char *fm_store_chain_name(const fm_store *store, uint32_t chain) {
    return store->generation.names + store->generation.chain[chain].name_at;
}

fm_status fm_store_find(const fm_store *store, const char *name, uint32_t *ret_chain,
                        fm_error *reterr) {
    if (fm_generation_find_chain(&store->generation, name, ret_chain)) return FM_OK;
    return fm_fail(reterr, FM_ERR_NOT_FOUND, "the cache has no chain '%s'", name);
}

bool fm_store_get_part(const fm_store *store, uint32_t chain, fm_part_kind kind,
                       fm_store_part *ret_part) {
    uint32_t blob = fm_generation_part(&store->generation, chain, kind);
    if (blob == FM_NO_PART) return false;
    const fm_blob_entry *entry = &store->generation.blob[blob];
    *ret_part =
        (fm_store_part){entry->hash, blob, entry->shard, entry->stored_bytes, entry->decoded_bytes};
    return true;
}

fm_status fm_store_read_facts(const fm_store *store, fm_arena *arena,
                              const fm_chain_facts **ret_facts, fm_error *reterr) {
    return fm_generation_read_facts(store->path, &store->generation, arena, ret_facts, reterr);
}

fm_status fm_store_read_complex_rows(const fm_store *store, fm_arena *arena,
                                     const fm_complex_row **ret_rows, uint32_t *ret_n,
                                     fm_error *reterr) {
    return fm_generation_read_rows(store->path, &store->generation, arena, ret_rows, ret_n, reterr);
}

fm_sha256 fm_store_chain_hash(const fm_store *store, uint32_t chain) {
    return fm_generation_chain_hash(&store->generation, chain);
}

/* Reads exactly `size` bytes. */
static fm_status read_at(int fd, uint8_t *out, size_t size, uint64_t offset, fm_error *reterr) {
    for (size_t at = 0; at < size;) {
        ssize_t got = pread(fd, out + at, size - at, (off_t)(offset + at));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fm_fail(reterr, FM_ERR_IO, "cannot read: %s", strerror(errno));
        if (got == 0) {
            return fm_fail(reterr, FM_ERR_CORRUPT, "the shard ends inside a blob at %llu",
                           (unsigned long long)offset);
        }
        at += (size_t)got;
    }
    return FM_OK;
}

static fm_status read_packed(const fm_store *store, const fm_blob_entry *entry, uint8_t *packed,
                             fm_blob *ret_blob, fm_error *reterr) {
    fm_blob blob;
    fm_status status =
        read_at(store->fd[entry->shard], packed, entry->stored_bytes, entry->offset, reterr);
    if (!status) status = fm_blob_open((fm_bytes){packed, entry->stored_bytes}, &blob, reterr);
    if (!status && (blob.decoded_bytes != entry->decoded_bytes || blob.kind != entry->kind)) {
        status = fm_fail(reterr, FM_ERR_CORRUPT, "the blob at %llu is not the one of the index",
                         (unsigned long long)entry->offset);
    }
    if (!status) *ret_blob = blob;
    return status;
}

fm_status fm_store_read_packed(const fm_store *store, uint32_t blob, uint8_t *packed,
                               fm_blob *ret_blob, fm_error *reterr) {
    const fm_blob_entry *entry = &store->generation.blob[blob];
    fm_status status = read_packed(store, entry, packed, ret_blob, reterr);
    return status && reterr ? in_shard(store, entry->shard, reterr) : status;
}

/* Decompresses a blob. If the same frame was checked before, the SHA-256 of its content is not
 * computed again, because the same frame has the same content. */
static fm_status unpack(const fm_store *store, uint32_t blob, const fm_blob *opened, uint8_t *out,
                        fm_error *reterr) {
    _Atomic uint64_t *checked = &store->checked[blob];
    bool is_known =
        opened->xxh3 && atomic_load_explicit(checked, memory_order_relaxed) == opened->xxh3;
    const fm_sha256 *hash = is_known ? NULL : &store->generation.blob[blob].hash;
    fm_status status = fm_blob_unpack(opened, hash, out, reterr);
    if (!status && !is_known) atomic_store_explicit(checked, opened->xxh3, memory_order_relaxed);
    return status;
}

fm_status fm_store_read_blob(const fm_store *store, uint32_t blob, fm_arena *arena,
                             fm_bytes *ret_bytes, fm_error *reterr) {
    const fm_blob_entry *entry = &store->generation.blob[blob];
    uint8_t *decoded = fm_arena_alloc(arena, entry->decoded_bytes);
    size_t mark = fm_arena_mark(arena);
    uint8_t *packed = fm_arena_alloc(arena, entry->stored_bytes);
    if (!decoded || !packed) return fm_arena_full(arena, reterr);
    fm_blob opened;
    fm_status status = read_packed(store, entry, packed, &opened, reterr);
    if (!status) status = unpack(store, blob, &opened, decoded, reterr);
    fm_arena_rewind(arena, mark);
    if (status) {
        if (reterr) in_shard(store, entry->shard, reterr);
        return status;
    }
    *ret_bytes = (fm_bytes){decoded, entry->decoded_bytes};
    return FM_OK;
}

/* -- parts */

/* Parts that were loaded; their arrays are in the arena. */
typedef struct loaded_parts {
    fm_part_sequence sequence;
    fm_part_msa msa;
    fm_part_hits hits;
    fm_part_structure structure;
    fm_part_assembly assembly;
    fm_part_entities entities;
} loaded_parts;

static fm_status decode_part(fm_part_kind kind, fm_bytes bytes, fm_arena *arena,
                             loaded_parts *parts, fm_error *reterr) {
    switch (kind) {
    case FM_PART_SEQUENCE: return fm_part_sequence_decode(bytes, arena, &parts->sequence, reterr);
    case FM_PART_MSA: return fm_part_msa_decode(bytes, arena, &parts->msa, reterr);
    case FM_PART_STRUCTURE:
        return fm_part_structure_decode(bytes, arena, &parts->structure, reterr);
    case FM_PART_HITS: return fm_part_hits_decode(bytes, arena, &parts->hits, reterr);
    case FM_PART_ASSEMBLY: return fm_part_assembly_decode(bytes, arena, &parts->assembly, reterr);
    case FM_PART_ENTITIES: return fm_part_entities_decode(bytes, arena, &parts->entities, reterr);
    case FM_PART_COMPONENTS:
        break; /* complex_load.h reads sets of components, which are of no item */
    }
    return fm_fail(reterr, FM_ERR_CORRUPT, "an item has a part of the kind %s", fm_part_name(kind));
}

/* Reads and decodes a part of that kind. Errors name the shard. */
static fm_status load_part(const fm_store *store, uint32_t blob, fm_part_kind kind, fm_arena *arena,
                           loaded_parts *parts, fm_error *reterr) {
    fm_bytes bytes;
    fm_status status = fm_store_read_blob(store, blob, arena, &bytes, reterr);
    if (status) return status;
    status = decode_part(kind, bytes, arena, parts, reterr);
    return status && reterr ? in_shard(store, store->generation.blob[blob].shard, reterr) : status;
}

fm_stored_kind fm_store_item_kind(const fm_store *store, uint32_t item) {
    return fm_generation_is_complex(&store->generation, item) ? FM_STORED_COMPLEX : FM_STORED_CHAIN;
}

bool fm_store_find_blob(const fm_store *store, const fm_sha256 *identity, uint32_t *ret_blob) {
    return fm_generation_find_blob(&store->generation, identity, ret_blob);
}

/* Loads a part of that kind by its identity; `who` names it. */
static fm_status load_named(const fm_store *store, const fm_sha256 *identity, fm_part_kind kind,
                            const char *who, fm_arena *arena, loaded_parts *parts,
                            fm_error *reterr) {
    uint32_t blob;
    char hex[FM_SHA256_HEX];
    if (fm_store_find_blob(store, identity, &blob)) {
        return load_part(store, blob, kind, arena, parts, reterr);
    }
    fm_sha256_format(identity, hex);
    return fm_fail(reterr, FM_ERR_CORRUPT, "%s names the %s part %s, which is not there", who,
                   fm_part_name(kind), hex);
}

fm_status fm_store_load_structure(const fm_store *store, const fm_sha256 *identity, fm_arena *arena,
                                  fm_part_structure *ret_structure, fm_error *reterr) {
    loaded_parts parts;
    fm_status status =
        load_named(store, identity, FM_PART_STRUCTURE, "a hit", arena, &parts, reterr);
    if (!status) *ret_structure = parts.structure;
    return status;
}

fm_status fm_store_load_msa(const fm_store *store, const fm_sha256 *identity, fm_arena *arena,
                            fm_part_msa *ret_msa, fm_error *reterr) {
    loaded_parts parts;
    fm_status status = load_named(store, identity, FM_PART_MSA, "an entity", arena, &parts, reterr);
    if (!status) *ret_msa = parts.msa;
    return status;
}

fm_status fm_store_load_hits_part(const fm_store *store, const fm_sha256 *identity, fm_arena *arena,
                                  fm_part_hits *ret_hits, fm_error *reterr) {
    loaded_parts parts;
    fm_status status =
        load_named(store, identity, FM_PART_HITS, "an entity", arena, &parts, reterr);
    if (!status) *ret_hits = parts.hits;
    return status;
}

fm_status fm_store_load_assembly(const fm_store *store, uint32_t item, fm_arena *arena,
                                 fm_part_assembly *ret_part, fm_error *reterr) {
    loaded_parts parts;
    uint32_t blob = fm_generation_part(&store->generation, item, FM_PART_ASSEMBLY);
    fm_status status = load_part(store, blob, FM_PART_ASSEMBLY, arena, &parts, reterr);
    if (!status) *ret_part = parts.assembly;
    return status;
}

fm_status fm_store_load_entities(const fm_store *store, uint32_t item, fm_arena *arena,
                                 fm_part_entities *ret_part, fm_error *reterr) {
    loaded_parts parts;
    uint32_t blob = fm_generation_part(&store->generation, item, FM_PART_ENTITIES);
    fm_status status = load_part(store, blob, FM_PART_ENTITIES, arena, &parts, reterr);
    if (!status) *ret_part = parts.entities;
    return status;
}

fm_status fm_store_load_hits(const fm_store *store, uint32_t chain, fm_arena *arena,
                             const fm_part_hits **ret_hits, fm_error *reterr) {
    uint32_t blob = fm_generation_part(&store->generation, chain, FM_PART_HITS);
    *ret_hits = NULL;
    if (blob == FM_NO_PART) return FM_OK;
    loaded_parts *parts = fm_arena_alloc(arena, sizeof *parts);
    if (!parts) return fm_arena_full(arena, reterr);
    fm_status status = load_part(store, blob, FM_PART_HITS, arena, parts, reterr);
    if (!status) *ret_hits = &parts->hits;
    return status;
}

fm_status fm_store_load(const fm_store *store, uint32_t chain, fm_arena *arena,
                        fm_record *ret_record, fm_error *reterr) {
    loaded_parts *parts = fm_arena_alloc(arena, sizeof *parts);
    if (!parts) return fm_arena_full(arena, reterr);
    const uint32_t *part = store->generation.chain[chain].part;
    fm_record record = {.name = fm_store_chain_name(store, chain), .sequence = &parts->sequence};
    if (fm_generation_is_complex(&store->generation, chain)) {
        return fm_fail(reterr, FM_ERR_USAGE, "%s is a complex, expected a chain", record.name);
    }
    for (int k = 1; k <= FM_N_PART; k++) {
        if (part[k - 1] == FM_NO_PART) continue;
        fm_status status = load_part(store, part[k - 1], (fm_part_kind)k, arena, parts, reterr);
        if (status) return status;
    }
    if (part[FM_PART_MSA - 1] != FM_NO_PART) record.msa = &parts->msa;
    if (part[FM_PART_HITS - 1] != FM_NO_PART) record.hits = &parts->hits;
    if (part[FM_PART_STRUCTURE - 1] != FM_NO_PART) record.structure = &parts->structure;
    uint32_t n_res = record.sequence->n_res;
    if ((record.msa && record.msa->n_res != n_res) ||
        (record.hits && record.hits->n_res != n_res) ||
        (record.structure && record.structure->n_res != n_res)) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "the parts of %s differ in their number of residues",
                       record.name);
    }
    *ret_record = record;
    return FM_OK;
}
