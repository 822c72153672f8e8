/* source_lists.c: finds the lists beside a dataset, and reads OpenFold's chain_data_cache.json and
 * mmcif_cache.json and the PDB's obsolete.dat. See source.h and docs/reference/inputs.md, section
 * 11.
 *
 * The JSON lists hold every sequence of the PDB and are read as a stream; memory holds only names
 * and the values that are used. */
#include "cache/source/source_parts.h"

#include "cache/source/json_reader.h"
#include "cache/source/names.h"
#include "featurizer/parse/lines.h"
#include "proto/base/file.h"
#include "proto/chem/pdb_id.h"
#include "proto/limits.h"
#include "proto/record_part.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ENTRY_BYTES_MIN = 6, /* "":{}, */
    ID_BYTES = 4,
    N_STEP_MAX = 64, /* replacements of one id; the PDB's longest chain has 4 */
    /* Columns of obsolete.dat, from 0: "OBSLTE    31-JUL-94 116L     216L" */
    OBSOLETE_FROM = 20,
    OBSOLETE_TO = 29,
};

/* The longest list: 20 times the size of one for all chains of the PDB. */
#define LIST_BYTES_MAX ((uint64_t)8 << 30)

/* -- JSON lists */

typedef struct list_parse {
    fm_json_reader *json;
    fm_error *reterr;
    bool is_ids; /* names are ids of the PDB, kept as their keys */
    fm_listed *listed;
    uint64_t n, max;
    char *names;
    uint64_t name_at, name_max;
} list_parse;

static fm_status put_name(list_parse *parse, fm_listed *entry) {
    const fm_json_reader *json = parse->json;
    if (!fm_source_is_good_name(json->text, json->text_bytes)) {
        return fm_json_fail(json, FM_ERR_FORMAT, "not the name of a chain or an id", parse->reterr);
    }
    if (json->text_bytes >= parse->name_max - parse->name_at) {
        return fm_json_fail(json, FM_ERR_LIMIT, "the list is longer than its file", parse->reterr);
    }
    char *name = parse->names + parse->name_at;
    memcpy(name, json->text, json->text_bytes + 1);
    if (parse->is_ids && fm_pdb_id_key(json->text, json->text_bytes, name)) {
        name[FM_PDB_ID_BYTES] = '\0';
    }
    parse->name_at += json->text_bytes + 1;
    entry->name = name;
    return FM_OK;
}

/* Takes a value of an entry; ignores keys that are not used. */
static void take_value(const fm_json_reader *json, const char *key, fm_json_token token,
                       fm_listed *entry) {
    char *end;
    if (token == FM_JSON_STRING && strcmp(key, "release_date") == 0) {
        bool is_date = json->text_bytes == FM_PART_DATE_BYTES && fm_part_is_date(json->text) &&
                       fm_part_is_calendar_date(json->text);
        if (is_date) memcpy(entry->release_date, json->text, FM_PART_DATE_BYTES);
    } else if (token == FM_JSON_NUMBER && strcmp(key, "resolution") == 0) {
        double resolution = strtod(json->text, &end);
        if (isfinite((float)resolution) && resolution > 0) entry->resolution = (float)resolution;
    } else if (token == FM_JSON_NUMBER && strcmp(key, "cluster_size") == 0) {
        uint64_t size;
        if (fm_json_u64(json, &size) && size <= UINT32_MAX) entry->cluster_size = (uint32_t)size;
    }
}

/* Reads the rest of an entry, after its '{'. */
static fm_status read_entry(list_parse *parse, fm_listed *entry) {
    char key[32];
    fm_json_token token;
    for (;;) {
        fm_status status = fm_json_next(parse->json, &token, parse->reterr);
        if (status || token == FM_JSON_OBJECT_END) return status;
        snprintf(key, sizeof key, "%s", parse->json->text);
        status = fm_json_next(parse->json, &token, parse->reterr);
        if (status) return status;
        take_value(parse->json, key, token, entry);
        status = fm_json_skip(parse->json, token, parse->reterr);
        if (status) return status;
    }
}

