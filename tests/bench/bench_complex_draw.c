/* bench_complex_draw.c: measures how long a sample of a complex takes, and how large it is on the
 * wire. Its encoding is part of the time, and is measured alone, too, as is decoding.
 *
 *     bench_complex_draw [--plan NAME] [--rounds N] [--rows N] [--cycles N] [--curve 1]
 *
 * N samples are drawn of every record of the reference's structures, and encoded. Proteins and RNA
 * have made alignments of --rows rows, and proteins 20 templates of their own length, of which four
 * are drawn. Each cycle has the plan's most rows, or all planned ones. Processor time of one core,
 * warm memory, without reading a cache. --curve prints the sorted times in 200 steps. A made
 * complex of 5,000 tokens follows. The last lines say how many crops would have had more atoms than
 * the plan allows. */
#include "featurizer/complex/draw.h"
#include "proto/complex_sample.h"
#include "proto/template_date.h"
#include "tests/bench/bench_time.h"
#include "tests/featurizer/complex_case.h"
#include "tests/featurizer/made_complex.h"

#include <stdio.h>

enum { N_MOST = 1 << 20, N_HIT = 20 };

typedef struct settings {
    fm_plan plan;
    uint32_t rounds, n_row, n_cycle;
    bool prints_curve;
} settings;

typedef struct results {
    double *seconds, *bytes;     /* [N_MOST] */
    double *encoding, *decoding; /* [N_MOST] seconds of the wire's encoding, both ways */
    size_t n, n_larger, n_of_proteins;
    uint32_t most_atoms;
} results;

/* A structure of the chain's own length for every hit, which its identity holds. */
static fm_status make_structure(void *context, const fm_sha256 *identity,
                                const fm_part_structure **ret_structure, fm_error *reterr) {
    fm_part_structure *structure = context;
    (void)reterr;
    memcpy(&structure->n_res, identity, sizeof structure->n_res);
    *ret_structure = structure;
    return FM_OK;
}

/* Every residue has its first eight atoms. */
static fm_part_structure *longest_structure(fm_arena *arena) {
    enum { LONGEST = 5000 };
    fm_part_structure *structure = fm_arena_calloc(arena, 1, sizeof *structure);
    float *positions = fm_arena_calloc(arena, (size_t)LONGEST * FM_N_ATOM37 * 3, sizeof *positions);
    uint8_t *mask = fm_arena_calloc(arena, LONGEST, FM_N_ATOM37);
    if (!structure || !positions || !mask) abort();
    for (size_t r = 0; r < LONGEST; r++)
        memset(mask + r * FM_N_ATOM37, 1, 8);
    for (size_t i = 0; i < (size_t)LONGEST * FM_N_ATOM37 * 3; i++)
        positions[i] = (float)(i % 1000) * 0.1f;
    *structure = (fm_part_structure){
        .n_res = LONGEST, .all_atom_positions = positions, .all_atom_mask = mask};
    return structure;
}

static const fm_part_hits *make_hits(const fm_assembly_entity *entity, fm_arena *arena) {
    static const uint16_t none = 0;
    fm_part_hits *hits = fm_arena_calloc(arena, 1, sizeof *hits);
    fm_template_hit *hit = fm_arena_calloc(arena, N_HIT, sizeof *hit);
    uint16_t *size = fm_arena_calloc(arena, 1, sizeof *size);
    if (!hits || !hit || !size) abort();
    *size = (uint16_t)entity->n_residue;
    for (int h = 0; h < N_HIT; h++) {
        char *letters = fm_arena_alloc(arena, entity->n_residue);
        if (!letters) abort();
        memcpy(letters, entity->sequence, entity->n_residue);
        letters[0] = (char)('A' + h);
        hit[h] = (fm_template_hit){.name = "1tpl_A",
                                   .release_date = "1990-01-01",
                                   .aligned_cols = (int32_t)entity->n_residue,
                                   .n_letter = entity->n_residue,
                                   .n_run = 1,
                                   .run_query = &none,
                                   .run_template = &none,
                                   .run_size = size,
                                   .letters = letters};
        memcpy(&hit[h].structure, &entity->n_residue, sizeof entity->n_residue);
    }
    *hits = (fm_part_hits){.n_res = entity->n_residue, .n_hit = N_HIT, .hit = hit};
    return hits;
}

