/* pictures.h: draws the pictures of a prediction as SVG. Each is a whole file that can also be part
 * of a page. They have no scripts and no links, and they follow a viewer's dark mode. */
#ifndef FM_TRAINER_PICTURES_H
#define FM_TRAINER_PICTURES_H

#include "proto/base/json_tree.h"
#include "trainer/predict/prediction.h"

#include <stdbool.h>
#include <stdio.h>

/* The class of a pLDDT (0..100) in the words and colours of the AlphaFold database. */
typedef struct fm_plddt_class {
    double least; /* of the class */
    const char *name, *colour;
} fm_plddt_class;
enum { FM_PLDDT_CLASSES = 4 };
extern const fm_plddt_class fm_plddt_classes[FM_PLDDT_CLASSES]; /* best first */
const fm_plddt_class *fm_plddt_class_of(double plddt);

/* The chains of a complex. Where neighbouring tokens are of two chains, pictures draw a border. */
typedef struct fm_picture_chains {
    const int32_t *of_token; /* [tokens] rows of id */
    const char *const *id;
} fm_picture_chains;

/* A square matrix of numbers from 0 to `most` in colours. Texts are borrowed. */
typedef struct fm_matrix_picture {
    const char *title, *remark;
    const char *unit;         /* above the scale */
    const char *left, *below; /* what rows and columns are */
    uint32_t n;
    const void *values; /* [n, n] in any type; `at` reads one */
    double (*at)(const void *values, size_t index);
    double most, step; /* of the scale, and between its numbers */
    bool is_high_dark;
    const fm_picture_chains *chains; /* NULL: one chain */
} fm_matrix_picture;

/* In a large matrix neighbouring rows and columns share a cell, which shows their mean. So the size
 * of the picture is bounded. A cell with a NAN stays empty. */
void fm_picture_matrix(FILE *out, const fm_matrix_picture *picture);

/* The predicted aligned error as a matrix; needs prediction->pae. */
void fm_picture_pae(FILE *out, const fm_prediction *prediction);

/* The path of the CA atoms, seen along the direction in which the structure is thinnest, in the
 * colours of pLDDT. Returns false without memory. */
FM_MUST_USE bool fm_picture_trace(FILE *out, const fm_prediction *prediction);

/* The pLDDT of several predictions of a chain, or of a complex by token, best first; at most eight
 * are drawn. Without `chains` it is one chain. */
typedef struct fm_plddt_curve {
    const char *name;
    const float *plddt; /* [n_res] */
    double mean;
} fm_plddt_curve;
void fm_picture_plddt(FILE *out, const char *chain, uint32_t n_res, const fm_plddt_curve *curve,
                      uint32_t n_curve, const fm_picture_chains *chains);

/* Draws how the rows of the MSA cover the chain. `coverage` has the form that `foldmill inspect
 * --as-input` prints (server/cli/inspect_input.h). Returns false and draws nothing for another
 * form. */
bool fm_picture_coverage(FILE *out, const char *chain, uint32_t n_res, const fm_json *coverage);

#endif
