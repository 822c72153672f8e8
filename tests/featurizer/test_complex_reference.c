/* test_complex_reference.c: the sampler of complexes against the second implementation of
 * docs/reference/sampling.md, section 12 (complex_sampling_reference.py). It writes the tables of
 * made complexes and what is drawn of them, and the reference recomputes every result. */
#include "featurizer/complex/chooser.h"
#include "featurizer/complex/draw.h"
#include "featurizer/complex/draw_templates.h"
#include "proto/base/compress.h"
#include "proto/template_date.h"
#include "tests/featurizer/made_complex.h"
#include "tests/testing/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static const uint64_t seed = 0x123456789abcdef0;

static uint64_t index_of(uint64_t i, uint64_t n_small) {
    return i < n_small ? i : (i << 33) + i;
}

static void write_records(FILE *out, const fm_complex_row *rows, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const fm_complex_row *r = &rows[i];
        fprintf(out, "record %u %d %u %u %u %u %u %u %016llx\n", r->item, r->is_interface,
                r->kind[0], r->kind[1], r->chain[0], r->chain[1], r->entity[0], r->entity[1],
                (unsigned long long)r->cluster);
    }
}

static void write_complex(FILE *out, const fm_assembly *a, const made_shape *shape) {
    fprintf(out, "complex\n");
    for (uint32_t e = 0; e < a->n_entity; e++) {
        const fm_assembly_entity *entity = &a->entities[e];
        fprintf(out, "entity %s %d %u\n", entity->sequence ? entity->sequence : "X",
                entity->polymer == FM_POLYMER_PEPTIDE_L, e < 2 ? shape->n_row[e] : 0);
    }
    for (uint32_t c = 0; c < a->n_chain; c++) {
        const fm_assembly_chain *chain = &a->chains[c];
        fprintf(out, "chain %d %u %d\n", chain->asym_id, chain->entity, chain->entity_id);
    }
    for (uint32_t t = 0; t < a->n_token; t++) {
        const fm_assembly_token *token = &a->tokens[t];
        const fm_assembly_residue *residue = &a->residues[token->residue];
        const fm_assembly_atom *centre = &a->atoms[token->centre];
        uint32_t n_resolved = 0;
        for (uint32_t k = 0; k < token->n_atom; k++)
            n_resolved += a->atoms[token->first_atom + k].is_resolved;
        fprintf(out, "token %u %u %d %d %u %u %.9g %.9g %.9g\n", residue->chain, token->residue,
                residue->number, centre->is_resolved, token->n_atom, n_resolved,
                (double)centre->position[0], (double)centre->position[1],
                (double)centre->position[2]);
    }
    for (uint32_t p = 0; p < a->n_pair; p++)
        fprintf(out, "pair %u %u\n", a->pairs[p].a, a->pairs[p].b);
}

/* Records of four items, of which a snapshot has three. */
static void write_choices(FILE *out, const fm_components *components, fm_arena *arena) {
    enum { N_ITEM = 4, N_KEPT = 3 };
    static const uint32_t items[N_KEPT] = {0, 2, 3};
    fm_complex_row rows[512];
    uint32_t n = 0, weights[512];
    fm_error error = {0};
    fprintf(out, "complex\n");
    for (uint32_t item = 0; item < N_ITEM; item++) {
        made_complex made;
        const made_shape shape = {{12 + item % 2, 20}, {0, 0}, 1 + item};
        made_complex_make(&shape, item, components, arena, &made);
        memcpy(rows + n, made.rows, made.n_row * sizeof *rows);
        n += made.n_row;
    }
    write_records(out, rows, n);
    made_must(fm_complex_rows_weigh(rows, n, weights, arena, &error), &error);
    fprintf(out, "weights");
    for (uint32_t i = 0; i < n; i++)
        fprintf(out, " %u", weights[i]);
    fprintf(out, "\nitems %u %u %u\n", items[0], items[1], items[2]);
    static const uint32_t share[] = {250000000, 750000000};
    static const uint8_t of_item[] = {0, 1, 0};
    const fm_chooser_shares shares = {2, share, of_item};
    static const char *const names[] = {"", "weighted", "shuffled", "listed"};
    for (int order = FM_ORDER_WEIGHTED; order < FM_N_PLAN_ORDER; order++) {
        for (int has_shares = 0; has_shares <= (order == FM_ORDER_WEIGHTED); has_shares++) {
            fm_plan plan;
            fm_complex_chooser *chooser;
            const fm_complex_choice choice = {rows, items, n, N_KEPT, has_shares ? &shares : NULL};
            made_must(fm_plan_find("af3-initial", &plan, &error), &error);
            plan.order = (fm_plan_order)order;
            made_must(fm_complex_chooser_create(&plan, &choice, &chooser, &error), &error);
            for (uint64_t i = 0; i < 60; i++) {
                uint32_t place;
                uint64_t index = index_of(i, 40);
                const fm_complex_row *row = fm_complex_chooser_record(chooser, seed, index, &place);
                fprintf(out, "choose %s %llu %llu %d %u\n", names[order], (unsigned long long)seed,
                        (unsigned long long)index, has_shares, (uint32_t)(row - rows));
            }
            fm_complex_chooser_destroy(chooser);
        }
    }
}

