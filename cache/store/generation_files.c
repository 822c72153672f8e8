/* generation_files.c: see generation_files.h. */
#include "cache/store/generation_files.h"

#include "proto/limits.h"

#include <assert.h>
#include <string.h>

enum { HEADER_BYTES = 64, ALIGN = 64, FORMAT = 1 };
/* An index with complexes has its own format, so that one without keeps its bytes. */
enum { FORMAT_WITH_COMPLEXES = 2 };

#define INDEX_MAGIC 0x58494d46u /* "FMIX" */
#define NOTES_MAGIC 0x544e4d46u /* "FMNT" */

static_assert(sizeof(fm_blob_entry) == 64, "blob entries are laid out as in the file");
static_assert(sizeof(fm_chain_entry) == 24, "chain entries are laid out as in the file");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "entries are borrowed in place");

static uint64_t padded(uint64_t size) {
    return (size + ALIGN - 1) / ALIGN * ALIGN;
}

/* -- index */

fm_status fm_index_encode(const fm_generation *generation, fm_arena *arena, fm_bytes *ret_bytes,
                          fm_error *reterr) {
    uint64_t blob_bytes = (uint64_t)generation->n_blob * sizeof(fm_blob_entry);
    uint64_t chain_bytes = (uint64_t)generation->n_chain * sizeof(fm_chain_entry);
    uint64_t total = HEADER_BYTES + blob_bytes + padded(chain_bytes) + generation->name_bytes;
    uint8_t *data = fm_arena_alloc(arena, (size_t)total);
    if (!data) return fm_arena_full(arena, reterr);
    fm_writer writer = fm_writer_of(data, (size_t)total);
    fm_write_u32(&writer, INDEX_MAGIC);
    fm_write_u32(&writer, generation->n_complex ? FORMAT_WITH_COMPLEXES : FORMAT);
    fm_write_u32(&writer, generation->n_chain);
    fm_write_u32(&writer, generation->n_blob);
    fm_write_u64(&writer, generation->name_bytes);
    fm_write_align(&writer, ALIGN);
    fm_write_bytes(&writer, generation->blob, (size_t)blob_bytes);
    fm_write_bytes(&writer, generation->chain, (size_t)chain_bytes);
    fm_write_align(&writer, ALIGN);
    fm_write_bytes(&writer, generation->names, (size_t)generation->name_bytes);
    assert(!writer.failed && writer.at == total);
    *ret_bytes = (fm_bytes){data, (size_t)total};
    return FM_OK;
}

static fm_status check_blobs(const fm_generation *generation, fm_error *reterr) {
    for (uint32_t i = 0; i < generation->n_blob; i++) {
        const fm_blob_entry *blob = &generation->blob[i];
        bool sorted = i == 0 || memcmp(&blob[-1].hash, &blob->hash, sizeof(fm_sha256)) < 0;
        bool placed = blob->shard < generation->n_shard &&
                      blob->offset <= generation->shard[blob->shard].bytes &&
                      blob->stored_bytes <= generation->shard[blob->shard].bytes - blob->offset;
        if (!sorted || !placed || blob->kind < 1 || blob->kind > FM_PART_KIND_MAX || blob->zero ||
            blob->decoded_bytes > FM_LIMIT_PART_BYTES) {
            return fm_fail(reterr, FM_ERR_CORRUPT,
                           "blob %u of the index is out of order or lies outside its shard", i);
        }
    }
    return FM_OK;
}

/* Only an index of a generation with complexes may have one. */
static bool complex_is_good(const fm_generation *generation, const fm_chain_entry *chain) {
    uint32_t entities = chain->part[1];
    return generation->n_complex && entities < generation->n_blob &&
           generation->blob[entities].kind == FM_PART_ENTITIES && chain->part[2] == FM_NO_PART &&
           chain->part[3] == FM_NO_PART;
}

static bool chain_is_good(const fm_generation *generation, const fm_chain_entry *chain) {
    uint32_t first = chain->part[0];
    if (first < generation->n_blob && generation->blob[first].kind == FM_PART_ASSEMBLY) {
        return complex_is_good(generation, chain);
    }
    for (uint32_t k = 0; k < FM_N_PART; k++) {
        uint32_t part = chain->part[k];
        if (part == FM_NO_PART && k + 1 != FM_PART_SEQUENCE) continue;
        if (part >= generation->n_blob || generation->blob[part].kind != k + 1) return false;
    }
    return true;
}

