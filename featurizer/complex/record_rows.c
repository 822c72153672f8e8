/* record_rows.c: see record_rows.h. */
#include "featurizer/complex/record_rows.h"

#include "featurizer/complex/glycans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_EXCLUDED = 131 };

/* Ligands that crystals and solutions bring with them, which evaluations leave out. Sorted; the
 * reference's list (Protenix 3248f8e). */
static const char excluded[N_EXCLUDED][4] = {
    "144", "15P", "1PE", "2F2", "2JC", "3HR", "3SY", "7N5", "7PE", "9JE", "AAE", "ABA",
    "ACE", "ACN", "ACT", "ACY", "AZI", "BAM", "BCN", "BCT", "BDN", "BEN", "BME", "BO3",
    "BTB", "BTC", "BU1", "C8E", "CAD", "CAQ", "CBM", "CCN", "CIT", "CL",  "CLR", "CM",
    "CMO", "CO3", "CPT", "CXS", "D10", "DEP", "DIO", "DMS", "DN",  "DOD", "DOX", "EDO",
    "EEE", "EGL", "EOH", "EOX", "EPE", "ETF", "FCY", "FJO", "FLC", "FMT", "FW5", "GOL",
    "GSH", "GTT", "GYF", "HED", "IHP", "IHS", "IMD", "IOD", "IPA", "IPH", "LDA", "MB3",
    "MEG", "MES", "MLA", "MLI", "MOH", "MPD", "MRD", "MSE", "MYR", "N",   "NA",  "NH2",
    "NH4", "NHE", "NO3", "O4B", "OHE", "OLA", "OLC", "OMB", "OME", "OXA", "P6G", "PE3",
    "PE4", "PEG", "PEO", "PEP", "PG0", "PG4", "PGE", "PGR", "PLM", "PO4", "POL", "POP",
    "PVO", "SAR", "SCN", "SEO", "SEP", "SIN", "SO4", "SPD", "SPM", "SR",  "STE", "STO",
    "STU", "TAR", "TBU", "TME", "TPO", "TRS", "UNK", "UNL", "UNX", "UPL", "URE",
};

static const char columns[] = "type\nchain_1_id\nchain_2_id\nentity_1_id\nentity_2_id\n"
                              "mol_1_type\nmol_2_type\ncluster_id\nsub_mol_1_type\n"
                              "sub_mol_2_type\neval_type";

/* What is known of each chain of an assembly. */
typedef struct chain_traits {
    bool is_modified;       /* a residue that is none of the standard ones */
    bool is_excluded;       /* a component of the list above */
    bool touches_a_polymer; /* by a bond */
    bool is_other;          /* a residue that is no glycan */
    bool has_glycan;        /* a bond between a chain of its entity and one of glycans */
    uint8_t kind;           /* fm_record_kind */
} chain_traits;

static int compare_ids(const void *left, const void *right) {
    return strcmp(left, right);
}

static bool is_excluded(const char *name) {
    return bsearch(name, excluded, N_EXCLUDED, sizeof excluded[0], compare_ids) != NULL;
}

static uint32_t chain_of_atom(const fm_assembly *assembly, uint32_t atom) {
    return assembly->residues[assembly->atoms[atom].residue].chain;
}

static bool is_polymer(const fm_assembly *assembly, uint32_t chain) {
    return assembly->entities[assembly->chains[chain].entity].polymer != FM_POLYMER_NONE;
}

/* One end of a bond between two chains; `has_glycan` is by entity. */
static void note_bond(const fm_assembly *assembly, uint32_t from, uint32_t to, chain_traits *traits,
                      bool *has_glycan) {
    if (is_polymer(assembly, to)) traits[from].touches_a_polymer = true;
    bool is_glycan = !is_polymer(assembly, to) && !traits[to].is_other;
    if (is_glycan) has_glycan[assembly->chains[from].entity] = true;
}

static void note_bonds(const fm_assembly *assembly, chain_traits *traits, bool *has_glycan) {
    for (uint32_t i = 0; i < assembly->n_bond; i++) {
        uint32_t a = chain_of_atom(assembly, assembly->bonds[i].a);
        uint32_t b = chain_of_atom(assembly, assembly->bonds[i].b);
        if (a == b) continue;
        note_bond(assembly, a, b, traits, has_glycan);
        note_bond(assembly, b, a, traits, has_glycan);
    }
    for (uint32_t c = 0; c < assembly->n_chain; c++)
        traits[c].has_glycan = has_glycan[assembly->chains[c].entity];
}

static void note_residues(const fm_assembly *assembly, chain_traits *traits) {
    for (uint32_t r = 0; r < assembly->n_residue; r++) {
        const fm_assembly_residue *residue = &assembly->residues[r];
        chain_traits *of = &traits[residue->chain];
        if (!residue->is_standard) of->is_modified = true;
        if (is_excluded(residue->name)) of->is_excluded = true;
        if (!fm_component_is_glycan(residue->name)) of->is_other = true;
    }
}

/* Texts are appended to one buffer. With data == NULL they are only measured. */
typedef struct text_writer {
    char *data;
    size_t n;
} text_writer;

static void put(text_writer *to, const char *text, char end) {
    size_t n = strlen(text);
    if (to->data) {
        memcpy(to->data + to->n, text, n);
        to->data[to->n + n] = end;
    }
    to->n += n + 1;
}

