/* element.h: chemical elements by symbol. */
#ifndef FM_CHEM_ELEMENT_H
#define FM_CHEM_ELEMENT_H

#include <stddef.h>
#include <stdint.h>

enum {
    FM_N_ELEMENT = 119,     /* 118 elements, and 0 for "X": an atom of no known element */
    FM_ELEMENT_NONE = 0xff, /* no symbol of an element */
};

/* Returns the atomic number of a symbol of one or two letters in any case, 0 for X, and
 * FM_ELEMENT_NONE for anything else. D (deuterium) is hydrogen. */
uint8_t fm_element_from_symbol(const uint8_t *symbol, size_t size);

/* Returns the symbol of an atomic number below FM_N_ELEMENT in capital letters, "X" for 0. */
const char *fm_element_symbol(uint8_t element);

#endif
