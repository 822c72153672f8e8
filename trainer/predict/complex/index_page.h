/* index_page.h: writes the page of many jobs: a table with the best structure of each, and links to
 * the jobs' own pages. The page loads no other file and has no scripts. */
#ifndef FM_COMPLEX_INDEX_PAGE_H
#define FM_COMPLEX_INDEX_PAGE_H

#include "trainer/predict/complex/page.h"

/* A job. Texts are borrowed. */
typedef struct fm_complex_index_row {
    const char *job;
    const char *why; /* it was refused or failed; NULL: it has structures */
    /* Of a job with structures. */
    bool has_page;
    uint32_t n_token, n_atom, n_chain, n_structure;
    fm_complex_page_row best;
} fm_complex_index_row;

/* Writes the page to `path`, in the folder of which JOB is the folder of a job's files, whole or
 * not at all. Jobs are in the order of their best ranking scores, equal ones in that of the rows;
 * those without structures come last, with the reasons. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_complex_index_write(const char *path, const fm_complex_index_row *rows,
                                             uint32_t n, const char *software, fm_error *reterr);

#endif