/* No dataset gives a name with one (source.h). It would reach logs, pages and clients. */
static bool has_control_bytes(const char *names, uint64_t bytes) {
    unsigned found = 0;
    for (uint64_t i = 0; i < bytes; i++) {
        unsigned byte = (uint8_t)names[i];
        found |= (byte < 0x20) & (byte != 0);
        found |= byte == 0x7f;
    }
    return found;
}

static fm_status check_chains(const fm_generation *generation, fm_error *reterr) {
    uint64_t at = 0;
    uint32_t n_complex = 0;
    const char *before = "";
    for (uint32_t i = 0; i < generation->n_chain; i++) {
        const fm_chain_entry *chain = &generation->chain[i];
        const char *name = generation->names + at;
        const char *end = memchr(name, '\0', (size_t)(generation->name_bytes - at));
        size_t length = end ? (size_t)(end - name) : 0;
        if (length < 1 || length > FM_LIMIT_NAME_BYTES || chain->name_at != at ||
            strcmp(before, name) >= 0 || !chain_is_good(generation, chain)) {
            return fm_fail(reterr, FM_ERR_CORRUPT,
                           "chain %u of the index has a broken name or unknown parts", i);
        }
        before = name;
        at += length + 1;
        n_complex += fm_generation_is_complex(generation, i);
    }
    if (n_complex != generation->n_complex) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "the index has %u complexes, the manifest says %u",
                       n_complex, generation->n_complex);
    }
    if (at != generation->name_bytes) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "the index has names of no chain");
    }
    if (!has_control_bytes(generation->names, generation->name_bytes)) return FM_OK;
    return fm_fail(reterr, FM_ERR_CORRUPT, "the index has a name with a control byte");
}

fm_status fm_index_decode(fm_bytes bytes, fm_generation *generation, fm_error *reterr) {
    assert((uintptr_t)bytes.data % ALIGN == 0);
    fm_reader reader = fm_reader_of(bytes.data, bytes.size);
    uint32_t magic = fm_read_u32(&reader), format = fm_read_u32(&reader);
    uint32_t n_chain = fm_read_u32(&reader), n_blob = fm_read_u32(&reader);
    uint64_t name_bytes = fm_read_u64(&reader);
    fm_read_align(&reader, ALIGN);
    uint32_t expected = generation->n_complex ? FORMAT_WITH_COMPLEXES : FORMAT;
    if (reader.failed || magic != INDEX_MAGIC || format != expected ||
        n_chain != generation->n_chain || name_bytes > bytes.size) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "the index's header is not that of its manifest");
    }
    const uint8_t *blob = fm_read_borrow(&reader, (size_t)n_blob * sizeof(fm_blob_entry));
    const uint8_t *chain = fm_read_borrow(&reader, (size_t)n_chain * sizeof(fm_chain_entry));
    fm_read_align(&reader, ALIGN);
    const uint8_t *names = fm_read_borrow(&reader, (size_t)name_bytes);
    if (reader.failed || fm_reader_left(&reader) != 0) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "the index's sizes do not add up to its %zu bytes",
                       bytes.size);
    }
    fm_generation found = *generation;
    found.n_blob = n_blob;
    found.blob = (const fm_blob_entry *)(const void *)blob;
    found.chain = (const fm_chain_entry *)(const void *)chain;
    found.names = (const char *)names;
    found.name_bytes = name_bytes;
    fm_status status = check_blobs(&found, reterr);
    if (!status) status = check_chains(&found, reterr);
    if (!status) *generation = found;
    return status;
}

/* -- notes */

fm_status fm_notes_encode(const fm_generation *generation, fm_arena *arena, fm_bytes *ret_bytes,
                          fm_error *reterr) {
    uint64_t value_bytes = 0;
    for (uint32_t i = 0; i < generation->n_note; i++)
        value_bytes += generation->note[i].value.size;
    uint64_t total = 16 + (uint64_t)generation->n_note * (sizeof(fm_sha256) + 4) + value_bytes;
    uint8_t *data = fm_arena_alloc(arena, (size_t)total);
    if (!data) return fm_arena_full(arena, reterr);
    fm_writer writer = fm_writer_of(data, (size_t)total);
    fm_write_u32(&writer, NOTES_MAGIC);
    fm_write_u32(&writer, FORMAT);
    fm_write_u64(&writer, generation->n_note);
    for (uint32_t i = 0; i < generation->n_note; i++) {
        const fm_note_entry *note = &generation->note[i];
        fm_write_bytes(&writer, note->key.bytes, sizeof note->key.bytes);
        fm_write_u32(&writer, (uint32_t)note->value.size);
        fm_write_bytes(&writer, note->value.data, note->value.size);
    }
    assert(!writer.failed && writer.at == total);
    *ret_bytes = (fm_bytes){data, (size_t)total};
    return FM_OK;
}

