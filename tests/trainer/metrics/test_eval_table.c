/* test_eval_table.c: the means, the calibration and the files of an evaluation, against slow
 * formulas written anew here. The scores themselves are tested in test_structure_metrics.c. */
#include "trainer/metrics/eval_table.h"

#include "proto/base/file.h"
#include "tests/testing/testing.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_CHAIN = 40, N_RES = 60, ALANINE = 0, CA = 1 };

static fm_arena arena;

/* A number in -1..1 that looks random. */
static double noise(uint32_t i) {
    uint32_t x = i * 2654435761u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (double)x / 2147483648.0 - 1;
}

/* A helix, and the same with errors of `spread` Å. */
typedef struct model {
    uint8_t aatype[N_RES], mask[N_RES * FM_N_ATOM14];
    float truth[N_RES * FM_N_ATOM14 * 3], predicted[N_RES * FM_N_ATOM14 * 3];
    float plddt[N_RES];
} model;

static fm_structure_pair make_model(model *m, double spread, uint32_t seed) {
    memset(m, 0, sizeof *m);
    for (uint32_t i = 0; i < N_RES; i++) {
        const double at[3] = {2.3 * cos(1.745 * i), 2.3 * sin(1.745 * i), 1.5 * i};
        m->aatype[i] = ALANINE;
        m->mask[i * FM_N_ATOM14 + CA] = i % 11 != 3; /* some are not known */
        double own = spread * (i % 4) / 3; /* residues differ in how well they are predicted */
        m->plddt[i] = (float)(100 - 20 * own + 5 * noise(seed + 3 * i));
        m->plddt[i] = m->plddt[i] < 0 ? 0 : m->plddt[i] > 100 ? 100 : m->plddt[i];
        for (uint32_t k = 0; k < 3; k++) {
            size_t to = 3 * (i * FM_N_ATOM14 + CA) + k;
            m->truth[to] = (float)at[k];
            m->predicted[to] = (float)(at[k] + own * noise(7 * seed + 3 * i + k));
        }
    }
    return (fm_structure_pair){N_RES, m->aatype, m->predicted, m->truth, m->mask};
}

/* lDDT of residue i over its known neighbours, as the definition states it. */
static double slow_lddt(const model *m, uint32_t i) {
    double kept = 0, all = 0;
    for (uint32_t j = 0; j < N_RES; j++) {
        double d[2] = {0, 0};
        if (j == i || !m->mask[j * FM_N_ATOM14 + CA]) continue;
        for (uint32_t k = 0; k < 3; k++) {
            size_t a = 3 * (i * FM_N_ATOM14 + CA) + k, b = 3 * (j * FM_N_ATOM14 + CA) + k;
            d[0] += pow((double)m->truth[a] - (double)m->truth[b], 2);
            d[1] += pow((double)m->predicted[a] - (double)m->predicted[b], 2);
        }
        if (sqrt(d[0]) >= 15) continue;
        const double limits[] = {0.5, 1, 2, 4};
        for (int t = 0; t < 4; t++)
            kept += fabs(sqrt(d[0]) - sqrt(d[1])) < limits[t];
        all += 4;
    }
    return 100 * kept / all;
}

/* What the slow formulas find over all residues. */
typedef struct slow {
    double n, x, y, xx, yy, xy, class_n[10], class_x[10], class_y[10];
} slow;

static void add_slow(slow *s, const model *m) {
    for (uint32_t i = 0; i < N_RES; i++) {
        if (!m->mask[i * FM_N_ATOM14 + CA]) continue;
        double x = (double)m->plddt[i], y = slow_lddt(m, i);
        int k = x >= 100 ? 9 : (int)(x / 10);
        s->n++, s->x += x, s->y += y;
        s->xx += x * x, s->yy += y * y, s->xy += x * y;
        s->class_n[k]++, s->class_x[k] += x, s->class_y[k] += y;
    }
}

static void make_table(fm_eval_table *table, slow *s) {
    static model m;
    assert_int_equal(fm_eval_table_make(table, N_CHAIN, NULL), FM_OK);
    table->n_term = 1;
    table->term[0] = "distogram";
    for (uint32_t c = 0; c < N_CHAIN; c++) {
        fm_eval_chain *row = &table->chain[c];
        *row = (fm_eval_chain){.index = c, .n_res = 40 + 13 * c, .n_seq = c, .resolution = 2.25};
        snprintf(row->name, sizeof row->name, c == 5 ? "odd,\"name\"" : "chain_%u", c);
        row->loss = c;
        row->term[0] = 0.5 * c;
        if (c % 10 == 9) {
            fm_eval_refuse_chain(row, FM_ERR_LIMIT, "too long");
            continue;
        }
        const fm_structure_pair pair = make_model(&m, 0.08 * c, 100 * c);
        assert_int_equal(fm_eval_score_chain(&pair, m.plddt, &arena, row, NULL), FM_OK);
        add_slow(s, &m);
    }
}

