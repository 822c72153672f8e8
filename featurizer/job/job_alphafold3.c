/* job_alphafold3.c: AlphaFold 3's own JSON: one object is one job; see job_read.h. */
#include "featurizer/job/job_read.h"
#include "proto/limits.h"

#include <string.h>

/* -- polymers */

typedef struct polymer_words {
    const char *name, *type, *position;
    fm_molecule molecule;
} polymer_words;

static fm_status take_modifications(fm_job_reader *reader, const fm_value *list,
                                    const polymer_words *words) {
    const char *const keys[] = {words->type, words->position};
    if (fm_value_is_null(list)) return FM_OK;
    if (list->kind != FM_DOCUMENT_LIST) return fm_value_expect(list, "a list", reader->reterr);
    for (const fm_value *at = list->first; at; at = at->next) {
        fm_status status = FM_CHECK_KEYS(at, keys, reader->reterr);
        if (status) return status;
        const fm_value *code = fm_value_get(at, words->type);
        const fm_value *position = fm_value_get(at, words->position);
        const char *id;
        if (!code || !position) {
            return fm_value_fail(
                at, reader->reterr, FM_ERR_FORMAT, "found no %s, expected %s and %s",
                code ? words->position : words->type, words->type, words->position);
        }
        status = fm_value_text(code, &id, reader->reterr);
        if (!status && strncmp(id, "CCD_", 4) == 0) {
            return fm_value_fail(code, reader->reterr, FM_ERR_FORMAT,
                                 "found '%.20s', expected the component's id without CCD_", id);
        }
        if (!status) status = fm_job_modify(reader, position, code, id);
        if (status) return status;
    }
    return FM_OK;
}

/* Reads a list of indices from 0 on. */
static fm_status take_indices(fm_job_reader *reader, const fm_value *map, const char *key,
                              uint32_t limit, uint32_t *ret_n, const uint32_t **ret_indices) {
    const fm_value *list = fm_value_get(map, key);
    if (!list || list->kind != FM_DOCUMENT_LIST) {
        return fm_value_fail(list ? list : map, reader->reterr, FM_ERR_FORMAT,
                             "found no %s, expected a list of indices", key);
    }
    uint32_t *indices = fm_arena_alloc_array(reader->arena, list->n, sizeof *indices), n = 0;
    if (!indices) return fm_arena_full(reader->arena, reader->reterr);
    for (const fm_value *at = list->first; at; at = at->next) {
        int64_t value;
        fm_status status = fm_value_integer(at, 0, (int64_t)limit - 1, &value, reader->reterr);
        if (status) return status;
        indices[n++] = (uint32_t)value;
    }
    *ret_n = n;
    *ret_indices = indices;
    return FM_OK;
}

static fm_status check_distinct(fm_job_reader *reader, const fm_value *list, uint32_t n,
                                const uint32_t *indices, uint32_t limit) {
    size_t mark = fm_arena_mark(reader->arena);
    bool *is_met = fm_arena_calloc(reader->arena, limit, 1);
    if (!is_met) return fm_arena_full(reader->arena, reader->reterr);
    for (uint32_t i = 0; i < n; i++) {
        if (is_met[indices[i]]) {
            return fm_value_fail(list, reader->reterr, FM_ERR_DATA,
                                 "found the index %u twice, expected each once", indices[i]);
        }
        is_met[indices[i]] = true;
    }
    fm_arena_rewind(reader->arena, mark);
    return FM_OK;
}

static fm_status take_template(fm_job_reader *reader, const fm_value *node, uint32_t n_residue,
                               fm_job_template *template) {
    static const char *const keys[] = {"mmcif", "mmcifPath", "queryIndices", "templateIndices"};
    uint32_t n = 0;
    fm_status status = FM_CHECK_KEYS(node, keys, reader->reterr);
    if (!status) {
        status = fm_job_take_text(reader, fm_value_get(node, "mmcif"),
                                  fm_value_get(node, "mmcifPath"), &template->structure);
    }
    if (!status && !template->structure.is_given) {
        return fm_value_fail(node, reader->reterr, FM_ERR_FORMAT,
                             "found no structure, expected mmcif or mmcifPath");
    }
    if (!status) {
        status = take_indices(reader, node, "queryIndices", n_residue, &template->n_index,
                              &template->query);
    }
    if (!status) {
        status = check_distinct(reader, fm_value_get(node, "queryIndices"), template->n_index,
                                template->query, n_residue);
    }
    if (!status) {
        status =
            take_indices(reader, node, "templateIndices", FM_LIMIT_N_RES, &n, &template->template);
    }
    if (!status && n != template->n_index) {
        return fm_value_fail(node, reader->reterr, FM_ERR_DATA,
                             "found %u queryIndices and %u templateIndices, expected as many",
                             template->n_index, n);
    }
    return status;
}

