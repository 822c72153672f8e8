/* bench_parse_mmcif.c: measures turning mmCIF text in memory into atom37 features of all its
 * chains, on one core.
 *
 *     bench_parse_mmcif [--rounds N] [FILE...]
 *
 * It always measures a synthetic entry: four chains of 600 residues, waters, the usual columns and
 * a header of other categories. With $FM_REFERENCE_DATA it also measures the files that the
 * reference was timed on; the last column has its figures (CPU time of parsing only, without
 * features). Times are medians of CPU time over warm memory.
 *
 * If the gemmi program is installed, the table also has two of its commands, each in its own
 * process and less the time of a start (`gemmi --version`). `gemmi validate --fast` only reads and
 * checks CIF syntax; `gemmi contents` reads the structure and prints a page about it. */
#include "featurizer/structure.h"
#include "proto/base/file.h"
#include "proto/limits.h"
#include "tests/bench/bench_time.h"
#include "tests/testing/testing.h"

#include <spawn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;

enum { PEER_ROUNDS = 7, N_CHAIN = 4, N_RES = 600, N_WATER = 800 };

typedef struct bench_state {
    fm_arena arena;
    fm_bytes text;
    const char *name;
    int rounds;
    double ms[ROUNDS_MAX];
} bench_state;

/* -- the synthetic entry */

static char *write_header(char *p) {
    p += sprintf(p, "data_SYNT\n#\n_entry.id SYNT\n_exptl.method 'X-RAY DIFFRACTION'\n"
                    "_refine.ls_d_res_high 1.80\n#\nloop_\n"
                    "_pdbx_audit_revision_history.ordinal\n"
                    "_pdbx_audit_revision_history.revision_date\n1 2001-01-01\n#\nloop_\n"
                    "_chem_comp.id\n_chem_comp.type\nLEU 'L-peptide linking'\nHOH non-polymer\n#\n"
                    "loop_\n_struct_asym.id\n_struct_asym.entity_id\n");
    for (int chain = 0; chain < N_CHAIN; chain++)
        p += sprintf(p, "%c 1\n", 'A' + chain);
    p += sprintf(p, "W 2\n#\nloop_\n_entity_poly_seq.entity_id\n_entity_poly_seq.num\n"
                    "_entity_poly_seq.mon_id\n_entity_poly_seq.hetero\n");
    for (int res = 1; res <= N_RES; res++)
        p += sprintf(p, "1 %-4d LEU n\n", res);
    p += sprintf(p, "#\nloop_\n_synthetic.id\n_synthetic.text\n_synthetic.detail\n");
    for (int i = 0; i < 1500; i++)
        p += sprintf(p, "%-5d 'some quoted words %d' plain\n", i, i);
    return p;
}

static char *write_atom(char *p, int *serial, const char *group, const char *name, const char *comp,
                        char chain, const char *seq, int number) {
    int k = ++*serial;
    return p + sprintf(p,
                       "%-6s %-5d %c %-3s . %s %c 1 %-3s ? %-7.3f %-7.3f %-7.3f 1.00 %-6.2f ? "
                       "%-4d %s %c %-3s 1\n",
                       group, k, name[0], name, comp, chain, seq, (k * 37 % 99991) / 1000.0 - 50,
                       (k * 53 % 99991) / 1000.0, (k * 71 % 99991) / 1000.0 - 20,
                       (k * 13 % 9973) / 100.0, number, comp, chain, name);
}

static fm_bytes make_text(char *out) {
    static const char *const columns[] = {"group_PDB",         "id",
                                          "type_symbol",       "label_atom_id",
                                          "label_alt_id",      "label_comp_id",
                                          "label_asym_id",     "label_entity_id",
                                          "label_seq_id",      "pdbx_PDB_ins_code",
                                          "Cartn_x",           "Cartn_y",
                                          "Cartn_z",           "occupancy",
                                          "B_iso_or_equiv",    "pdbx_formal_charge",
                                          "auth_seq_id",       "auth_comp_id",
                                          "auth_asym_id",      "auth_atom_id",
                                          "pdbx_PDB_model_num"};
    static const char *const names[] = {"N", "CA", "C", "O", "CB", "CG", "CD1", "CD2"};
    char *p = write_header(out), seq[12];
    int serial = 0;
    p += sprintf(p, "#\nloop_\n");
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        p += sprintf(p, "_atom_site.%s\n", columns[i]);
    for (int chain = 0; chain < N_CHAIN; chain++) {
        for (int res = 1; res <= N_RES; res++) {
            snprintf(seq, sizeof seq, "%d", res);
            for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
                p = write_atom(p, &serial, "ATOM", names[i], "LEU", (char)('A' + chain), seq, res);
        }
    }
    for (int i = 1; i <= N_WATER; i++)
        p = write_atom(p, &serial, "HETATM", "O", "HOH", 'W', ".", i);
    p += sprintf(p, "#\n");
    return (fm_bytes){(const uint8_t *)out, (size_t)(p - out)};
}

/* -- measurements */

/* Makes parts of all chains of the text; returns the atom rows, 0 on failure. */
static uint64_t run(bench_state *bench, bool compat) {
    const fm_mmcif_options options = {.compat_openfold = compat};
    fm_mmcif mmcif;
    fm_error error;
    if (fm_mmcif_parse(bench->text, &options, &bench->arena, &mmcif, &error)) {
        printf("%s:%llu:%llu: %s\n", bench->name, (unsigned long long)error.line,
               (unsigned long long)error.column, error.message);
        return 0;
    }
    for (uint32_t i = 0; i < mmcif.n_chain; i++) {
        fm_part_sequence sequence;
        fm_part_structure structure;
        if (fm_structure_from_mmcif(&mmcif, &options, mmcif.chains[i].author_id, &sequence,
                                    &structure, NULL)) {
            return 0;
        }
    }
    return mmcif.n_atom;
}

