/* page.h: writes the page of a chain: one HTML file with its predictions, pictures and sequence.
 * The page loads no other file and has no scripts. */
#ifndef FM_TRAINER_PAGE_H
#define FM_TRAINER_PAGE_H

#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdint.h>

/* A row of the table. Texts are borrowed. */
typedef struct fm_page_row {
    const char *name, *model;
    uint64_t seed;
    double mean_plddt, ptm; /* NAN: none */
    uint32_t n_cycle;
    double run_s;
    const char *file, *scores; /* the structure and its confidences, in the page's folder */
} fm_page_row;

typedef struct fm_page {
    const char *chain, *software;
    uint32_t n_res, n_seq;
    const char *templates; /* "1abc_A, 2xyz_B"; "": none; NULL: not known */
    const char *sequence;  /* [n_res] letters */
    const float *plddt;    /* [n_res] of the best prediction */
    uint32_t n_row;
    const fm_page_row *row; /* best first */
    uint32_t n_picture;
    const fm_bytes *picture; /* SVG files */
} fm_page;

/* Writes the page to `path`, whole or not at all. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_page_write(const char *path, const fm_page *page, fm_error *reterr);

#endif
