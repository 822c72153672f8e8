/* test_shm_step.c: whole steps on ranks that are processes have the bits of ranks that are threads,
 * whenever the data of an exchange moves between its begin and its finish. */
#include "tests/trainer/common/processes.h"
#include "tests/trainer/common/step_sample.h"
#include "tests/trainer/common/team.h"

#include "proto/base/hash.h"

enum { STEPS = 2 };

/* The result of a run of some steps. */
typedef struct outcome {
    double loss[STEPS], norm[STEPS];
    uint64_t parameters;
} outcome;

static sample s;

static fm_trainer_options step_options(const fm_layout *layout) {
    fm_trainer_options options = small_options();
    options.model.order = layout->bp > 1 ? FM_ORDER_OUTER_FIRST : FM_ORDER_ORIGINAL;
    options.model.recompute = layout->dap == 3 ? FM_RECOMPUTE_BLOCK : FM_RECOMPUTE_NONE;
    return options;
}

static uint64_t hash_of(const fm_trainer *trainer) {
    const fm_params *params = &trainer->recording.params;
    return fm_xxh3(params->master, (size_t)params->n_element * fm_element_bytes(params->element));
}

static outcome run_threads(const fm_layout *layout) {
    outcome found;
    fm_error error;
    const fm_trainer_options options = step_options(layout);
    rank_team *team = team_create(&options, layout);
    for (int i = 0; i < STEPS; i++) {
        fm_sample_result result;
        assert_int_equal(team_queue(team, &s.features, true, &error), FM_OK);
        assert_int_equal(team_collect(team, &result, &error), FM_OK);
        found.loss[i] = result.loss;
        found.norm[i] = result.gradient_norm;
    }
    found.parameters = hash_of(team_get_first(team));
    team_destroy(team);
    return found;
}

static int run_rank(const process_task *task) {
    process p;
    if (!open_process(&p, task)) return 1;
    outcome found = {.parameters = 0};
    fm_trainer_options options = step_options(&task->layout);
    options.groups = fm_shm_groups_get(p.groups);
    fm_trainer *trainer = NULL;
    fm_error error;
    fm_status status = fm_trainer_create(&options, &trainer, &error);
    for (int i = 0; i < STEPS && !status; i++) {
        fm_sample_result result;
        status = fm_trainer_queue(trainer, &s.features, true, &error);
        if (!status) status = fm_trainer_collect(trainer, &result, &error);
        if (status) break;
        found.loss[i] = result.loss;
        found.norm[i] = result.gradient_norm;
    }
    if (status) fprintf(stderr, "rank %d: %s\n", (int)task->rank, error.message);
    if (!status) found.parameters = hash_of(trainer);
    fm_trainer_destroy(trainer);
    close_process(&p);
    const outcome *expected = task->context;
    bool is_same = !status && found.parameters == expected->parameters;
    for (int i = 0; i < STEPS; i++)
        is_same &= found.loss[i] == expected->loss[i] && found.norm[i] == expected->norm[i];
    return is_same ? 0 : 2;
}

static void processes_have_the_bits_of_threads(void **state) {
    (void)state;
    static const fm_layout layouts[] = {{2, 1, 1}, {3, 1, 1}, {1, 2, 1},
                                        {2, 2, 1}, {8, 1, 1}, {4, 2, 1}};
    make_sample(&s);
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        const outcome expected = run_threads(&layouts[i]);
        for (size_t k = 0; k < N_PROCESS_OPTIONS; k++) {
            const process_task task = {.layout = layouts[i],
                                       .options = process_options[k],
                                       .element = FM_ELEMENT_F32,
                                       .context = &expected};
            assert_int_equal(run_processes(run_rank, task), 0);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(processes_have_the_bits_of_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