static fm_complex make_complex(complex_case *test, const char *id, uint32_t n_row) {
    const fm_assembly *a = &test->assembly;
    fm_complex_entity *entities = complex_alloc(test, a->n_entity, sizeof *entities);
    for (uint32_t e = 0; e < a->n_entity; e++) {
        const fm_assembly_entity *entity = &a->entities[e];
        bool is_protein = entity->polymer == FM_POLYMER_PEPTIDE_L;
        if ((!is_protein && entity->polymer != FM_POLYMER_RNA) || entity->n_residue < 5) continue;
        entities[e].unpaired = made_rows(entity, n_row, &test->arena);
        if (!is_protein) continue;
        entities[e].paired = entities[e].unpaired;
        entities[e].hits = make_hits(entity, &test->arena);
    }
    return (fm_complex){.name = id, .assembly = *a, .entities = entities};
}

/* The answers of Philox, except that each cycle takes all rows. */
static uint32_t most_rows(void *context, fm_sample_purpose purpose, uint32_t cycle, uint32_t number,
                          uint32_t below) {
    const fm_draws *draws = context;
    if (purpose == FM_SAMPLE_DRAW_COMPLEX_ROW_COUNT) return below - 1;
    return draws->below(draws->context, purpose, cycle, number, below);
}

static void pick(void *context, fm_sample_purpose purpose, uint32_t cycle, uint32_t number,
                 uint32_t *list, uint32_t n, uint32_t n_pick) {
    const fm_draws *draws = context;
    draws->pick(draws->context, purpose, cycle, number, list, n, n_pick);
}

static void measure(complex_case *test, const settings *set, const fm_complex_request *of,
                    results *to) {
    size_t mark = fm_arena_mark(&test->arena);
    fm_complex_request request = *of;
    fm_sample_draw key = {.seed = request.seed, .index = request.index};
    fm_draws philox = fm_draws_philox(&key);
    const fm_draws draws = {.context = &philox, .below = most_rows, .pick = pick};
    fm_plan roomy = set->plan;
    fm_sample sample;
    fm_error error = {0};
    request.draws = &draws;
    request.plan = &set->plan;
    double begun = cpu_s();
    complex_must(fm_complex_sample_draw(&request, &test->arena, &sample, &error), &error);
    size_t bytes = fm_sample_encoded_bytes(&sample);
    uint8_t *out = fm_arena_alloc(&test->arena, bytes);
    if (!out || to->n == N_MOST) abort();
    double drawn = cpu_s();
    fm_sample_encode(&sample, out);
    double encoded = cpu_s();
    fm_sample got;
    complex_must(fm_sample_decode((fm_bytes){out, bytes}, true, &test->arena, &got, &error),
                 &error);
    to->seconds[to->n] = encoded - begun;
    to->encoding[to->n] = encoded - drawn;
    to->decoding[to->n] = cpu_s() - encoded;
    to->bytes[to->n++] = (double)bytes;
    to->n_of_proteins += sample.n_seq_chain >= set->plan.max_msa;
    fm_arena_rewind(&test->arena, mark);
    roomy.max_atoms = FM_COMPLEX_SAMPLE_ATOMS;
    request.plan = &roomy;
    complex_must(fm_complex_sample_draw(&request, &test->arena, &sample, &error), &error);
    uint32_t n_atom = fm_sample_find(&sample, FM_T_REF_MASK, FM_SHARED)->shape[0];
    to->n_larger += n_atom > set->plan.max_atoms;
    if (n_atom > to->most_atoms) to->most_atoms = n_atom;
    fm_arena_rewind(&test->arena, mark);
}

/* Samples of every record of the structure that is loaded. */
static void measure_structure(complex_case *test, const settings *set, const char *id,
                              fm_part_structure *structure, results *to) {
    const fm_complex complex = make_complex(test, id, set->n_row);
    uint32_t n_row;
    const fm_complex_row *rows = made_records(&complex.assembly, 0, &test->arena, &n_row);
    const fm_sample_templates templates = {make_structure, structure};
    for (uint32_t r = 0; r < n_row; r++) {
        if (rows[r].kind[0] == FM_RECORD_IONS || rows[r].kind[1] == FM_RECORD_IONS) continue;
        for (uint32_t i = 0; i < set->rounds; i++) {
            fm_complex_request request = {.complex = &complex,
                                          .record = &rows[r],
                                          .templates = &templates,
                                          .seed = 1,
                                          .index = (uint64_t)r * set->rounds + i,
                                          .n_cycle = set->n_cycle};
            measure(test, set, &request, to);
        }
    }
}

/* Three chains of 2,000 and 1,000 residues. */
static void load_made(complex_case *test) {
    const made_shape shape = {{2000, 1000}, {0, 0}, 3};
    fm_components components;
    made_complex made;
    fm_arena_rewind(&test->arena, test->mark);
    made_components(&test->arena, &components);
    made_complex_make(&shape, 0, &components, &test->arena, &made);
    test->assembly = made.complex.assembly;
}