static void write_sample(FILE *out, const fm_complex_request *request, uint32_t record,
                         const fm_assembly *a, fm_arena *arena) {
    size_t mark = fm_arena_mark(arena);
    fm_sample sample;
    fm_error error = {0};
    made_must(fm_complex_sample_draw(request, arena, &sample, &error), &error);
    fprintf(out, "sample %u %llu %llu %u %u", record, (unsigned long long)seed,
            (unsigned long long)request->index, request->n_cycle, sample.n_seq_chain);
    const int32_t *asym = fm_sample_find(&sample, FM_T_ASYM_ID, FM_SHARED)->data;
    const int32_t *number = fm_sample_find(&sample, FM_T_TOKEN_NUMBER, FM_SHARED)->data;
    for (uint32_t i = 0; i < sample.n_res; i++) {
        uint32_t c = 0;
        while (a->chains[c].asym_id != asym[i])
            c++;
        fprintf(out, " %u", a->chains[c].first_token + (uint32_t)number[i]);
    }
    fprintf(out, "\n");
    for (uint32_t c = 0; c < request->n_cycle; c++) {
        const fm_tensor_view *msa = fm_sample_find(&sample, FM_T_COMPLEX_MSA, c);
        const fm_tensor_view *deletion = fm_sample_find(&sample, FM_T_COMPLEX_DELETION, c);
        fprintf(out, "cycle %u %u %08x %08x\n", c, msa->shape[0],
                fm_crc32(0, msa->data, msa->bytes), fm_crc32(0, deletion->data, deletion->bytes));
    }
    fm_arena_rewind(arena, mark);
}

typedef struct sample_case {
    made_shape shape;
    uint32_t crop_size, max_atoms, max_msa, max_planned, weights[3], n_draw;
} sample_case;

/* Samples of every record: all ways to crop, atoms that do not fit, crops that fail. */
static void write_samples(FILE *out, const sample_case *c, const fm_components *components,
                          fm_arena *arena) {
    size_t mark = fm_arena_mark(arena);
    made_complex made;
    fm_plan plan;
    fm_error error = {0};
    made_complex_make(&c->shape, 0, components, arena, &made);
    const fm_assembly *a = &made.complex.assembly;
    made_must(fm_plan_find("af3-initial", &plan, &error), &error);
    plan.crop_size = c->crop_size;
    plan.max_atoms = c->max_atoms;
    plan.max_msa = c->max_msa;
    plan.max_planned_msa = c->max_planned;
    memcpy(plan.crop_weight, c->weights, sizeof c->weights);
    made_must(fm_plan_check(&plan, &error), &error);
    write_complex(out, a, &c->shape);
    write_records(out, made.rows, made.n_row);
    fprintf(out, "plan %u %u %u %u %u %u %u\n", c->crop_size, c->max_atoms, c->max_msa,
            c->max_planned, c->weights[0], c->weights[1], c->weights[2]);
    for (uint32_t r = 0; r < made.n_row; r++) {
        if (made.rows[r].kind[0] == FM_RECORD_IONS || made.rows[r].kind[1] == FM_RECORD_IONS) {
            continue;
        }
        for (uint64_t i = 0; i < c->n_draw; i++) {
            const fm_complex_request request = {.plan = &plan,
                                                .complex = &made.complex,
                                                .record = &made.rows[r],
                                                .seed = seed,
                                                .index = index_of(100 * r + i, 100),
                                                .n_cycle = 1 + (uint32_t)i % 2};
            write_sample(out, &request, r, a, arena);
        }
    }
    fm_arena_rewind(arena, mark);
}

