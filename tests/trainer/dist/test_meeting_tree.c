/* test_meeting_tree.c: gathers along a tree of hosts, whose ranks are processes of this one: the
 * bytes of all in their order, and ranks that are killed or do not come. Also the tree's shape. */
#include "tests/testing/testing.h"

#include "trainer/dist/meeting.h"
#include "trainer/dist/tree.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 24, BYTES = 1000, EXIT_NAMED = 7 };
static const double generous_s = 60, short_s = 4; /* short: more than others are late */

/* Puts ranks on hosts by letters. */
static fm_topology make(const char *letters) {
    fm_host *hosts = calloc(strlen(letters), sizeof *hosts);
    fm_topology topology;
    assert_non_null(hosts);
    for (size_t r = 0; r < strlen(letters); r++)
        hosts[r] = (fm_host){.id = {letters[r]}, .name = {letters[r]}};
    assert_int_equal(fm_topology_make(hosts, (int32_t)strlen(letters), &topology, NULL), FM_OK);
    free(hosts);
    return topology;
}

/* -- the shape */

static void every_rank_has_its_place(void **state) {
    (void)state;
    /* 260 hosts of 8 ranks, which are neighbours or are dealt out to the hosts in turn. */
    fm_host *hosts = calloc(2080, sizeof *hosts);
    assert_non_null(hosts);
    for (int turn = 0; turn < 2; turn++) {
        for (int r = 0; r < 2080; r++)
            snprintf(hosts[r].id, sizeof hosts[r].id, "%d", turn ? r % 260 : r / 8);
        fm_topology topology;
        fm_tree tree;
        assert_int_equal(fm_topology_make(hosts, 2080, &topology, NULL), FM_OK);
        assert_int_equal(fm_tree_make(&topology, &tree, NULL), FM_OK);
        assert_int_equal(tree.height[0], 3);
        assert_int_equal(tree.size[0], 2080);
        for (int32_t r = 0; r < 2080; r++) {
            int32_t below = 1, n = 0;
            assert_int_equal(tree.order[tree.first[r]], r);
            for (int32_t c = fm_tree_child(&tree, r); c >= 0; c = fm_tree_next(&tree, c), n++) {
                assert_int_equal(tree.parent[c], r);
                assert_int_equal(tree.first[c], tree.first[r] + below);
                assert_true(tree.height[c] < tree.height[r]);
                below += tree.size[c];
            }
            assert_int_equal(below, tree.size[r]);
            assert_int_equal(n, fm_tree_children(&tree, r));
            assert_true(n <= FM_TREE_WIDTH + 7);
        }
        fm_tree_free(&tree);
        fm_topology_free(&topology);
    }
    free(hosts);
}

/* -- gathers */

/* What the ranks of a run do. */
typedef struct scene {
    const char *hosts;
    int32_t lost; /* the rank that has a mishap; -1: none */
    enum { IS_KILLED, SLEEPS } kind;
} scene;

static void fill(uint8_t *bytes, size_t n, int32_t rank, int round) {
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(31 * rank + 7 * (int)i + round);
}

static bool gather_is_right(fm_meeting *meeting, size_t n, int round) {
    static uint8_t mine[BYTES], all[MOST * BYTES], expected[BYTES];
    fm_error error;
    fill(mine, n, fm_meeting_rank(meeting), round);
    if (fm_meeting_gather(meeting, mine, n, all, generous_s, &error)) {
        fprintf(stderr, "rank %d: %s\n", (int)fm_meeting_rank(meeting), error.message);
        return false;
    }
    bool ok = true;
    for (int32_t r = 0; r < fm_meeting_size(meeting); r++) {
        fill(expected, n, r, round);
        ok &= memcmp(expected, all + (size_t)r * n, n) == 0;
    }
    return ok;
}

