/* alignment_index.c: reads an index as a stream of JSON tokens, then checks its ranges. See
 * alignment_index.h.
 *
 * The number of entries, files and name bytes that an index can hold follows from its length. The
 * parser therefore reserves address space for the worst case in the arena at once. It fills three
 * arrays without ever moving them: entries, files (consecutive for one entry) and names. Names of
 * files and databases recur in each entry and are stored once (intern). An entry that breaks the
 * form is read to its end and refused; the parser then continues with the next one.
 *
 * The check sorts all ranges by database and offset. Two ranges of one database may be equal or
 * disjoint. Each range is compared with the one before it that reaches furthest, so one pass finds
 * an overlap with any earlier range. */
#include "cache/source/alignment_index.h"

#include "proto/limits.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_NAME_MAX = 256, /* different names of files; a dataset has about six */
    N_DB_MAX = 4096,
    REASON_BYTES = 640,
    ENTRY_BYTES_MIN = 5, /* "":1, */
    FILE_BYTES_MIN = 9,  /* ["",0,0], */
};

typedef struct index_parse {
    fm_json_reader *json;
    fm_arena *arena;
    fm_error *reterr;
    const char *own_db;
    fm_alignment_index index;
    fm_index_file *file; /* files of all entries, consecutive */
    uint64_t max_entry, max_file;
    char *names; /* names of chains, files and databases, consecutive */
    uint64_t name_at, name_max;
    const char *file_name[N_NAME_MAX];
    uint32_t n_file_name;
    fm_index_entry *here;
} index_parse;

/* -- names */

static fm_status put_name(index_parse *parse, const char *name, size_t length,
                          const char **ret_name) {
    if (length >= parse->name_max - parse->name_at) {
        return fm_json_fail(parse->json, FM_ERR_LIMIT, "the index is longer than its file",
                            parse->reterr);
    }
    char *copy = parse->names + parse->name_at;
    memcpy(copy, name, length);
    copy[length] = '\0';
    parse->name_at += length + 1;
    *ret_name = copy;
    return FM_OK;
}

/* Finds the position of `name` in a list of different names; adds it when it is new. */
static fm_status intern(index_parse *parse, const char *name, const char **list, uint32_t *n,
                        uint32_t max, uint32_t *ret_at) {
    for (uint32_t i = 0; i < *n; i++) {
        if (strcmp(list[i], name) == 0) {
            *ret_at = i;
            return FM_OK;
        }
    }
    if (*n == max) {
        return fm_json_fail(parse->json, FM_ERR_LIMIT,
                            "more different names of files or databases than an index may have",
                            parse->reterr);
    }
    fm_status status = put_name(parse, name, strlen(name), &list[*n]);
    if (!status) *ret_at = (*n)++;
    return status;
}

/* True for a plain file name that fits into one line of a report. */
static bool is_file_name(const char *name) {
    size_t length = strlen(name);
    if (length < 1 || length > FM_LIMIT_NAME_BYTES || name[0] == '.') return false;
    for (const char *c = name; *c; c++) {
        if ((uint8_t)*c <= 0x20 || *c == 0x7f || *c == '/') return false;
    }
    return true;
}

/* -- refusals */

static char *make_reason(fm_arena *arena, const char *format, va_list arguments) {
    char text[REASON_BYTES];
    vsnprintf(text, sizeof text, format, arguments);
    for (char *c = text; *c; c++) {
        if ((uint8_t)*c < 0x20 || *c == 0x7f) *c = '?';
    }
    size_t size = strlen(text) + 1;
    char *copy = fm_arena_alloc(arena, size);
    if (copy) memcpy(copy, text, size);
    return copy;
}

static fm_status refuse(fm_index_entry *entry, fm_arena *arena, fm_error *reterr,
                        const char *format, ...) FM_PRINTF(4, 5);

/* Refuses the entry with a reason; the first reason stays. */
static fm_status refuse(fm_index_entry *entry, fm_arena *arena, fm_error *reterr,
                        const char *format, ...) {
    if (entry->refusal) return FM_OK;
    va_list arguments;
    va_start(arguments, format);
    entry->refusal = make_reason(arena, format, arguments);
    va_end(arguments);
    return entry->refusal ? FM_OK : fm_arena_full(arena, reterr);
}

/* -- entries */

static fm_status next(index_parse *parse, fm_json_token *token) {
    return fm_json_next(parse->json, token, parse->reterr);
}

/* Reads on until the container at `depth` has ended. */
static fm_status leave(index_parse *parse, uint32_t depth) {
    fm_json_token token;
    while (parse->json->depth >= depth) {
        fm_status status = next(parse, &token);
        if (status) return status;
    }
    return FM_OK;
}

