/* job_boltz.c: Boltz' YAML: one mapping is one job; see job_read.h. */
#include "featurizer/job/job_read.h"
#include "proto/limits.h"

#include <assert.h>
#include <string.h>

static fm_status refuse_key(const fm_value *map, const char *key, const char *why,
                            fm_error *reterr) {
    const fm_value *node = fm_value_get(map, key);
    bool is_no = fm_value_is_null(node) || (node->kind == FM_DOCUMENT_BOOL && !node->is_true);
    if (is_no) return FM_OK;
    return fm_value_fail(node, reterr, FM_ERR_UNSUPPORTED, "found %s, %s", key, why);
}

/* -- entities */

static fm_status take_modifications(fm_job_reader *reader, const fm_value *list) {
    static const char *const keys[] = {"position", "ccd"};
    if (fm_value_is_null(list)) return FM_OK;
    if (list->kind != FM_DOCUMENT_LIST) return fm_value_expect(list, "a list", reader->reterr);
    for (const fm_value *at = list->first; at; at = at->next) {
        const fm_value *position = fm_value_get(at, "position"), *code = fm_value_get(at, "ccd");
        const char *id;
        fm_status status = FM_CHECK_KEYS(at, keys, reader->reterr);
        if (!status && (!position || !code)) {
            return fm_value_fail(at, reader->reterr, FM_ERR_FORMAT,
                                 "found no %s, expected position and ccd",
                                 position ? "ccd" : "position");
        }
        if (!status) status = fm_value_text(code, &id, reader->reterr);
        if (!status) status = fm_job_modify(reader, position, code, id);
        if (status) return status;
    }
    return FM_OK;
}

/* A path, or the word "empty" for none. */
static fm_status take_msa(fm_job_reader *reader, const fm_value *node) {
    fm_job_entity *entity = &reader->entities[reader->job.n_entity - 1];
    entity->needs_alignment = entity->molecule == FM_MOLECULE_PROTEIN;
    if (fm_value_is_null(node)) return FM_OK;
    fm_status status = fm_job_take_text(reader, NULL, node, &entity->unpaired);
    if (status) return status;
    if (entity->molecule != FM_MOLECULE_PROTEIN) {
        return fm_value_fail(node, reader->reterr, FM_ERR_FORMAT,
                             "found an alignment of a chain that is no protein, expected none");
    }
    if (strcmp(entity->unpaired.file, "empty") == 0) entity->unpaired.file = NULL;
    entity->needs_alignment = false;
    return FM_OK;
}

static fm_status take_polymer(fm_job_reader *reader, const fm_value *map, fm_molecule molecule) {
    static const char *const keys[] = {"id", "sequence", "msa", "modifications", "cyclic"};
    const fm_value *id = fm_value_get(map, "id"), *sequence = fm_value_get(map, "sequence");
    const char *letters;
    fm_status status = FM_CHECK_KEYS(map, keys, reader->reterr);
    if (!status) {
        status = refuse_key(map, "cyclic", "expected a bond between both ends", reader->reterr);
    }
    if (status) return status;
    if (!id || !sequence) {
        return fm_value_fail(map, reader->reterr, FM_ERR_FORMAT,
                             "found no %s, expected id and sequence", id ? "sequence" : "id");
    }
    status = fm_value_text(sequence, &letters, reader->reterr);
    if (!status) status = fm_job_add_polymer(reader, sequence, molecule, letters);
    if (!status) status = fm_job_take_ids(reader, id);
    if (!status) status = take_modifications(reader, fm_value_get(map, "modifications"));
    return status ? status : take_msa(reader, fm_value_get(map, "msa"));
}

/* One component, or as an extension of the format a list of them. */
static fm_status take_ligand(fm_job_reader *reader, const fm_value *map) {
    static const char *const keys[] = {"id", "ccd", "smiles"};
    const fm_value *id = fm_value_get(map, "id"), *ccd = fm_value_get(map, "ccd");
    const fm_value *smiles = fm_value_get(map, "smiles");
    fm_status status = FM_CHECK_KEYS(map, keys, reader->reterr);
    if (status) return status;
    if (!fm_value_is_null(smiles)) return fm_job_refuse_smiles(smiles, reader->reterr);
    if (!id || !ccd) {
        return fm_value_fail(map, reader->reterr, FM_ERR_FORMAT, "found no %s, expected id and ccd",
                             id ? "ccd" : "id");
    }
    bool is_list = ccd->kind == FM_DOCUMENT_LIST;
    const fm_value *at = is_list ? ccd->first : ccd;
    uint32_t n = is_list ? ccd->n : 1;
    status = fm_job_add_ligand(reader, ccd, n);
    for (uint32_t i = 0; i < n && !status; i++, at = at->next) {
        const char *code;
        status = fm_value_text(at, &code, reader->reterr);
        if (!status) status = fm_job_set_component(reader, at, i, code);
    }
    return status ? status : fm_job_take_ids(reader, id);
}

