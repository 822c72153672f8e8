/* manifest.c: encoding and decoding of a generation's manifest. See generation_files.h and
 * docs/reference/store.md. */
#include "cache/store/generation_files.h"

#include "proto/limits.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 256, N_SHARD_MAX = 1 << 18 };
/* Generations without facts keep format 1, and those without complexes format 2, so that their
 * bytes stay the same. One with complexes always has facts. */
enum { FORMAT_WITHOUT_FACTS = 1, FORMAT = 2, FORMAT_WITH_COMPLEXES = 3 };

static int format_of(const fm_generation *generation) {
    if (generation->n_complex) return FORMAT_WITH_COMPLEXES;
    return generation->has_facts ? FORMAT : FORMAT_WITHOUT_FACTS;
}

/* Appends a line to the manifest in `writer`. */
static void write_line(fm_writer *writer, const char *format, ...) FM_PRINTF(2, 3);

static void write_line(fm_writer *writer, const char *format, ...) {
    char line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fm_write_bytes(writer, line, n > 0 && n < LINE_BYTES ? (size_t)n : 0);
}

static const char *hex_of(const fm_sha256 *hash, char hex[FM_SHA256_HEX]) {
    fm_sha256_format(hash, hex);
    return hex;
}

fm_status fm_manifest_encode(const fm_generation *generation, const fm_sha256 *index_hash,
                             fm_arena *arena, fm_bytes *ret_bytes, fm_error *reterr) {
    size_t capacity = 1024 + (size_t)generation->n_shard * LINE_BYTES;
    uint8_t *data = fm_arena_alloc(arena, capacity);
    if (!data) return fm_arena_full(arena, reterr);
    fm_writer writer = fm_writer_of(data, capacity);
    char hex[FM_SHA256_HEX];
    write_line(&writer, "foldmill generation %d\nnumber %" PRIu64 "\n", format_of(generation),
               generation->number);
    write_line(&writer, "chains %u\n", generation->n_chain);
    if (generation->n_complex) write_line(&writer, "complexes %u\n", generation->n_complex);
    write_line(&writer, "refused %u\n", generation->n_refused);
    write_line(&writer, "content %s\n", hex_of(&generation->content, hex));
    write_line(&writer, "index %s\n", hex_of(index_hash, hex));
    write_line(&writer, "notes %s\n", hex_of(&generation->notes_hash, hex));
    write_line(&writer, "refusals %s\n", hex_of(&generation->refused_hash, hex));
    if (generation->has_facts) {
        write_line(&writer, "facts %s\n", hex_of(&generation->facts_hash, hex));
    }
    if (generation->n_complex) {
        write_line(&writer, "records %s\n", hex_of(&generation->rows_hash, hex));
    }
    write_line(&writer, "all %s\n", hex_of(&generation->all_hash, hex));
    write_line(&writer, "shards %u\n", generation->n_shard);
    for (uint32_t i = 0; i < generation->n_shard; i++) {
        const fm_shard_info *shard = &generation->shard[i];
        write_line(&writer, "shard %s %" PRIu64 " %u\n", hex_of(&shard->hash, hex), shard->bytes,
                   shard->n_blob);
    }
    fm_sha256 hash = fm_sha256_of(writer.data, writer.at);
    write_line(&writer, "end %s\n", hex_of(&hash, hex));
    assert(!writer.failed);
    *ret_bytes = (fm_bytes){writer.data, writer.at};
    return FM_OK;
}

/* A cursor over "word value\n" lines. */
typedef struct line_reader {
    const char *at, *end;
    unsigned line;
    bool failed;
} line_reader;

/* Returns the value of the next line, which must be "<word> <value>"; borrowed, ended by '\n'. On
 * any other line it sets `failed` and returns "\n". */
static const char *read_value(line_reader *reader, const char *word) {
    size_t length = strlen(word);
    const char *newline = memchr(reader->at, '\n', (size_t)(reader->end - reader->at));
    if (reader->failed || !newline || (size_t)(newline - reader->at) <= length ||
        newline - reader->at >= LINE_BYTES || memcmp(reader->at, word, length) != 0 ||
        reader->at[length] != ' ') {
        reader->failed = true;
        return "\n";
    }
    const char *value = reader->at + length + 1;
    reader->at = newline + 1;
    reader->line++;
    return value;
}

/* Reads a decimal that ends at `stop` and returns what follows it; sets `failed` for anything else.
 */
static const char *read_decimal(line_reader *reader, const char *text, char stop,
                                uint64_t *ret_value) {
    uint64_t value = 0;
    const char *digit = text;
    for (; *digit >= '0' && *digit <= '9' && digit < text + 19; digit++)
        value = value * 10 + (uint64_t)(*digit - '0');
    bool zero_led = text[0] == '0' && digit != text + 1;
    if (digit == text || *digit != stop || zero_led) reader->failed = true;
    *ret_value = reader->failed ? 0 : value;
    return reader->failed ? "\n" : digit + 1;
}

