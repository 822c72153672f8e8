/* job_list.c: AlphaFold Server's and Protenix' JSON: a list of jobs with the same words; see
 * job_read.h. */
#include "featurizer/job/job_glycans.h"
#include "featurizer/job/job_read.h"
#include "proto/limits.h"

#include <stdio.h>
#include <string.h>

static fm_status refuse_key(const fm_value *map, const char *key, const char *advice,
                            fm_error *reterr) {
    const fm_value *node = fm_value_get(map, key);
    if (fm_value_is_null(node) || (node->kind >= FM_DOCUMENT_LIST && node->n == 0)) return FM_OK;
    return fm_value_fail(node, reterr, FM_ERR_UNSUPPORTED, "found %s, %s", key, advice);
}

/* -- which of the two */

static bool is_protenix_entity(const fm_value *entity) {
    static const char *const keys[] = {"id",        "unpairedMsa",   "unpairedMsaPath",
                                       "pairedMsa", "pairedMsaPath", "templatesPath",
                                       "msa"};
    const fm_value *ligand = fm_value_get(entity, "ligand");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (fm_value_get(entity, keys[i])) return true;
    if (!ligand || ligand->kind != FM_DOCUMENT_TEXT) return false;
    const char *text = (const char *)ligand->text.data;
    return strncmp(text, "CCD_", 4) != 0 || strchr(text + 4, '_');
}

bool fm_job_list_is_server(const fm_value *root) {
    if (root->kind != FM_DOCUMENT_LIST) return false;
    for (const fm_value *job = root->first; job; job = job->next) {
        if (fm_value_get(job, "dialect")) return true;
        if (fm_value_get(job, "covalent_bonds") || fm_value_get(job, "constraint")) return false;
        const fm_value *list = fm_value_get(job, "sequences");
        if (!list || list->kind != FM_DOCUMENT_LIST) continue;
        for (const fm_value *at = list->first; at; at = at->next)
            if (at->first && is_protenix_entity(at->first)) return false;
    }
    return true;
}

/* -- entities */

/* The id behind CCD_, which Protenix and the server write before ids of components. */
static fm_status take_code(const fm_value *node, const char **ret_id, fm_error *reterr) {
    const char *text;
    fm_status status = fm_value_text(node, &text, reterr);
    if (!status && strncmp(text, "CCD_", 4) != 0) {
        return fm_value_expect(node, "CCD_ and the id of a component", reterr);
    }
    if (!status) *ret_id = text + 4;
    return status;
}

static fm_status take_modifications(fm_job_reader *reader, const fm_value *list, bool is_protein) {
    const char *const keys[] = {is_protein ? "ptmType" : "modificationType",
                                is_protein ? "ptmPosition" : "basePosition"};
    if (fm_value_is_null(list)) return FM_OK;
    if (list->kind != FM_DOCUMENT_LIST) return fm_value_expect(list, "a list", reader->reterr);
    for (const fm_value *at = list->first; at; at = at->next) {
        const fm_value *code = fm_value_get(at, keys[0]), *position = fm_value_get(at, keys[1]);
        const char *id = NULL;
        fm_status status = FM_CHECK_KEYS(at, keys, reader->reterr);
        if (!status && (!code || !position)) {
            return fm_value_fail(at, reader->reterr, FM_ERR_FORMAT,
                                 "found no %s, expected %s and %s", keys[code != NULL], keys[0],
                                 keys[1]);
        }
        if (!status) status = take_code(code, &id, reader->reterr);
        if (!status) status = fm_job_modify(reader, position, code, id);
        if (status) return status;
    }
    return FM_OK;
}

static fm_status take_copies(fm_job_reader *reader, const fm_value *map) {
    const fm_value *count = fm_value_get(map, "count"), *id = fm_value_get(map, "id");
    int64_t n = 1;
    if (!fm_value_is_null(count)) {
        fm_status status = fm_value_integer(count, 1, FM_LIMIT_N_JOB_CHAIN, &n, reader->reterr);
        if (status) return status;
    }
    if (fm_value_is_null(id)) return fm_job_take_count(reader, map, (uint32_t)n);
    if (count && (id->kind == FM_DOCUMENT_LIST ? id->n : 1) != n) {
        return fm_value_fail(id, reader->reterr, FM_ERR_DATA,
                             "found %u ids for %d copies, expected as many",
                             id->kind == FM_DOCUMENT_LIST ? id->n : 1, (int)n);
    }
    return fm_job_take_ids(reader, id);
}