static fm_status take_entity(fm_job_reader *reader, const fm_value *map) {
    static const char *const keys[] = {"protein", "rna", "dna", "ligand"};
    fm_status status = FM_CHECK_KEYS(map, keys, reader->reterr);
    if (status) return status;
    if (map->n != 1) {
        return fm_value_fail(map, reader->reterr, FM_ERR_FORMAT,
                             "found %u keys, expected one of protein, rna, dna and ligand", map->n);
    }
    for (uint32_t i = 0; i < 3; i++)
        if (fm_value_get(map, keys[i])) return take_polymer(reader, map->first, (fm_molecule)i);
    return take_ligand(reader, map->first);
}
static_assert(FM_MOLECULE_PROTEIN == 0 && FM_MOLECULE_RNA == 1 && FM_MOLECULE_DNA == 2,
              "the keys of polymers are in the order of fm_molecule");

/* -- bonds */

static fm_status take_constraint(fm_job_reader *reader, const fm_value *map) {
    static const char *const keys[] = {"bond", "pocket", "contact"};
    static const char *const ends[] = {"atom1", "atom2"};
    const fm_value *node = fm_value_get(map, "bond");
    fm_job_bond bond = {0};
    fm_status status = FM_CHECK_KEYS(map, keys, reader->reterr);
    for (size_t i = 1; i < 3 && !status; i++)
        status = refuse_key(map, keys[i], "which no network of foldmill takes", reader->reterr);
    if (status) return status;
    if (!node) return fm_value_expect(map, "a bond", reader->reterr);
    status = FM_CHECK_KEYS(node, ends, reader->reterr);
    const fm_value *one = fm_value_get(node, "atom1"), *two = fm_value_get(node, "atom2");
    if (!status && (!one || !two)) {
        return fm_value_fail(node, reader->reterr, FM_ERR_FORMAT,
                             "found no %s, expected atom1 and atom2", one ? "atom2" : "atom1");
    }
    if (!status) status = fm_job_take_end(reader, one, &bond.a);
    if (!status) status = fm_job_take_end(reader, two, &bond.b);
    return status ? status : fm_job_add_bond(reader, node, &bond);
}

static fm_status take_constraints(fm_job_reader *reader, const fm_value *list) {
    if (fm_value_is_null(list)) return FM_OK;
    if (list->kind != FM_DOCUMENT_LIST) return fm_value_expect(list, "a list", reader->reterr);
    fm_status status = FM_OK;
    for (const fm_value *at = list->first; at && !status; at = at->next)
        status = take_constraint(reader, at);
    return status;
}

/* -- templates */

/* A text or a list of texts; missing: none. */
static fm_status take_list(const fm_job_reader *reader, const fm_value *node, uint32_t *ret_n,
                           const fm_value **ret_first) {
    *ret_n = 0;
    *ret_first = NULL;
    if (fm_value_is_null(node)) return FM_OK;
    const bool is_list = node->kind == FM_DOCUMENT_LIST;
    if (is_list && node->n == 0) return fm_value_expect(node, "the id of a chain", reader->reterr);
    *ret_n = is_list ? node->n : 1;
    *ret_first = is_list ? node->first : node;
    return FM_OK;
}

static bool is_same_template(const fm_job_template *a, const fm_job_template *b) {
    const bool is_same_chain =
        a->chain && b->chain ? strcmp(a->chain, b->chain) == 0 : a->chain == b->chain;
    return is_same_chain && a->structure.place.offset == b->structure.place.offset;
}

/* Adds a template to an entity. Copies share templates, so that of another copy is added once. */
static fm_status add_template(fm_job_reader *reader, const fm_value *node, uint32_t entity,
                              const fm_job_template *template) {
    fm_job_entity *to = &reader->entities[entity];
    fm_job_template *all = (fm_job_template *)(uintptr_t)to->templates;
    if (to->molecule != FM_MOLECULE_PROTEIN) {
        return fm_value_expect(node, "the id of a protein chain", reader->reterr);
    }
    for (uint32_t i = 0; i < to->n_template; i++)
        if (is_same_template(&all[i], template)) return FM_OK;
    if (to->n_template == FM_LIMIT_N_JOB_TEMPLATE) {
        return fm_value_fail(node, reader->reterr, FM_ERR_LIMIT,
                             "found more than %u templates of a chain, expected fewer",
                             FM_LIMIT_N_JOB_TEMPLATE);
    }
    if (!all) all = fm_arena_calloc(reader->arena, FM_LIMIT_N_JOB_TEMPLATE, sizeof *all);
    if (!all) return fm_arena_full(reader->arena, reader->reterr);
    all[to->n_template++] = *template;
    to->templates = all;
    return FM_OK;
}

