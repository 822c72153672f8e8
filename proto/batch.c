/* batch.c: encodes and decodes samples; see batch.h. Byte tables: docs/reference/wire.md, "A
 * sample".
 *
 * Encoder and decoder check each tensor against the schema by the same function, check_tensor(), so
 * everything that can be written can be read. The schema gives shapes as words such as "N_clust
 * N_res 23". The first tensor of a cycle that contains a word binds its size, and all later ones
 * must agree. */
#include "proto/batch.h"

#include "proto/base/hash.h"
#include "proto/packed_rows.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAGIC = 0x31534d46, /* "FMS1" */
    VERSION = 1,
    CHECKED_FROM = 24, /* head_check covers the bytes from here to the end of the table */
    FIXED_BYTES = 88,  /* then the name */
    DESCRIPTOR_BYTES = 56,
    ALIGNMENT = 64,
};

/* The words of shapes whose sizes tensors bind. The first tensor that has one binds it, and later
 * ones must agree; sizes of a cycle's tensors are bound anew in each cycle. */
typedef enum word_id {
    N_CLUST,
    N_EXTRA,
    N_TEMPL,
    N_TOKEN_BOND,
    N_ATOM,
    N_BOND_MASK,
    N_GROUP,
    N_ORDER,
    N_ROW,
    N_WORD,
} word_id;

static const struct {
    const char *name;
    bool of_cycle;
    uint32_t least, most; /* N_templ is never 0: a sample without templates lacks their tensors */
} words[N_WORD] = {
    [N_CLUST] = {"N_clust", true, 0, FM_LIMIT_N_SEQ},
    [N_EXTRA] = {"N_extra", true, 0, FM_LIMIT_N_SEQ},
    [N_TEMPL] = {"N_templ", false, 1, FM_LIMIT_N_SEQ},
    [N_TOKEN_BOND] = {"N_token_bond", false, 0, FM_LIMIT_N_COMPLEX_BOND},
    [N_ATOM] = {"N_atom", false, 1, FM_LIMIT_N_COMPLEX_ATOM},
    [N_BOND_MASK] = {"N_bond_mask", false, 0, FM_LIMIT_N_COMPLEX_BOND},
    [N_GROUP] = {"N_group", false, 1, FM_LIMIT_N_COMPLEX_ATOM},
    [N_ORDER] = {"N_order", false, 0, FM_LIMIT_FRAME_BYTES / 2},
    [N_ROW] = {"N_row", true, 1, FM_LIMIT_N_SEQ},
};

/* The header's N_res, which complexes call N_token, and the words' sizes. */
typedef struct size_words {
    uint32_t n_res;
    bool has[N_WORD];
    uint32_t size[N_WORD];
} size_words;

static size_t align_up(size_t n, size_t alignment) {
    return (n + alignment - 1) & ~(alignment - 1);
}

static uint32_t order_key(const fm_tensor_view *view) {
    uint32_t cycle = view->cycle == FM_SHARED ? 0 : view->cycle + 1u;
    return cycle << 16 | view->id;
}

/* -- the check of a tensor */

static bool is_word(const char *word, size_t length, const char *name) {
    return length == strlen(name) && memcmp(word, name, length) == 0;
}

/* Returns the size that a word of a shape demands; false when that is not known, or out of range.
 * `found` is what the tensor has. */
static bool word_size(const char *word, size_t length, uint32_t found, size_words *sizes,
                      uint64_t *ret_expected) {
    if (word[0] >= '0' && word[0] <= '9') {
        *ret_expected = strtoul(word, NULL, 10);
        return true;
    }
    if (is_word(word, length, "N_res") || is_word(word, length, "N_token")) {
        *ret_expected = sizes->n_res;
        return true;
    }
    if (is_word(word, length, "ceil(N_clust*N_res/8)")) {
        *ret_expected = ((uint64_t)sizes->size[N_CLUST] * sizes->n_res + 7) / 8;
        return sizes->has[N_CLUST];
    }
    uint32_t more = length > 2 && memcmp(word + length - 2, "+1", 2) == 0;
    word_id w = 0;
    while (!is_word(word, length - 2 * more, words[w].name)) {
        w++;
        assert(w < N_WORD);
    }
    if (!sizes->has[w] && found >= more && found - more >= words[w].least &&
        found - more <= words[w].most) {
        sizes->has[w] = true;
        sizes->size[w] = found - more;
    }
    *ret_expected = (uint64_t)sizes->size[w] + more;
    return sizes->has[w];
}