/* The older form: a folder with two alignments. */
static fm_status take_folder(fm_job_reader *reader, const fm_value *msa, const char *file,
                             fm_job_text *ret_text) {
    const fm_value *node = fm_value_get(msa, "precomputed_msa_dir");
    const char *folder;
    if (fm_value_is_null(node)) return FM_OK;
    fm_status status = fm_value_text(node, &folder, reader->reterr);
    if (status) return status;
    size_t room = strlen(folder) + strlen(file) + 2;
    char *path = fm_arena_alloc(reader->arena, room);
    if (!path) return fm_arena_full(reader->arena, reader->reterr);
    snprintf(path, room, "%s/%s", folder, file);
    *ret_text = (fm_job_text){.is_given = true, .file = path};
    return fm_job_place_of(reader, node, &ret_text->place);
}

static fm_status take_alignments(fm_job_reader *reader, const fm_value *map) {
    fm_job_entity *entity = &reader->entities[reader->job.n_entity - 1];
    const fm_value *msa = fm_value_get(map, "msa");
    fm_status status = fm_job_take_text(reader, fm_value_get(map, "unpairedMsa"),
                                        fm_value_get(map, "unpairedMsaPath"), &entity->unpaired);
    if (!status) {
        status = fm_job_take_text(reader, fm_value_get(map, "pairedMsa"),
                                  fm_value_get(map, "pairedMsaPath"), &entity->paired);
    }
    if (!status && !entity->unpaired.is_given && !entity->paired.is_given) {
        status = take_folder(reader, msa, "non_pairing.a3m", &entity->unpaired);
        if (!status) status = take_folder(reader, msa, "pairing.a3m", &entity->paired);
    }
    entity->needs_alignment = entity->molecule == FM_MOLECULE_PROTEIN &&
                              !entity->unpaired.is_given && !entity->paired.is_given;
    return status;
}

