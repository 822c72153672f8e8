/* test_topology.c: which ranks are on one host, and which layouts are refused because of that. */
#include "tests/testing/testing.h"

#include "trainer/dist/topology.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = FM_LAYOUT_RANKS };

/* The hosts of ranks by letters, as "aabb". */
static fm_topology make(const char *letters) {
    fm_host *hosts = calloc(MOST, sizeof *hosts);
    fm_topology topology;
    const int32_t n = (int32_t)strlen(letters);
    assert_non_null(hosts);
    for (int32_t r = 0; r < n; r++) {
        snprintf(hosts[r].id, sizeof hosts[r].id, "boot of %c", letters[r]);
        snprintf(hosts[r].name, sizeof hosts[r].name, "node-%c", letters[r]);
    }
    assert_int_equal(fm_topology_make(hosts, n, &topology, NULL), FM_OK);
    free(hosts);
    return topology;
}

static void ranks_of_one_host_are_counted(void **state) {
    (void)state;
    fm_topology t = make("bbacab");
    static const fm_topology_rank expected[] = {{0, 0}, {0, 1}, {1, 0}, {2, 0}, {1, 1}, {0, 2}};
    static const int32_t leaders[] = {0, 2, 3}, sizes[] = {3, 2, 1};
    static const char *const names[] = {"node-b", "node-a", "node-c"};
    assert_int_equal(t.n_rank, 6);
    assert_int_equal(t.n_host, 3);
    for (int32_t r = 0; r < 6; r++) {
        assert_int_equal(t.rank[r].host, expected[r].host);
        assert_int_equal(t.rank[r].place, expected[r].place);
    }
    for (int32_t h = 0; h < 3; h++) {
        assert_int_equal(t.host[h].leader, leaders[h]);
        assert_int_equal(t.host[h].size, sizes[h]);
        assert_string_equal(t.host[h].name, names[h]);
    }
    fm_topology_free(&t);
}

/* Two hosts of one name are two, and one host whose ranks have two names is one. */
static void what_counts_is_not_the_name(void **state) {
    (void)state;
    fm_host hosts[3] = {{"x", "node"}, {"y", "node"}, {"x", "other"}};
    fm_topology t;
    assert_int_equal(fm_topology_make(hosts, 3, &t, NULL), FM_OK);
    assert_int_equal(t.n_host, 2);
    assert_int_equal(t.rank[2].host, 0);
    fm_topology_free(&t);
}

static void this_host_is_always_the_same(void **state) {
    (void)state;
    fm_host a, b;
    assert_int_equal(unsetenv("FOLDMILL_HOST"), 0);
    fm_host_find(&a);
    fm_host_find(&b);
    assert_memory_equal(&a, &b, sizeof a);
    assert_true(a.id[0] && a.name[0]);
    assert_int_equal(setenv("FOLDMILL_HOST", "left", 1), 0);
    fm_host_find(&b);
    assert_memory_not_equal(a.id, b.id, sizeof a.id);
    assert_string_equal(b.name, "left");
    assert_int_equal(setenv("FOLDMILL_HOST", "", 1), 0); /* as if it were not set */
    fm_host_find(&b);
    assert_memory_equal(&a, &b, sizeof a);
}

static void groups_are_inside_a_host_or_not(void **state) {
    (void)state;
    fm_topology t = make("aabbaacc");
    const fm_layout layout = {.dap = 2, .bp = 1, .dp = 4};
    fm_group_sets sets = fm_layout_sets(&layout, 5);
    const fm_rank_set dap = {4, 1, 2}, bp = {5, 2, 1}, dp = {1, 2, 4};
    assert_memory_equal(&sets.dap, &dap, sizeof dap);
    assert_memory_equal(&sets.bp, &bp, sizeof bp);
    assert_memory_equal(&sets.sample, &dap, sizeof dap);
    assert_memory_equal(&sets.dp, &dp, sizeof dp);
    assert_int_equal(fm_topology_span(&t, &sets.dap), FM_SPAN_HOST);
    assert_int_equal(fm_topology_span(&t, &sets.bp), FM_SPAN_HOST);
    assert_int_equal(fm_topology_span(&t, &sets.dp), FM_SPAN_MIXED); /* on hosts a, b, a, c */
    const fm_rank_set each = {0, 2, 2}, far = {0, 7, 2};
    assert_int_equal(fm_topology_span(&t, &each), FM_SPAN_HOSTS);
    assert_int_equal(fm_topology_span(&t, &far), FM_SPAN_HOSTS);
    fm_topology_free(&t);
}

/* The sets of all groups are those of the ranks' places. */
static void sets_follow_the_layout(void **state) {
    (void)state;
    const fm_layout layout = {.dap = 3, .bp = 2, .dp = 2};
    for (int32_t r = 0; r < fm_layout_ranks(&layout); r++) {
        const fm_group_sets sets = fm_layout_sets(&layout, r);
        const fm_rank_place place = fm_layout_place(&layout, r);
        assert_int_equal(fm_rank_set_at(&sets.dap, place.dap), r);
        assert_int_equal(fm_rank_set_at(&sets.bp, place.bp), r);
        assert_int_equal(fm_rank_set_at(&sets.sample, place.sample), r);
        assert_int_equal(fm_rank_set_at(&sets.dp, place.dp), r);
    }
}

static void samples_across_hosts_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *launcher, *advice;
    } cases[] = {
        {"Open MPI", "start them with mpirun --map-by slot"},
        {"MPI", "start them with mpiexec -ppn N, with N ranks for a host"},
        {"Slurm", "start them with srun --distribution=block"},
        {"torchrun", "start whole groups of them on each host with torchrun --nproc-per-node"},
        {"foldmill", "give neighbouring values of FOLDMILL_RANK to one host"},
    };
    fm_topology t = make("aaaabcbb");
    fm_error error;
    const fm_layout whole = {.dap = 2, .bp = 2, .dp = 2}, small = {.dap = 2, .bp = 1, .dp = 4},
                    alone = {.dap = 1, .bp = 1, .dp = 8};
    char expected[FM_ERROR_MESSAGE_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(expected, sizeof expected,
                 "ranks 4 to 7 work on one sample, but rank 4 is on host node-b and rank 5 on host "
                 "node-c; %s, or let them exchange over the network with --across-hosts",
                 cases[i].advice);
        assert_int_equal(fm_topology_check(&t, &whole, cases[i].launcher, &error), FM_ERR_USAGE);
        assert_string_equal(error.message, expected);
    }
    assert_int_equal(fm_topology_check(&t, &small, NULL, &error), FM_ERR_USAGE);
    assert_non_null(strstr(error.message, "ranks 4 to 5 work on one sample"));
    assert_int_equal(fm_topology_check(&t, &alone, NULL, NULL), FM_OK);
    fm_topology_free(&t);
    t = make("bbbbaaaa");
    assert_int_equal(fm_topology_check(&t, &whole, NULL, NULL), FM_OK);
    assert_int_equal(fm_topology_check(&t, &small, NULL, NULL), FM_OK);
    fm_topology_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_one_host_are_counted),
        cmocka_unit_test(what_counts_is_not_the_name),
        cmocka_unit_test(this_host_is_always_the_same),
        cmocka_unit_test(groups_are_inside_a_host_or_not),
        cmocka_unit_test(sets_follow_the_layout),
        cmocka_unit_test(samples_across_hosts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