static const char *detail_of(const fm_assembly *assembly, uint32_t chain,
                             const chain_traits *traits) {
    const chain_traits *of = &traits[chain];
    switch ((fm_record_kind)of->kind) {
    case FM_RECORD_PROTEIN:
        if (of->is_modified) return "modified_prot";
        return of->has_glycan ? "glycosylation_prot" : "prot";
    case FM_RECORD_NUCLEIC:
        switch (assembly->entities[assembly->chains[chain].entity].polymer) {
        case FM_POLYMER_RNA: return "rna";
        case FM_POLYMER_DNA: return "dna";
        default: return "dna/rna hybrid";
        }
    case FM_RECORD_LIGAND:
        if (of->is_excluded) return "excluded_ligand";
        return of->touches_a_polymer ? "bonded_ligand" : "non_bonded_ligand";
    default: return "ions";
    }
}

/* The class of evaluations: nucleic acids by their kind alone and beside proteins, all else by the
 * two kinds in alphabetical order. */
static void put_class(text_writer *to, const fm_assembly *assembly, const fm_complex_record *record,
                      const chain_traits *traits) {
    char text[64];
    const char *first = fm_record_kind_name((fm_record_kind)record->kind[0]), *second = NULL;
    bool is_nucleic = record->kind[0] == FM_RECORD_NUCLEIC;
    if (!record->is_interface) {
        if (is_nucleic) first = detail_of(assembly, record->chain[0], traits);
        snprintf(text, sizeof text, "intra_%s", first);
        put(to, text, '\n');
        return;
    }
    second = fm_record_kind_name((fm_record_kind)record->kind[1]);
    uint8_t other = record->kind[is_nucleic];
    bool beside_protein =
        other == FM_RECORD_PROTEIN && (is_nucleic || record->kind[1] == FM_RECORD_NUCLEIC);
    if (beside_protein) {
        first = detail_of(assembly, record->chain[!is_nucleic], traits);
        second = "prot";
    } else if (strcmp(first, second) > 0) {
        const char *kept = first;
        first = second;
        second = kept;
    }
    snprintf(text, sizeof text, "%s_%s", first, second);
    put(to, text, '\n');
}

static void put_record(text_writer *to, const fm_assembly *assembly,
                       const fm_complex_record *record, const chain_traits *traits) {
    bool two = record->is_interface;
    put(to, two ? "interface" : "chain", '\t');
    put(to, assembly->chains[record->chain[0]].id, '\t');
    put(to, two ? assembly->chains[record->chain[1]].id : "", '\t');
    put(to, record->entity[0], '\t');
    put(to, record->entity[1], '\t');
    put(to, fm_record_kind_name((fm_record_kind)record->kind[0]), '\t');
    put(to, two ? fm_record_kind_name((fm_record_kind)record->kind[1]) : "", '\t');
    put(to, record->cluster, '\t');
    put(to, detail_of(assembly, record->chain[0], traits), '\t');
    put(to, two ? detail_of(assembly, record->chain[1], traits) : "", '\t');
    put_class(to, assembly, record, traits);
}

static fm_status make_traits(const fm_assembly *assembly, const fm_complex_record *records,
                             uint32_t n, fm_arena *arena, const chain_traits **ret_traits,
                             fm_error *reterr) {
    chain_traits *traits = fm_arena_calloc(arena, assembly->n_chain, sizeof *traits);
    bool *has_glycan = fm_arena_calloc(arena, assembly->n_entity, sizeof *has_glycan);
    if (!traits || !has_glycan) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < n; i++) {
        traits[records[i].chain[0]].kind = records[i].kind[0];
        if (records[i].is_interface) traits[records[i].chain[1]].kind = records[i].kind[1];
    }
    note_residues(assembly, traits);
    note_bonds(assembly, traits, has_glycan);
    *ret_traits = traits;
    return FM_OK;
}

fm_status fm_record_rows_list(const fm_assembly *assembly, const fm_record_options *options,
                              fm_arena *arena, fm_array ret_arrays[FM_RECORD_ARRAYS], size_t *ret_n,
                              fm_error *reterr) {
    const fm_complex_record *records;
    const chain_traits *traits = NULL;
    uint32_t n;
    fm_status status = fm_complex_records_list(assembly, options, arena, &records, &n, reterr);
    if (!status) status = make_traits(assembly, records, n, arena, &traits, reterr);
    if (status) return status;
    text_writer measured = {0}, rows = {0};
    for (uint32_t i = 0; i < n; i++)
        put_record(&measured, assembly, &records[i], traits);
    rows.data = fm_arena_alloc(arena, measured.n);
    if (!rows.data) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < n; i++)
        put_record(&rows, assembly, &records[i], traits);
    const struct {
        const char *key, *text;
        size_t n;
    } arrays[] = {{"assembly/index/columns", columns, sizeof columns - 1},
                  {"assembly/index/rows", rows.data, rows.n ? rows.n - 1 : 0}};
    *ret_n = sizeof arrays / sizeof arrays[0];
    for (size_t i = 0; i < *ret_n; i++) {
        ret_arrays[i] = (fm_array){.key = arrays[i].key,
                                   .dtype = "|u1",
                                   .rank = 1,
                                   .shape = {arrays[i].n},
                                   .data = arrays[i].text};
    }
    return FM_OK;
}
