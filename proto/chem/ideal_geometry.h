/* ideal_geometry.h: bond lengths, bond angles and dihedrals of the twenty amino acids and
 * selenomethionine. They are enough to build every heavy atom of a residue from its backbone N, CA,
 * C.
 *
 * Values: Engh & Huber, Acta Cryst. A47 (1991) 392-400 (and the same authors in International
 * Tables F, 2001); selenium-carbon bonds from the PDB's component dictionary. Residue order: A R N
 * D C Q E G H I L K M F P S T W Y V, then MSE (20). */
#ifndef FM_CHEM_IDEAL_GEOMETRY_H
#define FM_CHEM_IDEAL_GEOMETRY_H

#include <stdint.h>

enum {
    FM_IDEAL_MSE = 20,
    FM_IDEAL_N_RESIDUE = 21,
    FM_IDEAL_N_BACKBONE = 4, /* N CA C O, atoms 0..3 of every residue */
    FM_IDEAL_MAX_ATOMS = 14, /* tryptophan */
};

/* The peptide unit, in Å and degrees. All residues share one value: glycine and proline differ by
 * less than 1.5 degrees. */
#define FM_IDEAL_N_CA 1.458
#define FM_IDEAL_CA_C 1.525
#define FM_IDEAL_C_N 1.329
#define FM_IDEAL_C_O 1.231
#define FM_IDEAL_C_OXT 1.249
#define FM_IDEAL_N_CA_C 111.2
#define FM_IDEAL_CA_C_N 116.2
#define FM_IDEAL_C_N_CA 121.7
#define FM_IDEAL_CA_C_O 120.8

/* One side chain atom, placed from three earlier atoms of its residue (fm_geometry_place). */
typedef struct fm_ideal_atom {
    char name[4];
    char element[3];
    uint8_t from[3]; /* atom numbers in the residue: 0 N, 1 CA, 2 C, 3 O, 4 CB, ... */
    uint8_t chi;     /* 1..4: the dihedral is chi + `dihedral`; 0: it is `dihedral` */
    double bond;     /* Å */
    double angle;    /* degrees */
    double dihedral; /* degrees */
} fm_ideal_atom;

typedef enum fm_chi_kind {
    FM_CHI_ROTAMER = 1, /* minima near -60, 60 and 180 degrees */
    FM_CHI_AMIDE,       /* turns a flat carboxyl or amide group: no sharp minimum */
    FM_CHI_RING,        /* turns a flat ring: minima near +90 and -90 */
    FM_CHI_TRANS,       /* arginine's chi4: near 180 */
    FM_CHI_PUCKER,      /* proline: chi1 and chi2 of opposite sign close the ring */
} fm_chi_kind;

typedef struct fm_ideal_residue {
    char name[4]; /* three letters */
    char letter;
    uint8_t n_chi;
    uint8_t n_side; /* atoms in `side` */
    uint8_t chi_kind[4];
    const fm_ideal_atom *side; /* CB first, in the order of PDB files */
} fm_ideal_residue;

/* Returns the residue of aatype in [0, FM_IDEAL_N_RESIDUE). */
const fm_ideal_residue *fm_ideal_residue_of(unsigned aatype);

#endif
