/* job_read.c: finds a description's format, and fills jobs; see job_read.h and job.h. */
#include "featurizer/job/job_read.h"

#include "featurizer/parse/lines.h"
#include "proto/base/utf8.h"
#include "proto/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* -- messages */

fm_status fm_job_place_of(const fm_job_reader *reader, const fm_value *node,
                          fm_job_place *ret_place) {
    char path[200];
    fm_value_path(node, path, sizeof path);
    char *copy = fm_arena_alloc(reader->arena, strlen(path) + 1);
    if (!copy) return fm_arena_full(reader->arena, reader->reterr);
    memcpy(copy, path, strlen(path) + 1);
    *ret_place = (fm_job_place){node->line, node->column, node->offset, copy};
    return FM_OK;
}

fm_status fm_job_refuse_smiles(const fm_value *node, fm_error *reterr) {
    return fm_value_fail(
        node, reterr, FM_ERR_UNSUPPORTED,
        "found SMILES, expected ids of components; make one with \"python3 -m foldmill.component "
        "--id LIG1 'SMILES' >lig1.cif\" and give it as userCCDPath in AlphaFold 3 JSON, or write "
        "SDF in three dimensions with RDKit or Open Babel and give it as FILE_x.sdf in Protenix "
        "JSON");
}

/* -- a job */

/* The name as that of a file: blanks become '_', and of other characters few stay. */
static fm_status make_folder(fm_job_reader *reader, const char *name, const fm_value *at) {
    size_t n = 0, size = strlen(name);
    char *folder = fm_arena_alloc(reader->arena, size + 1);
    if (!folder) return fm_arena_full(reader->arena, reader->reterr);
    for (size_t i = 0; i < size; i++) {
        char c = name[i] == ' ' ? '_' : name[i];
        bool stays = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                     c == '_' || c == '-' || c == '.';
        if (stays) folder[n++] = c;
    }
    folder[n] = '\0';
    if (n == 0 || folder[0] == '.' || n > FM_LIMIT_NAME_BYTES) {
        return fm_value_fail(at, reader->reterr, FM_ERR_FORMAT,
                             "found the name '%.60s', expected 1 to %u letters, digits, '_', '-' "
                             "and '.', the first of them no '.'",
                             name, FM_LIMIT_NAME_BYTES);
    }
    reader->job.folder = folder;
    return FM_OK;
}

fm_status fm_job_open(fm_job_reader *reader, const char *name, const fm_value *at,
                      uint32_t max_entity) {
    reader->job = (fm_complex_job){.name = name, .format = (uint8_t)reader->format};
    reader->n_residue = 0;
    reader->max_entity = max_entity;
    reader->max_bond = 0;
    reader->entities = fm_arena_calloc(reader->arena, max_entity, sizeof *reader->entities);
    if (!reader->entities) return fm_arena_full(reader->arena, reader->reterr);
    if (max_entity == 0) {
        return fm_value_fail(at, reader->reterr, FM_ERR_FORMAT,
                             "found no sequences, expected at least one");
    }
    return make_folder(reader, name, at);
}