static fm_status read_list(list_parse *parse) {
    fm_json_token token;
    fm_json_reader *json = parse->json;
    fm_status status = fm_json_next(json, &token, parse->reterr);
    if (status) return status;
    if (token != FM_JSON_OBJECT) {
        return fm_json_fail(json, FM_ERR_FORMAT, "expected an object of chains or ids",
                            parse->reterr);
    }
    for (;;) {
        status = fm_json_next(json, &token, parse->reterr);
        if (status) return status;
        if (token == FM_JSON_OBJECT_END) return fm_json_next(json, &token, parse->reterr);
        if (parse->n == parse->max || parse->n == FM_LIMIT_N_CHAIN) {
            return fm_json_fail(json, FM_ERR_LIMIT, "more entries than a list may have",
                                parse->reterr);
        }
        fm_listed *entry = &parse->listed[parse->n++];
        *entry = (fm_listed){0};
        status = put_name(parse, entry);
        if (!status) status = fm_json_next(json, &token, parse->reterr);
        if (status) return status;
        if (token != FM_JSON_OBJECT) {
            return fm_json_fail(json, FM_ERR_FORMAT,
                                "expected an object with release_date, resolution, cluster_size",
                                parse->reterr);
        }
        status = read_entry(parse, entry);
        if (status) return status;
    }
}

/* Of equal names, the later one in the list is sorted first, as JSON readers keep the last. */
static int compare_listed(const void *left, const void *right) {
    const fm_listed *a = left, *b = right;
    int order = strcmp(a->name, b->name);
    return order ? order : (a->name < b->name) - (a->name > b->name);
}

static uint32_t sort_listed(fm_listed *listed, uint64_t n) {
    uint32_t kept = 0;
    if (n) qsort(listed, n, sizeof *listed, compare_listed);
    for (uint64_t i = 0; i < n; i++) {
        if (kept && strcmp(listed[i].name, listed[kept - 1].name) == 0) continue;
        listed[kept++] = listed[i];
    }
    return kept;
}

fm_status fm_source_parse_listing(fm_json_input input, uint64_t input_bytes, bool is_ids,
                                  fm_arena *arena, fm_listing *ret_listing, fm_error *reterr) {
    fm_error local;
    /* Room for the most entries that a text of this size can have; untouched pages cost nothing. */
    list_parse parse = {.is_ids = is_ids,
                        .reterr = reterr ? reterr : &local,
                        .max = input_bytes / ENTRY_BYTES_MIN + 1,
                        .name_max = input_bytes + 2};
    parse.json = malloc(sizeof *parse.json);
    parse.listed = fm_arena_alloc_array(arena, parse.max, sizeof *parse.listed);
    parse.names = fm_arena_alloc(arena, parse.name_max);
    fm_status status =
        parse.json && parse.listed && parse.names ? FM_OK : fm_arena_full(arena, reterr);
    if (!status) {
        fm_json_init(parse.json, input);
        status = read_list(&parse);
    }
    free(parse.json);
    if (status) return status;
    fm_arena_trim(arena, parse.names, parse.name_at);
    *ret_listing = (fm_listing){.n = sort_listed(parse.listed, parse.n), .listed = parse.listed};
    return FM_OK;
}

static fm_status read_open(int fd, uint64_t bytes, bool is_ids, fm_arena *arena,
                           fm_listing *ret_listing, fm_error *reterr) {
    if (bytes > LIST_BYTES_MAX) {
        return fm_fail(reterr, FM_ERR_LIMIT, "not a regular file of at most %llu bytes",
                       (unsigned long long)LIST_BYTES_MAX);
    }
    return fm_source_parse_listing(fm_json_of_file(&fd), bytes, is_ids, arena, ret_listing, reterr);
}

