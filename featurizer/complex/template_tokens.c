/* template_tokens.c: see template_tokens.h. */
#include "featurizer/complex/template_tokens.h"

#include "proto/chem/residue.h"

#include <string.h>

enum { CLASS_GLYCINE = 7 };

/* The atom37 places of a residue's four atoms. */
static void list_places(uint8_t class, bool compat, uint8_t place[FM_N_TEMPLATE_ATOM]) {
    static const uint8_t usual[FM_N_TEMPLATE_ATOM] = {FM_ATOM37_N, FM_ATOM37_CA, FM_ATOM37_C,
                                                      FM_ATOM37_CB};
    memcpy(place, usual, sizeof usual);
    if (class == CLASS_GLYCINE) place[FM_TEMPLATE_BETA] = FM_ATOM37_CA;
    if (class >= FM_RESTYPE_X && compat) memset(place, FM_ATOM37_N, sizeof usual);
}

static void copy_residue(const fm_mapped_hit *hit, uint32_t column, bool compat, uint8_t *ret_class,
                         float *ret_positions, uint8_t *ret_mask) {
    char letter = (char)hit->letters[column];
    uint8_t place[FM_N_TEMPLATE_ATOM];
    *ret_class = fm_class_of_letter(letter, FM_POLYMER_PEPTIDE_L);
    if (*ret_class == FM_RESTYPE32_GAP) return;
    list_places(*ret_class, compat, place);
    for (int k = 0; k < FM_N_TEMPLATE_ATOM; k++) {
        size_t at = (size_t)column * FM_N_ATOM37 + place[k];
        if (!hit->mask[at]) continue;
        *ret_mask |= (uint8_t)(1 << k);
        memcpy(ret_positions + 3 * k, hit->positions + 3 * at, 3 * sizeof *ret_positions);
    }
}

void fm_template_tokens_list(const fm_mapped_hits *chains, const fm_paired_column *columns,
                             uint32_t n_column, const fm_template_tokens_options *options,
                             uint8_t *ret_class, float *ret_positions, uint8_t *ret_mask) {
    size_t n = (size_t)options->n_template * n_column;
    memset(ret_class, 0, n);
    memset(ret_mask, 0, n);
    memset(ret_positions, 0, n * FM_N_TEMPLATE_ATOM * 3 * sizeof *ret_positions);
    for (uint32_t k = 0; k < options->n_template; k++) {
        for (uint32_t t = 0; t < n_column; t++) {
            const fm_mapped_hits *chain = &chains[columns[t].chain];
            size_t at = (size_t)k * n_column + t;
            if (chain->n_hit == 0 && k == 0) ret_class[at] = FM_RESTYPE32_GAP;
            if (k >= chain->n_hit) continue;
            copy_residue(&chain->hits[k], columns[t].column, options->compat_protenix,
                         &ret_class[at], ret_positions + at * FM_N_TEMPLATE_ATOM * 3,
                         &ret_mask[at]);
        }
    }
}
