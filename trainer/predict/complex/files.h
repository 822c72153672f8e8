/* files.h: writes the files of a predicted complex, with AlphaFold 3's names and layouts.
 *
 *     fm_complex_write_cif           mmCIF with the categories of ModelCIF: entities, components,
 *                                    bonds, atoms with pLDDT as B factors
 *     fm_complex_write_summary       the scores of a structure as JSON
 *     fm_complex_write_confidences   pLDDT by atom, PAE and contacts by token as JSON
 *     fm_complex_write_protenix      Protenix's scores as JSON, with its names; only tests call it
 *     fm_complex_write_ranking       the ranking scores of all structures as CSV
 *
 * Every file appears whole or not at all. Numbers that do not exist are null in JSON, `?` in mmCIF
 * and empty in CSV. The same structure gives the same bytes. */
#ifndef FM_COMPLEX_FILES_H
#define FM_COMPLEX_FILES_H

#include "trainer/predict/complex/scores.h"

/* The files of structure K of a seed S begin with the stem seed-S_sample-K/NAME_seed-S_sample-K in
 * the job's folder, and end as structure, scores and confidences do. NAME has at most
 * FM_LIMIT_NAME_BYTES bytes. */
enum { FM_COMPLEX_STEM_BYTES = 384, FM_COMPLEX_ENDS = 3 };
extern const char *const fm_complex_ends[FM_COMPLEX_ENDS];
void fm_complex_stem(const char *name, uint64_t seed, uint32_t sample,
                     char out[FM_COMPLEX_STEM_BYTES]);

/* A predicted structure. All members are borrowed. N tokens, A atoms. */
typedef struct fm_complex_prediction {
    const char *name;     /* of the job */
    const char *model;    /* of the weights */
    const char *software; /* version of this program */
    uint64_t seed;
    uint32_t sample; /* number of the structure among those of its seed */
    const fm_complex_atoms *atoms;
    const fm_complex_layout *layout;
    const float *position; /* [A, 3] Å */
    const double *plddt;   /* [A] 0 to 1 */
    const float *pae;      /* [N, N] Å */
    const double *contact; /* [N, N] probabilities */
    const fm_complex_scores *scores;
} fm_complex_prediction;

/* Each writes the file at `path`. FM_ERR_IO, FM_ERR_NOMEM. */
/* FM_ERR_DATA when a position is not finite. */
FM_MUST_USE fm_status fm_complex_write_cif(const char *path, const fm_complex_prediction *p,
                                           fm_error *reterr);
FM_MUST_USE fm_status fm_complex_write_summary(const char *path, const fm_complex_prediction *p,
                                               fm_error *reterr);
FM_MUST_USE fm_status fm_complex_write_confidences(const char *path, const fm_complex_prediction *p,
                                                   fm_error *reterr);
FM_MUST_USE fm_status fm_complex_write_protenix(const char *path, uint32_t n_chain,
                                                const fm_protenix_scores *scores,
                                                uint32_t n_recycle, fm_error *reterr);

typedef struct fm_complex_ranked {
    uint64_t seed;
    uint32_t sample;
    double ranking_score;
} fm_complex_ranked;
/* Rows in the order given, which is that of seeds and samples. */
FM_MUST_USE fm_status fm_complex_write_ranking(const char *path, const fm_complex_ranked *row,
                                               uint32_t n, fm_error *reterr);

#endif
