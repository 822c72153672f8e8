/* record_hits.c: encodes and decodes the hits part (docs/reference/record.md, "hits").
 *
 * The sections are: one entry of fixed size per hit, then the runs of all hits as three arrays of
 * u16 (query, template, size), then all letters, then all names. Runs and letters are borrowed when
 * decoded. Encoding and decoding check a hit by the same function, so every hit that decodes is
 * canonical. */
#include "proto/record_part.h"

#include "proto/limits.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { WORD_N_RES, WORD_N_HIT, WORD_N_RUN, WORD_N_LETTER, WORD_NAME_BYTES, N_WORD };
enum { ENTRY_BYTES = 80, FLAG_IN_QUERY = 1 };

static const fm_part_kind KIND = FM_PART_HITS;

typedef struct hits_sizes {
    uint32_t n_res, n_hit;
    uint64_t n_run, n_letter, name_bytes;
} hits_sizes;

static uint64_t encoded_bytes(const hits_sizes *sizes) {
    uint64_t at = fm_part_padded(FM_PART_HEADER_BYTES + (uint64_t)sizes->n_hit * ENTRY_BYTES);
    for (int i = 0; i < 3; i++)
        at = fm_part_padded(at + sizes->n_run * 2);
    at = fm_part_padded(at + sizes->n_letter);
    return at + sizes->name_bytes;
}

static uint64_t double_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return isnan(value) ? 0x7ff8000000000000u : bits;
}

/* -- checks of one hit, for both directions */

static const char *check_runs(const fm_template_hit *hit, uint32_t n_res) {
    uint32_t query = 0, template = 0;
    for (uint32_t i = 0; i < hit->n_run; i++) {
        uint32_t size = hit->run_size[i];
        if (size == 0) return "an empty run";
        if (hit->run_query[i] < query) return "runs that overlap or do not ascend";
        if (i && hit->run_query[i] == query && hit->run_template[i] == template) {
            return "two runs that should be one";
        }
        query = hit->run_query[i] + size;
        template = hit->run_template[i] + size;
        if (query > n_res || template > FM_LIMIT_N_RES) return "a run past the chain's end";
    }
    return NULL;
}

static const char *check_letters(const char *letters, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        if (letters[i] < 'A' || letters[i] > 'Z') return "a letter outside A-Z";
    }
    return NULL;
}

/* Returns the hit's error in words, or NULL. *ret_n_letter is the number of letters in its runs. */
static const char *check_hit(const fm_template_hit *hit, uint32_t n_res, uint64_t *ret_n_letter) {
    static const fm_sha256 none = {{0}};
    size_t name_bytes = strlen(hit->name);
    bool is_none = memcmp(&hit->structure, &none, sizeof none) == 0;
    *ret_n_letter = 0;
    if (name_bytes < 1 || name_bytes > FM_LIMIT_NAME_BYTES) {
        return "a name that is empty or too long";
    }
    if ((int)hit->fault < 0 || hit->fault > FM_HIT_FAULT_MAX) return "an unknown fault";
    if (!fm_part_is_date(hit->release_date) || !fm_part_is_date(hit->listed_date)) {
        return "a date that is not YYYY-MM-DD";
    }
    if (hit->fault ? !is_none || hit->n_run : is_none || !hit->n_run) {
        return "a mapping and a fault, or neither";
    }
    const char *wrong = check_runs(hit, n_res);
    for (uint32_t i = 0; !wrong && i < hit->n_run; i++)
        *ret_n_letter += hit->run_size[i];
    return wrong ? wrong : check_letters(hit->letters, *ret_n_letter);
}

static fm_status fail_hit(const char *wrong, uint32_t i, fm_status status, fm_error *reterr) {
    return fm_fail(reterr, status, "hit %u of the hits part has %s", i + 1, wrong);
}

static fm_status check_sizes(const hits_sizes *sizes, fm_status status, fm_error *reterr) {
    fm_status found = fm_part_check_n_res(sizes->n_res, KIND, status, reterr);
    if (found) return found;
    if (sizes->n_hit > FM_LIMIT_N_HIT || encoded_bytes(sizes) > FM_LIMIT_PART_BYTES) {
        return fm_fail(reterr, status, "the hits part has %u hits, which exceeds the limits",
                       sizes->n_hit);
    }
    return FM_OK;
}

/* -- encode */

