/* disorder.c: see disorder.h. */
#include "trainer/predict/complex/disorder.h"

#include "trainer/predict/complex/near_atoms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PI 3.14159265358979323846
#define WATER 1.4        /* Å, the radius of a water */
#define MOST_RADIUS 1.87 /* Å, of an atom */
#define DISORDERED 0.581
enum { HALF_DOTS = 200, N_DOT = 2 * HALF_DOTS + 1, HALF_WINDOW = 12 };

/* Å. Atoms of side chains have one radius. */
static double radius_of(const char *name) {
    static const struct {
        const char *name;
        double radius;
    } radii[] = {{"N", 1.65}, {"CA", MOST_RADIUS}, {"C", 1.76}, {"O", 1.40}};
    for (size_t i = 0; i < sizeof radii / sizeof radii[0]; i++) {
        if (strcmp(name, radii[i].name) == 0) return radii[i].radius;
    }
    return 1.80;
}

/* The largest surface (Å^2) of a residue by its letter; alanine's for other letters. */
static double most_surface(uint8_t letter) {
    static const uint8_t most[26] = {
        ['A' - 'A'] = 106, ['R' - 'A'] = 248, ['N' - 'A'] = 157, ['D' - 'A'] = 163,
        ['C' - 'A'] = 135, ['Q' - 'A'] = 198, ['E' - 'A'] = 194, ['G' - 'A'] = 84,
        ['H' - 'A'] = 184, ['I' - 'A'] = 169, ['L' - 'A'] = 164, ['K' - 'A'] = 205,
        ['M' - 'A'] = 188, ['F' - 'A'] = 197, ['P' - 'A'] = 136, ['S' - 'A'] = 130,
        ['T' - 'A'] = 142, ['W' - 'A'] = 227, ['Y' - 'A'] = 222, ['V' - 'A'] = 142};
    uint8_t found = letter >= 'A' && letter <= 'Z' ? most[letter - 'A'] : 0;
    return found ? found : most[0];
}

/* -- the surface of atoms */

typedef struct neighbour {
    double place[3]; /* Å, from the atom in the middle */
    double square;   /* of its radius with a water's */
} neighbour;

typedef struct surface {
    const fm_disorder_chain *chain;
    const double *radius; /* [n_atom] */
    double (*dot)[3];     /* [N_DOT] on the unit sphere */
    uint32_t atom;        /* in the middle */
    neighbour *near;      /* [n_atom] */
    uint32_t n_near;
} surface;

/* Dots on a spiral of golden angles. */
static void place_dots(double dot[N_DOT][3]) {
    const double golden = (1 + sqrt(5.0)) / 2;
    for (int i = -HALF_DOTS; i <= HALF_DOTS; i++) {
        double latitude = asin(2.0 * i / N_DOT);
        double longitude = fmod(i, golden) * 2 * PI / golden;
        dot[i + HALF_DOTS][0] = sin(longitude) * cos(latitude);
        dot[i + HALF_DOTS][1] = cos(longitude) * cos(latitude);
        dot[i + HALF_DOTS][2] = sin(latitude);
    }
}

static int add_neighbour(void *context, uint32_t other) {
    surface *s = context;
    const float *middle = s->chain->position + (size_t)s->atom * 3;
    const float *at = s->chain->position + (size_t)other * 3;
    const double reach = s->radius[s->atom] + s->radius[other] + 2 * WATER;
    double square = 0;
    neighbour near;
    for (int axis = 0; axis < 3; axis++) {
        near.place[axis] = (double)at[axis] - (double)middle[axis];
        square += near.place[axis] * near.place[axis];
    }
    if (square <= 1e-4 || square >= reach * reach) return 0;
    near.square = (s->radius[other] + WATER) * (s->radius[other] + WATER);
    s->near[s->n_near++] = near;
    return 0;
}

static bool covers(const neighbour *near, const double place[3]) {
    double square = 0;
    for (int axis = 0; axis < 3; axis++)
        square += (place[axis] - near->place[axis]) * (place[axis] - near->place[axis]);
    return square <= near->square;
}