static fm_status refuse_others(const fm_value *map, fm_error *reterr) {
    static const char *const rows[][2] = {
        {"templatesPath", "expected AlphaFold 3 JSON, whose templates have index maps"},
        {"maxTemplateDate", "expected no templates: foldmill does not search for them"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fm_status status = refuse_key(map, rows[i][0], rows[i][1], reterr);
        if (status) return status;
    }
    return FM_OK;
}

static fm_status take_polymer(fm_job_reader *reader, const fm_value *map, fm_molecule molecule) {
    static const char *const keys[] = {"sequence",
                                       "count",
                                       "id",
                                       "modifications",
                                       "glycans",
                                       "maxTemplateDate",
                                       "useStructureTemplate",
                                       "unpairedMsa",
                                       "unpairedMsaPath",
                                       "pairedMsa",
                                       "pairedMsaPath",
                                       "templatesPath",
                                       "msa"};
    const fm_value *sequence = fm_value_get(map, "sequence");
    const char *letters;
    fm_status status = FM_CHECK_KEYS(map, keys, reader->reterr);
    if (!status) status = refuse_others(map, reader->reterr);
    if (status) return status;
    if (!sequence) {
        return fm_value_fail(map, reader->reterr, FM_ERR_FORMAT,
                             "found no sequence, expected one of letters");
    }
    status = fm_value_text(sequence, &letters, reader->reterr);
    if (!status) status = fm_job_add_polymer(reader, sequence, molecule, letters);
    if (!status) status = take_copies(reader, map);
    if (!status) {
        status = take_modifications(reader, fm_value_get(map, "modifications"),
                                    molecule == FM_MOLECULE_PROTEIN);
    }
    return status ? status : take_alignments(reader, map);
}

/* Takes the components of CCD_A_B_C. */
static fm_status take_codes(fm_job_reader *reader, const fm_value *node, const char *codes) {
    uint32_t n = 1;
    for (const char *at = codes; *at; at++)
        n += *at == '_';
    fm_status status = fm_job_add_ligand(reader, node, n);
    for (uint32_t i = 0; i < n && !status; i++) {
        char id[32];
        size_t size = strcspn(codes, "_");
        snprintf(id, sizeof id, "%.*s", (int)(size < 31 ? size : 31), codes);
        status = fm_job_set_component(reader, node, i, id);
        codes += size + 1;
    }
    return status;
}

/* A file of a molecule becomes a component of the user, named by its place among the files. */
static fm_status take_file(fm_job_reader *reader, const fm_value *node, const char *file) {
    enum { MAX_FILE = 99 };
    fm_complex_job *job = &reader->job;
    fm_job_text *users = (fm_job_text *)(uintptr_t)job->users;
    char id[FM_COMPONENT_ID];
    size_t n = strlen(file);
    bool is_known =
        n > 4 && (strcmp(file + n - 4, ".sdf") == 0 || strcmp(file + n - 4, ".mol") == 0);
    if (!is_known) {
        return fm_value_expect(node, "FILE_ and the name of a file .sdf or .mol", reader->reterr);
    }
    if (!users) users = fm_arena_calloc(reader->arena, MAX_FILE, sizeof *users);
    if (!users) return fm_arena_full(reader->arena, reader->reterr);
    if (job->n_user == MAX_FILE) {
        return fm_value_fail(node, reader->reterr, FM_ERR_LIMIT,
                             "found more than %d files of ligands, expected fewer", MAX_FILE);
    }
    fm_job_text *text = &users[job->n_user++];
    *text = (fm_job_text){.is_given = true, .file = file};
    job->users = users;
    fm_status status = fm_job_place_of(reader, node, &text->place);
    fm_job_molfile_id(job->n_user - 1, id);
    if (!status) status = fm_job_add_ligand(reader, node, 1);
    return status ? status : fm_job_set_component(reader, node, 0, id);
}

static fm_status take_ligand(fm_job_reader *reader, const fm_value *map, const char *word) {
    const char *const keys[] = {word, "count", "id"};
    const fm_value *node = fm_value_get(map, word);
    const char *text;
    fm_status status = FM_CHECK_KEYS(map, keys, reader->reterr);
    if (status) return status;
    if (!node) {
        return fm_value_fail(map, reader->reterr, FM_ERR_FORMAT,
                             "found no %s, expected its component", word);
    }
    status = fm_value_text(node, &text, reader->reterr);
    if (status) return status;
    if (strcmp(word, "ion") == 0) {
        status = fm_job_add_ligand(reader, node, 1);
        if (!status) status = fm_job_set_component(reader, node, 0, text);
    } else if (strncmp(text, "CCD_", 4) == 0) {
        status = take_codes(reader, node, text + 4);
    } else if (strncmp(text, "FILE_", 5) == 0) {
        status = take_file(reader, node, text + 5);
    } else {
        return fm_job_refuse_smiles(node, reader->reterr);
    }
    return status ? status : take_copies(reader, map);
}

static fm_status take_entity(fm_job_reader *reader, const fm_value *map) {
    static const char *const keys[] = {"proteinChain", "rnaSequence", "dnaSequence", "ligand",
                                       "ion"};
    fm_status status = FM_CHECK_KEYS(map, keys, reader->reterr);
    if (status) return status;
    if (map->n != 1) {
        return fm_value_fail(map, reader->reterr, FM_ERR_FORMAT,
                             "found %u keys, expected one of proteinChain, rnaSequence, "
                             "dnaSequence, ligand and ion",
                             map->n);
    }
    const char *key = (const char *)map->first->key.data;
    if (strcmp(key, keys[0]) == 0) return take_polymer(reader, map->first, FM_MOLECULE_PROTEIN);
    if (strcmp(key, keys[1]) == 0) return take_polymer(reader, map->first, FM_MOLECULE_RNA);
    if (strcmp(key, keys[2]) == 0) return take_polymer(reader, map->first, FM_MOLECULE_DNA);
    return take_ligand(reader, map->first, key);
}

/* -- bonds */

/* The value of an end under the newer or the older name of its key. */
static const fm_value *end_value(const fm_value *bond, const char *word, int end) {
    char key[32];
    snprintf(key, sizeof key, "%s%d", word, end + 1);
    const fm_value *found = fm_value_get(bond, key);
    if (found) return found;
    snprintf(key, sizeof key, "%s_%s", end ? "right" : "left", word);
    return fm_value_get(bond, key);
}

/* Reads an integer that may be in quotes. */
static fm_status take_number(const fm_job_reader *reader, const fm_value *node, uint32_t most,
                             uint32_t *ret_number) {
    fm_value number = *node;
    int64_t value;
    if (number.kind == FM_DOCUMENT_TEXT) number.is_plain = true;
    fm_status status = fm_value_integer(&number, 1, most, &value, reader->reterr);
    if (!status) *ret_number = (uint32_t)value - 1;
    return status;
}

static fm_status take_end(const fm_job_reader *reader, const fm_value *bond, int which,
                          fm_job_end *end, bool *has_copy) {
    const fm_value *entity = end_value(bond, "entity", which);
    const fm_value *copy = end_value(bond, "copy", which);
    const fm_value *position = end_value(bond, "position", which);
    const fm_value *atom = end_value(bond, "atom", which);
    if (!entity || !position || !atom) {
        return fm_value_fail(bond, reader->reterr, FM_ERR_FORMAT,
                             "found no %s%d, expected entity, position and atom of both ends",
                             !entity     ? "entity"
                             : !position ? "position"
                                         : "atom",
                             which + 1);
    }
    fm_status status = take_number(reader, entity, reader->job.n_entity, &end->entity);
    *has_copy = !fm_value_is_null(copy);
    if (!status && *has_copy) {
        uint32_t n_copy = reader->entities[end->entity].n_copy;
        status = take_number(reader, copy, n_copy, &end->copy);
    }
    return status ? status : fm_job_take_atom(reader, position, atom, end);
}

static fm_status take_bond(fm_job_reader *reader, const fm_value *node) {
    static const char *const keys[] = {
        "entity1",      "copy1",      "position1",      "atom1",     "entity2",       "copy2",
        "position2",    "atom2",      "left_entity",    "left_copy", "left_position", "left_atom",
        "right_entity", "right_copy", "right_position", "right_atom"};
    fm_job_bond bond = {0};
    bool has_a = false, has_b = false;
    fm_status status = FM_CHECK_KEYS(node, keys, reader->reterr);
    if (!status) status = take_end(reader, node, 0, &bond.a, &has_a);
    if (!status) status = take_end(reader, node, 1, &bond.b, &has_b);
    if (status) return status;
    uint32_t n_a = reader->entities[bond.a.entity].n_copy;
    uint32_t n_b = reader->entities[bond.b.entity].n_copy;
    if (has_a != has_b) {
        return fm_value_fail(node, reader->reterr, FM_ERR_DATA,
                             "found the copy of one end, expected both or none");
    }
    if (has_a) return fm_job_add_bond(reader, node, &bond);
    if (n_a != n_b) {
        return fm_value_fail(node, reader->reterr, FM_ERR_DATA,
                             "found a bond of %u copies with %u, expected as many, or copy1 and "
                             "copy2",
                             n_a, n_b);
    }
    for (uint32_t i = 0; i < n_a && !status; i++) {
        bond.a.copy = bond.b.copy = i;
        status = fm_job_add_bond(reader, node, &bond);
    }
    return status;
}

/* -- jobs */

static fm_status check_dialect(const fm_job_reader *reader, const fm_value *map) {
    const fm_value *dialect = fm_value_get(map, "dialect"), *version = fm_value_get(map, "version");
    const char *name;
    int64_t number;
    if (!dialect && !version) return FM_OK;
    if (!dialect || !version) {
        return fm_value_fail(map, reader->reterr, FM_ERR_FORMAT,
                             "found one of dialect and version, expected both or neither");
    }
    fm_status status = fm_value_text(dialect, &name, reader->reterr);
    if (!status && strcmp(name, "alphafoldserver") != 0) {
        return fm_value_expect(dialect, "alphafoldserver", reader->reterr);
    }
    return status ? status : fm_value_integer(version, 1, 1, &number, reader->reterr);
}

static fm_status take_job(fm_job_reader *reader, const fm_value *map, fm_job_list *jobs) {
    static const char *const keys[] = {"name",    "modelSeeds", "sequences", "covalent_bonds",
                                       "dialect", "version",    "constraint"};
    const fm_value *name = fm_value_get(map, "name"), *list = fm_value_get(map, "sequences");
    const fm_value *bonds = fm_value_get(map, "covalent_bonds");
    const char *text;
    fm_status status = FM_CHECK_KEYS(map, keys, reader->reterr);
    if (!status) status = check_dialect(reader, map);
    if (!status) {
        status =
            refuse_key(map, "constraint", "which no network of foldmill takes", reader->reterr);
    }
    if (status) return status;
    if (!name || !list || list->kind != FM_DOCUMENT_LIST) {
        return fm_value_fail(map, reader->reterr, FM_ERR_FORMAT,
                             "found no %s, expected name and a list of sequences",
                             name ? "sequences" : "name");
    }
    if (bonds && bonds->kind != FM_DOCUMENT_LIST && bonds->kind != FM_DOCUMENT_NULL) {
        return fm_value_expect(bonds, "a list of bonds", reader->reterr);
    }
    uint32_t n_glycan = 0, i = 0;
    for (const fm_value *at = list->first; at; at = at->next)
        n_glycan += fm_job_count_glycans(at);
    status = fm_value_text(name, &text, reader->reterr);
    if (!status) status = fm_job_open(reader, text, name, list->n ? list->n + n_glycan : 0);
    if (!status) status = fm_job_take_seeds(reader, fm_value_get(map, "modelSeeds"), true);
    for (const fm_value *at = list->first; at && !status; at = at->next)
        status = take_entity(reader, at);
    /* Bonds count entities by their place in the list, so glycans stand behind all. */
    for (const fm_value *at = list->first; at && !status; at = at->next)
        status = fm_job_add_glycans(reader, at, i++);
    if (!status) status = fm_job_name_chains(reader, reader->format == FM_JOB_SERVER);
    for (const fm_value *at = bonds ? bonds->first : NULL; at && !status; at = at->next)
        status = take_bond(reader, at);
    return status ? status : fm_job_close(reader, list, &jobs->jobs[jobs->n++]);
}

/* Puts the reason in the place of a job that is wrong. Without memory for it, the status is that of
 * the whole description. */
static fm_status refuse_job(const fm_job_reader *reader, const fm_value *map, fm_status status,
                            fm_complex_job *ret_job) {
    const fm_value *name = fm_value_get(map, "name");
    fm_error *why = fm_arena_alloc(reader->arena, sizeof *why);
    if (!why) return status;
    *why = *reader->reterr;
    *ret_job = (fm_complex_job){.name = "", .format = (uint8_t)reader->format, .refused = why};
    if (name && name->kind == FM_DOCUMENT_TEXT) ret_job->name = (const char *)name->text.data;
    return FM_OK;
}

fm_status fm_job_read_list(fm_job_reader *reader, const fm_value *root, fm_job_list *jobs) {
    if (root->kind != FM_DOCUMENT_LIST || root->n == 0) {
        return fm_value_expect(root, "a list of jobs", reader->reterr);
    }
    fm_status status = FM_OK;
    for (const fm_value *at = root->first; at && !status; at = at->next) {
        const uint32_t before = jobs->n;
        status = take_job(reader, at, jobs);
        if (!status || root->n == 1) continue;
        status = refuse_job(reader, at, status, &jobs->jobs[before]);
        jobs->n = before + 1;
    }
    return status;
}
