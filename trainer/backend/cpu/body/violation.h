/* body/violation.h: structural violations (supplement 1.9.11): bonds and angles between residues,
 * clashes between and within them.
 *
 * One pass serves forward and backward: every violated term adds its value to a sum and, when a
 * gradient is asked for, its slope to the gradients of its atoms. */
#include "trainer/backend/cpu/body/real.h"

static const double BOND_EPS = 1e-6, CLASH_EPS = 1e-10;

/* Mean and standard deviation of the peptide bond (Å) and of the cosines of its angles. The second
 * pair of the bond is for proline. The angle at C uses the deviation of the bond, as the training
 * of the published weights did. */
static const double PEPTIDE_BOND[2][2] = {{1.329, 0.014}, {1.341, 0.016}};
static const double ANGLE_AT_C[2] = {-0.4473, 0.014}, ANGLE_AT_N[2] = {-0.5203, 0.0353};

enum { ATOM_N = 0, ATOM_CA = 1, ATOM_C = 2, ATOM_SG = 5, PROLINE = 14 };

typedef struct violation_pass {
    const fm_violation *args;
    real *d;      /* [n, 14, 3] or NULL */
    double slope; /* d loss / d value of the term */
    double sum;
} violation_pass;

static const real *atom_of(const violation_pass *p, int64_t i, int atom) {
    return (const real *)p->args->atoms + (i * ATOMS + atom) * 3;
}

static bool has_atom(const fm_violation *a, int64_t i, int atom) {
    return a->exists[i * ATOMS + atom] != 0;
}

static double vector_between(const real *from, const real *to, double eps, double *v) {
    double square = eps;
    for (int axis = 0; axis < 3; axis++) {
        v[axis] = (double)(to[axis] - from[axis]);
        square += v[axis] * v[axis];
    }
    return sqrt(square);
}

/* d[atom] += factor * v. */
static void push(const violation_pass *p, int64_t i, int atom, double factor, const double *v) {
    real *d = p->d + (i * ATOMS + atom) * 3;
    for (int axis = 0; axis < 3; axis++)
        d[axis] += (real)(factor * v[axis]);
}

/* By how much |value - mean|, smoothed at 0, exceeds the tolerance; and its slope by value. */
static double excess(double value, const double *ideal, double tolerance, double *ret_slope) {
    double error = sqrt(BOND_EPS + (value - ideal[0]) * (value - ideal[0]));
    double above = error - tolerance * ideal[1];
    *ret_slope = above > 0 ? (value - ideal[0]) / error : 0;
    return above > 0 || above != above ? above : 0;
}

/* Residues i and i + 1 are bonded. */
static bool is_bonded(const fm_violation *a, int64_t i) {
    return a->residue_index[i + 1] - a->residue_index[i] == 1;
}

static void bond_term(violation_pass *p, int64_t i) {
    const fm_violation *a = p->args;
    double v[3], by;
    double length = vector_between(atom_of(p, i, ATOM_C), atom_of(p, i + 1, ATOM_N), BOND_EPS, v);
    p->sum += excess(length, PEPTIDE_BOND[a->aatype[i + 1] == PROLINE], a->tolerance_factor, &by);
    if (!p->d || by == 0) return;
    push(p, i + 1, ATOM_N, p->slope * by / length, v);
    push(p, i, ATOM_C, -p->slope * by / length, v);
}

/* An atom: its residue and its index there. */
typedef struct atom_place {
    int64_t residue;
    int atom;
} atom_place;

static void angle_term(violation_pass *p, const atom_place *place, const double *ideal) {
    const real *vertex = atom_of(p, place[1].residue, place[1].atom);
    double u[3], v[3], by, cosine = 0;
    double lu = vector_between(vertex, atom_of(p, place[0].residue, place[0].atom), BOND_EPS, u);
    double lv = vector_between(vertex, atom_of(p, place[2].residue, place[2].atom), BOND_EPS, v);
    for (int axis = 0; axis < 3; axis++)
        cosine += u[axis] * v[axis] / (lu * lv);
    p->sum += excess(cosine, ideal, p->args->tolerance_factor, &by);
    if (!p->d || by == 0) return;
    double du[3], dv[3];
    for (int axis = 0; axis < 3; axis++) {
        du[axis] = v[axis] / (lu * lv) - cosine * u[axis] / (lu * lu);
        dv[axis] = u[axis] / (lu * lv) - cosine * v[axis] / (lv * lv);
    }
    double factor = p->slope * by;
    push(p, place[0].residue, place[0].atom, factor, du);
    push(p, place[2].residue, place[2].atom, factor, dv);
    push(p, place[1].residue, place[1].atom, -factor, du);
    push(p, place[1].residue, place[1].atom, -factor, dv);
}

/* Term `kind` (0 the bond, 1 the angle at C, 2 the angle at N) of the bond after residue i. Returns
 * whether its atoms exist. */