/* Reads the rest of ["name", offset, bytes], after its '['. */
static fm_status read_range(index_parse *parse) {
    const uint32_t depth = parse->json->depth;
    fm_json_token token;
    uint64_t number[2] = {0};
    uint32_t name = 0;
    fm_status status = next(parse, &token);
    if (status) return status;
    bool good =
        token == FM_JSON_STRING && !parse->json->text_cut && is_file_name(parse->json->text);
    if (token == FM_JSON_STRING && !good) {
        status = refuse(parse->here, parse->arena, parse->reterr,
                        "'%.80s' cannot be the name of an alignment file", parse->json->text);
    }
    if (!status && good) {
        status = intern(parse, parse->json->text, parse->file_name, &parse->n_file_name, N_NAME_MAX,
                        &name);
    }
    for (int i = 0; i < 2 && good && !status; i++) {
        status = next(parse, &token);
        good = !status && token == FM_JSON_NUMBER && fm_json_u64(parse->json, &number[i]);
    }
    if (!status && good) status = next(parse, &token);
    if (!status && (!good || token != FM_JSON_ARRAY_END)) {
        status = refuse(parse->here, parse->arena, parse->reterr,
                        "a range is not [name, offset, bytes] with whole numbers below 2^64");
        return status ? status : leave(parse, depth);
    }
    if (status) return status;
    if (parse->index.n_file == parse->max_file || parse->here->n_file == UINT32_MAX) {
        return fm_json_fail(parse->json, FM_ERR_LIMIT, "the index is longer than its file",
                            parse->reterr);
    }
    parse->file[parse->index.n_file++] =
        (fm_index_file){parse->file_name[name], number[0], number[1]};
    parse->here->n_file++;
    return FM_OK;
}

/* Reads the rest of a list of ranges, after its '['. */
static fm_status read_ranges(index_parse *parse) {
    for (;;) {
        fm_json_token token;
        fm_status status = next(parse, &token);
        if (status || token == FM_JSON_ARRAY_END) return status;
        if (token == FM_JSON_ARRAY) {
            status = read_range(parse);
        } else {
            status = refuse(parse->here, parse->arena, parse->reterr,
                            "a range is not [name, offset, bytes]");
            if (!status) status = fm_json_skip(parse->json, token, parse->reterr);
        }
        if (status) return status;
    }
}

static fm_status take_db(index_parse *parse, const char *name) {
    if (!is_file_name(name)) {
        return refuse(parse->here, parse->arena, parse->reterr,
                      "'%.80s' cannot be the name of a database beside the index", name);
    }
    return intern(parse, name, parse->index.db, &parse->index.n_db, N_DB_MAX, &parse->here->db);
}

/* Reads the rest of {"db": ..., "files": ...}, after its '{'. */
static fm_status read_sharded(index_parse *parse) {
    bool has_db = false, has_files = false;
    for (;;) {
        fm_json_token token;
        fm_status status = next(parse, &token);
        if (status) return status;
        if (token == FM_JSON_OBJECT_END) break;
        bool is_db = strcmp(parse->json->text, "db") == 0;
        bool is_files = strcmp(parse->json->text, "files") == 0;
        status = next(parse, &token);
        if (status) return status;
        if (is_db && !has_db && token == FM_JSON_STRING && !parse->json->text_cut) {
            status = take_db(parse, parse->json->text);
            has_db = true;
        } else if (is_files && !has_files && token == FM_JSON_ARRAY) {
            status = read_ranges(parse);
            has_files = true;
        } else {
            if (is_db || is_files) {
                status = refuse(parse->here, parse->arena, parse->reterr,
                                "\"%s\" comes twice, or is not what it should be",
                                is_db ? "db" : "files");
            }
            if (!status) status = fm_json_skip(parse->json, token, parse->reterr);
        }
        if (status) return status;
    }
    if (has_db && has_files) return FM_OK;
    return refuse(parse->here, parse->arena, parse->reterr,
                  "the entry has no \"db\" or no \"files\"");
}

/* Reads the value of a key of the outer object. */
static fm_status read_entry(index_parse *parse) {
    fm_alignment_index *index = &parse->index;
    if (index->n_entry >= parse->max_entry || index->n_entry >= FM_LIMIT_N_CHAIN) {
        return fm_json_fail(parse->json, FM_ERR_LIMIT, "more chains than an index may have",
                            parse->reterr);
    }
    fm_json_token token;
    parse->here = &index->entry[index->n_entry++];
    *parse->here =
        (fm_index_entry){.file = parse->file + index->n_file, .line = parse->json->token_line};
    fm_status status =
        put_name(parse, parse->json->text, strlen(parse->json->text), &parse->here->name);
    if (!status) status = next(parse, &token);
    if (status) return status;
    if (token == FM_JSON_OBJECT) return read_sharded(parse);
    if (token == FM_JSON_ARRAY) {
        status = take_db(parse, parse->own_db);
        return status ? status : read_ranges(parse);
    }
    return refuse(parse->here, parse->arena, parse->reterr,
                  "the entry is neither {\"db\", \"files\"} nor a list of ranges");
}

static fm_status read_index(index_parse *parse) {
    fm_json_token token;
    fm_status status = next(parse, &token);
    if (status) return status;
    if (token != FM_JSON_OBJECT) {
        return fm_json_fail(parse->json, FM_ERR_FORMAT,
                            "not an index: expected an object of chains", parse->reterr);
    }
    for (;;) {
        status = next(parse, &token);
        if (status) return status;
        if (token == FM_JSON_OBJECT_END) return next(parse, &token);
        status = read_entry(parse);
        if (status) return status;
    }
}

