/* template_pairs.h: what a template of AlphaFold 3 says of each pair of tokens.
 *
 * A template is four atoms of each token: the backbone's and the pseudo-beta atom. The features
 * of pairs are 200 times as large, so they are computed where they are used.
 *
 * Source: AlphaFold 3, supplementary 2.4 and table 5. Floats are computed in single precision and
 * in a fixed order, so that their bits are the same on every machine. */
#ifndef FM_CHEM_TEMPLATE_PAIRS_H
#define FM_CHEM_TEMPLATE_PAIRS_H

#include <stdint.h>

typedef enum fm_template_atom {
    FM_TEMPLATE_N,
    FM_TEMPLATE_CA,
    FM_TEMPLATE_C,
    FM_TEMPLATE_BETA, /* CB, or CA for glycine */
    FM_N_TEMPLATE_ATOM,
} fm_template_atom;

enum {
    FM_N_TEMPLATE_BIN = 39,     /* of distances: from 3.25 to 50.75 Å, and beyond */
    FM_TEMPLATE_BIN_NONE = 255, /* at an edge, below the first one, or an atom is absent */
};

/* One template. */
typedef struct fm_template_atoms {
    const float *positions; /* [n_token, FM_N_TEMPLATE_ATOM, 3] Å; zeros for absent atoms */
    const uint8_t *mask;    /* [n_token] bit k: the atom k of fm_template_atom is there */
} fm_template_atoms;

/* Any output may be NULL. */
typedef struct fm_template_pairs {
    uint8_t *bin;        /* [n_token, n_token] of the distance between pseudo-beta atoms */
    uint8_t *beta_mask;  /* [n_token, n_token] both have a pseudo-beta atom */
    uint8_t *frame_mask; /* [n_token, n_token] both have a frame */
    float
        *unit_vector; /* [n_token, n_token, 3] towards j's CA in i's frame; zeros without frames */
} fm_template_pairs;

/* Fills the caller's arrays. */
void fm_template_pairs_list(const fm_template_atoms *atoms, uint32_t n_token,
                            const fm_template_pairs *ret_pairs);

/* Fills row i: the outputs are [n_token], and unit_vector [n_token, 3]. */
void fm_template_pairs_row(const fm_template_atoms *atoms, uint32_t n_token, uint32_t i,
                           const fm_template_pairs *ret_row);

#endif