/* CPU milliseconds of a run, -1 on failure. */
static double run_peer(const char *program, const char *const *arguments) {
    pid_t child;
    int exit_status;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    struct rusage used;
    int failed = posix_spawnp(&child, program, &actions, NULL, (char *const *)arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed || wait4(child, &exit_status, 0, &used) != child) return -1;
    if (!WIFEXITED(exit_status) || WEXITSTATUS(exit_status) != 0) return -1;
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e3 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-3;
}

/* Median milliseconds of a gemmi command on a file; -1 without gemmi. `option` may be NULL. */
static double measure_peer(const char *command, const char *path, const char *option) {
    const char *const read[] = {"gemmi", command, path, option, NULL};
    const char *const start[] = {"gemmi", "--version", NULL};
    double with[PEER_ROUNDS], without[PEER_ROUNDS];
    for (int i = 0; i < PEER_ROUNDS; i++) {
        with[i] = run_peer("gemmi", read);
        without[i] = run_peer("gemmi", start);
        if (with[i] < 0 || without[i] < 0) return -1;
    }
    return median(with, PEER_ROUNDS) - median(without, PEER_ROUNDS);
}

static double measure(bench_state *bench, bool compat, uint64_t *ret_atoms) {
    for (int i = -2; i < bench->rounds; i++) {
        fm_arena_reset(&bench->arena);
        double start = cpu_s();
        *ret_atoms = run(bench, compat);
        if (i >= 0) bench->ms[i] = 1e3 * (cpu_s() - start);
        if (*ret_atoms == 0) return -1;
    }
    return median(bench->ms, (size_t)bench->rounds);
}

static void print_rate(double mb, double ms) {
    if (ms > 0) {
        printf("%9.0f", mb / ms * 1e3);
    } else {
        printf("%9s", "-");
    }
}

static void measure_text(bench_state *bench, const char *path, const char *reference) {
    uint64_t atoms = 0;
    double mb = (double)bench->text.size / 1e6;
    double syntax = path ? measure_peer("validate", path, "--fast") : -1;
    double structure = path ? measure_peer("contents", path, NULL) : -1;
    double ms = measure(bench, false, &atoms);
    if (ms < 0) return;
    double memory = (double)bench->arena.used / (double)bench->text.size;
    uint64_t compat_atoms = 0;
    double compat = measure(bench, true, &compat_atoms);
    printf("%-16.16s %9zu %8llu %9.3f %7.0f %6.2f %7.0f ", bench->name, bench->text.size,
           (unsigned long long)atoms, ms, mb / ms * 1e3, memory,
           compat > 0 ? mb / compat * 1e3 : 0.0);
    print_rate(mb, syntax);
    print_rate(mb, structure);
    printf(" %10s\n", reference);
}

static void measure_file(bench_state *bench, const char *path, const char *reference) {
    fm_arena arena;
    fm_error error;
    const char *slash = strrchr(path, '/');
    bench->name = slash ? slash + 1 : path;
    if (fm_arena_init(&arena, FM_LIMIT_INPUT_BYTES, NULL)) return;
    if (fm_file_read_text(&arena, path, FM_LIMIT_INPUT_BYTES / 2, &bench->text, &error)) {
        printf("%s: %s\n", path, error.message);
    } else {
        measure_text(bench, path, reference);
    }
    fm_arena_fini(&arena);
}

int main(int argc, char **argv) {
    static bench_state bench = {.name = "synthetic", .rounds = 51};
    static const struct {
        const char *path, *reference;
    } files[] = {
        {"golden/inputs/mmcifs/3zee.cif", "4.6"},
        {"golden/inputs/mmcifs/4i6p.cif", "4.2"},
        {"golden/inputs/mmcifs/2q2k.cif", "4.8"},
        {"golden/inputs/mmcifs/4zey.cif", "4.8"},
        {"golden/inputs/mmcifs/3u8v.cif", "4.5"},
        {"golden/inputs/mmcifs/5kc1.cif", "4.5"},
        {"golden/inputs/mmcifs/1psm.cif", "4.2"},
        {"golden/inputs/mmcifs/2crb.cif", "3.7"},
        {"dev/mmcif/1ffk.cif", "-"},
    };
    char *text = malloc((size_t)8 << 20), path[4096];
    int first = 1;
    if (argc > 2 && strcmp(argv[1], "--rounds") == 0) {
        bench.rounds = atoi(argv[2]);
        if (bench.rounds < 1 || bench.rounds > ROUNDS_MAX) bench.rounds = 51;
        first = 3;
    }
    if (!text || fm_arena_init(&bench.arena, (size_t)4 << 30, NULL)) {
        free(text);
        return 1;
    }
    printf("MB/s of one core; arena: bytes of memory a byte of input; compat 0: refused\n");
    printf("%-16s %9s %8s %9s %7s %6s %7s %9s %9s %10s\n", "file", "bytes", "atoms", "ms", "MB/s",
           "arena", "compat", "validate", "contents", "OpenFold");
    bench.text = make_text(text);
    measure_text(&bench, NULL, "-");
    for (size_t i = 0; fm_test_reference() && i < sizeof files / sizeof files[0]; i++) {
        measure_file(&bench, fm_test_reference_path(path, sizeof path, files[i].path),
                     files[i].reference);
    }
    for (int i = first; i < argc; i++)
        measure_file(&bench, argv[i], "-");
    fm_arena_fini(&bench.arena);
    free(text);
    return 0;
}
