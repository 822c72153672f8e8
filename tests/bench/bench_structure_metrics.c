/* bench_structure_metrics.c: measures scoring a predicted structure.
 *
 *     bench_structure_metrics [N_res]
 *
 * It prints processor times, medians of 5, for chains of 64, 128, 256, 384 and 1024 residues (or
 * the given length): of lDDT-CA, all-atom lDDT with 8 atoms per residue, TM with GDT, and all
 * scores together. The prediction is a helix with noise and a hinge, of which about half
 * superposes. Peer: Zhang's TMscore (Debian tm-align) on the same CA atoms, if it is installed:
 * wall time of its whole process. */
#include "tests/bench/bench_set.h"
#include "trainer/metrics/structure_metrics.h"

#include <math.h>
#include <sys/resource.h>

enum { N_ROUND = 5, N_ATOM = 8 };

typedef struct chain {
    size_t n;
    uint8_t *aatype, *mask;
    float *truth, *predicted;
    double *truth_ca, *predicted_ca;
} chain;

static void *take(fm_arena *arena, size_t count, size_t size) {
    void *memory = fm_arena_calloc(arena, count, size);
    if (!memory) exit(1);
    return memory;
}

/* Arginines without NH1 and NH2; the atoms are around their CA. */
static chain make_chain(size_t n, fm_arena *arena) {
    chain c = {.n = n,
               .aatype = take(arena, n, 1),
               .mask = take(arena, n * FM_N_ATOM14, 1),
               .truth = take(arena, n * FM_N_ATOM14 * 3, sizeof(float)),
               .predicted = take(arena, n * FM_N_ATOM14 * 3, sizeof(float)),
               .truth_ca = take(arena, n * 3, sizeof(double)),
               .predicted_ca = take(arena, n * 3, sizeof(double))};
    for (size_t i = 0; i < n; i++) {
        double k = (double)i, radius = 12 + 2 * sin(0.05 * k);
        double truth[3] = {radius * cos(0.35 * k), radius * sin(0.35 * k), 0.25 * k};
        c.aatype[i] = 1;
        for (size_t a = 0; a < N_ATOM; a++) {
            size_t at = i * FM_N_ATOM14 + a;
            c.mask[at] = 1;
            for (size_t axis = 0; axis < 3; axis++) {
                double noise = 0.8 * sin(1.7 * k * (double)(axis + 1) + 0.3 * k * k + (double)a);
                double hinge = i > n / 2 && axis == 0 ? 0.2 * (k - (double)n / 2) : 0;
                double offset = a == 1 ? 0 : 1.5 * sin((double)(a * (axis + 2)));
                c.truth[at * 3 + axis] = (float)(truth[axis] + offset);
                c.predicted[at * 3 + axis] = (float)(truth[axis] + offset + noise + hinge);
                if (a != 1) continue;
                c.truth_ca[i * 3 + axis] = (double)c.truth[at * 3 + axis];
                c.predicted_ca[i * 3 + axis] = (double)c.predicted[at * 3 + axis];
            }
        }
    }
    return c;
}

typedef enum what { LDDT_CA, LDDT, TM, ALL, N_WHAT } what;

static double run_once(const chain *c, what which, fm_arena *arena) {
    const fm_structure_pair pair = {c->n, c->aatype, c->predicted, c->truth, c->mask};
    fm_structure_scores scores;
    fm_tm_scores tm;
    double lddt, start = cpu_s();
    fm_status status = FM_OK;
    switch (which) {
    case LDDT_CA: lddt = fm_lddt(c->n, c->predicted_ca, c->truth_ca, NULL); break;
    case LDDT: status = fm_lddt_all_atom(&pair, arena, &lddt, NULL); break;
    case TM:
        status = fm_tm_score(c->n, c->predicted_ca, c->truth_ca, c->n, arena, &tm, NULL);
        break;
    default: status = fm_structure_score(&pair, arena, &scores, NULL); break;
    }
    if (status) exit(1);
    return 1e3 * (cpu_s() - start);
}

static double median_of(const chain *c, what which, fm_arena *arena) {
    double ms[N_ROUND];
    for (int i = 0; i < N_ROUND; i++)
        ms[i] = run_once(c, which, arena);
    return median(ms, N_ROUND);
}

static void write_pdb(const char *path, const double *ca, size_t n) {
    FILE *file = fopen(path, "w");
    if (!file) exit(1);
    for (size_t i = 0; i < n; i++) {
        fprintf(file, "ATOM  %5zu  CA  ARG A%4zu    %8.3f%8.3f%8.3f  1.00  0.00           C\n",
                i + 1, i + 1, ca[3 * i], ca[3 * i + 1], ca[3 * i + 2]);
    }
    fclose(file);
}

/* Processor time of child processes that have ended. */
static double children_s(void) {
    struct rusage u;
    getrusage(RUSAGE_CHILDREN, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* Milliseconds of TMscore; 0 if it is not installed. */
static double peer_ms(const chain *c) {
    char folder[256], truth[320], predicted[320], command[1024];
    double ms[N_ROUND];
    fm_test_make_folder(folder, sizeof folder);
    snprintf(truth, sizeof truth, "%s/truth.pdb", folder);
    snprintf(predicted, sizeof predicted, "%s/predicted.pdb", folder);
    write_pdb(truth, c->truth_ca, c->n);
    write_pdb(predicted, c->predicted_ca, c->n);
    snprintf(command, sizeof command, "TMscore '%s' '%s' >/dev/null 2>&1", predicted, truth);
    bool there = system(command) == 0;
    for (int i = 0; there && i < N_ROUND; i++) {
        double start = children_s();
        there = system(command) == 0;
        ms[i] = 1e3 * (children_s() - start);
    }
    fm_test_remove_tree(folder);
    if (!there) return 0;
    return median(ms, N_ROUND);
}

int main(int argc, char **argv) {
    size_t sizes[] = {64, 128, 256, 384, 1024}, n_size = sizeof sizes / sizeof sizes[0];
    fm_arena arena;
    if (argc > 1) {
        sizes[0] = strtoul(argv[1], NULL, 10);
        n_size = 1;
    }
    if (fm_arena_init(&arena, (size_t)1 << 30, NULL)) return 1;
    printf("%6s %12s %12s %12s %12s %12s %8s\n", "N_res", "lDDT-CA ms", "lDDT ms", "TM+GDT ms",
           "all ms", "TMscore ms", "ratio");
    for (size_t s = 0; s < n_size && sizes[0] > 0; s++) {
        fm_arena_reset(&arena);
        chain c = make_chain(sizes[s], &arena);
        double ms[N_WHAT], peer;
        for (int which = 0; which < N_WHAT; which++)
            ms[which] = median_of(&c, (what)which, &arena);
        peer = peer_ms(&c);
        printf("%6zu %12.2f %12.2f %12.2f %12.2f %12.2f %8.2f\n", sizes[s], ms[LDDT_CA], ms[LDDT],
               ms[TM], ms[ALL], peer, ms[TM] > 0 ? peer / ms[TM] : 0);
        fflush(stdout);
    }
    fm_arena_fini(&arena);
    return 0;
}