static void means_and_calibration_are_those_of_the_formulas(void **state) {
    (void)state;
    fm_eval_table table;
    fm_eval_summary sum;
    slow s = {.n = 0};
    make_table(&table, &s);
    assert_int_equal(fm_eval_summarise(&table, &sum, NULL), FM_OK);
    assert_int_equal(sum.n_chain, 36);
    assert_int_equal(sum.n_failed, 4);
    double lddt = 0, loss = 0, error = 0;
    for (uint32_t c = 0; c < N_CHAIN; c++) {
        if (table.chain[c].status) continue;
        lddt += table.chain[c].scores.lddt_ca / 36;
        loss += c / 36.0;
    }
    assert_float_equal(fm_eval_value(&sum, "lddt_ca"), lddt, 1e-12);
    assert_float_equal(fm_eval_value(&sum, "loss"), loss, 1e-12);
    assert_float_equal(fm_eval_value(&sum, "distogram"), loss / 2, 1e-12);
    for (int k = 0; k < 10; k++) {
        assert_int_equal(sum.confidence.n[k], (uint64_t)s.class_n[k]);
        error += fabs(s.class_x[k] - s.class_y[k]) / s.n;
    }
    double r = (s.n * s.xy - s.x * s.y) / sqrt((s.n * s.xx - s.x * s.x) * (s.n * s.yy - s.y * s.y));
    assert_float_equal(fm_eval_value(&sum, "plddt_error"), error, 1e-9);
    assert_float_equal(fm_eval_value(&sum, "plddt_correlation"), r, 1e-9);
    assert_true(r > 0.5); /* the planted confidence follows the planted errors */
    assert_true(isnan(fm_eval_value(&sum, "beauty")));
    fm_eval_table_release(&table);
}

static void a_chain_without_atoms_fails(void **state) {
    (void)state;
    static model m;
    fm_eval_table table;
    fm_eval_summary sum;
    fm_structure_pair pair = make_model(&m, 1, 1);
    memset(m.mask, 0, sizeof m.mask);
    assert_int_equal(fm_eval_table_make(&table, 1, NULL), FM_OK);
    assert_int_equal(fm_eval_score_chain(&pair, NULL, &arena, &table.chain[0], NULL), FM_OK);
    assert_int_equal(table.chain[0].status, FM_ERR_DATA);
    assert_non_null(strstr(table.chain[0].why, "known CA atoms"));
    assert_int_equal(fm_eval_summarise(&table, &sum, NULL), FM_OK);
    assert_true(sum.n_chain == 0 && isnan(fm_eval_value(&sum, "lddt_ca")));
    fm_eval_table_release(&table);
}

/* What is written is read back unchanged, and Python's readers understand it. */
static void files_are_read_back(void **state) {
    (void)state;
    char folder[256], path[320];
    fm_eval_table table;
    fm_eval_summary sum, back;
    slow s = {.n = 0};
    fm_error error;
    fm_test_make_folder(folder, sizeof folder);
    make_table(&table, &s);
    assert_int_equal(fm_eval_summarise(&table, &sum, NULL), FM_OK);
    fm_eval_about about = {.checkpoint = "c",
                           .set = "ema",
                           .snapshot = "s",
                           .snapshot_hash = "h",
                           .device = "cpu",
                           .dtype = "fp32",
                           .step = 7,
                           .max_cycle = 4};
    assert_int_equal(fm_eval_write_csv(folder, &table, NULL), FM_OK);
    assert_int_equal(fm_eval_draw(folder, &table, &sum, NULL), FM_OK);
    assert_int_equal(fm_eval_write_summary(folder, &table, &sum, &about, NULL), FM_OK);
    snprintf(path, sizeof path, "%s/summary.json", folder);
    assert_int_equal(fm_eval_read_summary(path, &arena, &back, NULL), FM_OK);
    assert_int_equal(back.n_chain, 36);
    for (uint32_t i = 0; i < sum.n_value; i++)
        assert_true(fm_eval_value(&back, sum.value[i].name) == sum.value[i].value);
    assert_int_equal(
        fm_test_shell(
            folder,
            "python3 -c 'import csv; r = list(csv.DictReader(open(\"chains.csv\"))); "
            "exit(len(r) != 40 or r[5][\"chain\"] != \"odd,\\\"name\\\"\" or r[9][\"failed\"] "
            "!= \"too long\" or r[9][\"lddt_ca\"] or float(r[3][\"resolution\"]) != 2.25)'"),
        0);
    assert_int_equal(fm_test_shell(folder, "python3 -c 'import xml.etree.ElementTree as e; "
                                           "exit(len(list(e.parse(\"length.svg\").iter(\"{http:"
                                           "//www.w3.org/2000/svg}circle\"))) != 36)'"),
                     0);
    assert_int_equal(fm_eval_read_summary(folder, &arena, &back, &error), FM_ERR_IO);
    fm_eval_table_release(&table);
    fm_test_remove_tree(folder);
}

static int set_up(void **state) {
    (void)state;
    return fm_arena_init(&arena, (size_t)1 << 28, NULL) ? 1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_arena_fini(&arena);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_and_calibration_are_those_of_the_formulas),
        cmocka_unit_test(a_chain_without_atoms_fails),
        cmocka_unit_test(files_are_read_back),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