static fm_status check_shape(const fm_tensor_rule *rule, const fm_tensor_view *view,
                             size_words *sizes, uint64_t offset, fm_error *reterr) {
    uint32_t rank = 0;
    for (const char *word = rule->shape; *word; rank++) {
        size_t length = strcspn(word, " ");
        uint32_t found = rank < view->rank ? view->shape[rank] : 0;
        uint64_t expected;
        if (rank >= view->rank || !word_size(word, length, found, sizes, &expected) ||
            found != expected) {
            return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, offset,
                              "dimension %u of %s is %u of rank %u, expected [%s]", rank,
                              rule->name, found, view->rank, rule->shape);
        }
        word += length + (word[length] == ' ');
    }
    for (uint32_t i = rank; i < FM_LIMIT_RANK; i++) {
        if (view->shape[i]) {
            return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, offset, "%s has sizes past its rank %u",
                              rule->name, rank);
        }
    }
    if (rank != view->rank) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, offset, "%s has rank %u, expected [%s]",
                          rule->name, view->rank, rule->shape);
    }
    return FM_OK;
}

/* Computes shape times element size; false when it exceeds the frame limit. */
static bool tensor_bytes(const fm_tensor_view *view, size_t *ret_bytes) {
    size_t bytes = fm_dtype_bytes(view->dtype);
    for (uint32_t i = 0; i < view->rank; i++) {
        if (__builtin_mul_overflow(bytes, view->shape[i], &bytes)) return false;
    }
    *ret_bytes = bytes;
    return bytes <= FM_LIMIT_FRAME_BYTES;
}

/* Checks everything about a tensor except its data. `previous` is NULL for the first. */
static fm_status check_tensor(const fm_tensor_view *view, const fm_tensor_view *previous,
                              uint32_t n_cycle, size_words *sizes, uint64_t offset,
                              fm_error *reterr) {
    const fm_tensor_rule *rule = fm_schema_find(view->id);
    if (!rule) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, offset, "found the unknown tensor id %u",
                          view->id);
    }
    if (previous && fm_schema_kind(previous->id) != fm_schema_kind(view->id)) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, offset,
                          "found %s (id %u) after id %u: a sample is of a chain or of a complex",
                          rule->name, view->id, previous->id);
    }
    bool cycle_fits = rule->per_cycle ? view->cycle < n_cycle : view->cycle == FM_SHARED;
    if (!cycle_fits) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, offset,
                          "%s has cycle %u in a sample of %u cycles", rule->name, view->cycle,
                          n_cycle);
    }
    if (view->dtype >= FM_N_DTYPE || !(rule->dtypes >> view->dtype & 1)) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, offset, "%s cannot have dtype %u (%s)",
                          rule->name, view->dtype, fm_dtype_name(view->dtype));
    }
    if (previous && order_key(previous) >= order_key(view)) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, offset,
                          "%s of cycle %u is out of order: shared first, then cycle, then id",
                          rule->name, view->cycle);
    }
    for (word_id w = 0; w < N_WORD && previous && previous->cycle != view->cycle; w++)
        sizes->has[w] = sizes->has[w] && !words[w].of_cycle;
    if (view->rank > FM_LIMIT_RANK) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, offset, "%s has rank %u, the limit is %u",
                          rule->name, view->rank, FM_LIMIT_RANK);
    }
    /* So that zeros, which take no room, are not more than the rows that came. */
    if (fm_schema_packing(view->id) == FM_PACKED_COUNTS && !sizes->has[N_ROW]) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, offset,
                          "%s of cycle %u comes without the rows of msa", rule->name, view->cycle);
    }
    fm_status status = check_shape(rule, view, sizes, offset, reterr);
    if (status) return status;
    size_t bytes;
    if (!tensor_bytes(view, &bytes) || bytes != view->bytes) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, offset,
                          "%s has %zu bytes, which its shape and dtype do not give", rule->name,
                          view->bytes);
    }
    return FM_OK;
}

