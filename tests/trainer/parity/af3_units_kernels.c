/* af3_units_kernels.c: outputs of AlphaFold 3's units that no node of a tape has: the pairs that
 * the smooth lDDT counts, the hits and partners of each atom's lDDT, and the rotation and
 * translation of an alignment. They are found by calling the kernels of these nodes, while the unit
 * is recorded, with inputs that tell one pair from another; see af3_unit.h. */
#include "tests/trainer/parity/af3_units_kernels.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { FINE_BINS = 1 << 20 }; /* tells apart any two lDDTs of up to 512 partners */
static const double FAR = 1000, STRETCH = 1.1;

/* An array on the device with its values on the host. */
typedef struct device_array {
    void *data;
    fm_element element;
    int64_t n;
    double *values;
} device_array;

static device_array room(af3_unit *u, fm_element element, int64_t n) {
    device_array a = {u->kernels->alloc((size_t)n * fm_element_bytes(element)), element, n,
                      unit_numbers(u, n)};
    assert(a.data);
    return a;
}

static void put(af3_unit *u, const device_array *a) {
    unit_upload(u, a->data, a->element, a->n, a->values);
}

static device_array filled(af3_unit *u, int64_t n, const double *values) {
    device_array a = room(u, u->kernels->act, n);
    memcpy(a.values, values, (size_t)n * sizeof *values);
    put(u, &a);
    return a;
}

static const double *fetch(af3_unit *u, const device_array *a) {
    return unit_download(u, a->data, a->element, a->n);
}

static void release(af3_unit *u, device_array *arrays, int n) {
    for (int i = 0; i < n; i++)
        u->kernels->release(arrays[i].data);
}

/* -- smooth lDDT */

/* With a radius for atom l alone, only its pairs count. The prediction is the truth made longer, so
 * every pair that counts pulls at its second atom. */
double *af3_smooth_lddt_pairs(af3_unit *u, const af3_atoms *atoms) {
    const fm_kernels *k = u->kernels;
    const int64_t n = atoms->n;
    const double one = 1;
    enum { X, TRUTH, MASK, RADIUS, DX, COUNT, LOSS, DLOSS, ARRAYS };
    device_array a[ARRAYS] = {filled(u, 3 * n, atoms->truth),
                              filled(u, 3 * n, atoms->truth),
                              filled(u, n, atoms->mask),
                              room(u, k->act, n),
                              room(u, k->act, 3 * n),
                              room(u, k->acc, 1),
                              room(u, k->acc, 1),
                              room(u, k->acc, 1)};
    for (int64_t i = 0; i < 3 * n; i++)
        a[X].values[i] *= STRETCH;
    put(u, &a[X]);
    a[DLOSS].values[0] = one;
    put(u, &a[DLOSS]);
    const fm_smooth_lddt args = {.n_sample = 1,
                                 .n = n,
                                 .eps = 1e-6,
                                 .x = a[X].data,
                                 .truth = a[TRUTH].data,
                                 .mask = a[MASK].data,
                                 .radius = a[RADIUS].data,
                                 .count = a[COUNT].data,
                                 .loss = a[LOSS].data};
    void *workspace = k->alloc(k->smooth_lddt_workspace(&args) + 1);
    double *pairs = unit_numbers(u, n * n);
    for (int64_t l = 0; l < n; l++) {
        memset(a[RADIUS].values, 0, (size_t)n * sizeof(double));
        a[RADIUS].values[l] = atoms->radius[l];
        put(u, &a[RADIUS]);
        k->smooth_lddt(NULL, &args, workspace);
        k->smooth_lddt_grad(NULL, &args, a[DLOSS].data, (fm_out){a[DX].data, 0});
        const double *pull = fetch(u, &a[DX]);
        for (int64_t m = 0; m < n; m++)
            pairs[l * n + m] =
                m != l && (pull[3 * m] != 0 || pull[3 * m + 1] != 0 || pull[3 * m + 2] != 0);
    }
    k->release(workspace);
    release(u, a, ARRAYS);
    return pairs;
}

/* -- lDDT of atoms */

