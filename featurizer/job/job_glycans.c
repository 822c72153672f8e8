/* job_glycans.c: see job_glycans.h. */
#include "featurizer/job/job_glycans.h"

#include <stdio.h>
#include <string.h>

enum { MOST_SUGAR = 8, MOST_CHILD = 2, CODE = 3, MOST_PLACE = 3 };

typedef struct glycan {
    uint32_t n;
    char code[MOST_SUGAR][CODE + 1];
    int parent[MOST_SUGAR]; /* -1: the protein's residue */
    uint32_t n_child[MOST_SUGAR];
    char oxygen[MOST_SUGAR]; /* the number of the parent's oxygen that it is bonded to */
    const fm_value *text;
} glycan;

/* -- the tree */

static fm_status fail_text(const glycan *g, const char *at, const char *expected,
                           fm_error *reterr) {
    const char *text = (const char *)g->text->text.data;
    return fm_value_fail(g->text, reterr, FM_ERR_FORMAT, "found '%.20s' at letter %zu, expected %s",
                         *at ? at : "the end", (size_t)(at - text) + 1, expected);
}

static fm_status add_sugar(glycan *g, const char *at, int parent, fm_error *reterr) {
    for (int i = 0; i < CODE; i++) {
        const bool is_code = (at[i] >= 'A' && at[i] <= 'Z') || (at[i] >= '0' && at[i] <= '9');
        if (!is_code) return fail_text(g, at, "the three letters of a sugar", reterr);
    }
    if (g->n == MOST_SUGAR) {
        return fm_value_fail(g->text, reterr, FM_ERR_LIMIT,
                             "found more than %d sugars, expected at most %d", MOST_SUGAR,
                             MOST_SUGAR);
    }
    if (parent >= 0 && ++g->n_child[parent] > MOST_CHILD) {
        return fail_text(g, at, "at most two sugars on one", reterr);
    }
    memcpy(g->code[g->n], at, CODE);
    g->parent[g->n++] = parent;
    return FM_OK;
}

/* Reads NAG(FUC)(NAG): a sugar, and in brackets each sugar on it with what it has itself. */
static fm_status parse(glycan *g, fm_error *reterr) {
    const char *at;
    int stack[MOST_SUGAR + 1], depth = 0, last = -1;
    fm_status status = fm_value_text(g->text, &at, reterr);
    if (!status) status = add_sugar(g, at, -1, reterr);
    if (status) return status;
    last = 0;
    at += CODE;
    while (*at) {
        if (*at == ')' && depth > 0) {
            last = stack[--depth];
            at++;
        } else if (*at == '(') {
            status = add_sugar(g, at + 1, last, reterr);
            if (status) return status;
            stack[depth++] = last;
            last = (int)g->n - 1;
            at += 1 + CODE;
        } else {
            return fail_text(g, at, depth ? "'(' or ')'" : "'(' or the end", reterr);
        }
    }
    return depth ? fail_text(g, at, "')'", reterr) : FM_OK;
}

/* -- the bonds */

/* Where sugars bond to a sugar, the most usual oxygen first. Of two sugars on one the second takes
 * what the first has left. n_child 0: any number. */
typedef struct linkage {
    const char *parent, *child;
    uint32_t n_child;
    char oxygen[MOST_PLACE + 1];
} linkage;

static const linkage linkages[] = {
    {"NAG", "NAG", 0, "436"}, {"NAG", "BMA", 0, "436"}, {"NAG", "MAN", 0, "436"},
    {"NAG", "FUC", 0, "634"}, {"NAG", "GAL", 0, "436"}, {"BMA", "MAN", 0, "362"},
    {"BMA", "NAG", 0, "426"}, {"BMA", "BMA", 0, "436"}, {"MAN", "MAN", 1, "236"},
    {"MAN", "MAN", 2, "362"}, {"MAN", "NAG", 0, "246"}, {"GAL", "FUC", 0, "2"},
    {"BGC", "BGC", 0, "436"}, {"BGC", "GLC", 0, "436"}, {"GLC", "GLC", 0, "436"},
    {"GLC", "BGC", 0, "436"},
};