static fm_status check_head(const fm_sample *sample, fm_error *reterr) {
    if (sample->n_cycle < 1 || sample->n_cycle > FM_LIMIT_N_CYCLE) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, 60,
                          "the sample has %u cycles, expected 1 to %u", sample->n_cycle,
                          FM_LIMIT_N_CYCLE);
    }
    if (sample->n_res < 1 || sample->n_res_chain > FM_LIMIT_N_RES ||
        sample->n_res > sample->n_res_chain ||
        sample->crop_start > sample->n_res_chain - sample->n_res) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, 64,
                          "the crop of %u residues from %u is not inside the chain of %u",
                          sample->n_res, sample->crop_start, sample->n_res_chain);
    }
    if (sample->n_seq_chain > FM_LIMIT_N_SEQ) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, 76,
                          "the chain's MSA has %u rows, the limit is %u", sample->n_seq_chain,
                          FM_LIMIT_N_SEQ);
    }
    if (!isfinite(sample->resolution) || signbit(sample->resolution)) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, 80,
                          "the resolution is not a finite number of at least 0");
    }
    if (sample->is_distillation > 1 || sample->use_clamped_fape > 1) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, 84,
                          "is_distillation or use_clamped_fape is neither 0 nor 1");
    }
    return FM_OK;
}

const fm_tensor_view *fm_sample_find(const fm_sample *sample, fm_tensor_id id, uint32_t cycle) {
    for (uint32_t i = 0; i < sample->n_tensor; i++) {
        if (sample->tensor[i].id == (uint32_t)id && sample->tensor[i].cycle == cycle) {
            return &sample->tensor[i];
        }
    }
    return NULL;
}

/* -- encoding */

static size_t table_start(const fm_sample *sample) {
    return align_up(FIXED_BYTES + strlen(sample->name), 8);
}

static size_t table_end(const fm_sample *sample) {
    return table_start(sample) + (size_t)sample->n_tensor * DESCRIPTOR_BYTES;
}

/* Bytes of a tensor's data when encoded. */
static size_t stored_bytes(const fm_tensor_view *view) {
    fm_packing packing = fm_schema_packing(view->id);
    return packing ? fm_packed_bytes(packing, view->data, view->bytes) : view->bytes;
}

size_t fm_sample_encoded_bytes(const fm_sample *sample) {
    size_t end = table_end(sample);
    for (uint32_t i = 0; i < sample->n_tensor; i++)
        end = align_up(end, ALIGNMENT) + stored_bytes(&sample->tensor[i]);
    return end;
}

static size_t widest_bytes(const fm_tensor_rule *rule, size_words *sizes) {
    size_t widest = 0;
    for (uint32_t dtype = FM_U8; dtype < FM_N_DTYPE; dtype++) {
        size_t bytes = fm_dtype_bytes(dtype);
        if (rule->dtypes >> dtype & 1 && bytes > widest) widest = bytes;
    }
    for (const char *word = rule->shape; *word;) {
        size_t length = strcspn(word, " ");
        uint64_t size = 0;
        bool known = word_size(word, length, 0, sizes, &size);
        assert(known);
        (void)known;
        widest *= size;
        word += length + (word[length] == ' ');
    }
    fm_packing packing = fm_schema_packing(rule->id);
    if (packing) widest = fm_packed_most_bytes(packing, widest);
    return align_up(widest, ALIGNMENT);
}