static fm_status measure(const fm_part_hits *part, hits_sizes *ret_sizes, fm_error *reterr) {
    hits_sizes sizes = {.n_res = part->n_res, .n_hit = part->n_hit};
    fm_status status = check_sizes(&sizes, FM_ERR_LIMIT, reterr);
    for (uint32_t i = 0; !status && i < part->n_hit; i++) {
        uint64_t n_letter;
        const char *wrong = check_hit(&part->hit[i], part->n_res, &n_letter);
        if (wrong) return fail_hit(wrong, i, FM_ERR_DATA, reterr);
        sizes.n_run += part->hit[i].n_run;
        sizes.n_letter += n_letter;
        sizes.name_bytes += strlen(part->hit[i].name) + 1;
    }
    if (!status) status = check_sizes(&sizes, FM_ERR_LIMIT, reterr);
    if (!status) *ret_sizes = sizes;
    return status;
}

static void write_entry(fm_writer *writer, const fm_template_hit *hit) {
    fm_write_u64(writer, double_bits(hit->sum_probs));
    fm_write_u32(writer, (uint32_t)hit->aligned_cols);
    fm_write_u32(writer, hit->n_letter);
    fm_write_u32(writer, hit->n_run);
    fm_write_u8(writer, (uint8_t)strlen(hit->name));
    fm_write_u8(writer, (uint8_t)hit->fault);
    fm_write_u8(writer, hit->in_query ? FLAG_IN_QUERY : 0);
    fm_write_u8(writer, 0);
    fm_write_bytes(writer, hit->structure.bytes, FM_SHA256_BYTES);
    fm_write_bytes(writer, hit->release_date, FM_PART_DATE_BYTES);
    fm_write_bytes(writer, hit->listed_date, FM_PART_DATE_BYTES);
    fm_write_u32(writer, 0);
}

static const uint16_t *run_array(const fm_template_hit *hit, int which) {
    const uint16_t *const arrays[] = {hit->run_query, hit->run_template, hit->run_size};
    return arrays[which];
}

fm_status fm_part_hits_encode(const fm_part_hits *part, fm_arena *arena, fm_bytes *ret_bytes,
                              fm_error *reterr) {
    hits_sizes sizes;
    fm_status status = measure(part, &sizes, reterr);
    if (status) return status;
    const uint32_t word[FM_PART_N_WORD] = {
        [WORD_N_RES] = sizes.n_res,
        [WORD_N_HIT] = sizes.n_hit,
        [WORD_N_RUN] = (uint32_t)sizes.n_run,
        [WORD_N_LETTER] = (uint32_t)sizes.n_letter,
        [WORD_NAME_BYTES] = (uint32_t)sizes.name_bytes,
    };
    fm_writer writer;
    status = fm_part_begin(arena, KIND, FM_PART_HITS_FORMAT, encoded_bytes(&sizes), word, &writer,
                           reterr);
    if (status) return status;
    for (uint32_t i = 0; i < part->n_hit; i++)
        write_entry(&writer, &part->hit[i]);
    for (int which = 0; which < 3; which++) {
        fm_write_align(&writer, FM_PART_ALIGN);
        for (uint32_t i = 0; i < part->n_hit; i++) {
            const fm_template_hit *hit = &part->hit[i];
            for (uint32_t k = 0; k < hit->n_run; k++)
                fm_write_u16(&writer, run_array(hit, which)[k]);
        }
    }
    fm_write_align(&writer, FM_PART_ALIGN);
    for (uint32_t i = 0; i < part->n_hit; i++) {
        const fm_template_hit *hit = &part->hit[i];
        size_t n_letter = 0;
        for (uint32_t k = 0; k < hit->n_run; k++)
            n_letter += hit->run_size[k];
        if (n_letter) fm_write_bytes(&writer, hit->letters, n_letter);
    }
    fm_write_align(&writer, FM_PART_ALIGN);
    for (uint32_t i = 0; i < part->n_hit; i++)
        fm_write_bytes(&writer, part->hit[i].name, strlen(part->hit[i].name) + 1);
    assert(!writer.failed && writer.at == writer.capacity);
    *ret_bytes = (fm_bytes){writer.data, writer.at};
    return FM_OK;
}

/* -- decode */

/* The parts of the pools that no hit has taken yet. */
typedef struct hits_pools {
    fm_reader entries, names;
    const uint16_t *run[3];
    const char *letters;
    uint64_t n_run, n_letter;
} hits_pools;

static fm_status read_pools(fm_reader *reader, const hits_sizes *sizes, hits_pools *ret_pools,
                            fm_error *reterr) {
    hits_pools pools = {.n_run = sizes->n_run, .n_letter = sizes->n_letter};
    uint64_t entry_bytes = (uint64_t)sizes->n_hit * ENTRY_BYTES;
    const uint8_t *entries = fm_part_section(reader, entry_bytes);
    for (int i = 0; i < 3; i++)
        pools.run[i] = (const uint16_t *)(const void *)fm_part_section(reader, sizes->n_run * 2);
    pools.letters = (const char *)fm_part_section(reader, sizes->n_letter);
    const uint8_t *names = fm_part_section(reader, sizes->name_bytes);
    fm_status status = fm_part_finish(reader, KIND, reterr);
    if (status) return status;
    pools.entries = fm_reader_of(entries, (size_t)entry_bytes);
    pools.names = fm_reader_of(names, (size_t)sizes->name_bytes);
    *ret_pools = pools;
    return FM_OK;
}