fm_status fm_notes_decode(fm_bytes bytes, fm_arena *arena, fm_generation *generation,
                          fm_error *reterr) {
    fm_reader reader = fm_reader_of(bytes.data, bytes.size);
    uint32_t magic = fm_read_u32(&reader), format = fm_read_u32(&reader);
    uint64_t n_note = fm_read_u64(&reader);
    if (reader.failed || magic != NOTES_MAGIC || format != FORMAT ||
        n_note > bytes.size / (sizeof(fm_sha256) + 4)) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "the notes' header is broken");
    }
    fm_note_entry *note = fm_arena_alloc_array(arena, (size_t)n_note, sizeof *note);
    if (!note) return fm_arena_full(arena, reterr);
    bool sorted = true;
    for (uint64_t i = 0; i < n_note && !reader.failed; i++) {
        const uint8_t *key = fm_read_borrow(&reader, sizeof(fm_sha256));
        uint32_t size = fm_read_u32(&reader);
        const uint8_t *value = fm_read_borrow(&reader, size);
        if (reader.failed) break;
        memcpy(note[i].key.bytes, key, sizeof(fm_sha256));
        note[i].value = (fm_bytes){value, size};
        sorted &= i == 0 || memcmp(&note[i - 1].key, &note[i].key, sizeof(fm_sha256)) < 0;
    }
    if (reader.failed || fm_reader_left(&reader) != 0 || !sorted) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "the notes are out of order or cut off");
    }
    generation->note = note;
    generation->n_note = (uint32_t)n_note;
    return FM_OK;
}

/* -- refusals */

fm_status fm_refusals_encode(const fm_generation *generation, fm_arena *arena, fm_bytes *ret_bytes,
                             fm_error *reterr) {
    size_t total = 0;
    for (uint32_t i = 0; i < generation->n_refused; i++)
        total += strlen(generation->refused[i].chain) + strlen(generation->refused[i].reason) + 2;
    uint8_t *data = fm_arena_alloc(arena, total);
    if (!data) return fm_arena_full(arena, reterr);
    fm_writer writer = fm_writer_of(data, total);
    for (uint32_t i = 0; i < generation->n_refused; i++) {
        const fm_refusal *refusal = &generation->refused[i];
        fm_write_bytes(&writer, refusal->chain, strlen(refusal->chain));
        fm_write_u8(&writer, '\t');
        fm_write_bytes(&writer, refusal->reason, strlen(refusal->reason));
        fm_write_u8(&writer, '\n');
    }
    *ret_bytes = (fm_bytes){data, total};
    return FM_OK;
}

fm_status fm_refusals_decode(fm_bytes bytes, fm_arena *arena, fm_generation *generation,
                             fm_error *reterr) {
    uint32_t n = generation->n_refused;
    fm_refusal *refused = fm_arena_alloc_array(arena, n, sizeof *refused);
    char *text = fm_arena_alloc(arena, bytes.size + 1);
    if (!refused || !text) return fm_arena_full(arena, reterr);
    memcpy(text, bytes.data, bytes.size);
    text[bytes.size] = '\0';
    char *at = text, *end = text + bytes.size;
    for (uint32_t i = 0; i < n; i++) {
        char *newline = memchr(at, '\n', (size_t)(end - at));
        char *tab = newline ? memchr(at, '\t', (size_t)(newline - at)) : NULL;
        if (!tab || tab == at || memchr(at, '\0', (size_t)(newline - at))) {
            return fm_fail_at(reterr, FM_ERR_CORRUPT, i + 1, 0, 0,
                              "a refusal is not 'chain <tab> reason'");
        }
        *tab = *newline = '\0';
        refused[i] = (fm_refusal){at, tab + 1};
        at = newline + 1;
        if (i > 0 && strcmp(refused[i - 1].chain, refused[i].chain) >= 0) {
            return fm_fail_at(reterr, FM_ERR_CORRUPT, i + 1, 0, 0, "refusals are out of order");
        }
    }
    if (at != end) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, n + 1, 0, 0, "more than the %u refusals", n);
    }
    generation->refused = refused;
    return FM_OK;
}
