/* source_sequences.c: reads the indices of alignments by sequence that Protenix has. See source.h
 * and docs/reference/inputs.md, section 15.
 *
 * An index has the sequences of all proteins of the PDB. It is read as a stream, and memory holds
 * hashes and names of folders. */
#include "cache/source/source_parts.h"

#include "cache/source/json_reader.h"
#include "featurizer/complex/complex.h"
#include "proto/base/file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ENTRY_BYTES_MIN = 6 }; /* "A":1, */

#define INDEX_BYTES_MAX ((uint64_t)4 << 30)

typedef struct sequence_parse {
    fm_json_reader *json;
    fm_polymer polymer;
    fm_arena *arena;
    fm_listed_sequence *entry;
    uint64_t n, max;
    fm_error *reterr;
} sequence_parse;

/* A folder's name stays within its folder. */
static bool is_folder(const fm_json_reader *json) {
    return !json->text_cut && fm_source_is_good_name(json->text, json->text_bytes) &&
           json->text[0] != '.' && !strchr(json->text, '/');
}

static fm_status read_folder(sequence_parse *parse, fm_listed_sequence *entry) {
    fm_json_reader *json = parse->json;
    fm_json_token token;
    fm_status status = fm_json_next(json, &token, parse->reterr);
    bool is_array = !status && token == FM_JSON_ARRAY;
    if (is_array) status = fm_json_next(json, &token, parse->reterr);
    if (status) return status;
    if ((token != FM_JSON_NUMBER && token != FM_JSON_STRING) || !is_folder(json)) {
        return fm_json_fail(json, FM_ERR_FORMAT,
                            "expected the name of a folder, or an array that begins with one",
                            parse->reterr);
    }
    entry->name = fm_source_copy(parse->arena, json->text, json->text_bytes);
    if (!entry->name) return fm_arena_full(parse->arena, parse->reterr);
    while (is_array && token != FM_JSON_ARRAY_END && !status) {
        status = fm_json_next(json, &token, parse->reterr);
        if (!status && token != FM_JSON_ARRAY_END) {
            status = fm_json_skip(json, token, parse->reterr);
        }
    }
    return status;
}

static fm_status read_entry(sequence_parse *parse) {
    fm_json_reader *json = parse->json;
    fm_listed_sequence *entry = &parse->entry[parse->n];
    size_t mark = fm_arena_mark(parse->arena);
    if (!json->text_bytes || json->text_bytes > FM_LIMIT_N_RES) {
        return fm_json_fail(json, FM_ERR_FORMAT, "expected a sequence of 1 to 65535 letters",
                            parse->reterr);
    }
    const fm_bytes letters = {(const uint8_t *)json->text, json->text_bytes};
    fm_status status = fm_entity_sequence_hash(letters, parse->polymer, parse->arena,
                                               &entry->sequence, parse->reterr);
    fm_arena_rewind(parse->arena, mark);
    if (!status) status = read_folder(parse, entry);
    parse->n++;
    return status;
}

static fm_status read_index(sequence_parse *parse) {
    fm_json_token token;
    fm_json_reader *json = parse->json;
    fm_status status = fm_json_next(json, &token, parse->reterr);
    if (!status && token != FM_JSON_OBJECT) {
        return fm_json_fail(json, FM_ERR_FORMAT, "expected an object of sequences", parse->reterr);
    }
    while (!status && !(status = fm_json_next(json, &token, parse->reterr)) &&
           token != FM_JSON_OBJECT_END) {
        if (parse->n == parse->max || parse->n == FM_LIMIT_N_CHAIN) {
            return fm_json_fail(json, FM_ERR_LIMIT, "more entries than an index may have",
                                parse->reterr);
        }
        status = read_entry(parse);
    }
    return status ? status : fm_json_next(json, &token, parse->reterr);
}

/* Equal sequences stay in the order of the index: their names follow one another in memory. */
static int compare_sequences(const void *left, const void *right) {
    const fm_listed_sequence *a = left, *b = right;
    int order = memcmp(&a->sequence, &b->sequence, sizeof a->sequence);
    return order ? order : (a->name > b->name) - (a->name < b->name);
}

fm_status fm_source_parse_sequences(fm_json_input input, uint64_t input_bytes, fm_polymer polymer,
                                    fm_arena *arena, fm_sequence_list *ret_list, fm_error *reterr) {
    fm_error local;
    sequence_parse parse = {.polymer = polymer,
                            .arena = arena,
                            .max = input_bytes / ENTRY_BYTES_MIN + 1,
                            .reterr = reterr ? reterr : &local};
    parse.json = malloc(sizeof *parse.json);
    parse.entry = fm_arena_alloc_array(arena, parse.max, sizeof *parse.entry); /* address space */
    fm_status status = parse.json && parse.entry ? FM_OK : fm_arena_full(arena, reterr);
    if (!status) {
        fm_json_init(parse.json, input);
        status = read_index(&parse);
    }
    free(parse.json);
    if (status) return status;
    uint32_t kept = 0;
    if (parse.n) qsort(parse.entry, parse.n, sizeof *parse.entry, compare_sequences);
    for (uint64_t i = 0; i < parse.n; i++) {
        const fm_listed_sequence *entry = &parse.entry[i];
        bool is_again = kept && memcmp(&parse.entry[kept - 1].sequence, &entry->sequence,
                                       sizeof(fm_sha256)) == 0;
        if (!is_again) parse.entry[kept++] = *entry;
    }
    *ret_list = (fm_sequence_list){.n = kept, .entry = parse.entry};
    return FM_OK;
}

fm_status fm_source_read_sequences(const char *path, fm_polymer polymer, fm_arena *arena,
                                   fm_sequence_list *ret_list, fm_error *reterr) {
    int fd;
    uint64_t bytes;
    fm_status status = fm_file_open(path, &fd, &bytes, reterr);
    if (status) return status;
    if (bytes > INDEX_BYTES_MAX) {
        status = fm_fail(reterr, FM_ERR_LIMIT, "not a regular file of at most %llu bytes",
                         (unsigned long long)INDEX_BYTES_MAX);
    } else {
        status = fm_source_parse_sequences(fm_json_of_file(&fd), bytes, polymer, arena, ret_list,
                                           reterr);
    }
    close(fd);
    if (status && reterr) fm_error_in(reterr, path);
    if (!status) ret_list->path = path;
    return status;
}

static int compare_to_sequence(const void *sequence, const void *entry) {
    return memcmp(sequence, &((const fm_listed_sequence *)entry)->sequence, sizeof(fm_sha256));
}

const char *fm_sequence_list_find(const fm_sequence_list *list, const fm_sha256 *sequence) {
    if (!list->n) return NULL;
    const fm_listed_sequence *found =
        bsearch(sequence, list->entry, list->n, sizeof *list->entry, compare_to_sequence);
    return found ? found->name : NULL;
}