static void read_date(fm_reader *reader, char out[FM_RELEASE_DATE]) {
    const uint8_t *bytes = fm_read_borrow(reader, FM_PART_DATE_BYTES);
    memset(out, 0, FM_RELEASE_DATE);
    if (bytes) memcpy(out, bytes, FM_PART_DATE_BYTES);
}

/* Returns the name at the head of the pool, or NULL when it is not terminated where it should
 * be. */
static const char *read_name(fm_reader *names, uint8_t name_bytes) {
    const char *name = (const char *)fm_read_borrow(names, (size_t)name_bytes + 1);
    return name && memchr(name, 0, (size_t)name_bytes + 1) == name + name_bytes ? name : NULL;
}

static const char *read_hit(hits_pools *pools, uint32_t n_res, fm_template_hit *ret_hit) {
    fm_reader *reader = &pools->entries;
    fm_template_hit hit = {0};
    uint64_t bits = fm_read_u64(reader), n_letter;
    memcpy(&hit.sum_probs, &bits, sizeof bits);
    hit.aligned_cols = (int32_t)fm_read_u32(reader);
    hit.n_letter = fm_read_u32(reader);
    hit.n_run = fm_read_u32(reader);
    hit.name = read_name(&pools->names, fm_read_u8(reader));
    hit.fault = (fm_hit_fault)fm_read_u8(reader);
    uint8_t flags = fm_read_u8(reader), zero = fm_read_u8(reader);
    hit.in_query = flags & FLAG_IN_QUERY;
    const uint8_t *hash = fm_read_borrow(reader, FM_SHA256_BYTES);
    assert(hash); /* there are as many entries as hits */
    memcpy(hit.structure.bytes, hash, FM_SHA256_BYTES);
    read_date(reader, hit.release_date);
    read_date(reader, hit.listed_date);
    if (flags & ~FLAG_IN_QUERY || zero || fm_read_u32(reader)) return "unknown flags";
    if (!hit.name) return "a name that is not terminated";
    if (double_bits(hit.sum_probs) != bits) return "a NaN that is not the canonical one";
    if (hit.n_run > pools->n_run) return "more runs than the part holds";
    hit.run_query = pools->run[0];
    hit.run_template = pools->run[1];
    hit.run_size = pools->run[2];
    hit.letters = pools->letters;
    n_letter = 0;
    for (uint32_t i = 0; i < hit.n_run; i++)
        n_letter += hit.run_size[i];
    if (n_letter > pools->n_letter) return "more letters than the part holds";
    for (int i = 0; i < 3; i++)
        pools->run[i] += hit.n_run;
    pools->letters += n_letter;
    pools->n_run -= hit.n_run;
    pools->n_letter -= n_letter;
    *ret_hit = hit;
    return check_hit(&hit, n_res, &n_letter);
}

fm_status fm_part_hits_decode(fm_bytes bytes, fm_arena *arena, fm_part_hits *ret_part,
                              fm_error *reterr) {
    fm_reader reader;
    uint32_t word[FM_PART_N_WORD];
    hits_pools pools;
    fm_status status = fm_part_read_header(bytes, KIND, FM_PART_HITS_FORMAT, &reader, word, reterr);
    if (!status) status = fm_part_check_zero_words(word, N_WORD, KIND, reterr);
    if (status) return status;
    const hits_sizes sizes = {word[WORD_N_RES], word[WORD_N_HIT], word[WORD_N_RUN],
                              word[WORD_N_LETTER], word[WORD_NAME_BYTES]};
    status = check_sizes(&sizes, FM_ERR_CORRUPT, reterr);
    if (!status) status = read_pools(&reader, &sizes, &pools, reterr);
    if (status) return status;
    fm_template_hit *hit = fm_arena_alloc_array(arena, sizes.n_hit, sizeof *hit);
    if (!hit) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < sizes.n_hit; i++) {
        const char *wrong = read_hit(&pools, sizes.n_res, &hit[i]);
        if (wrong) return fail_hit(wrong, i, FM_ERR_CORRUPT, reterr);
    }
    if (pools.n_run || pools.n_letter || fm_reader_left(&pools.names)) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "the hits part has more runs or names than hits");
    }
    *ret_part = (fm_part_hits){.n_res = sizes.n_res, .n_hit = sizes.n_hit, .hit = hit};
    return FM_OK;
}
