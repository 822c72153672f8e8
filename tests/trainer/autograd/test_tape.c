/* test_tape.c: tests the tape: its plan, the lives of buffers, versions, segments and shared
 * parameters. */
#include "tests/trainer/common/op_check.h"

#include "trainer/ops/store.h"
#include "trainer/ops/transition.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS = 6, C = 8, HIDDEN = 24, DEPTH = 4 };

typedef struct chain {
    fm_transition_weights weights[DEPTH];
    bool recompute, share, late_reader, in_place;
    int32_t stream;
} chain;

static fm_tensor_ref build_chain(fm_tape *tape, const fm_tensor_ref *input, const void *context) {
    const chain *s = context;
    tape->in_place |= s->in_place;
    fm_tensor_ref x = input[0], first = x;
    for (int block = 0; block < DEPTH / 2; block++) {
        fm_tape_begin_segment(tape, s->recompute);
        for (int i = 2 * block; i < 2 * block + 2; i++) {
            const fm_transition_weights *weights = &s->weights[s->share ? 0 : i];
            x = fm_op_transition(tape, "link", x, weights, true, FM_KEEP);
            tape->node[tape->n_node - 1].stream = s->stream;
            first = i == 0 ? x : first;
        }
        fm_tape_end_segment(tape);
    }
    /* A second reader of an early value: its gradient cannot be passed in place. */
    return s->late_reader ? fm_op_transition(tape, "late",
                                             fm_op_transition(tape, "early", first, &s->weights[1],
                                                              false, FM_KEEP),
                                             &s->weights[0], true, FM_KEEP)
                          : x;
}

enum { ROOM_NODE = DEPTH / 2, ROOM_BYTES = 512 };

/* A chain with a room in its middle. */
static fm_tensor_ref build_with_room(fm_tape *tape, const fm_tensor_ref *input,
                                     const void *context) {
    const chain *s = context;
    fm_tensor_ref x = input[0];
    for (int i = 0; i < DEPTH; i++) {
        if (i == ROOM_NODE) assert_int_equal(fm_tape_add_room(tape, "room", ROOM_BYTES), i);
        x = fm_op_transition(tape, "link", x, &s->weights[i], true, FM_KEEP);
    }
    return x;
}

static void add_weights(op_bench *bench, chain *s) {
    for (int i = 0; i < DEPTH; i++) {
        s->weights[i].hidden = HIDDEN;
        s->weights[i].norm = op_block(bench, 2, C);
        s->weights[i].w1 = op_block(bench, HIDDEN, C);
        s->weights[i].b1 = op_block(bench, HIDDEN, 0);
        s->weights[i].w2 = op_block(bench, C, HIDDEN);
        s->weights[i].b2 = op_block(bench, C, 0);
    }
}

static void begin(op_bench *bench, chain *s, bool without_gradient, op_builder build) {
    op_begin(bench, FM_ELEMENT_F64);
    bench->without_gradient = without_gradient;
    op_input(bench, 2, (int64_t[]){ROWS, C}, true);
    add_weights(bench, s);
    op_finish(bench, build, s);
}

static void run(op_bench *bench) {
    fm_tape_forward(&bench->tape, NULL);
    if (!bench->without_gradient) fm_tape_backward(&bench->tape, NULL);
}

static void shared_parameters_and_late_readers_add_gradients(void **state) {
    (void)state;
    for (int variant = 0; variant < 8; variant++) {
        chain s = {.recompute = variant & 1, .share = variant & 2, .late_reader = variant & 4};
        op_bench bench;
        begin(&bench, &s, false, build_chain);
        op_check_gradients(&bench);
        op_end(&bench);
    }
}

static void recomputing_blocks_changes_no_bit_and_saves_memory(void **state) {
    (void)state;
    chain keep = {0}, drop = {.recompute = true};
    op_bench a, b;
    begin(&a, &keep, false, build_chain);
    begin(&b, &drop, false, build_chain);
    run(&a);
    run(&b);
    assert_memory_equal(a.params.gradient, b.params.gradient,
                        (size_t)a.params.n_element * sizeof(double));
    assert_memory_equal(fm_tape_gradient(&a.tape, a.input_tensor[0]),
                        fm_tape_gradient(&b.tape, b.input_tensor[0]), ROWS * C * sizeof(double));
    assert_int_equal(fm_tape_used_bytes(&b.tape), b.tape.size.arena_bytes);
    assert_true(b.tape.size.saved_bytes < a.tape.size.saved_bytes);
    op_end(&a);
    op_end(&b);
}