static void print_results(const settings *set, results *of) {
    size_t n = of->n;
    qsort(of->seconds, n, sizeof *of->seconds, compare_doubles);
    qsort(of->bytes, n, sizeof *of->bytes, compare_doubles);
    qsort(of->encoding, n, sizeof *of->encoding, compare_doubles);
    qsort(of->decoding, n, sizeof *of->decoding, compare_doubles);
    printf("%s, %u cycle(s) of at most %u rows, %zu samples (%zu with all these rows)\n",
           set->plan.name, set->n_cycle, set->plan.max_msa, n, of->n_of_proteins);
    printf("ms    median %.3f  p99 %.3f  p99.9 %.3f  most %.3f\n", of->seconds[n / 2] * 1e3,
           of->seconds[n * 99 / 100] * 1e3, of->seconds[n * 999 / 1000] * 1e3,
           of->seconds[n - 1] * 1e3);
    printf("MB    median %.3f  p99 %.3f  most %.3f\n", of->bytes[n / 2] * 1e-6,
           of->bytes[n * 99 / 100] * 1e-6, of->bytes[n - 1] * 1e-6);
    printf("ms    encoding median %.3f  p99 %.3f  decoding median %.3f  p99 %.3f\n",
           of->encoding[n / 2] * 1e3, of->encoding[n * 99 / 100] * 1e3, of->decoding[n / 2] * 1e3,
           of->decoding[n * 99 / 100] * 1e3);
    printf("atoms more than %u without the limit: %zu of %zu crops, most %u\n", set->plan.max_atoms,
           of->n_larger, n, of->most_atoms);
    for (size_t k = 0; k <= 200 && set->prints_curve; k++)
        printf("%.3f\t%.3f\n", (double)k / 200, of->seconds[(n - 1) * k / 200] * 1e3);
}

int main(int argc, char **argv) {
    settings set = {.rounds = 3, .n_row = 20000, .n_cycle = 1};
    const char *name = "af3-initial";
    for (int i = 1; i + 1 < argc; i += 2) {
        uint32_t value = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--plan") == 0) name = argv[i + 1];
        if (strcmp(argv[i], "--rounds") == 0) set.rounds = value;
        if (strcmp(argv[i], "--rows") == 0) set.n_row = value;
        if (strcmp(argv[i], "--cycles") == 0) set.n_cycle = value;
        if (strcmp(argv[i], "--curve") == 0) set.prints_curve = value > 0;
    }
    fm_error error = {0};
    complex_must(fm_plan_find(name, &set.plan, &error), &error);
    set.plan.max_template_date = FM_TEMPLATE_DATE_ANY; /* the tables have no dates */
    if (set.plan.kind != FM_SAMPLE_OF_COMPLEX || set.rounds < 1 || set.n_row < 1 ||
        set.n_cycle < 1 || set.n_cycle > FM_LIMIT_N_CYCLE) {
        return 2;
    }
    if (!fm_test_reference()) {
        fprintf(stderr, "bench_complex_draw: FM_REFERENCE_DATA is not set\n");
        return FM_TEST_SKIPPED;
    }
    complex_case test = {0};
    results all = {.seconds = malloc(N_MOST * sizeof(double)),
                   .bytes = malloc(N_MOST * sizeof(double)),
                   .encoding = malloc(N_MOST * sizeof(double)),
                   .decoding = malloc(N_MOST * sizeof(double))};
    fm_arena arena;
    if (!all.seconds || !all.bytes || !all.encoding || !all.decoding) abort();
    complex_must(fm_arena_init(&arena, (size_t)64 << 20, &error), &error);
    fm_part_structure *structure = longest_structure(&arena);
    complex_case_init(&test);
    for (uint32_t i = 0; i < N_COMPLEX; i++) {
        complex_case_load(&test, complex_ids[i]);
        measure_structure(&test, &set, complex_ids[i], structure, &all);
    }
    print_results(&set, &all);
    all.n = all.n_larger = all.n_of_proteins = all.most_atoms = 0;
    load_made(&test);
    printf("made complex of %u tokens: ", test.assembly.n_token);
    measure_structure(&test, &set, "made", structure, &all);
    print_results(&set, &all);
    free(all.seconds);
    free(all.bytes);
    free(all.encoding);
    free(all.decoding);
    fm_arena_fini(&test.arena);
    fm_arena_fini(&arena);
    return 0;
}
