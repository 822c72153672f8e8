/* source_duplicates.c: reads duplicate_pdb_chains.txt. Each line is a group of chains with the same
 * sequence, separated by blanks. Only one chain of a group has alignments on disk; the first chain
 * of the line that has some lends them to the others. See source_parts.h. */
#include "cache/source/source_parts.h"

#include "featurizer/msa.h"
#include "featurizer/parse/lines.h"
#include "proto/chem/pdb_id.h"
#include "proto/limits.h"

#include <stdio.h>
#include <string.h>

/* Copies the next word of the line text[*at..end) to out; false at the end. A word that cannot be a
 * chain's name becomes "". */
static bool next_word(const char *text, size_t end, size_t *at, char out[FM_LIMIT_NAME_BYTES + 1]) {
    while (*at < end && (uint8_t)text[*at] <= 0x20)
        ++*at;
    size_t begin = *at;
    while (*at < end && (uint8_t)text[*at] > 0x20)
        ++*at;
    size_t length = *at - begin;
    if (!fm_source_is_good_name(text + begin, length)) {
        out[0] = '\0';
    } else {
        memcpy(out, text + begin, length);
        out[length] = '\0';
    }
    return length > 0;
}

/* Finds a set among those that existed before this list. */
static const fm_source_set *find_before(const fm_source_scanning *scan, uint32_t n_before,
                                        const char *name) {
    const fm_source_scanning before = {
        .set = scan->set, .n_set = n_before, .is_predicted = scan->is_predicted};
    return fm_source_find_set_any_spelling(&before, name);
}

/* Spells the PDB id of a name as the file of its structure does. */
static void spell_as_structure(const fm_source_scanning *scan, char name[FM_LIMIT_NAME_BYTES + 1]) {
    const char *split = strrchr(name, '_');
    size_t length = split ? (size_t)(split - name) : 0;
    char key[FM_PDB_ID_BYTES], spelled[FM_LIMIT_NAME_BYTES + 1];
    if (scan->is_predicted || !fm_pdb_id_key(name, length, key)) return;
    const fm_source_structure *structure = fm_source_find_structure(scan, name, length);
    if (!structure) return;
    int n = snprintf(spelled, sizeof spelled, "%s%s", structure->id, split);
    if (n > 0 && (size_t)n < sizeof spelled) memcpy(name, spelled, (size_t)n + 1);
}

/* Whether the folder or the files of a set have an alignment. What cannot be listed counts as one,
 * because the build then says why. */
static bool has_alignment(const fm_source_scanning *scan, const fm_source_set *set) {
    const fm_source_chain chain = {
        .folder = set->folder, .db = set->db, .file = set->file, .n_file = set->n_file};
    size_t mark = fm_arena_mark(scan->arena);
    const fm_source_file *file;
    uint32_t n = 0;
    if (set->refusal || (!set->folder && !set->n_file)) return set->refusal != NULL;
    fm_status status = fm_source_files(&chain, scan->arena, &n, &file, NULL);
    bool has = status;
    for (uint32_t i = 0; i < n && !has; i++)
        has = fm_msa_format_of_name(file[i].name) != FM_MSA_NONE;
    fm_arena_rewind(scan->arena, mark);
    return has;
}

/* Of a group in which several chains have a folder of their own, gives those that have nothing in
 * it the alignments of the first that has some. Folders are listed for such groups alone. */
static void fill_empty_sets(fm_source_scanning *scan, uint32_t n_before, const char *line,
                            size_t size) {
    char name[FM_LIMIT_NAME_BYTES + 1];
    const fm_source_set *full = NULL, *set;
    uint32_t n_set = 0;
    for (size_t at = 0; next_word(line, size, &at, name);)
        n_set += find_before(scan, n_before, name) != NULL;
    if (n_set < 2) return;
    for (size_t at = 0; !full && next_word(line, size, &at, name);) {
        set = find_before(scan, n_before, name);
        if (set && has_alignment(scan, set)) full = set;
    }
    for (size_t at = 0; full && next_word(line, size, &at, name);) {
        set = find_before(scan, n_before, name);
        if (!set || set == full || has_alignment(scan, set)) continue;
        fm_source_set *empty = &scan->set[set - scan->set];
        empty->folder = full->folder;
        empty->db = full->db;
        empty->file = full->file;
        empty->n_file = full->n_file;
        empty->duplicate = true;
    }
}

static fm_status take_group(fm_source_scanning *scan, uint32_t n_before, const char *line,
                            size_t size, fm_error *reterr) {
    char name[FM_LIMIT_NAME_BYTES + 1];
    const fm_source_set *found = NULL;
    fill_empty_sets(scan, n_before, line, size);
    for (size_t at = 0; !found && next_word(line, size, &at, name);)
        found = find_before(scan, n_before, name);
    if (!found) return FM_OK;
    fm_source_set set = *found;
    set.duplicate = true;
    for (size_t at = 0; next_word(line, size, &at, name);) {
        if (!name[0] || find_before(scan, n_before, name)) continue;
        spell_as_structure(scan, name);
        set.name = fm_source_copy(scan->arena, name, strlen(name));
        if (!set.name) return fm_arena_full(scan->arena, reterr);
        fm_status status = fm_source_add_set(scan, &set, reterr);
        if (status) return status;
    }
    return FM_OK;
}

/* Checks that the list has something that can be a chain, id_chain. */
static fm_status check_list(fm_bytes text, fm_error *reterr) {
    fm_status status = fm_text_check_kind(text, reterr);
    fm_lines lines = fm_lines_of(text, false, 0, 1);
    fm_line line;
    char name[FM_LIMIT_NAME_BYTES + 1];
    uint64_t first = 0;
    while (!status && fm_lines_next(&lines, &line)) {
        const char *at = (const char *)text.data + line.begin;
        for (size_t next = 0; next_word(at, line.end - line.begin, &next, name);) {
            if (strchr("[{<", *at)) break;
            if (strchr(name, '_')) return FM_OK;
        }
        if (!first && line.begin < line.end) first = line.number;
    }
    if (status || !first) return status;
    return fm_fail_at(reterr, FM_ERR_FORMAT, first, 1, 0,
                      "found no name of a chain, expected lines of names such as 1abc_A");
}

fm_status fm_source_take_duplicates(fm_source_scanning *scan, fm_bytes text, fm_error *reterr) {
    const uint32_t n_before = scan->n_set;
    fm_lines lines = fm_lines_of(text, false, 0, 1);
    fm_line line;
    fm_status status = check_list(text, reterr);
    while (!status && fm_lines_next(&lines, &line)) {
        const char *at = (const char *)text.data + line.begin;
        status = take_group(scan, n_before, at, line.end - line.begin, reterr);
    }
    return status ? status : fm_source_sort_sets(scan, reterr);
}