/* Adds a template to the chains of chain_id, or to all proteins. Either all have the same chain of
 * the template, or each has its own. */
static fm_status spread_template(fm_job_reader *reader, const fm_value *map,
                                 fm_job_template *template) {
    const fm_value *chain, *id;
    uint32_t n_chain, n_id, n_protein = 0;
    fm_status status = take_list(reader, fm_value_get(map, "chain_id"), &n_chain, &chain);
    if (!status) status = take_list(reader, fm_value_get(map, "template_id"), &n_id, &id);
    if (status) return status;
    if (n_id > 1 && n_id != n_chain) {
        return fm_value_fail(fm_value_get(map, "template_id"), reader->reterr, FM_ERR_DATA,
                             "found %u chains of the template for %u of the job, expected one or "
                             "as many",
                             n_id, n_chain);
    }
    if (n_id == 1) status = fm_value_text(id, &template->chain, reader->reterr);
    for (; chain && !status; chain = n_chain > 1 ? chain->next : NULL) {
        fm_job_end end;
        status = fm_job_find_chain(reader, chain, &end);
        if (!status && n_id > 1) {
            status = fm_value_text(id, &template->chain, reader->reterr);
            id = id->next;
        }
        if (!status) status = add_template(reader, chain, end.entity, template);
    }
    for (uint32_t e = 0; e < reader->job.n_entity && n_chain == 0 && !status; e++) {
        if (reader->entities[e].molecule != FM_MOLECULE_PROTEIN) continue;
        status = add_template(reader, map, e, template);
        n_protein++;
    }
    if (!status && n_chain == 0 && n_protein == 0) {
        return fm_value_fail(map, reader->reterr, FM_ERR_DATA,
                             "found a template and no protein, expected one");
    }
    return status;
}

static fm_status take_template(fm_job_reader *reader, const fm_value *map) {
    static const char *const keys[] = {"cif",         "pdb",   "chain_id",
                                       "template_id", "force", "threshold"};
    fm_job_template template = {.is_aligned = true};
    fm_status status = FM_CHECK_KEYS(map, keys, reader->reterr);
    for (size_t i = 4; i < 6 && !status; i++)
        status = refuse_key(map, keys[i], "which no network of foldmill takes", reader->reterr);
    if (status) return status;
    const fm_value *cif = fm_value_get(map, "cif"), *pdb = fm_value_get(map, "pdb");
    if (fm_value_is_null(cif) == fm_value_is_null(pdb)) {
        return fm_value_fail(map, reader->reterr, FM_ERR_FORMAT,
                             "found %s, expected the name of a file as cif or as pdb",
                             fm_value_is_null(cif) ? "neither cif nor pdb" : "cif and pdb");
    }
    template.is_pdb = fm_value_is_null(cif);
    status = fm_job_take_text(reader, NULL, template.is_pdb ? pdb : cif, &template.structure);
    return status ? status : spread_template(reader, map, &template);
}

static fm_status take_templates(fm_job_reader *reader, const fm_value *list) {
    if (fm_value_is_null(list)) return FM_OK;
    if (list->kind != FM_DOCUMENT_LIST) return fm_value_expect(list, "a list", reader->reterr);
    fm_status status = FM_OK;
    for (const fm_value *at = list->first; at && !status; at = at->next)
        status = take_template(reader, at);
    return status;
}

/* -- the job */

fm_status fm_job_read_boltz(fm_job_reader *reader, const fm_value *root, const char *name,
                            fm_job_list *jobs) {
    static const char *const keys[] = {"version", "sequences", "constraints", "templates",
                                       "properties"};
    const fm_value *list = fm_value_get(root, "sequences"),
                   *version = fm_value_get(root, "version");
    int64_t number;
    fm_status status = FM_CHECK_KEYS(root, keys, reader->reterr);
    if (!status && version) status = fm_value_integer(version, 1, 1, &number, reader->reterr);
    if (!status) {
        status =
            refuse_key(root, "properties", "which no network of foldmill predicts", reader->reterr);
    }
    if (status) return status;
    if (!list || list->kind != FM_DOCUMENT_LIST) {
        return fm_value_fail(root, reader->reterr, FM_ERR_FORMAT,
                             "found no sequences, expected a list of them");
    }
    status = fm_job_open(reader, name, root, list->n);
    for (const fm_value *at = list->first; at && !status; at = at->next)
        status = take_entity(reader, at);
    if (!status) status = take_constraints(reader, fm_value_get(root, "constraints"));
    if (!status) status = take_templates(reader, fm_value_get(root, "templates"));
    return status ? status : fm_job_close(reader, list, &jobs->jobs[jobs->n++]);
}