/* A chain in which every link normalises its result for the next one. Bit i of `segments` says
 * whether segment i runs again. */
typedef struct normed_chain {
    chain links;
    unsigned segments;
    bool drops; /* what is normalised, whoever reads it */
} normed_chain;

static fm_tensor_ref build_normed_chain(fm_tape *tape, const fm_tensor_ref *input,
                                        const void *context) {
    const normed_chain *s = context;
    fm_normed x = fm_not_normed(input[0]);
    for (int i = 0; i < DEPTH; i++) {
        fm_transition_weights weights = s->links.weights[i];
        if (i > 0) weights.norm = FM_PARAM_NONE;
        if (i % 2 == 0) fm_tape_begin_segment(tape, s->segments >> i / 2 & 1);
        x = fm_op_transition_update(tape, "link", x, &weights, FM_KEEP,
                                    i + 1 < DEPTH ? s->links.weights[i + 1].norm : FM_PARAM_NONE,
                                    FM_PARAM_NONE);
        if (s->drops) fm_tape_drop_derived(tape);
        if (i % 2 == 1) fm_tape_end_segment(tape);
    }
    return x.x;
}

static void begin_normed(op_bench *bench, normed_chain *s) {
    op_begin(bench, FM_ELEMENT_F64);
    op_input(bench, 2, (int64_t[]){ROWS, C}, true);
    add_weights(bench, &s->links);
    op_finish(bench, build_normed_chain, s);
}

static int derive_steps(const fm_tape *tape) {
    int n = 0;
    for (int32_t at = 0; at < tape->n_step; at++)
        n += tape->step[at].phase == FM_PHASE_DERIVE;
    return n;
}

/* Between segments, what is normalised is derived if the second one runs again. Within a segment
 * that runs again, a link makes it together with the sum. */
static int expected_derive_steps(const normed_chain *s) {
    bool first = s->segments & 1, second = s->segments >> 1;
    return s->drops ? 1 + !first + !second : second;
}

static void rows_normalised_again_change_no_bit(void **state) {
    (void)state;
    normed_chain keep = {.segments = 0};
    op_bench a;
    begin_normed(&a, &keep);
    op_check_gradients(&a);
    run(&a);
    for (unsigned variant = 1; variant < 8; variant++) {
        normed_chain drop = {.segments = variant & 3, .drops = variant >> 2};
        op_bench b;
        begin_normed(&b, &drop);
        b.tape.spoils = true;
        run(&b);
        assert_memory_equal(a.params.gradient, b.params.gradient,
                            (size_t)a.params.n_element * sizeof(double));
        assert_memory_equal(fm_tape_gradient(&a.tape, a.input_tensor[0]),
                            fm_tape_gradient(&b.tape, b.input_tensor[0]),
                            ROWS * C * sizeof(double));
        assert_int_equal(derive_steps(&b.tape), expected_derive_steps(&drop));
        assert_int_equal(fm_tape_used_bytes(&b.tape), b.tape.size.arena_bytes);
        assert_true(b.tape.size.saved_bytes < a.tape.size.saved_bytes);
        op_end(&b);
    }
    op_end(&a);
}

static void used_bytes_equal_planned_bytes(void **state) {
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        chain s = {.recompute = variant & 1};
        op_bench bench;
        begin(&bench, &s, variant & 2, build_chain);
        assert_true(bench.tape.size.arena_bytes > 0);
        assert_true(fm_tape_used_bytes(&bench.tape) < bench.tape.size.arena_bytes);
        run(&bench);
        assert_int_equal(fm_tape_used_bytes(&bench.tape), bench.tape.size.arena_bytes);
        op_end(&bench);
    }
}

/* Only the first link computes its hidden layer again, so the last step of backward needs the most
 * transient memory. */
static fm_tensor_ref build_late_peak(fm_tape *tape, const fm_tensor_ref *input,
                                     const void *context) {
    const chain *s = context;
    fm_tensor_ref x = input[0];
    for (int i = 0; i < DEPTH; i++)
        x = fm_op_transition(tape, "link", x, &s->weights[i], true, i ? FM_KEEP : FM_RECOMPUTE);
    return x;
}