/* Bytes of a sample that has every tensor of its kind. */
static size_t largest_bytes(fm_sample_kind kind, uint32_t n_cycle, size_words *sizes) {
    size_t n_rule, shared = 0, cycle = 0, n_shared = 0, n_per_cycle = 0;
    const fm_tensor_rule *rules = fm_schema_rules(&n_rule);
    for (size_t i = 0; i < n_rule; i++) {
        if (fm_schema_kind(rules[i].id) != kind) continue;
        *(rules[i].per_cycle ? &cycle : &shared) += widest_bytes(&rules[i], sizes);
        *(rules[i].per_cycle ? &n_per_cycle : &n_shared) += 1;
    }
    size_t table = (n_shared + n_per_cycle * n_cycle) * DESCRIPTOR_BYTES;
    size_t head = align_up(FIXED_BYTES + FM_LIMIT_NAME_BYTES + 8 + table, ALIGNMENT);
    return head + shared + cycle * n_cycle;
}

size_t fm_sample_max_bytes(uint32_t n_res, uint32_t n_clust, uint32_t n_extra, uint32_t n_templ,
                           uint32_t n_cycle) {
    size_words sizes = {
        .n_res = n_res,
        .has = {[N_CLUST] = true, [N_EXTRA] = true, [N_TEMPL] = true},
        .size = {[N_CLUST] = n_clust, [N_EXTRA] = n_extra, [N_TEMPL] = n_templ},
    };
    return largest_bytes(FM_SAMPLE_OF_CHAIN, n_cycle, &sizes);
}

size_t fm_sample_max_complex_bytes(uint32_t n_token, uint32_t n_atom, uint32_t n_row,
                                   uint32_t n_templ, uint32_t n_cycle) {
    size_words sizes = {
        .n_res = n_token,
        .size = {[N_TEMPL] = n_templ,
                 [N_TOKEN_BOND] = FM_LIMIT_BONDS_PER_TOKEN * n_token,
                 [N_ATOM] = n_atom,
                 [N_BOND_MASK] = n_token,
                 [N_GROUP] = n_atom,
                 [N_ORDER] = FM_LIMIT_ORDERS_PER_ATOM * n_atom,
                 [N_ROW] = n_row},
    };
    for (word_id w = 0; w < N_WORD; w++)
        sizes.has[w] = true;
    return largest_bytes(FM_SAMPLE_OF_COMPLEX, n_cycle, &sizes);
}

static void assert_valid(const fm_sample *sample) {
    assert(!check_head(sample, NULL));
    assert(sample->n_tensor <= FM_LIMIT_N_SEGMENT);
    size_words sizes = {.n_res = sample->n_res};
    for (uint32_t i = 0; i < sample->n_tensor; i++) {
        fm_error why = {0};
        fm_status status = check_tensor(&sample->tensor[i], i ? &sample->tensor[i - 1] : NULL,
                                        sample->n_cycle, &sizes, i, &why);
        assert(!status);
        (void)status;
    }
}

static void write_head(fm_writer *writer, const fm_sample *sample, size_t total_bytes) {
    fm_write_u32(writer, MAGIC);
    fm_write_u16(writer, VERSION);
    fm_write_u16(writer, (uint16_t)sample->n_tensor);
    fm_write_u64(writer, total_bytes);
    fm_write_u64(writer, 0); /* head_check, written after the table */
    fm_write_u64(writer, sample->seed);
    fm_write_u64(writer, sample->index);
    fm_write_u64(writer, sample->step);
    fm_write_u32(writer, sample->slot);
    fm_write_u32(writer, sample->epoch);
    fm_write_u32(writer, sample->chain);
    fm_write_u32(writer, sample->n_cycle);
    fm_write_u32(writer, sample->n_res_chain);
    fm_write_u32(writer, sample->crop_start);
    fm_write_u32(writer, sample->n_res);
    fm_write_u32(writer, sample->n_seq_chain);
    fm_write_f32(writer, sample->resolution);
    fm_write_u8(writer, sample->is_distillation);
    fm_write_u8(writer, sample->use_clamped_fape);
    fm_write_u8(writer, (uint8_t)strlen(sample->name));
    fm_write_u8(writer, 0);
    fm_write_bytes(writer, sample->name, strlen(sample->name));
    fm_write_align(writer, 8);
}