static fm_status take_templates(fm_job_reader *reader, const fm_value *map, fm_job_entity *entity) {
    const fm_value *list = fm_value_get(map, "templates");
    if (fm_value_is_null(list)) return FM_OK;
    if (list->kind != FM_DOCUMENT_LIST || list->n > FM_LIMIT_N_JOB_TEMPLATE) {
        return fm_value_fail(list, reader->reterr, FM_ERR_FORMAT,
                             "found %u templates, expected a list of at most %u", list->n,
                             FM_LIMIT_N_JOB_TEMPLATE);
    }
    fm_job_template *templates = fm_arena_calloc(reader->arena, list->n, sizeof *templates);
    if (!templates) return fm_arena_full(reader->arena, reader->reterr);
    for (const fm_value *at = list->first; at; at = at->next) {
        fm_status status =
            take_template(reader, at, entity->n_residue, &templates[entity->n_template++]);
        if (status) return status;
    }
    entity->templates = templates;
    return FM_OK;
}

/* Alignments of a protein: both null, which asks for a search, or given. */
static fm_status take_alignments(fm_job_reader *reader, const fm_value *map,
                                 fm_job_entity *entity) {
    bool is_protein = entity->molecule == FM_MOLECULE_PROTEIN;
    fm_status status = fm_job_take_text(reader, fm_value_get(map, "unpairedMsa"),
                                        fm_value_get(map, "unpairedMsaPath"), &entity->unpaired);
    if (!status) {
        status = fm_job_take_text(reader, fm_value_get(map, "pairedMsa"),
                                  fm_value_get(map, "pairedMsaPath"), &entity->paired);
    }
    if (status) return status;
    entity->needs_alignment = !entity->unpaired.is_given && !entity->paired.is_given &&
                              entity->molecule != FM_MOLECULE_DNA;
    if (is_protein && !entity->needs_alignment &&
        entity->unpaired.is_given != entity->paired.is_given) {
        fm_job_warn(reader->arena, reader->warnings, entity->place.path,
                    "%s is not given, and is taken as none",
                    entity->paired.is_given ? "unpairedMsa" : "pairedMsa");
    }
    return FM_OK;
}

static fm_status take_description(fm_job_reader *reader, const fm_value *map) {
    const fm_value *node = fm_value_get(map, "description");
    if (fm_value_is_null(node)) return FM_OK;
    return fm_value_text(node, &reader->entities[reader->job.n_entity - 1].description,
                         reader->reterr);
}

static fm_status take_polymer(fm_job_reader *reader, const fm_value *map,
                              const polymer_words *words) {
    static const char *const protein_keys[] = {"id",          "sequence",      "modifications",
                                               "description", "unpairedMsa",   "unpairedMsaPath",
                                               "pairedMsa",   "pairedMsaPath", "templates"};
    static const char *const rna_keys[] = {"id",          "sequence",    "modifications",
                                           "description", "unpairedMsa", "unpairedMsaPath"};
    static const char *const dna_keys[] = {"id", "sequence", "modifications", "description"};
    const fm_value *id = fm_value_get(map, "id"), *sequence = fm_value_get(map, "sequence");
    const char *letters;
    fm_status status =
        words->molecule == FM_MOLECULE_PROTEIN ? FM_CHECK_KEYS(map, protein_keys, reader->reterr)
        : words->molecule == FM_MOLECULE_RNA   ? FM_CHECK_KEYS(map, rna_keys, reader->reterr)
                                               : FM_CHECK_KEYS(map, dna_keys, reader->reterr);
    if (status) return status;
    if (!id || !sequence) {
        return fm_value_fail(map, reader->reterr, FM_ERR_FORMAT,
                             "found no %s, expected id and sequence", id ? "sequence" : "id");
    }
    status = fm_value_text(sequence, &letters, reader->reterr);
    if (!status) status = fm_job_add_polymer(reader, sequence, words->molecule, letters);
    if (!status) status = fm_job_take_ids(reader, id);
    if (!status) status = take_modifications(reader, fm_value_get(map, "modifications"), words);
    if (status) return status;
    fm_job_entity *entity = &reader->entities[reader->job.n_entity - 1];
    status = take_description(reader, map);
    if (!status) status = take_alignments(reader, map, entity);
    return status ? status : take_templates(reader, map, entity);
}

/* -- ligands and bonds */

static fm_status take_ligand(fm_job_reader *reader, const fm_value *map) {
    static const char *const keys[] = {"id", "ccdCodes", "smiles", "description"};
    const fm_value *id = fm_value_get(map, "id"), *codes = fm_value_get(map, "ccdCodes");
    const fm_value *smiles = fm_value_get(map, "smiles");
    fm_status status = FM_CHECK_KEYS(map, keys, reader->reterr);
    if (status) return status;
    if (!fm_value_is_null(smiles)) return fm_job_refuse_smiles(smiles, reader->reterr);
    if (!id || fm_value_is_null(codes) || codes->kind != FM_DOCUMENT_LIST) {
        return fm_value_fail(map, reader->reterr, FM_ERR_FORMAT,
                             "found no %s, expected id and a list ccdCodes",
                             id ? "ccdCodes" : "id");
    }
    status = fm_job_add_ligand(reader, codes, codes->n);
    if (!status) status = fm_job_take_ids(reader, id);
    for (const fm_value *at = codes->first; at && !status; at = at->next) {
        const char *code;
        status = fm_value_text(at, &code, reader->reterr);
        if (!status) status = fm_job_set_component(reader, at, at->index, code);
    }
    return status ? status : take_description(reader, map);
}

