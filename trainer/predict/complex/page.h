/* page.h: writes the page of a complex: one HTML file with the scores of its structures and what
 * is known of the best one. The page loads no other file. Its only script draws the structure. */
#ifndef FM_COMPLEX_PAGE_H
#define FM_COMPLEX_PAGE_H

#include "trainer/predict/complex/files.h"

/* A row of the table. */
typedef struct fm_complex_page_row {
    uint64_t seed;
    uint32_t sample;
    double ranking_score, ptm, iptm; /* NAN: none */
    double mean_plddt, fraction_disordered;
    bool has_clash;
} fm_complex_page_row;

typedef struct fm_complex_page {
    const char *name, *software;
    uint32_t n_token, n_atom, n_chain;
    uint32_t n_row;
    const fm_complex_page_row *row; /* best first */
    const char *best;               /* [best_bytes] of fm_complex_page_draw */
    size_t best_bytes;
} fm_complex_page;

/* Draws one structure as a part of a page: its view in three dimensions (scene.h), pLDDT, PAE and
 * contacts by token, ipTM by pairs of chains. Its size is bounded for any number of tokens and
 * chains. The caller frees *ret_text. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_complex_page_draw(const fm_complex_prediction *p, char **ret_text,
                                           size_t *ret_bytes, fm_error *reterr);

/* Writes the page to `path`, in the folder of the job's files, whole or not at all. FM_ERR_IO,
 * FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_complex_page_write(const char *path, const fm_complex_page *page,
                                            fm_error *reterr);

#endif
