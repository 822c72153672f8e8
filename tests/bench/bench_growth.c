/* bench_growth.c: measures how the memory of a build grows with the number of its entries.
 *
 *     bench_growth [--entries N[,N...]]
 *
 * An entry is a small mmCIF file with one chain of five residues, which is built as a single
 * sequence, so that the lists of the build are nearly all that there is. For each N (2000, 20000,
 * 80000) the rows are a build of all into an empty cache, and again over the finished one, by one
 * worker. Every build runs in its own process; the system reports the peak of its resident memory.
 * The first row is a build of ten entries, which the columns of bytes per entry are beyond. */
#include "cache/build/build.h"
#include "tests/bench/bench_set.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { N_RES = 5, MOST_ROWS = 16, FEW = 10 };
#define ARENA_BYTES ((size_t)24 << 30)

typedef struct bench_state {
    char folder[256], data[300], cache[300];
    uint32_t n_written;
    double base_bytes; /* peak of the build of few entries */
} bench_state;

static void name_id(uint32_t i, char out[6]) {
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    for (int k = 4; k >= 0; k--, i /= 36)
        out[k] = letters[i % 36];
    out[5] = '\0';
}

/* Sequences and coordinates differ between entries, so that no two share a part. */
static void write_entry(const bench_state *bench, uint32_t number) {
    static const char *const residues[] = {"ALA", "GLY", "SER", "VAL", "LEU", "THR", "ASP", "PRO"};
    char path[400], id[6];
    name_id(number, id);
    snprintf(path, sizeof path, "%s/mmcifs/%s.cif", bench->data, id);
    FILE *file = fopen(path, "w");
    if (!file) exit(1);
    fprintf(file, "data_T\nloop_\n_entity_poly_seq.entity_id\n_entity_poly_seq.num\n"
                  "_entity_poly_seq.mon_id\n");
    for (uint32_t i = 0; i < N_RES; i++)
        fprintf(file, "1 %u %s\n", i + 1, residues[number >> 3 * i & 7]);
    fprintf(file, "loop_\n_atom_site.label_atom_id\n_atom_site.label_comp_id\n"
                  "_atom_site.label_asym_id\n_atom_site.label_entity_id\n_atom_site.label_seq_id\n"
                  "_atom_site.Cartn_x\n_atom_site.Cartn_y\n_atom_site.Cartn_z\n");
    for (uint32_t i = 0; i < N_RES; i++) {
        fprintf(file, "CA %s A 1 %u %u.%03u %u 1\n", residues[number >> 3 * i & 7], i + 1,
                number / 1000, number % 1000, i * 4);
    }
    if (fclose(file)) exit(1);
}

static void write_entries(bench_state *bench, uint32_t n) {
    char path[400];
    snprintf(path, sizeof path, "%s/mmcifs", bench->data);
    if (!bench->n_written && (mkdir(bench->data, 0777) || mkdir(path, 0777))) exit(1);
    while (bench->n_written < n)
        write_entry(bench, bench->n_written++);
}

static void build(const bench_state *bench, uint32_t n) {
    fm_arena arena;
    fm_error error;
    fm_source source;
    fm_build_report report;
    const fm_build_options options = {.cache = bench->cache, .n_job = 1, .single_sequence = true};
    check(fm_arena_init(&arena, ARENA_BYTES, &error), &error);
    check(fm_source_scan(&(fm_source_options){.dataset = bench->data}, 1, &arena, &source, &error),
          &error);
    check(fm_build_run(&source, &options, &arena, &report, &error), &error);
    if (report.n_chain != n) exit(1);
}

static double seconds_of(const struct timeval *time) {
    return (double)time->tv_sec + (double)time->tv_usec * 1e-6;
}

static void measure(bench_state *bench, const char *what, uint32_t n) {
    int status;
    struct rusage usage;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        build(bench, n);
        _exit(0);
    }
    if (wait4(child, &status, 0, &usage) != child || status != 0) {
        printf("%-8s %9u failed\n", what, n);
        return;
    }
    double bytes = (double)usage.ru_maxrss * 1024;
    if (n == FEW) bench->base_bytes = bytes;
    printf("%-8s %9u %8.2f s %9.1f MB at most %9.0f bytes an entry\n", what, n,
           seconds_of(&usage.ru_utime) + seconds_of(&usage.ru_stime), bytes / 1e6,
           (bytes - bench->base_bytes) / n);
}

static void measure_both(bench_state *bench, uint32_t n) {
    if (access(bench->cache, F_OK) == 0) fm_test_remove_tree(bench->cache);
    write_entries(bench, n);
    measure(bench, "build", n);
    measure(bench, "again", n);
}

int main(int argc, char **argv) {
    bench_state bench = {.n_written = 0};
    const char *list = "2000,20000,80000";
    if (argc == 3 && strcmp(argv[1], "--entries") == 0) list = argv[2];
    make_memory_folder(bench.folder, sizeof bench.folder);
    snprintf(bench.data, sizeof bench.data, "%s/data", bench.folder);
    snprintf(bench.cache, sizeof bench.cache, "%s/cache", bench.folder);
    print_load();
    measure_both(&bench, FEW);
    for (const char *at = list; *at;) {
        char *end;
        unsigned long n = strtoul(at, &end, 10);
        if (end == at || n < bench.n_written || n > 10000000) {
            fprintf(stderr, "bench_growth: --entries: expected ascending numbers\n");
            break;
        }
        measure_both(&bench, (uint32_t)n);
        at = *end == ',' ? end + 1 : end;
    }
    fm_test_remove_tree(bench.folder);
    return 0;
}
