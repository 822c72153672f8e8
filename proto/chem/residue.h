/* residue.h: constants of amino acid residues: orders of types, letters, atom names.
 *
 * Two orders of residue types are in use, that of the alignment tools (HHblits ids) and that of the
 * model (restypes):
 *
 *     HHblits ids  A0 C1 D2 E3 F4 G5 H6 I7 K8 L9 M10 N11 P12 Q13 R14 S15 T16 V17 W18 Y19 X20 gap21
 *     restypes     A0 R1 N2 D3 C4 Q5 E6 G7 H8 I9 L10 K11 M12 F13 P14 S15 T16 W17 Y18 V19 X20 gap21
 *
 * A residue's heavy atoms have one of 37 names (atom37), in the order of fm_atom37_names.
 *
 * Source: Jumper et al. 2021, supplementary 1.2 and table 1; the one-letter codes of modified
 * residues are in residue_names.c. Everything here is constant data. */
#ifndef FM_RESIDUE_H
#define FM_RESIDUE_H

#include "proto/base/status.h"

enum {
    FM_N_RESTYPE = 20,   /* amino acid types without X */
    FM_RESTYPE_X = 20,   /* none of the 20, in either order */
    FM_RESTYPE_GAP = 21, /* a gap of an alignment, in either order */
    FM_N_HHBLITS = 22,   /* ids of either order, including X and gap */
    FM_HHBLITS_NONE = 0xff,
    FM_N_ATOM37 = 37, /* heavy atom names of the 20 amino acids */
    FM_ATOM37_NONE = 0xff,
    FM_N_RESIDUE_NAME = 1032,
};

/* Positions in the atom37 order that code refers to by name. */
enum {
    FM_ATOM37_N = 0,
    FM_ATOM37_CA = 1,
    FM_ATOM37_C = 2,
    FM_ATOM37_CB = 3,
    FM_ATOM37_O = 4,
    FM_ATOM37_CD = 11,
    FM_ATOM37_SD = 18,
    FM_ATOM37_NH1 = 29,
    FM_ATOM37_NH2 = 30,
    FM_ATOM37_OXT = 36,
};

/* "ARNDCQEGHILKMFPSTWYVX-": the letter of each restype. */
extern const char fm_restype_letters[FM_N_HHBLITS + 1];

/* [letter] the HHblits id of an upper-case letter or '-': B is D, Z is E, U is C, J and O are X.
 * Every other byte has FM_HHBLITS_NONE. */
extern const uint8_t fm_hhblits_from_letter[256];
/* [HHblits id] its restype, and the inverse. Both map X to X and gap to gap. */
extern const uint8_t fm_restype_from_hhblits[FM_N_HHBLITS];
extern const uint8_t fm_hhblits_from_restype[FM_N_HHBLITS];

/* Returns the restype of an upper-case letter: 0..19, or FM_RESTYPE_X for the other upper-case
 * letters. Returns FM_HHBLITS_NONE for any other character. */
uint8_t fm_restype_from_letter(char letter);

/* [restype] "ALA", "ARG", ...; [20] is "UNK". */
extern const char fm_restype_names[FM_N_RESTYPE + 1][4];

/* [restype] bit a is set when the residue type has atom37 atom a, without OXT; X has none. */
extern const uint64_t fm_restype_atom37[FM_N_RESTYPE + 1];

/* [atom37] "N", "CA", "C", "CB", "O", ... "OXT", zero padded. */
extern const char fm_atom37_names[FM_N_ATOM37][4];

/* Returns the atom37 position of an atom name of `size` bytes, or FM_ATOM37_NONE. Case matters. */
uint8_t fm_atom37_from_name(const void *name, size_t size);

typedef struct fm_residue_name {
    char id[4]; /* component id, three upper-case letters or digits */
    char letter;
} fm_residue_name;

/* Sorted by id. */
extern const fm_residue_name fm_residue_names[FM_N_RESIDUE_NAME];

/* Returns the one-letter code of a component id of `size` bytes ("ALA", "MSE", "SEP"): one of the
 * 20 letters, or 'X' when the table does not have it. */
char fm_residue_letter(const void *id, size_t size);

#endif
