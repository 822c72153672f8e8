/* bond.h: orders of chemical bonds. */
#ifndef FM_CHEM_BOND_H
#define FM_CHEM_BOND_H

/* Parts and samples store these numbers, which are those of the reference's library (biotite). */
typedef enum fm_bond_order {
    FM_BOND_ANY = 0,
    FM_BOND_SINGLE = 1,
    FM_BOND_DOUBLE = 2,
    FM_BOND_TRIPLE = 3,
    FM_BOND_QUADRUPLE = 4,
    FM_BOND_AROMATIC_SINGLE = 5,
    FM_BOND_AROMATIC_DOUBLE = 6,
    FM_BOND_AROMATIC_TRIPLE = 7,
    FM_BOND_AROMATIC = 9, /* the largest */
} fm_bond_order;

#endif
