/* source_clusters.c: reads the clusters of a dataset's proteins, RCSB's clusters-by-entity-40.txt.
 * See source.h and docs/reference/inputs.md, section 15. */
#include "cache/source/source_parts.h"

#include "cache/source/names.h"
#include "proto/base/hash.h"
#include "proto/chem/pdb_id.h"

#include <stdlib.h>
#include <string.h>

enum { NAMED_BYTES_MAX = 80 }; /* of a word in an error */

/* The column of a word, from 1; the text is the one that the words were copied from. */
static uint64_t column_of(fm_bytes text, size_t at) {
    size_t begin = at;
    while (begin > 0 && text.data[begin - 1] != '\n' && text.data[begin - 1] != '\r')
        begin--;
    return at - begin + 1;
}

static bool is_member(const char *name, const char *rest) {
    if (!rest || rest == name || !rest[1]) return false;
    for (const char *c = name; *c; c++) {
        bool is_letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
        bool is_digit = *c >= '0' && *c <= '9';
        if (!is_letter && !is_digit && !strchr("_-.", *c)) return false;
    }
    return true;
}

/* Gives a PDB id before `rest` the form that a structure is found by. Returns the new begin. */
static char *spell_key(char *name, char *rest) {
    char key[FM_PDB_ID_BYTES];
    if (!fm_pdb_id_key(name, (size_t)(rest - name), key)) return name;
    name = rest - sizeof key;
    memcpy(name, key, sizeof key);
    return name;
}

static int compare_entities(const void *left, const void *right) {
    const fm_listed_entity *a = left, *b = right;
    int order = strcmp(a->name, b->name);
    return order ? order : (a->name > b->name) - (a->name < b->name);
}

fm_status fm_source_parse_clusters(fm_bytes text, fm_arena *arena, fm_entity_clusters *ret_clusters,
                                   fm_error *reterr) {
    fm_name_words words;
    const char *word;
    fm_status status = fm_name_words_begin(&words, text, arena, reterr);
    if (status) return status;
    fm_listed_entity *entity =
        fm_arena_alloc_array(arena, words.n_max, sizeof *entity); /* address space */
    if (!entity) return fm_arena_full(arena, reterr);
    uint32_t n = 0, kept = 0;
    uint64_t line = 0, cluster = 0;
    while (!(status = fm_name_words_next(&words, &word, reterr)) && word) {
        char *name = words.text + (word - words.text), *rest = strrchr(name, '_');
        if (!is_member(name, rest)) {
            return fm_fail_at(reterr, FM_ERR_FORMAT, words.line,
                              column_of(text, (size_t)(word - words.text)), 0,
                              "found '%.*s', expected an entry and its entity, as in 1ABC_1",
                              NAMED_BYTES_MAX, name);
        }
        name = spell_key(name, rest);
        if (words.line != line) cluster = fm_xxh3(name, strlen(name));
        line = words.line;
        entity[n++] = (fm_listed_entity){name, cluster};
    }
    if (status) return status;
    if (n) qsort(entity, n, sizeof *entity, compare_entities);
    for (uint32_t i = 0; i < n; i++) {
        if (!kept || strcmp(entity[kept - 1].name, entity[i].name) != 0) entity[kept++] = entity[i];
    }
    *ret_clusters = (fm_entity_clusters){.n = kept, .entity = entity};
    return FM_OK;
}

static int compare_to_entity(const void *name, const void *entity) {
    return strcmp(name, ((const fm_listed_entity *)entity)->name);
}

const uint64_t *fm_entity_clusters_find(const fm_entity_clusters *clusters, const char *id,
                                        const char *entity_id) {
    char name[FM_LIMIT_NAME_BYTES + 1];
    size_t n = strlen(id), n_entity = strlen(entity_id);
    if (!clusters->n || n + 1 + n_entity >= sizeof name) return NULL;
    memcpy(name, id, n);
    name[n] = '_';
    memcpy(name + n + 1, entity_id, n_entity + 1);
    const fm_listed_entity *found =
        bsearch(name, clusters->entity, clusters->n, sizeof *clusters->entity, compare_to_entity);
    return found ? &found->cluster : NULL;
}
