/* test_ranks.c: what ranks show each other before the first step. Every rank is a process that
 * meets the others and is joined with them through shared memory, as one of `foldmill train` is.
 * tests/e2e/test_ranks.c has the command's cases: its seed, options, files and exit codes. */
#include "tests/trainer/common/step_sample.h"
#include "tests/testing/testing.h"

#include "proto/base/histogram.h"
#include "trainer/app/ranks/ranks.h"
#include "trainer/dist/board.h"
#include "trainer/step/schedule.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 16, NOBODY = -1, EXIT_LOST = 9 };

/* What the ranks of a run are, and which one is not like the others. */
typedef struct scene {
    fm_layout layout;
    int32_t odd; /* or NOBODY */
    /* Makes what a rank shows. An error is what its preparations came to. */
    fm_status (*prepare)(const struct scene *s, const fm_groups *groups, fm_papers *papers,
                         fm_error *reterr);
    fm_paper paper;                /* in which the odd rank differs */
    fm_status failure;             /* of the odd rank's preparations */
    fm_block_order order;          /* of ranks that have trainers */
    fm_recompute_policy recompute; /* of the odd rank's trainer; the others keep all */
    bool has_other_bit;            /* of the average */
    double patience_s;             /* of all ranks; 0: as by default */
} scene;

/* How a rank ended. */
typedef struct ending {
    fm_status status; /* of comparing */
    bool is_met, is_over;
    char message[FM_ERROR_MESSAGE_BYTES];
} ending;

static ending *endings; /* [MOST], shared by all processes */
static pid_t process[MOST];
static int exit_state[MOST];
static char folder[256], said_path[300], host[64];

static int set_up(void **state) {
    (void)state;
    endings = mmap(NULL, MOST * sizeof *endings, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                   -1, 0);
    if (endings == MAP_FAILED || gethostname(host, sizeof host - 1) < 0) return 1;
    fm_test_make_folder(folder, sizeof folder);
    snprintf(said_path, sizeof said_path, "%s/said", folder);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return munmap(endings, MOST * sizeof *endings);
}

/* -- the ranks */

/* Meets, prepares, compares and leaves as trainer/app/train/train.c does. Returns the exit status.
 * */
static int run_rank(const scene *s, int32_t rank) {
    ending *own = &endings[rank];
    fm_world world = {.rank = rank,
                      .size = fm_layout_ranks(&s->layout),
                      .local_rank = rank,
                      .patience_s = s->patience_s};
    snprintf(world.meeting, sizeof world.meeting, "unix:%s/meeting", folder);
    fm_ranks *ranks;
    const fm_groups *groups;
    fm_papers papers = {{0}};
    fm_error error = {.status = FM_OK};
    if (fm_ranks_open("ranks", &world, &s->layout, &ranks, &error)) return 1;
    fm_status status = fm_ranks_join(ranks, "cpu", fm_kernels_cpu(FM_ELEMENT_F32), &groups, &error);
    if (!status) status = s->prepare(s, groups, &papers, &error);
    own->status = fm_ranks_compare(ranks, &papers, status, &own->is_met, &error);
    snprintf(own->message, sizeof own->message, "%s", own->status ? error.message : "");
    if (own->is_met) {
        fm_ranks_leave(ranks);
    } else {
        fm_ranks_fail(ranks, &error);
    }
    own->is_over = fm_ranks_is_over(ranks);
    fm_ranks_close(ranks);
    return own->is_met ? 0 : EXIT_LOST;
}