/* The atoms of residues that bear glycans, and the sugars that they bear. */
static const struct {
    const char *residue, *atom, *sugars;
} bearers[] = {
    {"ASN", "ND2", "BGC BMA GLC MAN NAG"},
    {"SER", "OG", "BGC BMA FUC GLC MAN NAG"},
    {"THR", "OG1", "BGC BMA FUC GLC MAN NAG"},
};

static bool is_taken(const glycan *g, uint32_t sugar, char oxygen) {
    for (uint32_t i = 1; i < sugar; i++)
        if (g->parent[i] == g->parent[sugar] && g->oxygen[i] == oxygen) return true;
    return false;
}

static fm_status choose_oxygen(glycan *g, uint32_t sugar, fm_error *reterr) {
    const uint32_t parent = (uint32_t)g->parent[sugar];
    for (size_t i = 0; i < sizeof linkages / sizeof linkages[0]; i++) {
        const linkage *row = &linkages[i];
        if (strcmp(row->parent, g->code[parent]) != 0) continue;
        if (strcmp(row->child, g->code[sugar]) != 0) continue;
        if (row->n_child && row->n_child != g->n_child[parent]) continue;
        for (const char *at = row->oxygen; *at; at++) {
            if (is_taken(g, sugar, *at)) continue;
            g->oxygen[sugar] = *at;
            return FM_OK;
        }
    }
    return fm_value_fail(g->text, reterr, FM_ERR_UNSUPPORTED,
                         "found %s on %s, which has no usual bond, expected a ligand of these "
                         "components with bondedAtomPairs in AlphaFold 3 JSON",
                         g->code[sugar], g->code[parent]);
}

static const char *find_bearer(const char *residue, const char *sugar) {
    for (size_t i = 0; i < sizeof bearers / sizeof bearers[0]; i++)
        if (strcmp(bearers[i].residue, residue) == 0 && strstr(bearers[i].sugars, sugar)) {
            return bearers[i].atom;
        }
    return NULL;
}

/* Bonds every copy of the newest entity to that of the protein. */
static fm_status add_bonds(fm_job_reader *reader, const glycan *g, uint32_t protein,
                           uint32_t residue, const char *atom) {
    fm_job_bond bond = {.a.entity = protein, .b.entity = reader->job.n_entity - 1};
    fm_status status = fm_job_place_of(reader, g->text, &bond.a.place);
    bond.b.place = bond.a.place;
    memcpy(bond.b.atom, "C1", 2);
    for (uint32_t k = 0; k < reader->entities[protein].n_copy; k++) {
        bond.a.copy = bond.b.copy = k;
        for (uint32_t i = 0; i < g->n && !status; i++) {
            const bool is_root = i == 0;
            bond.a.entity = is_root ? protein : bond.b.entity;
            bond.a.residue = is_root ? residue : (uint32_t)g->parent[i];
            bond.b.residue = i;
            const char oxygen[] = {'O', g->oxygen[i], '\0'};
            memset(bond.a.atom, 0, sizeof bond.a.atom);
            snprintf(bond.a.atom, sizeof bond.a.atom, "%s", is_root ? atom : oxygen);
            status = fm_job_add_bond(reader, g->text, &bond);
        }
    }
    return status;
}

/* Whether an atom of the protein already bears a glycan. */
static bool is_borne(const fm_job_reader *reader, uint32_t protein, uint32_t residue,
                     const char *atom) {
    for (uint32_t i = 0; i < reader->job.n_bond; i++) {
        const fm_job_end *end = &reader->bonds[i].a;
        if (end->entity == protein && end->residue == residue && strcmp(end->atom, atom) == 0) {
            return true;
        }
    }
    return false;
}

