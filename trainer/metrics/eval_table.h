/* eval_table.h: the results of an evaluation: a row for each chain, the means over them, and the
 * files that hold both.
 *
 * Rows are in the order of the snapshot, in whatever order they were computed, and all sums follow
 * that order. So the same model and chains give the same numbers to the bit. The scores are those
 * of structure_metrics.h. Confidence is compared residue by residue: pLDDT against the residue's
 * lDDT of CA atoms, both 0..100, in ten classes of pLDDT. */
#ifndef FM_TRAINER_EVAL_TABLE_H
#define FM_TRAINER_EVAL_TABLE_H

#include "trainer/metrics/metrics.h"
#include "trainer/metrics/structure_metrics.h"

#include <stdio.h>

enum {
    FM_EVAL_CLASSES = 10,
    FM_EVAL_NAME_BYTES = 256,
    FM_EVAL_WHY_BYTES = 256,
    FM_EVAL_VALUES = 24 + FM_METRICS_TERMS
};

/* Sums over residues that have both a pLDDT and a true lDDT. */
typedef struct fm_eval_confidence {
    uint64_t n[FM_EVAL_CLASSES]; /* class k: pLDDT of 10 k to 10 (k + 1) */
    double plddt[FM_EVAL_CLASSES], lddt[FM_EVAL_CLASSES];
    double plddt_squared, lddt_squared, product;
} fm_eval_confidence;

typedef struct fm_eval_chain {
    uint64_t index; /* of the chain in the snapshot */
    char name[FM_EVAL_NAME_BYTES];
    uint32_t n_res, n_seq, n_templ; /* n_seq: rows of its whole MSA */
    double resolution;              /* Å; 0 = not known */
    fm_status status;               /* FM_OK, or why it has no scores, with a sentence */
    char why[FM_EVAL_WHY_BYTES];
    fm_structure_scores scores;
    double plddt; /* mean over all residues, 0..100; NAN without a pLDDT head */
    fm_eval_confidence confidence;
    double loss, term[FM_METRICS_TERMS]; /* unweighted terms, by the table's names */
} fm_eval_chain;

typedef struct fm_eval_table {
    uint32_t n;
    fm_eval_chain *chain; /* [n] */
    uint32_t n_term;
    const char *term[FM_METRICS_TERMS];
} fm_eval_table;

/* Allocates n rows; fm_eval_table_release frees them. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_eval_table_make(fm_eval_table *table, uint32_t n, fm_error *reterr);
void fm_eval_table_release(fm_eval_table *table);

/* Fills scores, plddt and confidence of a row. plddt: [n_res] 0..100, or NULL. A chain without a
 * known CA atom gets the status FM_ERR_DATA. FM_ERR_LIMIT if the arena is full. */
FM_MUST_USE fm_status fm_eval_score_chain(const fm_structure_pair *pair, const float *plddt,
                                          fm_arena *scratch, fm_eval_chain *chain,
                                          fm_error *reterr);

/* Notes why a chain has no scores. */
void fm_eval_refuse_chain(fm_eval_chain *chain, fm_status status, const char *why);

/* Means over the chains with scores. The names of the values are lddt_ca, lddt, rmsd_ca, drmsd_ca,
 * tm_score, gdt_ts, gdt_ha, lddt_ca_median and plddt, then loss and its terms. In addition,
 * plddt_error is the mean distance of a class's pLDDT from its lDDT, weighted by residues, and
 * plddt_correlation is Pearson's, over residues. A value that is not defined is NAN. */
typedef struct fm_eval_summary {
    uint32_t n_chain, n_failed; /* with scores, and without */
    uint64_t n_residue;
    uint32_t n_value;
    struct {
        const char *name;
        double value;
    } value[FM_EVAL_VALUES];
    fm_eval_confidence confidence;
} fm_eval_summary;

/* FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_eval_summarise(const fm_eval_table *table, fm_eval_summary *ret_summary,
                                        fm_error *reterr);

/* The value of that name; NAN when there is none. */
double fm_eval_value(const fm_eval_summary *summary, const char *name);

/* What was evaluated: texts and numbers that summary.json states first. */
typedef struct fm_eval_about {
    const char *checkpoint, *set, *snapshot, *snapshot_hash, *device, *dtype;
    uint64_t step, seed;
    uint32_t max_cycle;
    double seconds;
    const char *against;         /* path of the summary compared with; NULL: none */
    const fm_eval_summary *then; /* its values */
} fm_eval_about;

/* Writes a comma and a number with as many digits as it needs to be read back unchanged; NAN writes
 * the comma alone. */
void fm_eval_put_cell(FILE *out, double value);
/* Writes DIR/chains.csv: a header and a line for each chain. Numbers have as many digits as they
 * need to be read back unchanged; a value that is not defined is empty. FM_ERR_IO. */
FM_MUST_USE fm_status fm_eval_write_csv(const char *folder, const fm_eval_table *table,
                                        fm_error *reterr);
/* Removes DIR/summary.json, which vouches for the other files, before those are replaced. It may be
 * absent. FM_ERR_IO. */
FM_MUST_USE fm_status fm_eval_remove_summary(const char *folder, fm_error *reterr);
/* Writes DIR/summary.json. FM_ERR_IO. */
FM_MUST_USE fm_status fm_eval_write_summary(const char *folder, const fm_eval_table *table,
                                            const fm_eval_summary *summary,
                                            const fm_eval_about *about, fm_error *reterr);
/* Reads the values of a summary.json. FM_ERR_FORMAT when it is not one; the errors of reading. */
FM_MUST_USE fm_status fm_eval_read_summary(const char *path, fm_arena *arena,
                                           fm_eval_summary *ret_summary, fm_error *reterr);

/* Appends ,"name":value for every value to a JSON object under construction; returns the bytes, or
 * those that would be needed. */
size_t fm_eval_format_values(const fm_eval_summary *summary, char *out, size_t out_bytes);

/* Draws DIR/lddt.svg (how many chains have which lDDT-CA), DIR/calibration.svg (pLDDT against
 * lDDT) and DIR/length.svg (lDDT-CA against length). They follow the reader's light or dark theme
 * and have no scripts and no links. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_eval_draw(const char *folder, const fm_eval_table *table,
                                   const fm_eval_summary *summary, fm_error *reterr);

#endif