/* The free surface of the atom in the middle, Å^2. */
static double measure_atom(const surface *s) {
    const double radius = s->radius[s->atom] + WATER;
    uint32_t n_free = 0,
             last = 0; /* the neighbour that covered the last dot often covers the next */
    for (int d = 0; d < N_DOT; d++) {
        const double place[3] = {s->dot[d][0] * radius, s->dot[d][1] * radius,
                                 s->dot[d][2] * radius};
        bool is_free = s->n_near == 0 || !covers(&s->near[last], place);
        for (uint32_t k = 0; is_free && k < s->n_near; k++) {
            if (!covers(&s->near[k], place)) continue;
            is_free = false;
            last = k;
        }
        n_free += is_free;
    }
    return n_free * (4 * PI / N_DOT) * radius * radius;
}

/* Adds the surfaces of all atoms to their residues' sums [n_residue]. */
static fm_status measure_atoms(const fm_disorder_chain *chain, double *sum, fm_error *reterr) {
    const size_t n = chain->n_atom;
    double *radius = calloc(n + 1, sizeof *radius);
    double(*dot)[3] = calloc(N_DOT, sizeof *dot);
    uint32_t *list = calloc(n + 1, sizeof *list);
    neighbour *near = calloc(n + 1, sizeof *near);
    fm_near_atoms *grid = NULL;
    fm_status status = radius && dot && list && near
                           ? FM_OK
                           : fm_fail(reterr, FM_ERR_NOMEM, "no memory for %zu atoms", n);
    for (uint32_t a = 0; !status && a < n; a++) {
        radius[a] = radius_of(chain->atom_name[a]);
        list[a] = a;
    }
    if (!status) {
        status = fm_near_atoms_make(list, chain->n_atom, chain->position, 2 * (MOST_RADIUS + WATER),
                                    &grid, reterr);
    }
    if (!status) place_dots(dot);
    surface s = {.chain = chain, .radius = radius, .dot = dot, .near = near};
    for (s.atom = 0; !status && s.atom < n; s.atom++) {
        const float *at = chain->position + (size_t)s.atom * 3;
        if (!isfinite(at[0]) || !isfinite(at[1]) || !isfinite(at[2])) continue;
        s.n_near = 0;
        fm_near_atoms_visit(grid, s.atom, add_neighbour, &s);
        sum[chain->atom_residue[s.atom] - chain->first_residue] += measure_atom(&s);
    }
    fm_near_atoms_free(grid);
    free(radius);
    free(dot);
    free(list);
    free(near);
    return status;
}

/* -- residues */

/* Sets bits of `has` [n_residue] for the atoms N, CA, C and O. */
static void find_backbones(const fm_disorder_chain *chain, uint8_t *has) {
    static const char *const names[] = {"N", "CA", "C", "O"};
    for (uint32_t a = 0; a < chain->n_atom; a++) {
        for (unsigned k = 0; k < 4; k++) {
            if (strcmp(chain->atom_name[a], names[k]) == 0) {
                has[chain->atom_residue[a] - chain->first_residue] |= (uint8_t)(1U << k);
            }
        }
    }
}

/* Reflects a place outside of 0 to n - 1 at the ends, as often as is needed. */
static uint32_t reflect(int64_t at, uint32_t n) {
    if (n == 1) return 0;
    const int64_t period = 2 * ((int64_t)n - 1);
    at = ((at % period) + period) % period;
    return (uint32_t)(at < n ? at : period - at);
}

fm_status fm_disorder_measure(const fm_disorder_chain *chain, uint32_t *ret_n, int32_t *ret_surface,
                              double *ret_mean, fm_error *reterr) {
    double *sum = calloc((size_t)chain->n_residue + 1, sizeof *sum);
    uint8_t *has = calloc((size_t)chain->n_residue + 1, 1);
    fm_status status =
        sum && has ? measure_atoms(chain, sum, reterr)
                   : fm_fail(reterr, FM_ERR_NOMEM, "no memory for %u residues", chain->n_residue);
    uint32_t n = 0;
    if (!status) find_backbones(chain, has);
    for (uint32_t r = 0; !status && r < chain->n_residue; r++) {
        if (has[r] != 15) continue;
        ret_surface[n] = (int32_t)floor(sum[r] + 0.5);
        sum[n] = fmin(ret_surface[n] / most_surface(chain->residue_letter[r]), 1);
        n++;
    }
    for (uint32_t r = 0; !status && r < n; r++) {
        double all = 0;
        for (int64_t k = -HALF_WINDOW; k <= HALF_WINDOW; k++)
            all += sum[reflect(r + k, n)];
        ret_mean[r] = all / (2 * HALF_WINDOW + 1);
    }
    free(sum);
    free(has);
    if (!status) *ret_n = n;
    return status;
}

