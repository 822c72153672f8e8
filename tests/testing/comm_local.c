/* comm_local.c: see comm_local.h for the three stages of an exchange.
 *
 * A slot counts the ranks that have begun, read and left its exchange; one mutex and one condition
 * variable guard all slots. The last rank to leave clears the counts and raises the slot's cycle. A
 * rank that is a whole ring ahead waits in `begin` until the slot's cycle is the one it needs. */
#include "tests/testing/comm_local.h"

#include "trainer/dist/combine.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* One exchange of the group. `cycle` counts how often the slot was used, so that a fast rank does
 * not fill it again before the slow ranks have left. */
typedef struct slot {
    fm_message message[FM_COMM_LOCAL_RANKS][FM_COMM_MESSAGES];
    int32_t count[FM_COMM_LOCAL_RANKS];
    int32_t begun, read, left;
    uint32_t cycle;
} slot;

typedef struct member {
    fm_comm_group *group;
    uint32_t begun; /* exchanges that this rank has begun */
} member;

struct fm_comm_group {
    int32_t size;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    slot slots[FM_COMM_LOCAL_SLOTS];
    fm_comm comm[FM_COMM_LOCAL_RANKS];
    member member[FM_COMM_LOCAL_RANKS];
};

static fm_ticket begin(fm_comm *comm, const fm_message *messages, int32_t count,
                       fm_stream *stream) {
    (void)stream;
    member *self = comm->context;
    fm_comm_group *group = self->group;
    assert(count >= 1 && count <= FM_COMM_MESSAGES);
    uint32_t number = self->begun++;
    slot *at = &group->slots[number % FM_COMM_LOCAL_SLOTS];
    pthread_mutex_lock(&group->mutex);
    while (at->cycle != number / FM_COMM_LOCAL_SLOTS)
        pthread_cond_wait(&group->changed, &group->mutex);
    memcpy(at->message[comm->rank], messages, (size_t)count * sizeof *messages);
    at->count[comm->rank] = count;
    at->begun++;
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->mutex);
    return number + 1;
}

static void receive(const fm_comm *comm, const slot *at) {
    for (int32_t i = 0; i < at->count[comm->rank]; i++) {
        const fm_message *own = &at->message[comm->rank][i];
        const void *source[FM_COMM_LOCAL_RANKS];
        for (int32_t from = 0; from < comm->size; from++) {
            const fm_message *theirs = &at->message[from][i];
            assert(at->count[from] == at->count[comm->rank] && theirs->rows == own->rows &&
                   theirs->exchange == own->exchange && theirs->run == own->run);
            source[from] = theirs->send;
        }
        fm_comm_combine(own, comm->rank, comm->size, source);
    }
}

static void finish(fm_comm *comm, fm_ticket ticket, fm_stream *stream) {
    (void)stream;
    member *self = comm->context;
    fm_comm_group *group = self->group;
    assert(ticket >= 1 && ticket <= self->begun);
    slot *at = &group->slots[(ticket - 1) % FM_COMM_LOCAL_SLOTS];
    pthread_mutex_lock(&group->mutex);
    while (at->begun < group->size)
        pthread_cond_wait(&group->changed, &group->mutex);
    pthread_mutex_unlock(&group->mutex);
    receive(comm, at);
    pthread_mutex_lock(&group->mutex);
    at->read++;
    pthread_cond_broadcast(&group->changed);
    while (at->read < group->size)
        pthread_cond_wait(&group->changed, &group->mutex);
    if (++at->left == group->size) {
        at->begun = at->read = at->left = 0;
        at->cycle++;
        pthread_cond_broadcast(&group->changed);
    }
    pthread_mutex_unlock(&group->mutex);
}

fm_status fm_comm_group_create(int32_t size, const fm_kernels *kernels, fm_comm_group **ret_group,
                               fm_error *reterr) {
    assert(size >= 1 && size <= FM_COMM_LOCAL_RANKS);
    fm_comm_group *group = calloc(1, sizeof *group);
    if (!group) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a group of %d ranks", (int)size);
    }
    group->size = size;
    pthread_mutex_init(&group->mutex, NULL);
    pthread_cond_init(&group->changed, NULL);
    for (int32_t rank = 0; rank < size; rank++) {
        group->member[rank].group = group;
        group->comm[rank] = (fm_comm){.rank = rank,
                                      .size = size,
                                      .context = &group->member[rank],
                                      .begin = begin,
                                      .finish = finish,
                                      .kernels = kernels};
    }
    *ret_group = group;
    return FM_OK;
}

void fm_comm_group_destroy(fm_comm_group *group) {
    if (group) {
        pthread_cond_destroy(&group->changed);
        pthread_mutex_destroy(&group->mutex);
        free(group);
    }
}

fm_comm *fm_comm_group_get_rank(fm_comm_group *group, int32_t rank) {
    assert(rank >= 0 && rank < group->size);
    return &group->comm[rank];
}