fm_status fm_source_read_listing(const char *path, bool is_ids, fm_arena *arena,
                                 fm_listing *ret_listing, fm_error *reterr) {
    int fd;
    uint64_t bytes;
    fm_status status = fm_file_open(path, &fd, &bytes, reterr);
    if (status) return status;
    status = read_open(fd, bytes, is_ids, arena, ret_listing, reterr);
    close(fd);
    if (status && reterr) fm_error_in(reterr, path);
    if (!status) ret_listing->path = path;
    return status;
}

static int compare_to_listed(const void *name, const void *listed) {
    return strcmp(name, ((const fm_listed *)listed)->name);
}

const fm_listed *fm_listing_find(const fm_listing *listing, const char *name) {
    if (!listing->n) return NULL;
    return bsearch(name, listing->listed, listing->n, sizeof *listing->listed, compare_to_listed);
}

/* -- obsolete.dat */

static int compare_obsolete(const void *left, const void *right) {
    return strcmp(((const fm_obsolete *)left)->id, ((const fm_obsolete *)right)->id);
}

static fm_obsolete *find_obsolete(const fm_obsolete_list *list, const char *id) {
    fm_obsolete wanted = {.is_circle = false};
    if (!list->n || strlen(id) != ID_BYTES) return NULL;
    memcpy(wanted.id, id, ID_BYTES);
    return bsearch(&wanted, list->entry, list->n, sizeof *list->entry, compare_obsolete);
}

/* Four letters or digits, lower-cased. */
static bool read_id(const char *text, char out[ID_BYTES + 1]) {
    for (int i = 0; i < ID_BYTES; i++) {
        char c = text[i];
        bool is_upper = c >= 'A' && c <= 'Z';
        if (!is_upper && !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9')) return false;
        out[i] = (char)(is_upper ? c + 32 : c);
    }
    out[ID_BYTES] = '\0';
    return true;
}

/* Follows each id to its last replacement. An id whose replacements form a circle has none. */
static void follow(fm_obsolete_list *list) {
    for (uint32_t i = 0; i < list->n; i++) {
        const char *at = list->entry[i].successor;
        uint32_t n_step = 0;
        for (const fm_obsolete *next; (next = find_obsolete(list, at)) && n_step <= N_STEP_MAX;
             n_step++)
            at = next->successor;
        memcpy(list->entry[i].last, at, sizeof list->entry[i].last);
        list->entry[i].is_circle = n_step > N_STEP_MAX;
    }
}

fm_status fm_source_parse_obsolete(fm_bytes text, fm_arena *arena, fm_obsolete_list *ret_list,
                                   fm_error *reterr) {
    enum { LINE_BYTES_MIN = OBSOLETE_TO + ID_BYTES };
    fm_lines lines = fm_lines_of(text, false, 0, 1);
    fm_line line;
    fm_obsolete *entry = fm_arena_alloc_array(arena, text.size / LINE_BYTES_MIN + 1, sizeof *entry);
    if (!entry) return fm_arena_full(arena, reterr);
    fm_status kind = fm_text_check_kind(text, reterr);
    if (kind) return kind;
    uint32_t n = 0, kept = 0;
    uint64_t other = 0; /* the first line of another kind */
    bool is_known = false;
    while (fm_lines_next(&lines, &line)) {
        const char *at = (const char *)text.data + line.start;
        const char *stop = (const char *)text.data + line.stop;
        is_known |= stop - at >= 6 && memcmp(at, "OBSLTE", 6) == 0;
        if (line.end > line.begin && !is_known && !other) other = line.number;
        fm_obsolete found = {.is_circle = false};
        if (stop - at >= LINE_BYTES_MIN && memcmp(at, "OBSLTE", 6) == 0 &&
            read_id(at + OBSOLETE_FROM, found.id) && read_id(at + OBSOLETE_TO, found.successor)) {
            entry[n++] = found;
        }
    }
    if (other && !is_known) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, other, 1, 0,
                          "no line begins with 'OBSLTE', expected the PDB's list of obsolete "
                          "entries");
    }
    if (n) qsort(entry, n, sizeof *entry, compare_obsolete);
    for (uint32_t i = 0; i < n; i++) {
        if (!kept || strcmp(entry[kept - 1].id, entry[i].id) != 0) entry[kept++] = entry[i];
    }
    fm_obsolete_list list = {.n = kept, .entry = entry};
    follow(&list);
    *ret_list = list;
    return FM_OK;
}

