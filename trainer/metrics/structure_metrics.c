/* structure_metrics.c: lDDT, RMSD and dRMSD; see structure_metrics.h. TM and GDT are in
 * tm_score.c. */
#include "trainer/metrics/structure_metrics.h"

#include "trainer/metrics/superposition.h"

#include <string.h>

static const double INCLUSION = 15; /* Å: lDDT counts true distances below this */

static double distance(const double *a, const double *b) {
    double x = a[0] - b[0], y = a[1] - b[1], z = a[2] - b[2];
    return sqrt(x * x + y * y + z * z);
}

/* Thresholds that are kept, out of all: four per pair. */
typedef struct tally {
    uint64_t kept, all;
} tally;

static void count(tally *t, const double *p, const double *q, double truth) {
    t->kept += fm_lddt_kept(distance(p, q), truth);
    t->all += 4;
}

static double share(const tally *t) {
    return t->all ? (double)t->kept / (double)t->all : NAN;
}

double fm_lddt(size_t n, const double *predicted, const double *truth, double *ret_local) {
    tally total = {0, 0};
    for (size_t i = 0; i < n; i++) {
        tally local = {0, 0};
        for (size_t j = 0; j < n; j++) {
            double d = distance(truth + 3 * i, truth + 3 * j);
            if (j != i && d < INCLUSION) count(&local, predicted + 3 * i, predicted + 3 * j, d);
        }
        if (ret_local) ret_local[i] = share(&local);
        total.kept += local.kept;
        total.all += local.all;
    }
    return share(&total);
}

double fm_rmsd(size_t n, const double *predicted, const double *truth) {
    fm_motion motion = fm_superpose(n, predicted, truth);
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double moved[3];
        fm_motion_apply(&motion, predicted + 3 * i, moved);
        double d = distance(moved, truth + 3 * i);
        sum += d * d;
    }
    return sqrt(sum / (double)n);
}

double fm_drmsd(size_t n, const double *predicted, const double *truth) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < i; j++) {
            double change = distance(predicted + 3 * i, predicted + 3 * j) -
                            distance(truth + 3 * i, truth + 3 * j);
            sum += change * change;
        }
    }
    return n < 2 ? NAN : sqrt(2 * sum / ((double)n * (double)(n - 1)));
}

/* -- all atoms */

enum { ARG = 1, LEU = 10, VAL = 19 };

/* The place whose atom could carry this atom's name as well; `place` itself if the name is
 * unambiguous. */
static size_t other_name(uint8_t restype, size_t place) {
    switch (restype) {
    case ARG: return place == 9 ? 10 : place == 10 ? 9 : place; /* NH1 NH2 */
    case LEU: return place == 6 ? 7 : place == 7 ? 6 : place;   /* CD1 CD2 */
    case VAL: return place == 5 ? 6 : place == 6 ? 5 : place;   /* CG1 CG2 */
    default: return fm_atom14_swap[restype][place];
    }
}

/* The known true atoms, and the predicted position of each under both namings. */
typedef struct atom_list {
    size_t n;
    double *truth, *as_named, *renamed; /* [n, 3]; as_named becomes the chosen naming */
    uint32_t *residue;                  /* [n] */
    uint8_t *ambiguous;                 /* [n] */
} atom_list;

static void set_point(double *list, size_t at, const float *point) {
    for (size_t k = 0; k < 3; k++)
        list[3 * at + k] = (double)point[k];
}

static fm_status list_atoms(const fm_structure_pair *pair, fm_arena *scratch, atom_list *list,
                            fm_error *reterr) {
    size_t most = pair->n_res * FM_N_ATOM14;
    *list = (atom_list){.truth = fm_arena_alloc_array(scratch, most, 3 * sizeof(double)),
                        .as_named = fm_arena_alloc_array(scratch, most, 3 * sizeof(double)),
                        .renamed = fm_arena_alloc_array(scratch, most, 3 * sizeof(double)),
                        .residue = fm_arena_alloc_array(scratch, most, sizeof(uint32_t)),
                        .ambiguous = fm_arena_alloc_array(scratch, most, 1)};
    if (!list->truth || !list->as_named || !list->renamed || !list->residue || !list->ambiguous) {
        return fm_arena_full(scratch, reterr);
    }
    for (size_t i = 0; i < pair->n_res; i++) {
        uint8_t restype = pair->aatype[i] < FM_N_RESTYPE ? pair->aatype[i] : (uint8_t)FM_RESTYPE_X;
        for (size_t place = 0; place < FM_N_ATOM14; place++) {
            size_t from = i * FM_N_ATOM14 + place, other = other_name(restype, place);
            if (!pair->mask[from] || fm_atom14_to_atom37[restype][place] == FM_ATOM37_NONE) {
                continue;
            }
            set_point(list->truth, list->n, pair->truth + 3 * from);
            set_point(list->as_named, list->n, pair->predicted + 3 * from);
            set_point(list->renamed, list->n, pair->predicted + 3 * (i * FM_N_ATOM14 + other));
            list->residue[list->n] = (uint32_t)i;
            list->ambiguous[list->n++] = other != place;
        }
    }
    return FM_OK;
}