uint32_t fm_disorder_count(const double *mean, uint32_t n) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += mean[i] > DISORDERED;
    return count;
}

/* -- a complex */

typedef struct chain_counts {
    uint32_t first_residue, n_residue, first_atom, n_atom;
    uint32_t n_measured, n_disordered;
} chain_counts;

/* Finds the residues and atoms of each chain, [K]. */
static void find_ranges(const fm_complex_atoms *atoms, chain_counts *chain) {
    for (uint32_t r = atoms->n_residue; r-- > 0;) {
        chain[atoms->residue_chain[r]].first_residue = r;
        chain[atoms->residue_chain[r]].n_residue++;
    }
    for (uint32_t a = atoms->n_atom; a-- > 0;) {
        int32_t of = atoms->residue_chain[atoms->atom_residue[a]];
        chain[of].first_atom = a;
        chain[of].n_atom++;
    }
}

static bool is_protein(const fm_complex_atoms *atoms, uint32_t chain) {
    return atoms->entity_kind[atoms->chain_entity[chain]] == FM_COMPLEX_PROTEIN;
}

/* The first protein with the letters of chain k; k itself if there is none before it. */
static uint32_t find_equal(const fm_complex_atoms *atoms, const chain_counts *chain, uint32_t k) {
    for (uint32_t i = 0; i < k; i++) {
        if (!is_protein(atoms, i) || chain[i].n_residue != chain[k].n_residue) continue;
        if (memcmp(atoms->residue_letter + chain[i].first_residue,
                   atoms->residue_letter + chain[k].first_residue, chain[k].n_residue) == 0) {
            return i;
        }
    }
    return k;
}

static fm_status measure_chain(const fm_complex_atoms *atoms, const float *position,
                               chain_counts *counts, fm_error *reterr) {
    const fm_disorder_chain chain = {
        .n_atom = counts->n_atom,
        .n_residue = counts->n_residue,
        .atom_name = atoms->atom_name + counts->first_atom,
        .atom_residue = atoms->atom_residue + counts->first_atom,
        .first_residue = (int32_t)counts->first_residue,
        .residue_letter = atoms->residue_letter + counts->first_residue,
        .position = position + (size_t)counts->first_atom * 3,
    };
    int32_t *surfaces = calloc(chain.n_residue, sizeof *surfaces);
    double *mean = calloc(chain.n_residue, sizeof *mean);
    fm_status status =
        surfaces && mean ? fm_disorder_measure(&chain, &counts->n_measured, surfaces, mean, reterr)
                         : fm_fail(reterr, FM_ERR_NOMEM, "no memory for a chain");
    if (!status) counts->n_disordered = fm_disorder_count(mean, counts->n_measured);
    free(surfaces);
    free(mean);
    return status;
}

fm_status fm_complex_find_disorder(const fm_complex_atoms *atoms, const float *position,
                                   double *ret_fraction, fm_error *reterr) {
    chain_counts *chain = calloc((size_t)atoms->n_chain + 1, sizeof *chain);
    if (!chain) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for %u chains", atoms->n_chain);
    find_ranges(atoms, chain);
    uint64_t n = 0, n_disordered = 0;
    fm_status status = FM_OK;
    for (uint32_t k = 0; !status && k < atoms->n_chain; k++) {
        if (!is_protein(atoms, k)) continue;
        uint32_t first = find_equal(atoms, chain, k);
        if (first == k) status = measure_chain(atoms, position, &chain[k], reterr);
        n += chain[first].n_measured;
        n_disordered += chain[first].n_disordered;
    }
    free(chain);
    if (!status) *ret_fraction = n ? (double)n_disordered / (double)n : 0;
    return status;
}