static void write_descriptor(fm_writer *writer, const fm_tensor_view *view, size_t offset,
                             fm_bytes stored) {
    fm_write_u16(writer, view->id);
    fm_write_u8(writer, view->cycle);
    fm_write_u8(writer, view->dtype);
    fm_write_u32(writer, view->rank);
    for (uint32_t i = 0; i < FM_LIMIT_RANK; i++)
        fm_write_u32(writer, view->shape[i]);
    fm_write_u64(writer, offset);
    fm_write_u64(writer, stored.size);
    fm_write_u64(writer, fm_xxh3(stored.data, stored.size));
}

/* Writes a tensor's data, packed if its rule says so, and returns them. */
static fm_bytes write_data(const fm_tensor_view *view, uint8_t *out) {
    fm_packing packing = fm_schema_packing(view->id);
    const fm_bytes stored = {out, stored_bytes(view)};
    if (packing) {
        fm_packed_encode(packing, view->data, view->bytes, out);
    } else if (stored.size > 0) {
        memcpy(out, view->data, stored.size);
    }
    return stored;
}

void fm_sample_encode(const fm_sample *sample, uint8_t *out) {
    assert_valid(sample);
    size_t total_bytes = fm_sample_encoded_bytes(sample);
    fm_writer writer = fm_writer_of(out, total_bytes);
    write_head(&writer, sample, total_bytes);
    size_t end = table_end(sample);
    for (uint32_t i = 0; i < sample->n_tensor; i++) {
        size_t start = align_up(end, ALIGNMENT);
        memset(out + end, 0, start - end);
        const fm_bytes stored = write_data(&sample->tensor[i], out + start);
        write_descriptor(&writer, &sample->tensor[i], start, stored);
        end = start + stored.size;
    }
    uint64_t check = fm_xxh3(out + CHECKED_FROM, writer.at - CHECKED_FROM);
    memcpy(out + 16, &check, sizeof check);
    assert(!writer.failed && writer.at == table_end(sample) && end == total_bytes);
}

/* -- decoding */

static fm_status read_preamble(fm_reader *reader, fm_sample *sample, uint64_t *ret_head_check,
                               fm_error *reterr) {
    uint32_t magic = fm_read_u32(reader);
    uint16_t version = fm_read_u16(reader);
    sample->n_tensor = fm_read_u16(reader);
    uint64_t total_bytes = fm_read_u64(reader);
    uint64_t head_check = fm_read_u64(reader);
    if (reader->failed || magic != MAGIC) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, 0,
                          "the bytes are not a sample: no magic FMS1");
    }
    if (version != VERSION) {
        return fm_fail_at(reterr, FM_ERR_UNSUPPORTED, 0, 0, 4,
                          "the sample has version %u, expected %u", version, VERSION);
    }
    if (total_bytes != reader->size) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, 8,
                          "the sample declares %llu bytes but has %zu",
                          (unsigned long long)total_bytes, reader->size);
    }
    if (sample->n_tensor > FM_LIMIT_N_SEGMENT) {
        return fm_fail_at(reterr, FM_ERR_LIMIT, 0, 0, 6,
                          "the sample has %u tensors, the limit is %u", sample->n_tensor,
                          FM_LIMIT_N_SEGMENT);
    }
    *ret_head_check = head_check;
    return FM_OK;
}

static fm_status read_name(fm_reader *reader, fm_sample *sample, fm_error *reterr) {
    size_t name_bytes = fm_read_u8(reader);
    uint8_t zero = fm_read_u8(reader);
    const uint8_t *name = fm_read_borrow(reader, name_bytes);
    fm_read_align(reader, 8);
    bool plain = name && zero == 0 && !reader->failed;
    for (size_t i = 0; plain && i < name_bytes; i++)
        plain = name[i] >= 0x20 && name[i] != 0x7f;
    if (!plain) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, FIXED_BYTES,
                          "the chain's name is cut, padded with other than zeros, or has control "
                          "bytes");
    }
    memcpy(sample->name, name, name_bytes);
    sample->name[name_bytes] = '\0';
    return FM_OK;
}