static void warn(const fm_job_reader *reader, const glycan *g, const fm_job_entity *entity,
                 const char *residue, uint32_t number, const char *atom) {
    char bonds[256];
    size_t n =
        (size_t)snprintf(bonds, sizeof bonds, "%s %u %s-C1 %s", residue, number, atom, g->code[0]);
    for (uint32_t i = 1; i < g->n; i++)
        n += (size_t)snprintf(bonds + n, sizeof bonds - n, ", %s %d O%c-C1 %s",
                              g->code[g->parent[i]], g->parent[i] + 1, g->oxygen[i], g->code[i]);
    fm_job_warn(reader->arena, reader->warnings, entity->place.path,
                "the glycan does not say its bonds, and gets the usual ones: %s", bonds);
}

static fm_status add_glycan(fm_job_reader *reader, const fm_value *map, uint32_t protein) {
    static const char *const keys[] = {"residues", "position"};
    const fm_value *residues = fm_value_get(map, keys[0]), *position = fm_value_get(map, keys[1]);
    glycan g = {.text = residues};
    int64_t number;
    fm_status status = FM_CHECK_KEYS(map, keys, reader->reterr);
    if (!status && (!residues || !position)) {
        return fm_value_fail(map, reader->reterr, FM_ERR_FORMAT,
                             "found no %s, expected residues and position",
                             residues ? keys[1] : keys[0]);
    }
    if (!status) {
        status = fm_value_integer(position, 1, reader->entities[protein].n_residue, &number,
                                  reader->reterr);
    }
    if (!status) status = parse(&g, reader->reterr);
    for (uint32_t i = 1; i < g.n && !status; i++)
        status = choose_oxygen(&g, i, reader->reterr);
    if (status) return status;
    const char *residue = reader->entities[protein].components[number - 1];
    const char *atom = find_bearer(residue, g.code[0]);
    if (!atom) {
        return fm_value_fail(position, reader->reterr, FM_ERR_UNSUPPORTED,
                             "found %s on %s %d, expected BGC, BMA, GLC, MAN or NAG on ASN, SER or "
                             "THR, or FUC on SER or THR",
                             g.code[0], residue, (int)number);
    }
    if (is_borne(reader, protein, (uint32_t)number - 1, atom)) {
        return fm_value_fail(position, reader->reterr, FM_ERR_DATA,
                             "found a second glycan on %s %d, expected one", residue, (int)number);
    }
    status = fm_job_add_ligand(reader, residues, g.n);
    for (uint32_t i = 0; i < g.n && !status; i++)
        status = fm_job_set_component(reader, residues, i, g.code[i]);
    const uint32_t n_copy = reader->entities[protein].n_copy;
    if (!status) status = fm_job_take_count(reader, residues, n_copy);
    if (!status) status = add_bonds(reader, &g, protein, (uint32_t)number - 1, atom);
    if (!status) {
        warn(reader, &g, &reader->entities[reader->job.n_entity - 1], residue, (uint32_t)number,
             atom);
    }
    return status;
}

uint32_t fm_job_count_glycans(const fm_value *entity) {
    const fm_value *list = entity ? fm_value_get(entity->first, "glycans") : NULL;
    return list && list->kind == FM_DOCUMENT_LIST ? list->n : 0;
}

fm_status fm_job_add_glycans(fm_job_reader *reader, const fm_value *map, uint32_t protein) {
    const fm_value *list = fm_value_get(map->first, "glycans");
    if (fm_value_is_null(list)) return FM_OK;
    if (list->kind != FM_DOCUMENT_LIST) {
        return fm_value_expect(list, "a list of glycans", reader->reterr);
    }
    if (list->n && reader->entities[protein].molecule != FM_MOLECULE_PROTEIN) {
        return fm_value_fail(list, reader->reterr, FM_ERR_UNSUPPORTED,
                             "found glycans of a nucleic acid, expected those of a protein");
    }
    fm_status status = FM_OK;
    for (const fm_value *at = list->first; at && !status; at = at->next)
        status = add_glycan(reader, at, protein);
    return status;
}