/* The most bytes that are alive at one step. */
static int64_t most_alive(const fm_tape *tape) {
    int64_t most = 0;
    for (int32_t at = 0; at < tape->n_step; at++) {
        int64_t alive = fm_plan_round(tape->step[at].workspace_bytes);
        if (at >= tape->n_forward) alive += fm_plan_round(tape->sums_bytes);
        for (int32_t b = 0; b < tape->n_buffer; b++) {
            const fm_buffer *buffer = &tape->buffer[b];
            for (int life = 0; life < 2 && buffer->state_offset < 0; life++) {
                int32_t first = buffer->life[life].first;
                bool lives = first >= 0 && first <= at && at <= buffer->life[life].last;
                if (lives) alive += fm_plan_round(buffer->bytes);
            }
        }
        most = alive > most ? alive : most;
    }
    return most;
}

/* The output is written last and read after backward. It keeps no memory of saved tensors that
 * backward has released from the steps that follow. */
static void a_kept_value_holds_no_released_memory(void **state) {
    (void)state;
    chain s = {0};
    op_bench bench;
    begin(&bench, &s, false, build_late_peak);
    assert_int_equal(bench.tape.size.arena_bytes, most_alive(&bench.tape));
    run(&bench);
    assert_int_equal(fm_tape_used_bytes(&bench.tape), bench.tape.size.arena_bytes);
    op_end(&bench);
}

/* The upper half of the chain. */
static fm_tensor_ref build_upper(fm_tape *tape, const fm_tensor_ref *input, const void *context) {
    const chain *s = context;
    fm_tensor_ref x = input[0];
    for (int i = DEPTH / 2; i < DEPTH; i++)
        x = fm_op_transition(tape, "link", x, &s->weights[i], true, FM_KEEP);
    return x;
}

static fm_tensor_ref build_wanting(fm_tape *tape, const fm_tensor_ref *input, const void *context) {
    fm_tensor_ref out = build_chain(tape, input, context);
    fm_tape_want_gradient(tape, tape->node[DEPTH / 2 - 1].output[0]);
    fm_tape_keep(tape, tape->node[DEPTH / 2 - 1].output[0]);
    return out;
}

/* A gradient that the caller reads in the middle of a residual stream keeps its value and changes
 * no other gradient. */
static void a_wanted_gradient_is_not_handed_down(void **state) {
    (void)state;
    for (int recompute = 0; recompute < 2; recompute++) {
        chain plain = {.recompute = recompute}, s = plain, t = plain;
        op_bench whole, wanting, upper;
        begin(&whole, &plain, false, build_chain);
        begin(&wanting, &s, false, build_wanting);
        begin(&upper, &t, false, build_upper);
        run(&whole);
        run(&wanting);
        assert_memory_equal(whole.params.gradient, wanting.params.gradient,
                            (size_t)whole.params.n_element * sizeof(double));
        fm_tensor_ref middle = wanting.tape.node[DEPTH / 2 - 1].output[0];
        memcpy(op_input_data(&upper, 0), fm_tape_data(&wanting.tape, middle),
               ROWS * C * sizeof(double));
        run(&upper);
        assert_memory_equal(fm_tape_gradient(&upper.tape, upper.input_tensor[0]),
                            fm_tape_gradient(&wanting.tape, middle), ROWS * C * sizeof(double));
        op_end(&whole);
        op_end(&wanting);
        op_end(&upper);
    }
}