/* Runs every rank as a process until all have ended. They print into the file of said_path. */
static void run_ranks(const scene *s) {
    const int32_t n = fm_layout_ranks(&s->layout);
    memset(endings, 0, MOST * sizeof *endings);
    for (int32_t r = 0; r < n; r++) {
        process[r] = fork();
        assert_true(process[r] >= 0);
        if (process[r] > 0) continue;
        fm_test_die_with_parent();
        int fd = open(said_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        _exit(fd < 0 || dup2(fd, STDERR_FILENO) < 0 ? 1 : run_rank(s, r));
    }
    for (int32_t r = 0; r < n; r++)
        assert_int_equal(waitpid(process[r], &exit_state[r], 0), process[r]);
    assert_true(wait(NULL) < 0 && errno == ECHILD);
}

/* Takes what the ranks have printed. */
static void take_said(char *out, size_t bytes) {
    FILE *file = fopen(said_path, "rb");
    assert_non_null(file);
    out[fread(out, 1, bytes - 1, file)] = '\0';
    fclose(file);
    assert_int_equal(unlink(said_path), 0);
}

/* All ranks have ended in order with this result. None has printed it: the first rank's command
 * does that. */
static void expect_all(const scene *s, fm_status status, const char *message) {
    char said[FM_ERROR_MESSAGE_BYTES];
    take_said(said, sizeof said);
    assert_string_equal(said, "");
    for (int32_t r = 0; r < fm_layout_ranks(&s->layout); r++) {
        assert_int_equal(exit_state[r], 0);
        assert_string_equal(endings[r].message, message);
        assert_int_equal(endings[r].status, status);
        assert_true(endings[r].is_met && !endings[r].is_over);
    }
}

/* All ranks have learnt who differs from whom, where and in what. */
static void expect_difference(const scene *s, int32_t rank, const char *name, int32_t with) {
    char expected[FM_ERROR_MESSAGE_BYTES];
    snprintf(expected, sizeof expected,
             "rank %d (process %d on %s) has another %s than rank %d (process %d on %s)", (int)rank,
             (int)process[rank], host, name, (int)with, (int)process[with], host);
    expect_all(s, FM_ERR_USAGE, expected);
}

/* -- what ranks say they have */

/* Ranks of two branches have two schedules; all else is the same. */
static fm_status say_papers(const scene *s, const fm_groups *groups, fm_papers *papers,
                            fm_error *reterr) {
    (void)reterr;
    for (fm_paper p = 0; p < FM_PAPERS; p++)
        papers->paper[p] = 100 + p;
    papers->paper[FM_PAPER_SCHEDULE] += (uint64_t)groups->place.bp;
    if (groups->place.rank == s->odd) papers->paper[s->paper] += 1000;
    return FM_OK;
}

static void like_ranks_go_on(void **state) {
    (void)state;
    static const fm_layout layouts[] = {{1, 1, 2}, {8, 1, 1}, {3, 2, 2}, {4, 2, 2}, {16, 1, 1}};
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        const scene s = {.layout = layouts[i], .odd = NOBODY, .prepare = say_papers};
        run_ranks(&s);
        expect_all(&s, FM_OK, "");
    }
}