/* The last gather fails for all that are left, and names the rank that is lost. */
static int lose(fm_meeting *meeting, const scene *s) {
    static uint8_t all[MOST];
    fm_error error = {.message = ""};
    char name[40];
    if (fm_meeting_rank(meeting) == s->lost) {
        if (s->kind == IS_KILLED) raise(SIGKILL);
        raise(SIGSTOP);
    }
    const double wait_s = s->kind == IS_KILLED ? generous_s : short_s;
    fm_status status = fm_meeting_gather(meeting, "", 1, all, wait_s, &error);
    snprintf(name, sizeof name, "rank %d (process ", (int)s->lost);
    bool is_named = status == FM_ERR_CLOSED && strstr(error.message, name);
    /* Rank 0 is waited for by those below it. */
    const bool is_above = s->kind != SLEEPS || s->lost > 0;
    is_named &= is_above || strstr(error.message, "did not answer within ");
    if (is_named) return EXIT_NAMED;
    fprintf(stderr, "rank %d found '%s'\n", (int)fm_meeting_rank(meeting), error.message);
    return 1;
}

static int run_rank(const char *address, int32_t rank, const scene *s) {
    fm_meeting *meeting;
    fm_topology topology = make(s->hosts);
    if (fm_meeting_open(&meeting, address, rank, topology.n_rank, generous_s, NULL)) return 1;
    bool ok = gather_is_right(meeting, 3, 0);
    fm_error error;
    fm_status status = fm_meeting_form_tree(meeting, &topology, generous_s, &error);
    if (status) {
        fprintf(stderr, "rank %d: %s\n", (int)rank, error.message);
        return 1;
    }
    static const size_t sizes[] = {1, 0, BYTES, 8, BYTES};
    for (int i = 0; i < 5; i++)
        ok &= gather_is_right(meeting, sizes[i], i);
    int code = ok ? 0 : 1;
    if (ok && s->lost >= 0) code = lose(meeting, s);
    fm_meeting_close(meeting);
    fm_topology_free(&topology);
    return code;
}

static void run(const scene *s) {
    char folder[256], address[300];
    pid_t child[MOST];
    const int32_t n = (int32_t)strlen(s->hosts);
    int state;
    fm_test_make_folder(folder, sizeof folder);
    snprintf(address, sizeof address, "file:%s/meeting", folder);
    for (int32_t r = 0; r < n; r++) {
        child[r] = fork();
        assert_true(child[r] >= 0);
        if (child[r] > 0) continue;
        fm_test_die_with_parent();
        _exit(run_rank(address, r, s));
    }
    for (int32_t r = 0; r < n; r++) {
        if (r == s->lost) continue;
        assert_int_equal(waitpid(child[r], &state, 0), child[r]);
        assert_true(WIFEXITED(state));
        assert_int_equal(WEXITSTATUS(state), s->lost < 0 ? 0 : EXIT_NAMED);
    }
    if (s->lost >= 0) {
        kill(child[s->lost], SIGKILL);
        assert_int_equal(waitpid(child[s->lost], &state, 0), child[s->lost]);
    }
    fm_test_remove_tree(folder);
}

/* On one host, on hosts of several ranks, on such whose ranks are dealt out in turn, and on so many
 * that leaders have leaders below them. */
static void all_ranks_get_the_bytes_of_all(void **state) {
    (void)state;
    static const char *const hosts[] = {"aaa", "aabb", "abcabcab", "abcdefghijklmnopqrstuvwx"};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++)
        run(&(scene){.hosts = hosts[i], .lost = -1});
}

/* A leader, a rank below it, and one at the end of the longest way. */
static void all_ranks_hear_who_is_gone(void **state) {
    (void)state;
    run(&(scene){.hosts = "aabbcc", .lost = 2, .kind = IS_KILLED});
    run(&(scene){.hosts = "aabbcc", .lost = 5, .kind = IS_KILLED});
    run(&(scene){.hosts = "abcdefghijklmnopqrstuvwx", .lost = 20, .kind = IS_KILLED});
}

static void all_ranks_hear_who_does_not_come(void **state) {
    (void)state;
    run(&(scene){.hosts = "aabbcc", .lost = 3, .kind = SLEEPS});
    run(&(scene){.hosts = "aabbcc", .lost = 0, .kind = SLEEPS});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_has_its_place),
        cmocka_unit_test(all_ranks_get_the_bytes_of_all),
        cmocka_unit_test(all_ranks_hear_who_is_gone),
        cmocka_unit_test(all_ranks_hear_who_does_not_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
