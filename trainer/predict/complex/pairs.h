/* pairs.h: reduces the logits of a complex's pair heads to what scores and files need.
 *
 * The logits of 5,120 tokens take 6 GiB a head, so they come in rows, in any order and any number
 * at a time. A row's results depend on that row alone. All sums are in double precision and have
 * one order, whatever the number of threads is (trainer/backend/cpu_threads.h).
 *
 * Errors have 64 classes with the centres 0.25, 0.75, ... 31.75 Å. Two tokens are in contact in the
 * first 19 of the 64 classes of distances, which end at 7.94 Å.
 *
 * N tokens, K chains. Row i of the aligned error is the token whose frame is aligned, column j the
 * token that is looked at. */
#ifndef FM_COMPLEX_PAIRS_H
#define FM_COMPLEX_PAIRS_H

#include "trainer/predict/complex/layout.h"

/* One prediction has one array of contacts for all of its structures. */
typedef struct fm_complex_contacts {
    double *probability; /* [N, N] 0 to 1 */
    double *by_chain;    /* [N, K] the sum over the tokens of a chain */
} fm_complex_contacts;

/* One structure. */
typedef struct fm_complex_pairs {
    float *pae;          /* [N, N] Å */
    float *pde;          /* [N, N] Å */
    double *tm_all;      /* [N] expected TM terms, summed over all tokens, with d0 of all tokens */
    double *tm_other;    /* [N] the same, summed over the tokens of other chains */
    double *tm_by_chain; /* [N, K] summed over the tokens of a chain, with d0 of the tokens of both
                              chains, or of the chain itself */
    double *pae_least;   /* [N, K] the least PAE to a token of the chain, Å; NAN if one is NAN */
    double *pde_in_contact; /* [N, K] PDE times contact probability, summed over a chain's tokens */
} fm_complex_pairs;

/* Arrays on the heap, for one layout. Release is allowed on a zeroed struct. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_complex_contacts_make(const fm_complex_layout *layout,
                                               fm_complex_contacts *ret_contacts, fm_error *reterr);
void fm_complex_contacts_release(fm_complex_contacts *contacts);
FM_MUST_USE fm_status fm_complex_pairs_make(const fm_complex_layout *layout,
                                            fm_complex_pairs *ret_pairs, fm_error *reterr);
void fm_complex_pairs_release(fm_complex_pairs *pairs);

/* Each reduces n_row rows from `first` on; logits are [n_row, N, 64]. PDE needs all contacts of its
 * rows. Logits that are not finite give NAN. */
void fm_complex_reduce_contacts(const fm_complex_layout *layout, const float *logits,
                                uint32_t first, uint32_t n_row, fm_complex_contacts *contacts);
void fm_complex_reduce_pae(const fm_complex_layout *layout, const float *logits, uint32_t first,
                           uint32_t n_row, fm_complex_pairs *pairs);
void fm_complex_reduce_pde(const fm_complex_layout *layout, const float *logits,
                           const fm_complex_contacts *contacts, uint32_t first, uint32_t n_row,
                           fm_complex_pairs *pairs);

/* Writes the pLDDT of n atoms, 0 to 1; logits are [n, n_bin]. */
void fm_complex_reduce_plddt(const float *logits, uint32_t n, uint32_t n_bin, double *ret_plddt);

#endif