static fm_status take_entity(fm_job_reader *reader, const fm_value *map) {
    static const char *const keys[] = {"protein", "rna", "dna", "ligand"};
    static const polymer_words words[] = {
        {"protein", "ptmType", "ptmPosition", FM_MOLECULE_PROTEIN},
        {"rna", "modificationType", "basePosition", FM_MOLECULE_RNA},
        {"dna", "modificationType", "basePosition", FM_MOLECULE_DNA},
    };
    fm_status status = FM_CHECK_KEYS(map, keys, reader->reterr);
    if (status) return status;
    if (map->n != 1) {
        return fm_value_fail(map, reader->reterr, FM_ERR_FORMAT,
                             "found %u keys, expected one of protein, rna, dna and ligand", map->n);
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const fm_value *polymer = fm_value_get(map, words[i].name);
        if (polymer) return take_polymer(reader, polymer, &words[i]);
    }
    return take_ligand(reader, map->first);
}

static fm_status take_bonds(fm_job_reader *reader, const fm_value *list) {
    if (fm_value_is_null(list)) return FM_OK;
    if (list->kind != FM_DOCUMENT_LIST) {
        return fm_value_expect(list, "a list of bonds", reader->reterr);
    }
    for (const fm_value *at = list->first; at; at = at->next) {
        fm_job_bond bond = {0};
        if (at->kind != FM_DOCUMENT_LIST || at->n != 2) {
            return fm_value_expect(at, "a list of two atoms", reader->reterr);
        }
        fm_status status = fm_job_take_end(reader, at->first, &bond.a);
        if (!status) status = fm_job_take_end(reader, at->first->next, &bond.b);
        if (!status) status = fm_job_add_bond(reader, at, &bond);
        if (status) return status;
    }
    return FM_OK;
}

/* -- the job */

static fm_status check_version(fm_job_reader *reader, const fm_value *root) {
    const fm_value *dialect = fm_value_get(root, "dialect"),
                   *version = fm_value_get(root, "version");
    const char *name;
    int64_t number;
    if (!dialect || !version) {
        return fm_value_fail(root, reader->reterr, FM_ERR_FORMAT,
                             "found no %s, expected dialect \"alphafold3\" and version 1 to 4",
                             dialect ? "version" : "dialect");
    }
    fm_status status = fm_value_text(dialect, &name, reader->reterr);
    if (!status && strcmp(name, "alphafold3") != 0) {
        return fm_value_expect(dialect, "alphafold3", reader->reterr);
    }
    return status ? status : fm_value_integer(version, 1, 4, &number, reader->reterr);
}

static fm_status take_components(fm_job_reader *reader, const fm_value *root) {
    fm_job_text *users = fm_arena_calloc(reader->arena, 1, sizeof *users);
    if (!users) return fm_arena_full(reader->arena, reader->reterr);
    fm_status status = fm_job_take_text(reader, fm_value_get(root, "userCCD"),
                                        fm_value_get(root, "userCCDPath"), users);
    if (status || !users->is_given) return status;
    reader->job.users = users;
    reader->job.n_user = users->file || users->bytes.size ? 1 : 0;
    return FM_OK;
}

fm_status fm_job_read_alphafold3(fm_job_reader *reader, const fm_value *root, fm_job_list *jobs) {
    static const char *const keys[] = {"name",    "modelSeeds",  "sequences", "bondedAtomPairs",
                                       "userCCD", "userCCDPath", "dialect",   "version"};
    const fm_value *name = fm_value_get(root, "name"), *list = fm_value_get(root, "sequences");
    const fm_value *seeds = fm_value_get(root, "modelSeeds");
    const char *text;
    fm_status status = FM_CHECK_KEYS(root, keys, reader->reterr);
    if (!status) status = check_version(reader, root);
    if (status) return status;
    if (!name || !list || list->kind != FM_DOCUMENT_LIST || !seeds || seeds->n == 0) {
        const char *missing = !name ? "name" : !list ? "sequences" : "modelSeeds";
        if (list && list->kind != FM_DOCUMENT_LIST) missing = "list of sequences";
        return fm_value_fail(root, reader->reterr, FM_ERR_FORMAT,
                             "found no %s, expected name, modelSeeds and sequences", missing);
    }
    status = fm_value_text(name, &text, reader->reterr);
    if (!status) status = fm_job_open(reader, text, name, list->n);
    if (!status) status = fm_job_take_seeds(reader, seeds, false);
    for (const fm_value *at = list->first; at && !status; at = at->next)
        status = take_entity(reader, at);
    if (!status) status = take_bonds(reader, fm_value_get(root, "bondedAtomPairs"));
    if (!status) status = take_components(reader, root);
    return status ? status : fm_job_close(reader, list, &jobs->jobs[jobs->n++]);
}