/* Chooses the better naming of the residue with atoms first..last-1: the one that keeps more
 * distances to the unambiguous atoms of other residues. */
static void choose_names(atom_list *a, size_t first, size_t last) {
    tally named = {0, 0}, renamed = {0, 0};
    for (size_t i = first; i < last; i++) {
        for (size_t j = 0; a->ambiguous[i] && j < a->n; j++) {
            if (a->ambiguous[j] || a->residue[j] == a->residue[i]) continue;
            double d = distance(a->truth + 3 * i, a->truth + 3 * j);
            if (d >= INCLUSION) continue;
            count(&named, a->as_named + 3 * i, a->as_named + 3 * j, d);
            count(&renamed, a->renamed + 3 * i, a->as_named + 3 * j, d);
        }
    }
    if (renamed.kept <= named.kept) return;
    memcpy(a->as_named + 3 * first, a->renamed + 3 * first, 3 * (last - first) * sizeof(double));
}

fm_status fm_lddt_all_atom(const fm_structure_pair *pair, fm_arena *scratch, double *ret_lddt,
                           fm_error *reterr) {
    size_t mark = fm_arena_mark(scratch);
    atom_list a;
    fm_status status = list_atoms(pair, scratch, &a, reterr);
    tally total = {0, 0};
    if (!status) {
        for (size_t first = 0, last; first < a.n; first = last) {
            for (last = first; last < a.n && a.residue[last] == a.residue[first];)
                last++;
            choose_names(&a, first, last);
        }
        for (size_t i = 0; i < a.n; i++) {
            for (size_t j = 0; j < i; j++) {
                double d = distance(a.truth + 3 * i, a.truth + 3 * j);
                if (d < INCLUSION && a.residue[i] != a.residue[j]) {
                    count(&total, a.as_named + 3 * i, a.as_named + 3 * j, d);
                }
            }
        }
        *ret_lddt = share(&total);
    }
    fm_arena_rewind(scratch, mark);
    return status;
}

/* -- a chain */

/* Lists the known CA atoms and their predictions. */
static fm_status list_ca(const fm_structure_pair *pair, fm_arena *scratch, double **ret_predicted,
                         double **ret_truth, size_t *ret_n, fm_error *reterr) {
    double *predicted = fm_arena_alloc_array(scratch, pair->n_res, 3 * sizeof *predicted);
    double *truth = fm_arena_alloc_array(scratch, pair->n_res, 3 * sizeof *truth);
    if (!predicted || !truth) return fm_arena_full(scratch, reterr);
    size_t n = 0;
    for (size_t i = 0; i < pair->n_res; i++) {
        size_t from = i * FM_N_ATOM14 + FM_ATOM37_CA; /* CA is the second atom in both orders */
        if (!pair->mask[from]) continue;
        set_point(predicted, n, pair->predicted + 3 * from);
        set_point(truth, n++, pair->truth + 3 * from);
    }
    *ret_predicted = predicted;
    *ret_truth = truth;
    *ret_n = n;
    return FM_OK;
}

fm_status fm_structure_score(const fm_structure_pair *pair, fm_arena *scratch,
                             fm_structure_scores *ret_scores, fm_error *reterr) {
    size_t mark = fm_arena_mark(scratch);
    fm_structure_scores s = {0, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    double *predicted, *truth;
    fm_status status = list_ca(pair, scratch, &predicted, &truth, &s.n, reterr);
    if (!status && s.n > 0) {
        fm_tm_scores tm = {0};
        s.lddt_ca = fm_lddt(s.n, predicted, truth, NULL);
        s.rmsd = fm_rmsd(s.n, predicted, truth);
        s.drmsd = fm_drmsd(s.n, predicted, truth);
        status = fm_tm_score(s.n, predicted, truth, s.n, scratch, &tm, reterr);
        s.tm = tm.tm;
        s.gdt_ts = tm.gdt_ts;
        s.gdt_ha = tm.gdt_ha;
    }
    if (!status && s.n > 0) status = fm_lddt_all_atom(pair, scratch, &s.lddt, reterr);
    fm_arena_rewind(scratch, mark);
    if (!status) *ret_scores = s;
    return status;
}
