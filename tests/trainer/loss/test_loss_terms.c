/* test_loss_terms.c: tests the table of the loss terms. Every row can be recorded, is a key of the
 * configuration with a weight in every preset, and counts for the samples that it is defined for.
 */
#include "trainer/app/settings/train_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Turns are the numbers from 0 on, each once. */
static void rows_have_a_turn_each(void **state) {
    (void)state;
    bool taken[FM_LOSS_TERMS] = {false};
    for (int i = 0; i < FM_LOSS_TERMS; i++) {
        assert_in_range(fm_loss_terms[i].turn, 0, FM_LOSS_TERMS - 1);
        assert_false(taken[fm_loss_terms[i].turn]);
        taken[fm_loss_terms[i].turn] = true;
        assert_non_null(fm_loss_terms[i].record);
    }
}

/* The key of row i sets weight i. */
static void names_are_keys_of_the_configuration(void **state) {
    (void)state;
    for (int i = 0; i < FM_LOSS_TERMS; i++) {
        char text[128];
        fm_train_config config, before;
        int n = snprintf(text, sizeof text, "[loss]\n%s = %d\n", fm_loss_terms[i].name, 100 + i);
        assert_int_equal(fm_train_config_preset("tiny", &before, NULL), FM_OK);
        config = before;
        fm_bytes bytes = {(const uint8_t *)text, (size_t)n};
        assert_int_equal(fm_train_config_parse(bytes, &config, NULL), FM_OK);
        for (int k = 0; k < FM_LOSS_TERMS; k++)
            assert_true(config.loss[k] == (k == i ? 100 + i : before.loss[k]));
    }
}

/* Confidence heads learn from structures of 0.1 to 3 Å alone. A term that is not recorded takes no
 * factor. */
static void factors_follow_the_resolution(void **state) {
    (void)state;
    static const struct {
        float resolution;
        bool known;
    } cases[] = {{0, false}, {0.05f, false}, {0.1f, true}, {3, true}, {3.01f, false}};
    fm_tensor_ref terms[FM_LOSS_TERMS];
    double weights[FM_LOSS_TERMS], factors[FM_LOSS_TERMS];
    for (int i = 0; i < FM_LOSS_TERMS; i++) {
        terms[i] = i == FM_TERM_TORSION ? FM_TENSOR_NONE : i;
        weights[i] = i + 1;
    }
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        int n = 0;
        fm_loss_put_factors(terms, weights, 2, cases[c].resolution, factors);
        for (int i = 0; i < FM_LOSS_TERMS; i++) {
            bool gated = i == FM_TERM_PLDDT || i == FM_TERM_RESOLVED || i == FM_TERM_ALIGNED_ERROR;
            if (i != FM_TERM_TORSION) {
                assert_true(factors[n++] == (gated && !cases[c].known ? 0 : 2 * weights[i]));
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_a_turn_each),
        cmocka_unit_test(names_are_keys_of_the_configuration),
        cmocka_unit_test(factors_follow_the_resolution),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