/* The first of several tensors is named: an output; if all are finite, a gradient; then a gap. */
static void the_first_nonfinite_tensor_is_named(void **state) {
    (void)state;
    chain s = {0};
    op_bench bench;
    char what[256];
    uint32_t flag;
    begin(&bench, &s, false, build_chain);
    assert_false(fm_tape_name_nonfinite(&bench.tape, NULL, &flag, what, sizeof what));
    const fm_param_block *bias = &bench.params.block[s.weights[2].b2]; /* a gap follows it */
    double *gap = (double *)bench.params.gradient + bias->offset + bias->count;
    *gap = NAN;
    assert_true(fm_tape_name_nonfinite(&bench.tape, NULL, &flag, what, sizeof what));
    assert_non_null(strstr(what, "of the gradient's buffer, a gap between parameters,"));
    *gap = 0;
    double *seed = fm_state_data(&bench.state, bench.output_gradient), old = seed[ROWS * C - 1];
    seed[ROWS * C - 1] = INFINITY;
    assert_true(fm_tape_name_nonfinite(&bench.tape, NULL, &flag, what, sizeof what));
    assert_string_equal(what, "the gradient of input 0 in link (op transition, node 3)");
    seed[ROWS * C - 1] = old;
    double *w = bench.params.master, *w2 = w + bench.params.block[s.weights[1].w2].offset;
    w2[HIDDEN] = NAN; /* of channel 1 */
    w[bench.params.block[s.weights[3].b2].offset] = NAN;
    assert_true(fm_tape_name_nonfinite(&bench.tape, NULL, &flag, what, sizeof what));
    assert_string_equal(what, "element 1 of output 0 [6, 8] of link (op transition, node 1)");
    op_end(&bench);
}

static void a_tape_without_gradient_updates_in_place(void **state) {
    (void)state;
    chain s = {0}, t = {0};
    op_bench with, without;
    begin(&with, &s, false, build_chain);
    begin(&without, &t, true, build_chain);
    run(&with);
    run(&without);
    assert_memory_equal(fm_tape_data(&with.tape, with.output_tensor),
                        fm_tape_data(&without.tape, without.output_tensor),
                        ROWS * C * sizeof(double));
    /* The first link reads the state's tensor; the other three overwrite one buffer. */
    assert_int_equal(fm_tape_tensor(&without.tape, without.output_tensor)->version, DEPTH - 1);
    assert_int_equal(without.tape.size.saved_bytes, 0);
    op_end(&with);
    op_end(&without);
}

static void other_streams_keep_their_places(void **state) {
    (void)state;
    chain s = {0}, t = {.stream = 1};
    op_bench a, b;
    begin(&a, &s, false, build_chain);
    begin(&b, &t, false, build_chain);
    run(&a);
    run(&b);
    assert_true(b.tape.size.arena_bytes > a.tape.size.arena_bytes);
    assert_memory_equal(a.params.gradient, b.params.gradient,
                        (size_t)a.params.n_element * sizeof(double));
    op_end(&a);
    op_end(&b);
}

enum { PARTS = 2, STEPS = 3, WIDTH = 4 };

/* A state of [PARTS, STEPS, WIDTH] numbers in a room, 0, 1, 2, ..., and WIDTH results. */
typedef struct stepped {
    fm_state state;
    int32_t from, to;
    double room[PARTS * STEPS * WIDTH];
} stepped;

static void declare_steps(stepped *s, const fm_kernels *kernels) {
    const int64_t shape[] = {PARTS, STEPS, WIDTH}, width = WIDTH;
    *s = (stepped){.from = -1};
    s->to = fm_state_add(&s->state, "result", FM_ELEMENT_F64, 1, &width);
    s->from = fm_state_add_to_room(&s->state, "steps", FM_ELEMENT_F64, 3, shape);
    assert_int_equal(s->state.room_bytes, fm_plan_round((int64_t)sizeof s->room));
    assert_int_equal(fm_state_allocate(&s->state, kernels, NULL), FM_OK);
    s->state.room = s->room;
    for (int i = 0; i < PARTS * STEPS * WIDTH; i++)
        s->room[i] = i;
}

/* A tape reads the row that it is told, of the part that was recorded. */
static void rows_of_the_state_follow_the_tape(void **state) {
    (void)state;
    stepped s;
    fm_arena arena = {0};
    fm_params params;
    fm_tape tape;
    const fm_kernels *kernels = fm_kernels_cpu(FM_ELEMENT_F64);
    declare_steps(&s, kernels);
    assert_int_equal(fm_arena_init(&arena, 1 << 16, NULL), FM_OK);
    assert_int_equal(fm_params_init(&params, 1, &arena, NULL), FM_OK);
    assert_int_equal(fm_tape_init(&tape, kernels, &params, &s.state, false, NULL), FM_OK);
    fm_tensor_ref row = fm_tape_state_row(&tape, fm_tape_state_part(&tape, s.from, 1));
    fm_op_store(&tape, "row", row, fm_tape_state(&tape, s.to, false));
    assert_int_equal(fm_tape_plan(&tape, NULL), FM_OK);
    for (tape.row = 0; tape.row < STEPS; tape.row++) {
        fm_tape_forward(&tape, NULL);
        assert_memory_equal(fm_state_data(&s.state, s.to), &s.room[(STEPS + tape.row) * WIDTH],
                            WIDTH * sizeof(double));
    }
    fm_tape_fini(&tape);
    fm_state_release(&s.state);
    fm_arena_fini(&arena);
}

