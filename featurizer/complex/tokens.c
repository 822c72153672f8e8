/* tokens.c: classes of residues, their marked atoms, and tokens; see tokens.h. */
#include "featurizer/complex/tokens.h"

#include "proto/chem/residue.h"

#include <assert.h>
#include <string.h>

/* A name as a number, so that comparing it is one instruction. */
static uint64_t packed(const char name[8]) {
    uint64_t number = 0;
    memcpy(&number, name, sizeof number);
    return number;
}
static_assert(FM_COMPONENT_ID == 8 && FM_COMPONENT_NAME == 8, "names are packed into 64 bits");

static bool is_name(const char name[8], const char *expected) {
    return strncmp(name, expected, 8) == 0;
}

/* The names of standard nucleotides, without the D of deoxyribose. */
static const char nucleotides[] = "AGCUN";
static const char deoxynucleotides[] = "AGCTN";

static int32_t place_of(const char *letters, char letter) {
    const char *found = letter ? strchr(letters, letter) : NULL;
    return found ? (int32_t)(found - letters) : -1;
}

static bool is_amino_acid(const char name[FM_COMPONENT_ID]) {
    for (uint32_t i = 0; i <= FM_N_RESTYPE; i++) {
        if (is_name(name, fm_restype_names[i])) return true;
    }
    return false;
}

static bool is_nucleotide(const char name[FM_COMPONENT_ID]) {
    if (name[0] == 'D' && name[1] && !name[2]) return place_of(deoxynucleotides, name[1]) >= 0;
    return name[0] && !name[1] && place_of(nucleotides, name[0]) >= 0;
}

static uint8_t restype_of(const fm_assembly_residue *residue) {
    char letter = (char)(residue->component ? residue->component->one_letter : '\0');
    int32_t place;
    switch ((fm_molecule)residue->molecule) {
    case FM_MOLECULE_PROTEIN:
        place = letter >= 'A' && letter <= 'Z' ? fm_restype_from_letter(letter) : FM_RESTYPE32_UNK;
        return (uint8_t)place;
    case FM_MOLECULE_RNA:
        place = place_of(nucleotides, letter);
        return (uint8_t)(place < 0 ? FM_RESTYPE32_RNA_N : FM_RESTYPE32_RNA + place);
    case FM_MOLECULE_DNA:
        place = place_of(deoxynucleotides, letter);
        return (uint8_t)(place < 0 ? FM_RESTYPE32_DNA_N : FM_RESTYPE32_DNA + place);
    default: return FM_RESTYPE32_UNK;
    }
}

void fm_residue_classify(fm_assembly_residue *residue) {
    bool is_polymer = residue->molecule != FM_MOLECULE_LIGAND;
    residue->is_standard =
        is_polymer && (is_amino_acid(residue->name) || is_nucleotide(residue->name));
    residue->is_modified = is_polymer && !residue->is_standard;
    residue->restype = restype_of(residue);
}

/* The atoms by which a standard residue is known. */
typedef struct standard_atoms {
    uint64_t centre, distogram;
} standard_atoms;

static standard_atoms atoms_of(const char name[FM_COMPONENT_ID]) {
    static const char ca[8] = "CA", cb[8] = "CB", c1[8] = "C1'", c2[8] = "C2", c4[8] = "C4";
    if (is_amino_acid(name)) {
        return (standard_atoms){packed(ca), packed(is_name(name, "GLY") ? ca : cb)};
    }
    char base = name[0] == 'D' && name[1] ? name[1] : name[0];
    if (base == 'N') return (standard_atoms){packed(c1), packed(c1)};
    return (standard_atoms){packed(c1), packed(base == 'A' || base == 'G' ? c4 : c2)};
}

void fm_residue_mark_atoms(const fm_assembly_residue *residue, fm_assembly_atom *atoms,
                           uint32_t n) {
    standard_atoms known = {0};
    bool is_standard = residue->is_standard, has_centre = false, has_distogram = false;
    if (is_standard) known = atoms_of(residue->name);
    for (uint32_t i = 0; i < n; i++) {
        fm_assembly_atom *atom = &atoms[i];
        uint64_t name = packed(atom->name);
        atom->slot = (uint8_t)(is_standard && atom->in_component >= 0 ? atom->in_component : 0);
        atom->is_plddt_rep = is_standard && name == known.centre;
        atom->is_centre = !is_standard || name == known.centre;
        atom->is_distogram_rep = !is_standard || name == known.distogram;
        has_centre = has_centre || atom->is_centre;
        has_distogram = has_distogram || atom->is_distogram_rep;
    }
    if (n && !has_centre) atoms[0].is_centre = true;
    if (n && !has_distogram) atoms[0].is_distogram_rep = true;
}

/* -- the tokens of an assembly */

static uint32_t end_of_residue(const fm_assembly *assembly, uint32_t residue) {
    return fm_assembly_residue_end_atom(assembly, residue);
}

static uint32_t count_tokens(const fm_assembly *assembly, const fm_assembly_residue *residues) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < assembly->n_residue; r++) {
        uint32_t n_atom = end_of_residue(assembly, r) - residues[r].first_atom;
        n += residues[r].is_standard ? n_atom > 0 : n_atom;
    }
    return n;
}

/* Appends the tokens of residue r, of which there are `n` before it. */
static uint32_t add_tokens(const fm_assembly *assembly, const fm_assembly_atom *atoms, uint32_t r,
                           fm_assembly_token *tokens, uint32_t n) {
    const fm_assembly_residue *residue = &assembly->residues[r];
    uint32_t first = residue->first_atom, end = end_of_residue(assembly, r);
    if (!residue->is_standard) {
        for (uint32_t atom = first; atom < end; atom++)
            tokens[n++] = (fm_assembly_token){r, atom, 1, atom};
    } else if (first < end) {
        uint32_t centre = first;
        while (!atoms[centre].is_centre)
            centre++;
        tokens[n++] = (fm_assembly_token){r, first, end - first, centre};
    }
    return n;
}

fm_status fm_assembly_tokenize(fm_assembly *assembly, fm_assembly_chain *chains,
                               fm_assembly_residue *residues, fm_assembly_atom *atoms,
                               fm_arena *arena, fm_error *reterr) {
    for (uint32_t r = 0; r < assembly->n_residue; r++) {
        fm_residue_classify(&residues[r]);
        fm_residue_mark_atoms(&residues[r], atoms + residues[r].first_atom,
                              end_of_residue(assembly, r) - residues[r].first_atom);
    }
    uint32_t n = 0, n_token = count_tokens(assembly, residues);
    fm_assembly_token *tokens = fm_arena_alloc_array(arena, n_token, sizeof *tokens);
    if (!tokens) return fm_arena_full(arena, reterr);
    for (uint32_t c = 0, r = 0; c < assembly->n_chain; c++) {
        uint32_t end =
            c + 1 < assembly->n_chain ? chains[c + 1].first_residue : assembly->n_residue;
        chains[c].first_token = n;
        for (; r < end; r++) {
            residues[r].first_token = n;
            n = add_tokens(assembly, atoms, r, tokens, n);
        }
    }
    assembly->n_token = n_token;
    assembly->tokens = tokens;
    return FM_OK;
}