/* -- a dataset's lists */

static const char *const FOLDERS[] = {"",        "data_caches/",        "pdb_mmcif/",
                                      "common/", "mmcif_msa_template/", "mmcif_msa/"};

/* *ret_path = the given path, or the first DATASET/<folder>name that exists; NULL = none. A
 * path that cannot be looked at is an error: the list may be there. */
static fm_status find_list(fm_source_scanning *scan, const char *dataset, const char *given,
                           const char *name, const char **ret_path, fm_error *reterr) {
    *ret_path = given;
    for (size_t i = 0; i < sizeof FOLDERS / sizeof FOLDERS[0] && !*ret_path; i++) {
        char inside[64];
        snprintf(inside, sizeof inside, "%s%s", FOLDERS[i], name);
        const char *path = fm_source_join(scan->arena, dataset, inside);
        if (!path) return fm_arena_full(scan->arena, reterr);
        fm_path_kind kind;
        fm_status status = fm_path_look(path, &kind, reterr);
        if (status) return status;
        if (kind != FM_PATH_ABSENT) *ret_path = path;
    }
    return FM_OK;
}

static fm_status read_text(fm_source_scanning *scan, const char *path, fm_bytes *ret_text,
                           fm_error *reterr) {
    return fm_file_read_text(scan->arena, path, FM_LIMIT_INPUT_BYTES, ret_text, reterr);
}

static fm_status take_obsolete(fm_source_scanning *scan, const char *path,
                               fm_source_dataset *dataset, fm_error *reterr) {
    fm_bytes text;
    fm_status status = read_text(scan, path, &text, reterr);
    if (status) return status;
    status = fm_source_parse_obsolete(text, scan->arena, &dataset->obsolete, reterr);
    if (status && reterr) fm_error_in(reterr, path);
    dataset->obsolete.path = path;
    return status;
}

static fm_status take_clusters(fm_source_scanning *scan, const char *path,
                               fm_source_dataset *dataset, fm_error *reterr) {
    fm_bytes text;
    fm_status status = read_text(scan, path, &text, reterr);
    if (status) return status;
    status = fm_source_parse_clusters(text, scan->arena, &dataset->entity_clusters, reterr);
    if (status && reterr) fm_error_in(reterr, path);
    dataset->entity_clusters.path = path;
    return status;
}

/* Reads an index of sequences; its folders are in the first of the given ones that exists. */
static fm_status take_sequences(fm_source_scanning *scan, const char *dataset, const char *index,
                                const char *const *folders, fm_polymer polymer,
                                fm_sequence_list *ret_list, fm_error *reterr) {
    const char *path;
    fm_status status = find_list(scan, dataset, NULL, index, &path, reterr);
    for (; !status && path && *folders; folders++) {
        const char *folder = fm_source_join(scan->arena, dataset, *folders);
        fm_path_kind kind;
        if (!folder) return fm_arena_full(scan->arena, reterr);
        status = fm_path_look(folder, &kind, reterr);
        if (status || kind != FM_PATH_FOLDER) continue;
        status = fm_source_read_sequences(path, polymer, scan->arena, ret_list, reterr);
        ret_list->folder = folder;
        return status;
    }
    return status;
}

static fm_status take_all_sequences(fm_source_scanning *scan, const char *folder,
                                    fm_source_dataset *dataset, fm_error *reterr) {
    static const char *const proteins[] = {"mmcif_msa_template", "mmcif_msa", NULL};
    static const char *const rna[] = {"rna_msa/msas", NULL};
    fm_status status = take_sequences(scan, folder, "seq_to_pdb_index.json", proteins,
                                      FM_POLYMER_PEPTIDE_L, &dataset->proteins, reterr);
    return status ? status
                  : take_sequences(scan, folder, "rna_msa/rna_sequence_to_pdb_chains.json", rna,
                                   FM_POLYMER_RNA, &dataset->rna, reterr);
}