/* What is written to a room changes nothing. */
static void a_room_holds_nothing_that_lives(void **state) {
    (void)state;
    chain s = {.recompute = false};
    op_bench a, b;
    begin(&a, &s, false, build_with_room);
    begin(&b, &s, false, build_with_room);
    run(&a);
    fm_tape_forward_nodes(&b.tape, 0, ROOM_NODE, NULL);
    memset(fm_tape_room(&b.tape, ROOM_NODE), 0xff, ROOM_BYTES);
    fm_tape_forward_nodes(&b.tape, ROOM_NODE, b.tape.n_forward, NULL);
    fm_tape_backward(&b.tape, NULL);
    assert_memory_equal(fm_tape_gradient(&a.tape, a.input_tensor[0]),
                        fm_tape_gradient(&b.tape, b.input_tensor[0]), ROWS * C * sizeof(double));
    assert_int_equal(fm_tape_used_bytes(&b.tape), b.tape.size.arena_bytes);
    op_end(&a);
    op_end(&b);
}

/* Records residual updates in place although backward reads the overwritten values. */
static void using_a_destroyed_input_asserts(void **state) {
    (void)state;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        assert_non_null(freopen("/dev/null", "w", stderr));
        signal(SIGABRT, SIG_DFL);
        chain s = {.in_place = true};
        op_bench bench;
        begin(&bench, &s, false, build_chain);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

static void places_never_overlap_while_alive(void **state) {
    (void)state;
    enum { N = 300 };
    static fm_plan_request request[N];
    for (int i = 0; i < N; i++) {
        int32_t first = (int32_t)(50 * (op_uniform(1, i) + 1));
        request[i] = (fm_plan_request){.bytes = 1 + (int64_t)(3000 * (op_uniform(2, i) + 1)),
                                       .first = first,
                                       .last = first + (int32_t)(10 * (op_uniform(3, i) + 1)),
                                       .high = op_uniform(4, i) > 0};
    }
    fm_arena arena;
    assert_int_equal(fm_arena_init(&arena, (size_t)1 << 20, NULL), FM_OK);
    fm_plan_size size;
    assert_int_equal(fm_plan_place(request, N, &arena, &size, NULL), FM_OK);
    for (int i = 0; i < N; i++) {
        int64_t at = fm_plan_offset(&request[i], size.arena_bytes);
        assert_true(at >= 0 && at + request[i].bytes <= size.arena_bytes);
        for (int j = 0; j < i; j++) {
            int64_t other = fm_plan_offset(&request[j], size.arena_bytes);
            bool together =
                request[i].first <= request[j].last && request[j].first <= request[i].last;
            bool apart = at + request[i].bytes <= other || other + request[j].bytes <= at;
            assert_true(!together || apart);
        }
    }
    fm_arena_fini(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_parameters_and_late_readers_add_gradients),
        cmocka_unit_test(recomputing_blocks_changes_no_bit_and_saves_memory),
        cmocka_unit_test(rows_normalised_again_change_no_bit),
        cmocka_unit_test(used_bytes_equal_planned_bytes),
        cmocka_unit_test(a_kept_value_holds_no_released_memory),
        cmocka_unit_test(a_wanted_gradient_is_not_handed_down),
        cmocka_unit_test(the_first_nonfinite_tensor_is_named),
        cmocka_unit_test(a_tape_without_gradient_updates_in_place),
        cmocka_unit_test(other_streams_keep_their_places),
        cmocka_unit_test(rows_of_the_state_follow_the_tape),
        cmocka_unit_test(a_room_holds_nothing_that_lives),
        cmocka_unit_test(using_a_destroyed_input_asserts),
        cmocka_unit_test(places_never_overlap_while_alive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