static int compare_ids(const void *left, const void *right) {
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static fm_status check_ids(const fm_job_reader *reader, const fm_value *at) {
    size_t mark = fm_arena_mark(reader->arena);
    const char **all = fm_arena_alloc_array(reader->arena, reader->job.n_chain, sizeof *all);
    uint32_t n = 0;
    if (!all) return fm_arena_full(reader->arena, reader->reterr);
    for (uint32_t e = 0; e < reader->job.n_entity; e++)
        for (uint32_t k = 0; k < reader->entities[e].n_copy; k++)
            all[n++] = reader->entities[e].ids[k];
    qsort(all, n, sizeof *all, compare_ids);
    fm_arena_rewind(reader->arena, mark);
    for (uint32_t i = 1; i < n; i++) {
        if (strcmp(all[i - 1], all[i]) != 0) continue;
        return fm_value_fail(at, reader->reterr, FM_ERR_DATA,
                             "found the chain id '%s' twice, expected different ids", all[i]);
    }
    return FM_OK;
}

fm_status fm_job_close(fm_job_reader *reader, const fm_value *at, fm_complex_job *ret_job) {
    static const uint32_t first_seed[] = {1};
    fm_complex_job *job = &reader->job;
    fm_status status = check_ids(reader, at);
    if (status) return status;
    if (job->n_seed == 0) {
        job->seeds = first_seed;
        job->n_seed = 1;
    }
    job->entities = reader->entities;
    job->bonds = reader->bonds;
    *ret_job = *job;
    return FM_OK;
}

static int compare_seeds(const void *left, const void *right) {
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* A seed that is listed twice would give the same structures twice. */
static fm_status check_seeds(const fm_job_reader *reader, const fm_value *list,
                             const uint32_t *seeds) {
    size_t mark = fm_arena_mark(reader->arena);
    uint32_t *sorted = fm_arena_alloc_array(reader->arena, list->n, sizeof *sorted);
    if (!sorted) return fm_arena_full(reader->arena, reader->reterr);
    for (uint32_t i = 0; i < list->n; i++)
        sorted[i] = seeds[i];
    qsort(sorted, list->n, sizeof *sorted, compare_seeds);
    fm_arena_rewind(reader->arena, mark);
    uint32_t i = 1, n_met = 0;
    while (i < list->n && sorted[i - 1] != sorted[i])
        i++;
    for (const fm_value *at = list->first; at && i < list->n; at = at->next) {
        n_met += *seeds++ == sorted[i];
        if (n_met < 2) continue;
        return fm_value_fail(at, reader->reterr, FM_ERR_DATA,
                             "found the seed %u a second time, expected different seeds",
                             sorted[i]);
    }
    return FM_OK;
}

fm_status fm_job_take_seeds(fm_job_reader *reader, const fm_value *list, bool texts) {
    if (fm_value_is_null(list)) return FM_OK;
    if (list->kind != FM_DOCUMENT_LIST) {
        return fm_value_expect(list, "a list of seeds", reader->reterr);
    }
    if (list->n > FM_LIMIT_N_JOB_SEED) {
        return fm_value_fail(list, reader->reterr, FM_ERR_LIMIT, "found %u seeds, expected 1 to %u",
                             list->n, FM_LIMIT_N_JOB_SEED);
    }
    uint32_t *seeds = fm_arena_alloc_array(reader->arena, list->n, sizeof *seeds), n = 0;
    if (!seeds) return fm_arena_full(reader->arena, reader->reterr);
    for (const fm_value *at = list->first; at; at = at->next) {
        fm_value number = *at;
        int64_t value;
        if (texts && number.kind == FM_DOCUMENT_TEXT) number.is_plain = true;
        fm_status status = fm_value_integer(&number, 0, UINT32_MAX, &value, reader->reterr);
        if (status) return status;
        seeds[n++] = (uint32_t)value;
    }
    reader->job.seeds = seeds;
    reader->job.n_seed = n;
    return check_seeds(reader, list, seeds);
}

/* -- entities */

static fm_status add_entity(fm_job_reader *reader, const fm_value *node, fm_molecule molecule,
                            uint64_t n, fm_job_entity **ret_entity) {
    fm_job_entity *entity = &reader->entities[reader->job.n_entity];
    if (n == 0) {
        return fm_value_fail(node, reader->reterr, FM_ERR_FORMAT, "found nothing, expected %s",
                             molecule == FM_MOLECULE_LIGAND ? "the id of a component" : "letters");
    }
    if (n > FM_LIMIT_N_JOB_RESIDUE - reader->n_residue) {
        return fm_value_fail(node, reader->reterr, FM_ERR_LIMIT,
                             "found more than %u residues in a job, expected fewer",
                             FM_LIMIT_N_JOB_RESIDUE);
    }
    void *components = fm_arena_calloc(reader->arena, n, FM_COMPONENT_ID);
    reader->is_modified = fm_arena_calloc(reader->arena, n, 1);
    if (!components || !reader->is_modified) return fm_arena_full(reader->arena, reader->reterr);
    *entity = (fm_job_entity){
        .molecule = (uint8_t)molecule, .n_residue = (uint32_t)n, .components = components};
    reader->n_residue += (uint32_t)n;
    reader->job.n_entity++;
    *ret_entity = entity;
    return fm_job_place_of(reader, node, &entity->place);
}

static fm_job_entity *newest(const fm_job_reader *reader) {
    return &reader->entities[reader->job.n_entity - 1];
}

static char *component_at(const fm_job_entity *entity, uint32_t i) {
    return (char *)(uintptr_t)entity->components[i];
}

const char *fm_job_component_of(fm_molecule molecule, char letter, bool *ret_is_known) {
    static const char *const unknown[] = {"UNK", "N", "DN"};
    static const char amino[] = "ARNDCQEGHILKMFPSTWYVX";
    static const char *const acids[] = {"ALA", "ARG", "ASN", "ASP", "CYS", "GLN", "GLU",
                                        "GLY", "HIS", "ILE", "LEU", "LYS", "MET", "PHE",
                                        "PRO", "SER", "THR", "TRP", "TYR", "VAL", "UNK"};
    static const char bases[] = "AGCUTINX";
    static const char *const rna[] = {"A", "G", "C", "U", NULL, "I", "N", "N"};
    static const char *const dna[] = {"DA", "DG", "DC", "DU", "DT", "DI", "DN", "DN"};
    const char *letters = molecule == FM_MOLECULE_PROTEIN ? amino : bases;
    const char *found = letter ? strchr(letters, letter) : NULL;
    const char *const *names = molecule == FM_MOLECULE_PROTEIN ? acids
                               : molecule == FM_MOLECULE_RNA   ? rna
                                                               : dna;
    *ret_is_known = found && names[found - letters];
    return *ret_is_known ? names[found - letters] : unknown[molecule];
}

fm_status fm_job_add_polymer(fm_job_reader *reader, const fm_value *node, fm_molecule molecule,
                             const char *letters) {
    static const char *const allowed[] = {"one of ACDEFGHIKLMNPQRSTVWYX", "one of ACGUINX",
                                          "one of ACGTUINX"};
    bool is_strict = reader->format == FM_JOB_PROTENIX || reader->format == FM_JOB_SERVER;
    fm_job_entity *entity;
    fm_status status = add_entity(reader, node, molecule, strlen(letters), &entity);
    if (status) return status;
    entity->sequence = letters;
    for (uint32_t i = 0; i < entity->n_residue; i++) {
        bool is_known;
        const char *id = fm_job_component_of(molecule, letters[i], &is_known);
        if (!is_known && (is_strict || letters[i] < 'A' || letters[i] > 'Z')) {
            char shown[2] = {letters[i] >= ' ' && letters[i] <= '~' ? letters[i] : '?', '\0'};
            return fm_value_fail(node, reader->reterr, FM_ERR_FORMAT,
                                 "found '%s' at residue %u, expected %s", shown, i + 1,
                                 is_strict ? allowed[molecule] : "a capital letter");
        }
        if (!is_known) {
            fm_job_warn(reader->arena, reader->warnings, entity->place.path,
                        "the letter %c at residue %u is read as unknown (%s)", letters[i], i + 1,
                        id);
        }
        memcpy(component_at(entity, i), id, strlen(id));
    }
    return FM_OK;
}

fm_status fm_job_add_ligand(fm_job_reader *reader, const fm_value *node, uint32_t n) {
    fm_job_entity *entity;
    return add_entity(reader, node, FM_MOLECULE_LIGAND, n, &entity);
}

fm_status fm_job_set_component(fm_job_reader *reader, const fm_value *node, uint32_t i,
                               const char *id) {
    static const char *const without[] = {"UNL", "UNX"};
    size_t n = strlen(id);
    for (size_t k = 0; k < n; k++) {
        if (id[k] > ' ' && id[k] <= '~' && !strchr("_#'\"", id[k])) continue;
        n = 0;
    }
    if (n == 0 || n >= FM_COMPONENT_ID) {
        return fm_value_fail(node, reader->reterr, FM_ERR_FORMAT,
                             "found '%.20s', expected the id of a component: 1 to %d letters, "
                             "digits and '-'",
                             id, FM_COMPONENT_ID - 1);
    }
    for (size_t k = 0; k < 2; k++) {
        if (strcmp(id, without[k]) != 0) continue;
        return fm_value_fail(node, reader->reterr, FM_ERR_UNSUPPORTED,
                             "found %s, an unknown ligand, expected one with atoms", id);
    }
    memcpy(component_at(newest(reader), i), id, n);
    return FM_OK;
}

fm_status fm_job_modify(fm_job_reader *reader, const fm_value *position, const fm_value *code,
                        const char *id) {
    fm_job_entity *entity = newest(reader);
    int64_t place;
    fm_status status = fm_value_integer(position, 1, entity->n_residue, &place, reader->reterr);
    if (status) return status;
    uint32_t i = (uint32_t)place - 1;
    if (reader->is_modified[i]) {
        return fm_value_fail(position, reader->reterr, FM_ERR_DATA,
                             "found a second modification of residue %u, expected one", i + 1);
    }
    reader->is_modified[i] = true;
    memset(component_at(entity, i), 0, FM_COMPONENT_ID);
    return fm_job_set_component(reader, code, i, id);
}

/* -- copies */

static fm_status add_copies(fm_job_reader *reader, const fm_value *node, uint64_t n,
                            const char ***ret_ids) {
    fm_job_entity *entity = newest(reader);
    if (n == 0 || n > FM_LIMIT_N_JOB_CHAIN - reader->job.n_chain) {
        return fm_value_fail(node, reader->reterr, n ? FM_ERR_LIMIT : FM_ERR_FORMAT,
                             "found %llu copies, expected 1 to %u chains in a job",
                             (unsigned long long)n, FM_LIMIT_N_JOB_CHAIN);
    }
    *ret_ids = fm_arena_calloc(reader->arena, n, sizeof **ret_ids);
    if (!*ret_ids) return fm_arena_full(reader->arena, reader->reterr);
    entity->n_copy = (uint32_t)n;
    entity->ids = *ret_ids;
    reader->job.n_chain += (uint32_t)n;
    return FM_OK;
}

bool fm_job_is_alphafold3_id(const char *id) {
    size_t n = strlen(id), n_letter = 0, n_upper = 0;
    for (size_t i = 0; i < n; i++) {
        n_upper += id[i] >= 'A' && id[i] <= 'Z';
        n_letter += (id[i] | 32) >= 'a' && (id[i] | 32) <= 'z';
    }
    return n_letter == n && n_upper > 0;
}

static fm_status take_id(const fm_job_reader *reader, const fm_value *node, const char **ret_id) {
    const char *id;
    fm_status status = fm_value_text(node, &id, reader->reterr);
    if (status) return status;
    size_t n = strlen(id), n_known = 0;
    for (size_t i = 0; i < n; i++)
        n_known += ((id[i] | 32) >= 'a' && (id[i] | 32) <= 'z') || (id[i] >= '0' && id[i] <= '9');
    bool is_strict = reader->format == FM_JOB_ALPHAFOLD3;
    bool is_id = is_strict ? fm_job_is_alphafold3_id(id) : n_known == n && n > 0;
    if (!is_id || n >= FM_JOB_ID) {
        return fm_value_fail(
            node, reader->reterr, FM_ERR_FORMAT, "found the id '%.20s', expected %s%d", id,
            is_strict ? "letters, not all of them small, at most " : "letters and digits, at most ",
            FM_JOB_ID - 1);
    }
    *ret_id = id;
    return FM_OK;
}

fm_status fm_job_take_ids(fm_job_reader *reader, const fm_value *node) {
    const char **ids;
    bool is_list = node->kind == FM_DOCUMENT_LIST;
    fm_status status = add_copies(reader, node, is_list ? node->n : 1, &ids);
    const fm_value *at = is_list ? node->first : node;
    for (uint32_t i = 0; i < newest(reader)->n_copy && !status; i++, at = at->next)
        status = take_id(reader, at, &ids[i]);
    return status;
}

fm_status fm_job_take_count(fm_job_reader *reader, const fm_value *node, uint32_t n) {
    const char **ids;
    return add_copies(reader, node, n, &ids);
}

/* Writes the number'th id: A to Z, and then more letters. */
static void write_id(uint32_t number, bool reversed, char out[FM_JOB_ID]) {
    char letters[FM_JOB_ID];
    size_t n = 0;
    for (uint64_t rest = (uint64_t)number + 1; rest; rest = (rest - 1) / 26)
        letters[n++] = (char)('A' + (rest - 1) % 26);
    for (size_t i = 0; i < n; i++)
        out[i] = reversed ? letters[i] : letters[n - 1 - i];
    out[n] = '\0';
}

fm_status fm_job_name_chains(fm_job_reader *reader, bool reversed) {
    const char **taken = fm_arena_alloc_array(reader->arena, reader->job.n_chain, sizeof *taken);
    uint32_t n_taken = 0, number = 0;
    if (!taken) return fm_arena_full(reader->arena, reader->reterr);
    for (uint32_t e = 0; e < reader->job.n_entity; e++) {
        const fm_job_entity *entity = &reader->entities[e];
        for (uint32_t k = 0; k < entity->n_copy; k++)
            if (entity->ids[k]) taken[n_taken++] = entity->ids[k];
    }
    if (n_taken) qsort(taken, n_taken, sizeof *taken, compare_ids);
    for (uint32_t e = 0; e < reader->job.n_entity; e++) {
        const char **ids = (const char **)(uintptr_t)reader->entities[e].ids;
        for (uint32_t k = 0; k < reader->entities[e].n_copy; k++) {
            if (ids[k]) continue;
            char *id = fm_arena_alloc(reader->arena, FM_JOB_ID);
            if (!id) return fm_arena_full(reader->arena, reader->reterr);
            do {
                write_id(number++, reversed, id);
            } while (n_taken && bsearch(&id, taken, n_taken, sizeof *taken, compare_ids));
            ids[k] = id;
        }
    }
    return FM_OK;
}

/* -- texts and bonds */

fm_status fm_job_take_text(fm_job_reader *reader, const fm_value *text, const fm_value *file,
                           fm_job_text *ret_text) {
    fm_job_text out = {0};
    bool has_text = !fm_value_is_null(text), has_file = !fm_value_is_null(file);
    if (has_text && has_file) {
        return fm_value_fail(file, reader->reterr, FM_ERR_DATA,
                             "found both the text and a file of it, expected one of them");
    }
    fm_status status = FM_OK;
    if (has_text || has_file) {
        const char *value;
        const fm_value *node = has_text ? text : file;
        status = fm_value_text(node, &value, reader->reterr);
        if (!status) status = fm_job_place_of(reader, node, &out.place);
        if (status) return status;
        out.is_given = true;
        if (has_text) out.bytes = node->text;
        bool is_name = has_text || value[0];
        if (!is_name) return fm_value_expect(node, "the name of a file", reader->reterr);
        if (has_file) out.file = value;
    }
    *ret_text = out;
    return FM_OK;
}

fm_status fm_job_find_chain(const fm_job_reader *reader, const fm_value *node,
                            fm_job_end *ret_end) {
    const char *id;
    fm_status status = fm_value_text(node, &id, reader->reterr);
    for (uint32_t e = 0; e < reader->job.n_entity && !status; e++) {
        const fm_job_entity *entity = &reader->entities[e];
        for (uint32_t k = 0; k < entity->n_copy; k++) {
            if (strcmp(entity->ids[k], id) != 0) continue;
            *ret_end = (fm_job_end){.entity = e, .copy = k};
            return FM_OK;
        }
    }
    return status ? status : fm_value_expect(node, "the id of a chain of this job", reader->reterr);
}

fm_status fm_job_take_atom(const fm_job_reader *reader, const fm_value *position,
                           const fm_value *atom, fm_job_end *end) {
    const fm_job_entity *entity = &reader->entities[end->entity];
    fm_value number = *position;
    const char *name;
    int64_t residue;
    if (number.kind == FM_DOCUMENT_TEXT && reader->format == FM_JOB_PROTENIX) {
        number.is_plain = true; /* its own files have numbers in quotes */
    }
    fm_status status = fm_value_integer(&number, 1, entity->n_residue, &residue, reader->reterr);
    if (!status) status = fm_value_text(atom, &name, reader->reterr);
    if (!status) status = fm_job_place_of(reader, atom, &end->place);
    if (status) return status;
    size_t n = strlen(name);
    if (n == 0 || n >= FM_COMPONENT_NAME || strspn(name, "0123456789") == n) {
        return fm_value_expect(atom, "the name of an atom", reader->reterr);
    }
    end->residue = (uint32_t)residue - 1;
    memset(end->atom, 0, sizeof end->atom);
    memcpy(end->atom, name, n);
    return FM_OK;
}

fm_status fm_job_take_end(const fm_job_reader *reader, const fm_value *node, fm_job_end *ret_end) {
    if (node->kind != FM_DOCUMENT_LIST || node->n != 3) {
        return fm_value_expect(
            node, "a list of a chain's id, a residue's number and an atom's name", reader->reterr);
    }
    const fm_value *chain = node->first;
    fm_status status = fm_job_find_chain(reader, chain, ret_end);
    return status ? status : fm_job_take_atom(reader, chain->next, chain->next->next, ret_end);
}

static bool is_same_end(const fm_job_end *a, const fm_job_end *b) {
    return a->entity == b->entity && a->copy == b->copy && a->residue == b->residue &&
           memcmp(a->atom, b->atom, sizeof a->atom) == 0;
}

fm_status fm_job_add_bond(fm_job_reader *reader, const fm_value *node, const fm_job_bond *bond) {
    uint32_t n = reader->job.n_bond;
    if (is_same_end(&bond->a, &bond->b)) {
        return fm_value_fail(node, reader->reterr, FM_ERR_DATA,
                             "found a bond of an atom with itself, expected two atoms");
    }
    for (uint32_t i = 0; i < n; i++) {
        const fm_job_bond *other = &reader->bonds[i];
        bool is_same = is_same_end(&other->a, &bond->a) && is_same_end(&other->b, &bond->b);
        bool is_turned = is_same_end(&other->a, &bond->b) && is_same_end(&other->b, &bond->a);
        if (!is_same && !is_turned) continue;
        return fm_value_fail(node, reader->reterr, FM_ERR_DATA,
                             "found a bond a second time%s, expected it once",
                             is_turned ? " in the other direction" : "");
    }
    if (n == FM_LIMIT_N_JOB_BOND) {
        return fm_value_fail(node, reader->reterr, FM_ERR_LIMIT,
                             "found more than %u bonds, expected fewer", FM_LIMIT_N_JOB_BOND);
    }
    if (n == reader->max_bond) {
        uint32_t max = n ? 2 * n : 16;
        fm_job_bond *bonds = fm_arena_alloc_array(reader->arena, max, sizeof *bonds);
        if (!bonds) return fm_arena_full(reader->arena, reader->reterr);
        if (n) memcpy(bonds, reader->bonds, n * sizeof *bonds);
        reader->bonds = bonds;
        reader->max_bond = max;
    }
    reader->bonds[reader->job.n_bond++] = *bond;
    return FM_OK;
}