static fm_status read_head(fm_reader *reader, fm_sample *sample, fm_error *reterr) {
    uint64_t head_check = 0;
    fm_status status = read_preamble(reader, sample, &head_check, reterr);
    if (status) return status;
    sample->seed = fm_read_u64(reader);
    sample->index = fm_read_u64(reader);
    sample->step = fm_read_u64(reader);
    sample->slot = fm_read_u32(reader);
    sample->epoch = fm_read_u32(reader);
    sample->chain = fm_read_u32(reader);
    sample->n_cycle = fm_read_u32(reader);
    sample->n_res_chain = fm_read_u32(reader);
    sample->crop_start = fm_read_u32(reader);
    sample->n_res = fm_read_u32(reader);
    sample->n_seq_chain = fm_read_u32(reader);
    sample->resolution = fm_read_f32(reader);
    sample->is_distillation = fm_read_u8(reader);
    sample->use_clamped_fape = fm_read_u8(reader);
    status = read_name(reader, sample, reterr);
    if (status) return status;
    size_t table_bytes = (size_t)sample->n_tensor * DESCRIPTOR_BYTES;
    if (table_bytes > fm_reader_left(reader)) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, reader->at,
                          "the table of %u tensors is cut off", sample->n_tensor);
    }
    size_t checked = reader->at + table_bytes - CHECKED_FROM;
    if (fm_xxh3(reader->data + CHECKED_FROM, checked) != head_check) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, 16,
                          "the header does not match its checksum");
    }
    return check_head(sample, reterr);
}

/* A tensor's data as they came, and the checksum that they should have. */
typedef struct stored_data {
    fm_bytes bytes;
    uint64_t check;
} stored_data;

/* Reads one descriptor, without the view's data and bytes. *data_end is the end of the data so far
 * and advances past this tensor's. */
static fm_status read_descriptor(fm_reader *reader, fm_tensor_view *view, stored_data *ret_stored,
                                 size_t *data_end, fm_error *reterr) {
    size_t at = reader->at;
    view->id = fm_read_u16(reader);
    view->cycle = fm_read_u8(reader);
    view->dtype = fm_read_u8(reader);
    uint32_t rank = fm_read_u32(reader);
    for (uint32_t i = 0; i < FM_LIMIT_RANK; i++)
        view->shape[i] = fm_read_u32(reader);
    uint64_t offset = fm_read_u64(reader), bytes = fm_read_u64(reader);
    ret_stored->check = fm_read_u64(reader);
    size_t start = align_up(*data_end, ALIGNMENT);
    if (rank > FM_LIMIT_RANK || offset != start || start > reader->size ||
        bytes > reader->size - start) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, at,
                          "tensor %u: %llu bytes at %llu, expected at %zu within %zu bytes",
                          view->id, (unsigned long long)bytes, (unsigned long long)offset, start,
                          reader->size);
    }
    for (size_t i = *data_end; i < start; i++) {
        if (reader->data[i]) {
            return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, i, "found padding that is not zero");
        }
    }
    view->rank = (uint8_t)rank;
    ret_stored->bytes = (fm_bytes){reader->data + start, (size_t)bytes};
    *data_end = start + (size_t)bytes;
    return FM_OK;
}

/* Fills the data of a checked view: in place, or unpacked in the arena. */
static fm_status unpack(fm_tensor_view *view, fm_packing packing, fm_bytes stored, size_t at,
                        fm_arena *arena, fm_error *reterr) {
    view->data = stored.data;
    if (!packing) return FM_OK;
    uint8_t *data = fm_arena_alloc(arena, view->bytes);
    if (!data) return fm_arena_full(arena, reterr);
    view->data = data;
    if (fm_packed_decode(packing, stored, view->bytes, data)) return FM_OK;
    return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, at,
                      "the %zu bytes of %s (cycle %u) are not %zu packed values", stored.size,
                      fm_schema_find(view->id)->name, view->cycle, view->bytes);
}

