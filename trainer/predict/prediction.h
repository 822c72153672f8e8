/* prediction.h: writes a predicted structure with its confidences to files.
 *
 *     fm_prediction_write_cif     mmCIF with the categories of ModelCIF, pLDDT as B factors
 *     fm_prediction_write_pdb     the older format, for chains that fit into it
 *     fm_prediction_write_scores  JSON with ColabFold's keys: plddt, pae, ptm, max_pae
 *     fm_prediction_write_pae     JSON in the layout of the AlphaFold database
 *
 * Every file appears whole or not at all. The same prediction gives the same bytes. */
#ifndef FM_TRAINER_PREDICTION_H
#define FM_TRAINER_PREDICTION_H

#include "proto/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { FM_PREDICTION_TEMPLATES = 4 };

/* A template that was given to the model. */
typedef struct fm_used_template {
    const char *id;    /* of its entry, "1abc" */
    const char *chain; /* author's id of the chain */
} fm_used_template;

/* Texts and arrays are borrowed. */
typedef struct fm_prediction {
    const char *chain;    /* name of the chain */
    const char *model;    /* name of the weights */
    const char *software; /* version of this program */
    uint64_t seed;
    uint32_t n_res;
    const uint8_t *aatype; /* [N_res] restypes; 20 is unknown and has no atoms */
    const float *atoms;    /* [N_res, 14, 3] Å */
    const float *plddt;    /* [N_res] 0..100 */
    const float *pae;      /* [N_res, N_res] Å; NULL: the model has no aligned error head */
    double ptm, max_pae;   /* with pae */
    double mean_plddt;
    uint32_t n_templ;
    fm_used_template templ[FM_PREDICTION_TEMPLATES];
} fm_prediction;

/* Each writes the file at `path`. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_prediction_write_cif(const char *path, const fm_prediction *prediction,
                                              fm_error *reterr);
/* FM_ERR_LIMIT for a chain that does not fit: more than 9,999 residues or a coordinate that needs
 * more than 8 characters. */
FM_MUST_USE fm_status fm_prediction_write_pdb(const char *path, const fm_prediction *prediction,
                                              fm_error *reterr);
FM_MUST_USE fm_status fm_prediction_write_scores(const char *path, const fm_prediction *prediction,
                                                 fm_error *reterr);
/* Needs prediction->pae. */
FM_MUST_USE fm_status fm_prediction_write_pae(const char *path, const fm_prediction *prediction,
                                              fm_error *reterr);

#endif