static void every_difference_is_named(void **state) {
    (void)state;
    static const struct {
        fm_layout layout;
        int32_t odd;
        fm_paper paper;
        const char *name;
        int32_t named, with;
    } cases[] = {
        {{1, 1, 2}, 1, FM_PAPER_PROGRAM, "program file", 1, 0},
        {{1, 1, 3}, 2, FM_PAPER_CONFIGURATION, "configuration", 2, 0},
        {{2, 1, 1}, 1, FM_PAPER_SEED, "seed (--seed)", 1, 0},
        {{2, 1, 2}, 3, FM_PAPER_OPTIONS, "command line", 3, 0},
        {{1, 2, 1}, 1, FM_PAPER_DEVICE, "device or processor", 1, 0},
        {{1, 2, 2}, 3, FM_PAPER_CHECKPOINT, "checkpoint", 3, 0},
        {{4, 1, 1}, 2, FM_PAPER_DATA, "snapshot", 2, 0},
        {{2, 2, 2}, 7, FM_PAPER_BRANCHES, "exchanges of branches", 7, 0},
        {{2, 1, 1}, 1, FM_PAPER_SCHEDULE, "schedule of exchanges", 1, 0},
        {{2, 2, 1}, 3, FM_PAPER_SCHEDULE, "schedule of exchanges", 3, 2},
        {{2, 2, 2}, 5, FM_PAPER_SCHEDULE, "schedule of exchanges", 5, 0},
        {{2, 2, 2}, 6, FM_PAPER_SCHEDULE, "schedule of exchanges", 6, 2},
        {{8, 1, 1}, 7, FM_PAPER_SCHEDULE, "schedule of exchanges", 7, 0},
        {{4, 2, 2}, 15, FM_PAPER_SCHEDULE, "schedule of exchanges", 15, 4},
        {{16, 1, 1}, 15, FM_PAPER_SCHEDULE, "schedule of exchanges", 15, 0},
        /* Where the others are compared with the odd rank, the first of them is named. */
        {{1, 1, 3}, 0, FM_PAPER_SEED, "seed (--seed)", 1, 0},
        {{3, 2, 1}, 3, FM_PAPER_SCHEDULE, "schedule of exchanges", 4, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const scene s = {.layout = cases[i].layout,
                         .odd = cases[i].odd,
                         .prepare = say_papers,
                         .paper = cases[i].paper};
        run_ranks(&s);
        expect_difference(&s, cases[i].named, cases[i].name, cases[i].with);
    }
}

/* -- what ranks have */

/* Makes a small trainer and shows what it has. The odd rank recomputes as the scene says, and one
 * bit of its average may be changed. */
static fm_status show_trainer(const scene *s, const fm_groups *groups, fm_papers *papers,
                              fm_error *reterr) {
    const bool is_odd = groups->place.rank == s->odd;
    fm_trainer_options options = small_options();
    options.model.n_block = 1;
    options.model.order = s->order;
    options.model.recompute = is_odd ? s->recompute : FM_RECOMPUTE_NONE;
    options.groups = groups;
    fm_trainer *trainer;
    fm_status status = fm_trainer_create(&options, &trainer, reterr);
    if (status) return status;
    if (is_odd && s->has_other_bit) {
        ((uint8_t *)trainer->recording.params.ema)[4 * (trainer->recording.params.n_element - 1)] ^=
            1;
    }
    papers->paper[FM_PAPER_PROGRAM] = fm_paper_of_program();
    papers->paper[FM_PAPER_CHECKPOINT] = fm_paper_of_parameters(&trainer->recording.params);
    papers->paper[FM_PAPER_BRANCHES] = fm_schedule_digest(trainer, true);
    papers->paper[FM_PAPER_SCHEDULE] = fm_schedule_digest(trainer, false);
    fm_trainer_destroy(trainer);
    return FM_OK;
}

/* A rank that recomputes more than the others would wait for other exchanges. Branches exchange
 * once more for it in one order, and not in the other (docs/reference/parallelism.md). */
static void another_recorded_step_is_named(void **state) {
    (void)state;
    static const struct {
        scene scene;
        const char *name; /* NULL: nothing differs */
        int32_t with;
    } cases[] = {
        {{.layout = {2, 2, 2}, .odd = NOBODY, .order = FM_ORDER_OUTER_FIRST}, NULL, 0},
        {{.layout = {2, 2, 2}, .odd = NOBODY, .order = FM_ORDER_PARALLEL}, NULL, 0},
        {{.layout = {4, 1, 2}, .odd = NOBODY, .order = FM_ORDER_ORIGINAL}, NULL, 0},
        {{.layout = {2, 1, 1}, .odd = 1, .recompute = FM_RECOMPUTE_BLOCK},
         "schedule of exchanges",
         0},
        {{.layout = {2, 1, 2}, .odd = 3, .recompute = FM_RECOMPUTE_BLOCK},
         "schedule of exchanges",
         0},
        {{.layout = {2, 2, 2},
          .odd = 7,
          .order = FM_ORDER_PARALLEL,
          .recompute = FM_RECOMPUTE_BLOCK},
         "schedule of exchanges",
         2},
        {{.layout = {2, 2, 2},
          .odd = 7,
          .order = FM_ORDER_OUTER_FIRST,
          .recompute = FM_RECOMPUTE_BLOCK},
         "exchanges of branches",
         0},
        {{.layout = {1, 2, 2}, .odd = 2, .order = FM_ORDER_PARALLEL, .has_other_bit = true},
         "checkpoint",
         0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scene s = cases[i].scene;
        s.prepare = show_trainer;
        run_ranks(&s);
        if (cases[i].name) {
            expect_difference(&s, s.odd, cases[i].name, cases[i].with);
        } else {
            expect_all(&s, FM_OK, "");
        }
    }
}

/* -- ranks that do not come so far */

static fm_status fail_to_prepare(const scene *s, const fm_groups *groups, fm_papers *papers,
                                 fm_error *reterr) {
    (void)papers;
    const int32_t rank = groups->place.rank;
    if (rank < s->odd) return FM_OK;
    return fm_fail(reterr, s->failure, "no file %d", (int)rank);
}

/* The first rank of those that fail counts for all, and says who it is unless all are meant. Papers
 * that a rank has not made are not compared. */
static void one_failure_is_that_of_all(void **state) {
    (void)state;
    static const struct {
        int32_t first;
        fm_status status;
        const char *message;
    } cases[] = {{2, FM_ERR_NOT_FOUND, "rank 2: no file 2"},
                 {0, FM_ERR_NOT_FOUND, "no file 0"},
                 {1, FM_ERR_CANCELLED, "no file 1"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const scene s = {.layout = {2, 1, 2},
                         .odd = cases[i].first,
                         .prepare = fail_to_prepare,
                         .failure = cases[i].status};
        run_ranks(&s);
        expect_all(&s, cases[i].status, cases[i].message);
    }
}

static fm_status die_alone(const scene *s, const fm_groups *groups, fm_papers *papers,
                           fm_error *reterr) {
    (void)papers, (void)reterr;
    if (groups->place.rank == s->odd) raise(SIGKILL);
    return FM_OK;
}

/* No rank waits for one that is gone, and one of them says which. */
static void a_rank_that_is_lost_is_named_once(void **state) {
    (void)state;
    const scene s = {.layout = {2, 2, 2}, .odd = 5, .prepare = die_alone};
    char said[2 * FM_ERROR_MESSAGE_BYTES], begin[200];
    run_ranks(&s);
    for (int32_t r = 0; r < fm_layout_ranks(&s.layout); r++) {
        if (r == s.odd) {
            assert_true(WIFSIGNALED(exit_state[r]) && WTERMSIG(exit_state[r]) == SIGKILL);
            continue;
        }
        assert_true(WIFEXITED(exit_state[r]) && WEXITSTATUS(exit_state[r]) == EXIT_LOST);
        assert_true(endings[r].is_over && !endings[r].is_met);
        assert_int_equal(endings[r].status, FM_ERR_CLOSED);
    }
    take_said(said, sizeof said);
    snprintf(begin, sizeof begin, "ranks: rank 5 (process %d on %s): ", (int)process[5], host);
    assert_int_equal(strncmp(said, begin, strlen(begin)), 0);
    assert_true(strchr(said, '\n') == said + strlen(said) - 1);
}

/* The odd rank says that it works, and sleeps. The others work as long. */
static fm_status hang_alone(const scene *s, const fm_groups *groups, fm_papers *papers,
                            fm_error *reterr) {
    (void)papers, (void)reterr;
    const uint64_t begin_ns = fm_clock_ns();
    volatile uint64_t n = 0;
    atomic_store(&groups->entry->works, 1);
    while ((double)(fm_clock_ns() - begin_ns) * 1e-9 < 1.5 * s->patience_s) {
        if (groups->place.rank == s->odd) usleep(100000);
        n = n + 1;
    }
    atomic_store(&groups->entry->works, 0);
    return FM_OK;
}

static void a_rank_that_hangs_is_named_once(void **state) {
    (void)state;
    const scene s = {.layout = {1, 1, 2}, .odd = 1, .prepare = hang_alone, .patience_s = 3};
    char said[2 * FM_ERROR_MESSAGE_BYTES], expected[300];
    run_ranks(&s);
    for (int32_t r = 0; r < fm_layout_ranks(&s.layout); r++) {
        assert_true(WIFEXITED(exit_state[r]) && WEXITSTATUS(exit_state[r]) == EXIT_LOST);
        assert_true(endings[r].is_over && !endings[r].is_met);
    }
    take_said(said, sizeof said);
    snprintf(expected, sizeof expected,
             "ranks: rank 1 (process %d on %s): before the first step: its main thread has hung "
             "for 3 s; the other ranks stop\n",
             (int)process[1], host);
    assert_string_equal(said, expected);
}

/* -- who is compared with whom */

/* It is the first rank of the run or, for the schedule of exchanges, of the same branch. */
static void ranks_are_compared_within_their_branch(void **state) {
    (void)state;
    for (int32_t dap = 1; dap <= FM_LAYOUT_DAP; dap++) {
        for (int32_t bp = 1; bp <= 2; bp++) {
            for (int32_t dp = 1; dp <= 5; dp++) {
                const fm_layout layout = {dap, bp, dp};
                int32_t first[2] = {NOBODY, NOBODY}; /* of each branch */
                for (int32_t r = 0; r < fm_layout_ranks(&layout); r++) {
                    int32_t *branch = &first[fm_layout_place(&layout, r).bp];
                    if (*branch == NOBODY) *branch = r;
                    for (fm_paper p = 0; p < FM_PAPERS; p++)
                        assert_int_equal(fm_ranks_compared_with(&layout, r, p),
                                         p == FM_PAPER_SCHEDULE ? *branch : 0);
                }
            }
        }
    }
}

static void some_layouts_are_compared_like_this(void **state) {
    (void)state;
    static const struct {
        fm_layout layout;
        int32_t with[2 * MOST]; /* of the schedule, by rank */
    } cases[] = {
        {{1, 1, 3}, {0, 0, 0}},
        {{1, 2, 1}, {0, 1}},
        {{1, 2, 3}, {0, 1, 0, 1, 0, 1}},
        {{2, 2, 1}, {0, 0, 2, 2}},
        {{2, 2, 2}, {0, 0, 2, 2, 0, 0, 2, 2}},
        {{3, 2, 2}, {0, 0, 0, 3, 3, 3, 0, 0, 0, 3, 3, 3}},
        {{8, 1, 2}, {0}},
        {{4, 2, 2}, {0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4}},
        {{8, 2, 1}, {0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8}},
        {{1, 2, 8}, {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}},
        {{16, 1, 2}, {0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int32_t r = 0; r < fm_layout_ranks(&cases[i].layout); r++)
            assert_int_equal(fm_ranks_compared_with(&cases[i].layout, r, FM_PAPER_SCHEDULE),
                             cases[i].with[r]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(like_ranks_go_on),
        cmocka_unit_test(every_difference_is_named),
        cmocka_unit_test(another_recorded_step_is_named),
        cmocka_unit_test(one_failure_is_that_of_all),
        cmocka_unit_test(a_rank_that_is_lost_is_named_once),
        cmocka_unit_test(a_rank_that_hangs_is_named_once),
        cmocka_unit_test(ranks_are_compared_within_their_branch),
        cmocka_unit_test(some_layouts_are_compared_like_this),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