static uint64_t read_number(line_reader *reader, const char *word, uint64_t max) {
    uint64_t value;
    read_decimal(reader, read_value(reader, word), '\n', &value);
    if (value > max) reader->failed = true;
    return value;
}

/* Reads a hash that ends at `stop` and returns what follows it. */
static const char *read_hex(line_reader *reader, const char *text, char stop, fm_sha256 *ret_hash) {
    const char *newline = memchr(text, '\n', LINE_BYTES);
    size_t size = newline ? (size_t)(newline - text) : 0;
    if (size < FM_SHA256_HEX - 1 || fm_sha256_parse(text, FM_SHA256_HEX - 1, ret_hash) ||
        text[FM_SHA256_HEX - 1] != stop) {
        reader->failed = true;
        return "\n";
    }
    return text + FM_SHA256_HEX;
}

static void read_hash(line_reader *reader, const char *word, fm_sha256 *ret_hash) {
    read_hex(reader, read_value(reader, word), '\n', ret_hash);
}

static fm_status read_shards(line_reader *reader, fm_generation *generation, fm_arena *arena,
                             fm_error *reterr) {
    generation->n_shard = (uint32_t)read_number(reader, "shards", N_SHARD_MAX);
    fm_shard_info *shard = fm_arena_calloc(arena, generation->n_shard, sizeof *shard);
    if (!shard) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < generation->n_shard && !reader->failed; i++) {
        uint64_t n_blob;
        const char *rest = read_hex(reader, read_value(reader, "shard"), ' ', &shard[i].hash);
        rest = read_decimal(reader, rest, ' ', &shard[i].bytes);
        read_decimal(reader, rest, '\n', &n_blob);
        shard[i].n_blob = (uint32_t)n_blob;
        bool sorted = i == 0 || memcmp(&shard[i - 1].hash, &shard[i].hash, sizeof(fm_sha256)) < 0;
        if (!sorted || n_blob > UINT32_MAX) reader->failed = true;
    }
    generation->shard = shard;
    return FM_OK;
}

fm_status fm_manifest_decode(fm_bytes text, uint64_t number, fm_arena *arena,
                             fm_generation *ret_generation, fm_sha256 *ret_index_hash,
                             fm_error *reterr) {
    fm_generation generation = {.number = number};
    line_reader reader = {(const char *)text.data, (const char *)text.data + text.size, 0, false};
    uint64_t format = read_number(&reader, "foldmill generation", UINT32_MAX);
    bool has_complexes = format == FORMAT_WITH_COMPLEXES;
    if (!reader.failed && !has_complexes && format != FORMAT && format != FORMAT_WITHOUT_FACTS) {
        return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                       "the cache has format %" PRIu64
                       " and this foldmill reads formats 1 to 3: a newer one made it, "
                       "use that one here too",
                       format);
    }
    if (read_number(&reader, "number", UINT64_MAX) != number) reader.failed = true;
    generation.n_chain = (uint32_t)read_number(&reader, "chains", FM_LIMIT_N_CHAIN);
    if (has_complexes) {
        generation.n_complex = (uint32_t)read_number(&reader, "complexes", generation.n_chain);
        if (!generation.n_complex) reader.failed = true;
    }
    generation.n_refused = (uint32_t)read_number(&reader, "refused", FM_LIMIT_N_CHAIN);
    read_hash(&reader, "content", &generation.content);
    read_hash(&reader, "index", ret_index_hash);
    read_hash(&reader, "notes", &generation.notes_hash);
    read_hash(&reader, "refusals", &generation.refused_hash);
    generation.has_facts = format != FORMAT_WITHOUT_FACTS;
    if (generation.has_facts) read_hash(&reader, "facts", &generation.facts_hash);
    if (has_complexes) read_hash(&reader, "records", &generation.rows_hash);
    read_hash(&reader, "all", &generation.all_hash);
    fm_status status = read_shards(&reader, &generation, arena, reterr);
    if (status) return status;
    fm_sha256 hash = fm_sha256_of(text.data, (size_t)((const uint8_t *)reader.at - text.data));
    fm_sha256 declared = {{0}};
    read_hash(&reader, "end", &declared);
    if (reader.failed || reader.at != reader.end || memcmp(&hash, &declared, sizeof hash) != 0) {
        return fm_fail_at(reterr, FM_ERR_CORRUPT, reader.line + 1, 1, 0,
                          "the manifest is damaged: a line is not what it should be");
    }
    *ret_generation = generation;
    return FM_OK;
}