/* The table's reader and what it has come to. */
typedef struct tensor_reader {
    fm_reader *reader;
    uint32_t n_cycle;
    bool verify_checksums;
    fm_arena *arena;
    size_words sizes;
    size_t data_end;
} tensor_reader;

/* Reads the tensor of one descriptor. `previous` is NULL for the first. */
static fm_status read_tensor(tensor_reader *r, const fm_tensor_view *previous, fm_tensor_view *view,
                             fm_error *reterr) {
    size_t at = r->reader->at;
    stored_data stored = {0};
    fm_status status = read_descriptor(r->reader, view, &stored, &r->data_end, reterr);
    if (status) return status;
    fm_packing packing = fm_schema_packing(view->id);
    view->bytes = stored.bytes.size;
    if (packing && !tensor_bytes(view, &view->bytes)) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, at,
                          "%s of cycle %u has more than %zu bytes unpacked",
                          fm_schema_find(view->id)->name, view->cycle, FM_LIMIT_FRAME_BYTES);
    }
    status = check_tensor(view, previous, r->n_cycle, &r->sizes, at, reterr);
    if (status) return status;
    if (r->verify_checksums && fm_xxh3(stored.bytes.data, stored.bytes.size) != stored.check) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, at,
                          "the data of %s (cycle %u) does not match its checksum",
                          fm_schema_find(view->id)->name, view->cycle);
    }
    return unpack(view, packing, stored.bytes, at, r->arena, reterr);
}

static fm_status read_tensors(fm_reader *reader, const fm_sample *sample, fm_tensor_view *tensor,
                              bool verify_checksums, fm_arena *arena, fm_error *reterr) {
    tensor_reader r = {.reader = reader,
                       .n_cycle = sample->n_cycle,
                       .verify_checksums = verify_checksums,
                       .arena = arena,
                       .sizes = {.n_res = sample->n_res},
                       .data_end = reader->at + (size_t)sample->n_tensor * DESCRIPTOR_BYTES};
    for (uint32_t i = 0; i < sample->n_tensor; i++) {
        fm_status status = read_tensor(&r, i ? &tensor[i - 1] : NULL, &tensor[i], reterr);
        if (status) return status;
    }
    if (r.data_end != reader->size) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, r.data_end,
                          "found %zu bytes after the last tensor", reader->size - r.data_end);
    }
    return FM_OK;
}

size_t fm_sample_arena_bytes(size_t encoded_bytes) {
    return FM_LIMIT_N_SEGMENT * (sizeof(fm_tensor_view) + ALIGNMENT) + 2 * encoded_bytes;
}

fm_status fm_sample_decode(fm_bytes bytes, bool verify_checksums, fm_arena *arena,
                           fm_sample *ret_sample, fm_error *reterr) {
    assert((uintptr_t)bytes.data % ALIGNMENT == 0);
    fm_reader reader = fm_reader_of(bytes.data, bytes.size);
    fm_sample sample = {0};
    fm_status status = read_head(&reader, &sample, reterr);
    if (status) return status;
    fm_tensor_view *tensor = fm_arena_calloc(arena, sample.n_tensor, sizeof *tensor);
    if (!tensor) return fm_arena_full(arena, reterr);
    status = read_tensors(&reader, &sample, tensor, verify_checksums, arena, reterr);
    if (status) return status;
    sample.tensor = tensor;
    *ret_sample = sample;
    return FM_OK;
}

fm_status fm_sample_decode_head(fm_bytes bytes, fm_sample *ret_sample, fm_error *reterr) {
    fm_reader reader = fm_reader_of(bytes.data, bytes.size);
    *ret_sample = (fm_sample){0};
    return read_head(&reader, ret_sample, reterr);
}