/* The class of each atom of each structure, of FINE_BINS. */
static const double *fine_classes(af3_unit *u, const af3_atoms *atoms, int64_t n_batch,
                                  const double *x) {
    const fm_kernels *k = u->kernels;
    const int64_t n = atoms->n;
    enum { X, TRUTH, MASK, PARTNER, RADIUS, TARGET, WEIGHT, ARRAYS };
    device_array a[ARRAYS] = {filled(u, n_batch * n * 3, x), filled(u, 3 * n, atoms->truth),
                              filled(u, n, atoms->mask),     filled(u, n, atoms->partner),
                              filled(u, n, atoms->radius),   room(u, FM_ELEMENT_I32, n_batch * n),
                              room(u, k->act, n_batch * n)};
    k->atom_lddt(NULL, &(fm_atom_lddt){.n_batch = n_batch,
                                       .n = n,
                                       .n_bin = FINE_BINS,
                                       .x = a[X].data,
                                       .truth = a[TRUTH].data,
                                       .mask = a[MASK].data,
                                       .partner = a[PARTNER].data,
                                       .radius = a[RADIUS].data,
                                       .target = a[TARGET].data,
                                       .w = a[WEIGHT].data});
    const double *classes = fetch(u, &a[TARGET]);
    release(u, a, ARRAYS);
    return classes;
}

/* Structure 0 is the truth, and in structure 1 + m atom m is far away: it is a partner of the atoms
 * whose class that changes. */
double *af3_lddt_partners(af3_unit *u, const af3_atoms *atoms) {
    const int64_t n = atoms->n;
    double *x = unit_numbers(u, (1 + n) * n * 3), *count = unit_numbers(u, n);
    for (int64_t at = 0; at < (1 + n) * n * 3; at++)
        x[at] = atoms->truth[at % (3 * n)];
    for (int64_t m = 0; m < n; m++)
        x[((1 + m) * n + m) * 3] += FAR;
    const double *classes = fine_classes(u, atoms, 1 + n, x);
    for (int64_t l = 0; l < n; l++) {
        count[l] = 0;
        for (int64_t m = 0; m < n; m++)
            count[l] += m != l && classes[(1 + m) * n + l] != classes[l];
    }
    return count;
}

/* The class is one below the least number of bins that hold the score, sum / partners. */
double *af3_lddt_sums(af3_unit *u, const af3_atoms *atoms, int64_t n_batch, const double *x,
                      const double *partners) {
    double *sum = unit_numbers(u, n_batch * atoms->n);
    const double *classes = fine_classes(u, atoms, n_batch, x);
    for (int64_t at = 0; at < n_batch * atoms->n; at++) {
        double hits = 4 * partners[at % atoms->n] * (classes[at] + 1) / FINE_BINS;
        sum[at] = floor(hits + 1e-2) / 4;
    }
    return sum;
}

/* -- alignment */

void af3_alignments(af3_unit *u, int64_t n_batch, int64_t n, const double *x, const double *y,
                    const double *weight, double *rotation, double *translation) {
    const fm_kernels *k = u->kernels;
    enum { X, Y, WEIGHT, MOVED, TRANSFORM, ARRAYS };
    device_array a[ARRAYS] = {filled(u, n_batch * n * 3, x), filled(u, n_batch * n * 3, y),
                              filled(u, n_batch * n, weight), room(u, k->act, n_batch * n * 3),
                              room(u, k->acc, n_batch * 12)};
    k->rigid_align(NULL, &(fm_rigid_align){.n_batch = n_batch,
                                           .n = n,
                                           .x_stride = 3 * n,
                                           .y_stride = 3 * n,
                                           .w_stride = n,
                                           .x = a[X].data,
                                           .y = a[Y].data,
                                           .w = a[WEIGHT].data,
                                           .moved = a[MOVED].data,
                                           .transform = a[TRANSFORM].data});
    const double *transform = fetch(u, &a[TRANSFORM]);
    for (int64_t b = 0; b < n_batch; b++) {
        memcpy(rotation + 9 * b, transform + 12 * b, 9 * sizeof(double));
        memcpy(translation + 3 * b, transform + 12 * b + 9, 3 * sizeof(double));
    }
    release(u, a, ARRAYS);
}
