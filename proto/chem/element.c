/* element.c: the symbols of the elements. */
#include "proto/chem/element.h"

#include <assert.h>

/* Symbols in the order of atomic numbers, two letters each. */
static const char symbols[FM_N_ELEMENT][3] = {
    "X",  "H",  "HE", "LI", "BE", "B",  "C",  "N",  "O",  "F",  "NE", "NA", "MG", "AL", "SI",
    "P",  "S",  "CL", "AR", "K",  "CA", "SC", "TI", "V",  "CR", "MN", "FE", "CO", "NI", "CU",
    "ZN", "GA", "GE", "AS", "SE", "BR", "KR", "RB", "SR", "Y",  "ZR", "NB", "MO", "TC", "RU",
    "RH", "PD", "AG", "CD", "IN", "SN", "SB", "TE", "I",  "XE", "CS", "BA", "LA", "CE", "PR",
    "ND", "PM", "SM", "EU", "GD", "TB", "DY", "HO", "ER", "TM", "YB", "LU", "HF", "TA", "W",
    "RE", "OS", "IR", "PT", "AU", "HG", "TL", "PB", "BI", "PO", "AT", "RN", "FR", "RA", "AC",
    "TH", "PA", "U",  "NP", "PU", "AM", "CM", "BK", "CF", "ES", "FM", "MD", "NO", "LR", "RF",
    "DB", "SG", "BH", "HS", "MT", "DS", "RG", "CN", "NH", "FL", "MC", "LV", "TS", "OG"};

static char upper(uint8_t letter) {
    return (char)(letter >= 'a' && letter <= 'z' ? letter - 'a' + 'A' : letter);
}

uint8_t fm_element_from_symbol(const uint8_t *symbol, size_t size) {
    if (size < 1 || size > 2) return FM_ELEMENT_NONE;
    char first = upper(symbol[0]), second = (char)(size == 2 ? upper(symbol[1]) : '\0');
    if (first == 'D' && !second) return 1;
    for (uint32_t i = 0; i < FM_N_ELEMENT; i++) {
        if (symbols[i][0] == first && symbols[i][1] == second) return (uint8_t)i;
    }
    return FM_ELEMENT_NONE;
}

const char *fm_element_symbol(uint8_t element) {
    assert(element < FM_N_ELEMENT);
    return symbols[element];
}
