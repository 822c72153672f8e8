/* residue.c: see residue.h. */
#include "proto/chem/residue.h"

#include <string.h>

const char fm_restype_letters[FM_N_HHBLITS + 1] = "ARNDCQEGHILKMFPSTWYVX-";

const uint8_t fm_restype_from_hhblits[FM_N_HHBLITS] = {0, 4,  3, 6, 13, 7,  8,  9,  11, 10, 12,
                                                       2, 14, 5, 1, 15, 16, 19, 17, 18, 20, 21};
const uint8_t fm_hhblits_from_restype[FM_N_HHBLITS] = {0, 14, 11, 2,  1,  13, 3,  5,  6,  7,  9,
                                                       8, 10, 4,  12, 15, 16, 18, 19, 17, 20, 21};

#define NONE_4 FM_HHBLITS_NONE, FM_HHBLITS_NONE, FM_HHBLITS_NONE, FM_HHBLITS_NONE
#define NONE_32 NONE_4, NONE_4, NONE_4, NONE_4, NONE_4, NONE_4, NONE_4, NONE_4
/* clang-format off */
const uint8_t fm_hhblits_from_letter[256] = {
    NONE_32,
    /* space .. '?': only '-' at 0x2d */
    NONE_4, NONE_4, NONE_4, FM_HHBLITS_NONE, FM_RESTYPE_GAP, FM_HHBLITS_NONE, FM_HHBLITS_NONE,
    NONE_4, NONE_4, NONE_4, NONE_4,
    /* @ A B C D E F G H I J K L M N O P Q R S T U V W X Y Z [ \ ] ^ _ */
    FM_HHBLITS_NONE, 0, 2, 1, 2, 3, 4, 5, 6, 7, 20, 8, 9, 10, 11, 20,
    12, 13, 14, 15, 16, 1, 17, 18, 20, 19, 3, FM_HHBLITS_NONE, NONE_4,
    NONE_32, NONE_32, NONE_32, NONE_32, NONE_32,
};
/* clang-format on */

uint8_t fm_restype_from_letter(char letter) {
    if (letter < 'A' || letter > 'Z') return FM_HHBLITS_NONE;
    const char *found = memchr(fm_restype_letters, letter, FM_N_RESTYPE);
    return found ? (uint8_t)(found - fm_restype_letters) : (uint8_t)FM_RESTYPE_X;
}

const char fm_restype_names[FM_N_RESTYPE + 1][4] = {
    "ALA", "ARG", "ASN", "ASP", "CYS", "GLN", "GLU", "GLY", "HIS", "ILE", "LEU",
    "LYS", "MET", "PHE", "PRO", "SER", "THR", "TRP", "TYR", "VAL", "UNK"};

const uint64_t fm_restype_atom37[FM_N_RESTYPE + 1] = {
    0x000000001fu, /* ALA */
    0x016080083fu, /* ARG */
    0x000001803fu, /* ASN */
    0x000003003fu, /* ASP */
    0x000000041fu, /* CYS */
    0x000600083fu, /* GLN */
    0x000c00083fu, /* GLU */
    0x0000000017u, /* GLY */
    0x000210603fu, /* HIS */
    0x00000010dfu, /* ILE */
    0x000000303fu, /* LEU */
    0x080008083fu, /* LYS */
    0x00000c003fu, /* MET */
    0x010030303fu, /* PHE */
    0x000000083fu, /* PRO */
    0x000000011fu, /* SER */
    0x000000029fu, /* THR */
    0x061160303fu, /* TRP */
    0x018030303fu, /* TYR */
    0x00000000dfu, /* VAL */
    0,
};

const char fm_atom37_names[FM_N_ATOM37][4] = {
    "N",   "CA",  "C",   "CB",  "O",   "CG", "CG1", "CG2", "OG",  "OG1", "SG", "CD",  "CD1",
    "CD2", "ND1", "ND2", "OD1", "OD2", "SD", "CE",  "CE1", "CE2", "CE3", "NE", "NE1", "NE2",
    "OE1", "OE2", "CH2", "NH1", "NH2", "OH", "CZ",  "CZ2", "CZ3", "NZ",  "OXT"};

/* Packs a name of at most 3 bytes into a number. */
#define NAME(a, b, c) ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16)

uint8_t fm_atom37_from_name(const void *name, size_t size) {
    if (size == 0 || size > 3) return FM_ATOM37_NONE;
    const uint8_t *at = name;
    switch (NAME(at[0], size > 1 ? at[1] : 0, size > 2 ? at[2] : 0)) {
    case NAME('N', 0, 0): return FM_ATOM37_N;
    case NAME('C', 'A', 0): return FM_ATOM37_CA;
    case NAME('C', 0, 0): return FM_ATOM37_C;
    case NAME('C', 'B', 0): return FM_ATOM37_CB;
    case NAME('O', 0, 0): return FM_ATOM37_O;
    case NAME('C', 'G', 0): return 5;
    case NAME('C', 'G', '1'): return 6;
    case NAME('C', 'G', '2'): return 7;
    case NAME('O', 'G', 0): return 8;
    case NAME('O', 'G', '1'): return 9;
    case NAME('S', 'G', 0): return 10;
    case NAME('C', 'D', 0): return FM_ATOM37_CD;
    case NAME('C', 'D', '1'): return 12;
    case NAME('C', 'D', '2'): return 13;
    case NAME('N', 'D', '1'): return 14;
    case NAME('N', 'D', '2'): return 15;
    case NAME('O', 'D', '1'): return 16;
    case NAME('O', 'D', '2'): return 17;
    case NAME('S', 'D', 0): return FM_ATOM37_SD;
    case NAME('C', 'E', 0): return 19;
    case NAME('C', 'E', '1'): return 20;
    case NAME('C', 'E', '2'): return 21;
    case NAME('C', 'E', '3'): return 22;
    case NAME('N', 'E', 0): return 23;
    case NAME('N', 'E', '1'): return 24;
    case NAME('N', 'E', '2'): return 25;
    case NAME('O', 'E', '1'): return 26;
    case NAME('O', 'E', '2'): return 27;
    case NAME('C', 'H', '2'): return 28;
    case NAME('N', 'H', '1'): return FM_ATOM37_NH1;
    case NAME('N', 'H', '2'): return FM_ATOM37_NH2;
    case NAME('O', 'H', 0): return 31;
    case NAME('C', 'Z', 0): return 32;
    case NAME('C', 'Z', '2'): return 33;
    case NAME('C', 'Z', '3'): return 34;
    case NAME('N', 'Z', 0): return 35;
    case NAME('O', 'X', 'T'): return FM_ATOM37_OXT;
    default: return FM_ATOM37_NONE;
    }
}

char fm_residue_letter(const void *id, size_t size) {
    if (size != 3) return 'X';
    size_t low = 0, high = FM_N_RESIDUE_NAME;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = memcmp(fm_residue_names[middle].id, id, 3);
        if (order == 0) return fm_residue_names[middle].letter;
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return 'X';
}
