/* template_tokens.h: templates of a crop: the atoms of each chain's hits that its tokens need.
 *
 * A hit is mapped to its chain's sequence beforehand (featurizer/templates.h). Here its residues
 * follow the tokens. Chains have their own hits; template k of the crop has the k-th hit of every
 * chain. Source: AlphaFold 3, supplementary 2.4; docs/reference/complexes.md. */
#ifndef FM_COMPLEX_TEMPLATE_TOKENS_H
#define FM_COMPLEX_TEMPLATE_TOKENS_H

#include "featurizer/complex/paired_rows.h"
#include "proto/chem/template_pairs.h"

/* A hit, by columns of its chain's sequence. */
typedef struct fm_mapped_hit {
    const uint8_t *letters; /* [n_col] of the template; '-': not mapped */
    const float *positions; /* [n_col, 37, 3] Å */
    const uint8_t *mask;    /* [n_col, 37] */
} fm_mapped_hit;

typedef struct fm_mapped_hits {
    uint32_t n_hit;
    const fm_mapped_hit *hits; /* [n_hit] the best first */
} fm_mapped_hits;

typedef struct fm_template_tokens_options {
    uint32_t n_template; /* of the crop: 4; the hits of a chain beyond it are not used */
    /* As the reference: every atom of an unknown residue is its nitrogen. */
    bool compat_protenix;
} fm_template_tokens_options;

/* Fills the templates of a crop. The class of a token without a template residue is 31; where a
 * chain has fewer hits, it is 0 in the templates behind them. A chain without any has 31 in the
 * first. Outputs: class [n_template, n_column]; positions [n_template, n_column,
 * FM_N_TEMPLATE_ATOM, 3] Å, zeros for absent atoms; mask [n_template, n_column], a bit for each
 * atom (fm_template_atom). */
void fm_template_tokens_list(const fm_mapped_hits *chains, const fm_paired_column *columns,
                             uint32_t n_column, const fm_template_tokens_options *options,
                             uint8_t *ret_class, float *ret_positions, uint8_t *ret_mask);

#endif