static bool connection_term(violation_pass *p, int kind, int64_t i) {
    const fm_violation *a = p->args;
    const atom_place at_c[3] = {{i, ATOM_CA}, {i, ATOM_C}, {i + 1, ATOM_N}};
    const atom_place at_n[3] = {{i, ATOM_C}, {i + 1, ATOM_N}, {i + 1, ATOM_CA}};
    if (!is_bonded(a, i) || !has_atom(a, i, ATOM_C) || !has_atom(a, i + 1, ATOM_N)) return false;
    if (kind == 1 && !has_atom(a, i, ATOM_CA)) return false;
    if (kind == 2 && !has_atom(a, i + 1, ATOM_CA)) return false;
    if (kind == 0) bond_term(p, i);
    if (kind == 1) angle_term(p, at_c, ANGLE_AT_C);
    if (kind == 2) angle_term(p, at_n, ANGLE_AT_N);
    return true;
}

static double count_connections(const fm_violation *a, int kind) {
    double count = 0;
    for (int64_t i = 0; i + 1 < a->n; i++) {
        violation_pass none = {.args = a};
        count += connection_term(&none, kind, i);
    }
    return count;
}

/* The violation of a distance below `low` or above `high`, counted for each of its two atoms,
 * `times` times. */
static void distance_term(violation_pass *p, const atom_place *place, double low, double high,
                          double times) {
    double v[3];
    double distance = vector_between(atom_of(p, place[0].residue, place[0].atom),
                                     atom_of(p, place[1].residue, place[1].atom), CLASH_EPS, v);
    if (distance >= low && distance <= high) return;
    bool below = distance < low;
    p->sum += times * (below ? low - distance : distance - high);
    if (!p->d) return;
    double factor = p->slope * times * (below ? -1 : 1) / distance;
    push(p, place[1].residue, place[1].atom, factor, v);
    push(p, place[0].residue, place[0].atom, -factor, v);
}

/* Clashes of atoms of residue i with those of a later residue j. */
static void clashes_between(violation_pass *p, int64_t i, int64_t j) {
    const fm_violation *a = p->args;
    bool next = a->residue_index[i] + 1 == a->residue_index[j];
    const float *radius_i = a->radii + a->aatype[i] * ATOMS;
    const float *radius_j = a->radii + a->aatype[j] * ATOMS;
    for (int k = 0; k < ATOMS; k++) {
        for (int l = 0; l < ATOMS && has_atom(a, i, k); l++) {
            bool peptide = next && k == ATOM_C && l == ATOM_N;
            bool bridge =
                k == ATOM_SG && l == ATOM_SG; /* of residues of any type, as in the reference */
            if (!has_atom(a, j, l) || peptide || bridge) continue;
            double low = (double)(radius_i[k] + radius_j[l]) - a->overlap_tolerance;
            const atom_place place[2] = {{i, k}, {j, l}};
            distance_term(p, place, low, INFINITY, 2);
        }
    }
}

static void clashes_within(violation_pass *p, int64_t i) {
    const fm_violation *a = p->args;
    for (int k = 0; k < ATOMS; k++) {
        for (int l = 0; l < k; l++) {
            if (!has_atom(a, i, k) || !has_atom(a, i, l)) continue;
            const float *bound = a->bounds + ((a->aatype[i] * ATOMS + k) * ATOMS + l) * 2;
            const atom_place place[2] = {{i, k}, {i, l}};
            distance_term(p, place, (double)bound[0], (double)bound[1], 4);
        }
    }
}

/* All four terms; ret_terms receives the mean of each. */
static void violation_terms(const fm_violation *a, real *d, double dloss, double *ret_terms) {
    for (int kind = 0; kind < 3; kind++) {
        double scale = 1 / (BOND_EPS + count_connections(a, kind));
        violation_pass pass = {a, d, dloss * scale, 0};
        for (int64_t i = 0; i + 1 < a->n; i++)
            connection_term(&pass, kind, i);
        ret_terms[kind] = pass.sum * scale;
    }
    double scale = 1 / (a->eps + sum_of_mask(a->exists, a->n * ATOMS));
    violation_pass pass = {a, d, dloss * scale, 0};
    for (int64_t i = 0; i < a->n; i++) {
        clashes_within(&pass, i);
        for (int64_t j = 0; j < a->n; j++)
            if (a->residue_index[i] < a->residue_index[j]) clashes_between(&pass, i, j);
    }
    ret_terms[3] = pass.sum * scale;
}

static size_t violation_workspace(const fm_violation *a) {
    (void)a;
    return 0;
}

static void violation(fm_stream *stream, const fm_violation *a, void *workspace) {
    (void)stream, (void)workspace;
    double terms[4];
    violation_terms(a, NULL, 0, terms);
    *(real *)a->loss = (real)(terms[0] + terms[1] + terms[2] + terms[3]);
    for (int i = 0; i < 4; i++)
        ((real *)a->terms)[i] = (real)terms[i];
}

static void violation_grad(fm_stream *stream, const fm_violation *a, const void *dloss,
                           fm_out datoms) {
    (void)stream;
    double terms[4];
    if (datoms.beta == FM_WRITE) fill(NULL, a->n * ATOMS * 3, 0, datoms.data);
    violation_terms(a, datoms.data, (double)*(const real *)dloss, terms);
}