fm_status fm_source_take_lists(fm_source_scanning *scan, const fm_source_options *options,
                               fm_source_dataset *dataset, fm_error *reterr) {
    const char *chains, *dates, *obsolete, *clusters, *folder = options->dataset;
    fm_arena *arena = scan->arena;
    fm_status status =
        find_list(scan, folder, options->chain_data, "chain_data_cache.json", &chains, reterr);
    if (!status) {
        status = find_list(scan, folder, options->mmcif_cache, "mmcif_cache.json", &dates, reterr);
    }
    if (!status) {
        status = find_list(scan, folder, options->obsolete, "obsolete.dat", &obsolete, reterr);
    }
    if (!status) {
        status = find_list(scan, folder, options->entity_clusters, "clusters-by-entity-40.txt",
                           &clusters, reterr);
    }
    if (!status && chains) {
        status = fm_source_read_listing(chains, false, arena, &dataset->chain_data, reterr);
    }
    if (!status && dates) {
        status = fm_source_read_listing(dates, true, arena, &dataset->dates, reterr);
    }
    if (!status && obsolete) status = take_obsolete(scan, obsolete, dataset, reterr);
    if (!status && clusters) status = take_clusters(scan, clusters, dataset, reterr);
    return status ? status : take_all_sequences(scan, folder, dataset, reterr);
}

/* -- queries */

const char *fm_source_listed_date(const fm_source *source, const char *id) {
    for (uint32_t i = 0; i < source->n_dataset; i++) {
        const fm_listed *found = fm_listing_find(&source->dataset[i].dates, id);
        if (found && found->release_date[0]) return found->release_date;
    }
    return NULL;
}

const char *fm_source_successor(const fm_source *source, const char *id) {
    for (uint32_t i = 0; i < source->n_dataset; i++) {
        const fm_obsolete *found = find_obsolete(&source->dataset[i].obsolete, id);
        if (found && !found->is_circle) return found->last;
    }
    return NULL;
}

/* A chain of a dataset, by its name without the dataset's. Lists spell PDB ids in several ways. */
static const fm_listed *find_chain(const fm_source_dataset *dataset, const char *name) {
    char other[FM_LIMIT_NAME_BYTES + 1];
    const fm_listed *found = fm_listing_find(&dataset->chain_data, name);
    for (int i = 0; i < FM_PDB_ID_N_SPELLING && !found && !dataset->is_predicted; i++) {
        if (fm_pdb_id_respell(name, i, other, sizeof other)) {
            found = fm_listing_find(&dataset->chain_data, other);
        }
    }
    return found;
}

/* The dataset of a name in the source; *ret_bare = the name in it. NULL = none. */
static const fm_source_dataset *dataset_of(const fm_source *source, const char *name,
                                           const char **ret_bare) {
    const char *bare = fm_name_in_dataset(name);
    const fm_source_dataset *found = NULL;
    *ret_bare = name;
    for (uint32_t i = 0; i < source->n_dataset; i++) {
        const fm_source_dataset *dataset = &source->dataset[i];
        size_t prefix = strlen(dataset->prefix);
        if (prefix && bare == name + prefix && memcmp(name, dataset->prefix, prefix) == 0) {
            *ret_bare = bare;
            return dataset;
        }
        if (!prefix) found = dataset;
    }
    return found;
}

const fm_listed *fm_source_listed_chain(const fm_source *source, const char *name) {
    const char *bare;
    const fm_source_dataset *dataset = dataset_of(source, name, &bare);
    return dataset ? find_chain(dataset, bare) : NULL;
}

const uint64_t *fm_source_entity_cluster(const fm_source *source, const char *name,
                                         const char *entity_id) {
    const char *bare;
    const fm_source_dataset *dataset = dataset_of(source, name, &bare);
    return dataset ? fm_entity_clusters_find(&dataset->entity_clusters, bare, entity_id) : NULL;
}
