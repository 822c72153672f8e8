/* complex_metrics.h: scores how close a predicted complex is to the true one.
 *
 * Labels of equivalent chains and atoms are exchanged first (label_permutation.h). Symmetric atoms
 * take the order that fits after a superposition of their residue and two residues on either side,
 * and those of ligands, after that of the pocket. So no score depends on how well another part of
 * the complex is predicted. Scores are of the atoms that have a label with a known position. No
 * score depends on the place of either structure. Sums have one order.
 *
 * | score       | definition                                                                   |
 * |-------------|------------------------------------------------------------------------------|
 * | lDDT        | as in structure_metrics.h, of all heavy atoms of different residues. The     |
 * |             | radius is 15 Å, and 30 Å where one of the atoms is of RNA or DNA (Abramson   |
 * |             | et al. 2024, Nature 630:493). Of a chain: its own pairs. Of an interface:    |
 * |             | pairs of both chains.                                                        |
 * | interface   | two chains with true atoms less than 5 Å apart                               |
 * | DockQ       | (fnat + 1 / (1 + (iRMSD / 1.5)^2) + 1 / (1 + (LRMSD / 8.5)^2)) / 3, of two   |
 * |             | proteins (Mirabello and Wallner 2024, Bioinformatics 40:btae586)             |
 * | fnat        | share of the true contacts that the prediction has: pairs of residues with   |
 * |             | atoms less than 5 Å apart                                                    |
 * | iRMSD       | of the backbone of residues with an atom less than 10 Å from the other chain |
 * | LRMSD       | of one chain's backbone, after superposition of the other's. The one with    |
 * |             | more residues is superposed, and of equal ones the second.                   |
 * | pocket RMSD | of a ligand after superposition of its pocket: true atoms less than 10 Å     |
 * |             | from the ligand, of the polymer chain that has most of them, and of proteins |
 * |             | the backbone alone (Abramson et al. 2024)                                    | */
#ifndef FM_TRAINER_COMPLEX_METRICS_H
#define FM_TRAINER_COMPLEX_METRICS_H

#include "trainer/metrics/label_permutation.h"

typedef enum fm_chain_kind {
    FM_CHAIN_PROTEIN,
    FM_CHAIN_RNA,
    FM_CHAIN_DNA,
    FM_CHAIN_LIGAND,
    FM_N_CHAIN_KIND,
} fm_chain_kind;

/* Returns "protein", "RNA", "DNA" or "ligand". */
const char *fm_chain_kind_name(fm_chain_kind kind);

/* A predicted complex and its truth, as fm_permute_labels takes them. */
typedef struct fm_compared_complex {
    const fm_labelled_complex *predicted, *truth;
    const float *resolved;        /* [truth->n_atom]: 1 = the position is known */
    const fm_atom_orders *orders; /* ascending by `first`, each within a residue */
    int64_t n_orders;
    /* Of the prediction: */
    const uint8_t *kind;        /* [n_token]: the fm_chain_kind of the token's chain */
    const int64_t *residue;     /* [n_token]: a number of each residue, ascending in its chain */
    const uint8_t *is_backbone; /* [n_atom]: 1 = N, CA, C or O of a protein's residue */
} fm_compared_complex;

typedef struct fm_compared_chain {
    uint8_t kind; /* fm_chain_kind */
    int64_t first_token, end_token;
    int64_t copy;            /* asym_id of the true chain that it is compared with; -1: none */
    int64_t n_atom, n_known; /* of the prediction, and those that are scored */
    double lddt;             /* NAN where no pair counts, and of ligands */
    double pocket_rmsd;      /* of a ligand, Å; NAN where it has no pocket of 3 atoms */
    int64_t pocket_chain;    /* the chain whose atoms are the pocket; -1: none */
} fm_compared_chain;

typedef struct fm_dockq {
    double dockq, fnat, irmsd, lrmsd; /* RMSDs in Å; NAN where a backbone is not known */
    int64_t n_contact;                /* true contacts */
} fm_dockq;

typedef struct fm_compared_interface {
    int64_t a, b; /* chains, a < b */
    double lddt;
    bool has_dockq; /* both are proteins */
    fm_dockq dockq;
} fm_compared_interface;

typedef struct fm_complex_comparison {
    int64_t n_chain, n_interface;
    const fm_compared_chain *chains;
    const fm_compared_interface *interfaces; /* ascending by (a, b) */
    double lddt;                             /* of all scored atoms; NAN where no pair counts */
    const int64_t *label;                    /* [predicted->n_atom] as of fm_permute_labels */
} fm_complex_comparison;

/* Exchanges labels and computes all scores. The result is in the arena. Returns FM_ERR_LIMIT when
 * the arena is full. */
FM_MUST_USE fm_status fm_compare_complex(const fm_compared_complex *pair, fm_arena *arena,
                                         fm_complex_comparison *ret_comparison, fm_error *reterr);

/* The mean of a score over the chains or interfaces that have it. */
typedef struct fm_mean_score {
    int64_t n;
    double mean; /* NAN where n is 0 */
} fm_mean_score;

/* Interfaces of kinds a and b are at [a][b], a <= b. */
typedef struct fm_complex_means {
    fm_mean_score lddt[FM_N_CHAIN_KIND]; /* of chains; that of ligands has none */
    fm_mean_score interface_lddt[FM_N_CHAIN_KIND][FM_N_CHAIN_KIND];
    fm_mean_score dockq, pocket_rmsd;
} fm_complex_means;

void fm_complex_means_of(const fm_complex_comparison *comparison, fm_complex_means *ret_means);

#endif
