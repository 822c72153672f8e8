/* rows.h: the homologues of a family: sequences evolved along a random tree.
 *
 * Row r descends from an earlier row or from the ancestor by substitutions and now and then a
 * deletion or an insertion, which its descendants inherit. A database may hold only a fragment of a
 * row. */
#ifndef FM_SYNTH_ROWS_H
#define FM_SYNTH_ROWS_H

#include "featurizer/synth/family.h"

enum { FM_SYNTH_GAP = 20, FM_SYNTH_MAX_INSERTS = 6 };

/* The databases in which a row may be found, as bits. */
enum { FM_SYNTH_UNIREF = 1, FM_SYNTH_BFD = 2, FM_SYNTH_MGNIFY = 4, FM_SYNTH_UNIPROT = 8 };

typedef struct fm_synth_insert {
    uint32_t number; /* its letters are drawn by (family, number) */
    uint16_t before; /* the site that follows it */
    uint16_t length; /* residues */
} fm_synth_insert;

typedef struct fm_synth_row {
    uint8_t *states;      /* [n_site] aatype or FM_SYNTH_GAP */
    uint32_t first, last; /* sites [first, last) are covered */
    uint32_t n_insert;
    fm_synth_insert inserts[FM_SYNTH_MAX_INSERTS]; /* in the order in which they arose */
    uint8_t found;                                 /* databases, as bits */
} fm_synth_row;

/* Makes family->n_row rows in the arena. */
FM_MUST_USE fm_status fm_synth_rows_make(fm_arena *arena, const fm_synth_options *options,
                                         const fm_synth_family *family, fm_synth_row **ret_rows,
                                         fm_error *reterr);

#endif
