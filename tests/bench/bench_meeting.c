/* bench_meeting.c: bench_meeting [RANKS [HOST_RANKS]]: how long gathers of many ranks take, through
 * rank 0 and along the tree of their hosts. The ranks are threads of this process, which talk over
 * the loopback, so all of them share its cores. */
#include "tests/bench/bench_time.h"

#include "trainer/dist/meeting.h"
#include "trainer/dist/topology.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { GATHERS = 5, STACK_BYTES = 512 << 10, REPORT_BYTES = 568, SIZES = 2 };
static const double wait_s = 600;
static const size_t sizes[SIZES] = {1, REPORT_BYTES};

static int32_t n_rank = 2080, host_ranks = 8;
static fm_topology topology;
static char address[200];
static uint8_t *all; /* of all ranks: each writes the same bytes */

/* What rank 0 has measured: wall time and its own time on a core. */
typedef struct figure {
    double wall, core;
} figure;
static figure opened, formed, star[SIZES], along[SIZES];

static figure begin(void) {
    return (figure){now_s(), cpu_s()};
}

static figure since(figure start, int n) {
    return (figure){(now_s() - start.wall) / n, (cpu_s() - start.core) / n};
}

static void must(fm_status status, const fm_error *error) {
    if (!status) return;
    fprintf(stderr, "bench_meeting: %s\n", error->message);
    exit(1);
}

static void gather_all(fm_meeting *meeting, figure ret_figure[SIZES]) {
    static const uint8_t mine[REPORT_BYTES];
    fm_error error;
    for (int i = 0; i < SIZES; i++) {
        must(fm_meeting_gather(meeting, mine, 1, all, wait_s, &error), &error); /* all are here */
        const figure start = begin();
        for (int k = 0; k < GATHERS; k++)
            must(fm_meeting_gather(meeting, mine, sizes[i], all, wait_s, &error), &error);
        if (fm_meeting_rank(meeting) == 0) ret_figure[i] = since(start, GATHERS);
    }
}

static void *run_rank(void *argument) {
    const int32_t rank = *(const int32_t *)argument;
    fm_meeting *meeting;
    fm_error error;
    figure start = begin();
    must(fm_meeting_open(&meeting, address, rank, n_rank, wait_s, &error), &error);
    if (rank == 0) opened = since(start, 1);
    gather_all(meeting, star);
    start = begin();
    must(fm_meeting_form_tree(meeting, &topology, wait_s, &error), &error);
    if (rank == 0) formed = since(start, 1);
    gather_all(meeting, along);
    fm_meeting_close(meeting);
    return NULL;
}

static void make_topology(void) {
    fm_host *hosts = calloc((size_t)n_rank, sizeof *hosts);
    fm_error error;
    if (!hosts) exit(1);
    for (int32_t r = 0; r < n_rank; r++)
        snprintf(hosts[r].id, sizeof hosts[r].id, "%d", (int)(r / host_ranks));
    must(fm_topology_make(hosts, n_rank, &topology, &error), &error);
    free(hosts);
}

static void print(const char *what, figure f) {
    printf("%-34s %10.2f %10.2f\n", what, 1e3 * f.wall, 1e3 * f.core);
}

int main(int argc, char **argv) {
    if (argc > 1) n_rank = (int32_t)strtol(argv[1], NULL, 10);
    if (argc > 2) host_ranks = (int32_t)strtol(argv[2], NULL, 10);
    if (n_rank < 2 || n_rank > FM_MEETING_RANKS || host_ranks < 1) {
        fprintf(stderr, "usage: bench_meeting [RANKS [HOST_RANKS]]\n");
        return 2;
    }
    snprintf(address, sizeof address, "unix:/tmp/foldmill-bench-meeting.%d", (int)getpid());
    make_topology();
    all = malloc((size_t)n_rank * REPORT_BYTES);
    int32_t *number = calloc((size_t)n_rank, sizeof *number);
    pthread_t *thread = calloc((size_t)n_rank, sizeof *thread);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    if (!all || !number || !thread) exit(1);
    for (int32_t r = 0; r < n_rank; r++) {
        number[r] = r;
        if (pthread_create(&thread[r], &attributes, run_rank, &number[r]) != 0) exit(1);
    }
    for (int32_t r = 0; r < n_rank; r++)
        pthread_join(thread[r], NULL);
    printf("%d ranks on %d hosts                        ms, of rank 0's core\n", (int)n_rank,
           (int)topology.n_host);
    print("open", opened);
    print("gather of 1 byte, through rank 0", star[0]);
    print("gather of 568 bytes, through rank 0", star[1]);
    print("form the tree", formed);
    print("gather of 1 byte, along the tree", along[0]);
    print("gather of 568 bytes, along the tree", along[1]);
    fm_topology_free(&topology);
    free(all);
    free(number);
    free(thread);
    return 0;
}
