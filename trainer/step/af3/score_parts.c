/* score_parts.c: see score_parts.h. */
#include "trainer/step/af3/score_parts.h"

#include <math.h>
#include <string.h>

enum { NAME_CHARS = 4, CHAR_CODES = 64, FIRST_CHAR = 32 /* the character of code 0 */ };

const char *const fm_part_score_names[FM_N_PART_SCORE] = {
    [FM_PART_PROTEIN_LDDT] = "rollout_protein_lddt",
    [FM_PART_RNA_LDDT] = "rollout_rna_lddt",
    [FM_PART_DNA_LDDT] = "rollout_dna_lddt",
    [FM_PART_INTERFACE_LDDT] = "rollout_interface_lddt",
    [FM_PART_DOCKQ] = "rollout_dockq",
    [FM_PART_POCKET_RMSD] = "rollout_pocket_rmsd",
};

static fm_chain_kind kind_of(const fm_complex_labels *labels, int64_t atom) {
    if (labels->is_ligand[atom]) return FM_CHAIN_LIGAND;
    if (labels->is_rna[atom]) return FM_CHAIN_RNA;
    return labels->is_dna[atom] ? FM_CHAIN_DNA : FM_CHAIN_PROTEIN;
}

/* Whether an atom has a name of up to four characters. Behind the name there are blanks, or
 * encodings without a 1. */
static bool has_name(const fm_af3_sample *sample, int64_t atom, const char *name) {
    const float *codes = sample->ref_atom_name_chars + atom * NAME_CHARS * CHAR_CODES;
    const size_t length = strlen(name);
    for (size_t i = 0; i < NAME_CHARS; i++, codes += CHAR_CODES) {
        int code = 0;
        for (int k = 1; k < CHAR_CODES; k++)
            if (codes[k] != 0) code = k;
        if (code != (i < length ? name[i] - FIRST_CHAR : 0)) return false;
    }
    return true;
}

static bool is_backbone(const fm_af3_features *f, int64_t atom) {
    static const char *const names[] = {"N", "CA", "C", "O"};
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        found |= has_name(&f->sample, atom, names[i]);
    return found && kind_of(&f->labels, atom) == FM_CHAIN_PROTEIN;
}

static void pool(fm_mean_score *to, const fm_mean_score *score) {
    if (score->n == 0) return;
    const double n = (double)to->n, more = (double)score->n;
    to->mean = n > 0 ? (to->mean * n + score->mean * more) / (n + more) : score->mean;
    to->n += score->n;
}

static void list_scores(const fm_complex_means *means, fm_part_scores *ret_scores) {
    fm_mean_score interfaces = {0, NAN};
    for (int a = 0; a < FM_N_CHAIN_KIND; a++)
        for (int b = a; b < FM_N_CHAIN_KIND; b++)
            pool(&interfaces, &means->interface_lddt[a][b]);
    *ret_scores = (fm_part_scores){{
        [FM_PART_PROTEIN_LDDT] = means->lddt[FM_CHAIN_PROTEIN],
        [FM_PART_RNA_LDDT] = means->lddt[FM_CHAIN_RNA],
        [FM_PART_DNA_LDDT] = means->lddt[FM_CHAIN_DNA],
        [FM_PART_INTERFACE_LDDT] = interfaces,
        [FM_PART_DOCKQ] = means->dockq,
        [FM_PART_POCKET_RMSD] = means->pocket_rmsd,
    }};
}

fm_status fm_af3_score_parts(const fm_af3_features *features, const fm_labelled_complex *made,
                             fm_arena *scratch, fm_part_scores *ret_scores, fm_error *reterr) {
    const fm_af3_sample *sample = &features->sample;
    const fm_complex_labels *labels = &features->labels;
    const size_t n = (size_t)sample->n_token, n_atom = (size_t)sample->n_atom;
    const size_t mark = fm_arena_mark(scratch);
    uint8_t *kind = fm_arena_alloc(scratch, n), *backbone = fm_arena_alloc(scratch, n_atom);
    if (!kind || !backbone) return fm_arena_full(scratch, reterr);
    for (size_t k = 0; k < n; k++)
        kind[k] = (uint8_t)kind_of(labels, made->first_atom[k]);
    for (size_t l = 0; l < n_atom; l++)
        backbone[l] = is_backbone(features, (int64_t)l);
    fm_labelled_complex truth = *made;
    truth.position = labels->coordinate;
    const fm_compared_complex pair = {.predicted = made,
                                      .truth = &truth,
                                      .resolved = labels->coordinate_mask,
                                      .orders = features->orders,
                                      .n_orders = features->n_orders,
                                      .kind = kind,
                                      .residue = sample->residue_index,
                                      .is_backbone = backbone};
    fm_complex_comparison comparison;
    fm_complex_means means;
    fm_status status = fm_compare_complex(&pair, scratch, &comparison, reterr);
    if (!status) {
        fm_complex_means_of(&comparison, &means);
        list_scores(&means, ret_scores);
    }
    fm_arena_rewind(scratch, mark);
    return status;
}

void fm_part_scores_add(fm_part_scores *sum, const fm_part_scores *other) {
    for (int i = 0; i < FM_N_PART_SCORE; i++)
        pool(&sum->of[i], &other->of[i]);
}