/* Hits that are all usable, the best first. */
static void write_templates(FILE *out, fm_arena *arena) {
    enum { MOST = 30, N_LETTER = 20 };
    static const uint16_t run_query[] = {2}, run_template[] = {0}, run_size[] = {N_LETTER};
    static char letters[MOST][N_LETTER];
    fm_template_hit hit[MOST];
    for (uint32_t h = 0; h < MOST; h++) {
        memset(letters[h], 'A', N_LETTER);
        letters[h][0] = (char)('A' + h % 26);
        letters[h][1] = (char)('A' + h / 26);
        hit[h] = (fm_template_hit){.name = "1tpl_A",
                                   .aligned_cols = N_LETTER,
                                   .n_letter = N_LETTER,
                                   .n_run = 1,
                                   .run_query = run_query,
                                   .run_template = run_template,
                                   .run_size = run_size,
                                   .letters = letters[h]};
    }
    fm_plan plan;
    fm_error error = {0};
    const fm_assembly assembly = {.n_entity = 0};
    made_must(fm_plan_find("af3-initial", &plan, &error), &error);
    plan.max_template_date = FM_TEMPLATE_DATE_ANY;
    for (uint64_t i = 0; i < 100; i++) {
        fm_sample_draw key = {.seed = seed, .index = index_of(i, 80)};
        const fm_draws draws = fm_draws_philox(&key);
        const fm_part_hits hits = {.n_res = 90, .n_hit = (uint32_t)i % MOST + 1, .hit = hit};
        uint32_t entity = (uint32_t)i % 7, *chosen, n;
        plan.max_templates = 1 + (uint32_t)i % 5;
        made_must(fm_draw_hits(&plan, &draws, &assembly, entity, &hits, arena, &chosen, &n, &error),
                  &error);
        fprintf(out, "templates %llu %llu %u %u %u %u", (unsigned long long)seed,
                (unsigned long long)key.index, entity, hits.n_hit, plan.template_pool,
                plan.max_templates);
        for (uint32_t t = 0; t < n; t++)
            fprintf(out, " %u", chosen[t]);
        fprintf(out, "\n");
    }
}

int main(void) {
    static const sample_case cases[] = {
        {{{40, 30}, {150, 120}, 3}, 32, 256, 20, 16384, {2, 4, 4}, 8},
        {{{40, 30}, {150, 120}, 2}, 50, 120, 300, 100, {1, 1, 1}, 4},
        {{{30, 25}, {60, 0}, 3}, 200, 5000, 9, 16384, {2, 4, 4}, 3},
        {{{12, 12}, {40, 0}, 3}, 1, 32, 5, 2, {2, 4, 4}, 4},
        {{{9, 9}, {0, 0}, 0}, 7, 32, 5, 16, {1, 0, 0}, 12},
    };
    char folder[256], path[300], command[800];
    fm_test_make_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/samples.txt", folder);
    FILE *out = fopen(path, "w");
    fm_arena arena;
    fm_components components;
    if (!out || fm_arena_init(&arena, (size_t)1 << 30, NULL)) abort();
    made_components(&arena, &components);
    write_choices(out, &components, &arena);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        write_samples(out, &cases[i], &components, &arena);
    write_templates(out, &arena);
    fclose(out);
    fm_arena_fini(&arena);

    if (system("python3 -c 'import zlib' 2>/dev/null") != 0) {
        fprintf(stderr, "skipped: python3 is not here\n");
        fm_test_remove_tree(folder);
        return FM_TEST_SKIPPED;
    }
    snprintf(command, sizeof command,
             "python3 -B tests/featurizer/complex_sampling_reference.py %s", path);
    int status = system(command);
    fm_test_remove_tree(folder);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}
