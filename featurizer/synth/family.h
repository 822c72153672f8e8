/* family.h: families and their chains.
 *
 * A family is a row of sites. Each site has an ancestral residue, a place in a helix, strand or
 * loop, backbone torsions, and a rate class (how often it changes). There are four classes, the
 * discrete-gamma idea of Yang 1994. A site may have a partner: the site that it touches in the
 * fold, with which its changes are coupled. A chain is a descendant: its residues are on sites of
 * the family or are its own insertions. */
#ifndef FM_SYNTH_FAMILY_H
#define FM_SYNTH_FAMILY_H

#include "featurizer/synth/fold.h"
#include "featurizer/synth/synth.h"

typedef enum fm_synth_ss { FM_SYNTH_LOOP, FM_SYNTH_HELIX, FM_SYNTH_STRAND } fm_synth_ss;

enum { FM_SYNTH_N_AA = 20, FM_SYNTH_NO_SITE = -1 };

typedef struct fm_synth_site {
    uint8_t ancestor; /* aatype, order A R N D C Q E G H I L K M F P S T W Y V */
    uint8_t ss;       /* fm_synth_ss */
    uint8_t buried;   /* 0 or 1 */
    uint8_t rate;     /* relative rate of change: 1, 4, 10 or 24; 0 = never */
    int32_t partner;  /* site in contact, or FM_SYNTH_NO_SITE */
} fm_synth_site;

typedef struct fm_synth_family {
    uint32_t number;
    uint32_t n_site;
    uint32_t n_row;              /* homologues */
    fm_synth_site *sites;        /* [n_site] */
    fm_synth_torsions *torsions; /* [n_site] */
    uint32_t *rate_sum;          /* [n_site] sum of the rates up to and including the site */
} fm_synth_family;

typedef struct fm_synth_residue {
    uint8_t aatype;
    int32_t site; /* FM_SYNTH_NO_SITE for an insertion */
} fm_synth_residue;

typedef struct fm_synth_chain {
    const fm_synth_family *family;
    uint32_t n_res;
    fm_synth_residue *residues;  /* [n_res] */
    fm_synth_torsions *torsions; /* [n_res] */
    fm_synth_backbone *backbone; /* [n_res], Å */
} fm_synth_chain;

/* Makes family `number`, which depends only on the options and this number. It is in the arena. */
FM_MUST_USE fm_status fm_synth_family_make(fm_arena *arena, const fm_synth_options *options,
                                           uint32_t number, fm_synth_family *ret_family,
                                           fm_error *reterr);

/* Makes the chain of (entry, slot). In entries with two equal chains, slot 1 equals slot 0. The
 * result borrows `family`, which must be the chain's. */
FM_MUST_USE fm_status fm_synth_chain_make(fm_arena *arena, const fm_synth_options *options,
                                          const fm_synth_entry *entry, uint32_t slot,
                                          const fm_synth_family *family, fm_synth_chain *ret_chain,
                                          fm_error *reterr);

/* Changes one site of states[n_site], chosen by its rate, and half of the time its partner with it.
 * A state is an aatype, or another value for a gap, which does not change. */
void fm_synth_family_mutate(const fm_synth_family *family, fm_synth_draws *draws, uint8_t *states);

/* Draws a residue for an insertion: mostly small and polar ones, never proline or cysteine. */
uint8_t fm_synth_draw_insertion(fm_synth_draws *draws);

/* "ARNDCQEGHILKMFPSTWYV"[aatype] */
char fm_synth_letter(uint8_t aatype);

#endif