fm_status fm_alignment_index_parse(fm_json_input input, uint64_t input_bytes, const char *own_db,
                                   fm_arena *arena, fm_alignment_index *ret_index,
                                   fm_error *reterr) {
    fm_error local;
    index_parse *parse = fm_arena_calloc(arena, 1, sizeof *parse);
    fm_json_reader *json = fm_arena_alloc(arena, sizeof *json);
    if (!parse || !json) return fm_arena_full(arena, reterr);
    fm_json_init(json, input);
    *parse = (index_parse){.json = json,
                           .arena = arena,
                           .reterr = reterr ? reterr : &local,
                           .own_db = own_db,
                           .max_entry = input_bytes / ENTRY_BYTES_MIN + 1,
                           .max_file = input_bytes / FILE_BYTES_MIN + 1,
                           .name_max = input_bytes + strlen(own_db) + 2};
    /* Room for the most entries that a text of this size can have; untouched pages cost nothing. */
    parse->index.entry = fm_arena_alloc_array(arena, parse->max_entry, sizeof *parse->index.entry);
    parse->file = fm_arena_alloc_array(arena, parse->max_file, sizeof *parse->file);
    parse->names = fm_arena_alloc(arena, parse->name_max);
    parse->index.db = fm_arena_alloc_array(arena, N_DB_MAX, sizeof *parse->index.db);
    if (!parse->index.entry || !parse->file || !parse->names || !parse->index.db) {
        return fm_arena_full(arena, reterr);
    }
    fm_status status = read_index(parse);
    if (!status) *ret_index = parse->index;
    return status;
}

/* -- ranges */

typedef struct range {
    uint64_t offset, bytes;
    uint32_t db, entry;
} range;

static int compare_ranges(const void *left, const void *right) {
    const range *a = left, *b = right;
    if (a->db != b->db) return a->db < b->db ? -1 : 1;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return (a->entry > b->entry) - (a->entry < b->entry);
}

static fm_status check_ends(fm_alignment_index *index, fm_index_entry *entry,
                            const uint64_t *db_bytes, fm_arena *arena, fm_error *reterr) {
    const char *db = index->db[entry->db];
    uint64_t size = db_bytes[entry->db];
    if (size == UINT64_MAX) {
        return refuse(entry, arena, reterr, "there is no database %s beside the index", db);
    }
    for (uint32_t i = 0; i < entry->n_file; i++) {
        const fm_index_file *file = &entry->file[i];
        if (file->offset <= size && file->bytes <= size - file->offset) continue;
        return refuse(entry, arena, reterr,
                      "the range of %s, %llu bytes at %llu, passes the end of %s (%llu bytes)",
                      file->name, (unsigned long long)file->bytes, (unsigned long long)file->offset,
                      db, (unsigned long long)size);
    }
    return FM_OK;
}

/* Ranges are sorted; each is compared with the earlier one that reaches furthest. */
static fm_status check_overlaps(fm_alignment_index *index, const range *ranges, uint64_t n,
                                fm_arena *arena, fm_error *reterr) {
    uint64_t furthest = 0;
    for (uint64_t i = 1; i < n; i++) {
        const range *a = &ranges[furthest], *b = &ranges[i];
        if (a->db != b->db || b->offset >= a->offset + a->bytes) {
            furthest = i;
            continue;
        }
        if (a->offset == b->offset && a->bytes == b->bytes) continue;
        fm_index_entry *one = &index->entry[a->entry], *other = &index->entry[b->entry];
        static const char text[] = "its range at %llu of %s overlaps that of %.80s at %llu";
        const char *db = index->db[a->db];
        unsigned long long at = a->offset, other_at = b->offset;
        fm_status status = refuse(other, arena, reterr, text, other_at, db, one->name, at);
        if (!status) status = refuse(one, arena, reterr, text, at, db, other->name, other_at);
        if (status) return status;
        if (b->offset + b->bytes > a->offset + a->bytes) furthest = i;
    }
    return FM_OK;
}

fm_status fm_alignment_index_check(fm_alignment_index *index, const uint64_t *db_bytes,
                                   fm_arena *arena, fm_error *reterr) {
    range *ranges = calloc(index->n_file + 1, sizeof *ranges);
    if (!ranges) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the ranges of an index");
    uint64_t n = 0;
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < index->n_entry && !status; i++) {
        fm_index_entry *entry = &index->entry[i];
        if (entry->refusal) continue;
        /* Both forms of a valid entry have set it. */
        assert(entry->db < index->n_db);
        status = check_ends(index, entry, db_bytes, arena, reterr);
        for (uint32_t f = 0; f < entry->n_file && !entry->refusal; f++) {
            if (!entry->file[f].bytes) continue;
            ranges[n++] = (range){entry->file[f].offset, entry->file[f].bytes, entry->db, i};
        }
    }
    if (n && !status) qsort(ranges, n, sizeof *ranges, compare_ranges);
    if (!status) status = check_overlaps(index, ranges, n, arena, reterr);
    free(ranges);
    return status;
}
