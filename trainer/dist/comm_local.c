/* comm_local.c: see comm_local.h for the three stages of an exchange.
 *
 * A slot counts the ranks that have begun, read and left its exchange; one mutex and one condition
 * variable guard all slots. The last rank to leave clears the counts and raises the slot's cycle. A
 * rank that is a whole ring ahead waits in `begin` until the slot's cycle is the one it needs. */
#include "trainer/dist/comm_local.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

/* One exchange of the group. `cycle` counts how often the slot was used, so that a fast rank does
 * not fill it again before the slow ranks have left. */
typedef struct slot {
    fm_message message[FM_COMM_LOCAL_RANKS];
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

/* The kernel table whose act type is the message's element type: that of activations, or the wide
 * one for gradients of parameters. */
static const fm_kernels *table_of(const fm_comm *comm, fm_element element) {
    const fm_kernels *kernels = comm->kernels;
    if (element != kernels->act) kernels = kernels->wide;
    assert(kernels && kernels->act == element);
    return kernels;
}

static fm_ticket begin(fm_comm *comm, const fm_message *message, fm_stream *stream) {
    (void)stream;
    member *self = comm->context;
    fm_comm_group *group = self->group;
    assert(message->part_count > 0);
    uint32_t number = self->begun++;
    slot *at = &group->slots[number % FM_COMM_LOCAL_SLOTS];
    pthread_mutex_lock(&group->mutex);
    while (at->cycle != number / FM_COMM_LOCAL_SLOTS)
        pthread_cond_wait(&group->changed, &group->mutex);
    at->message[comm->rank] = *message;
    at->begun++;
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->mutex);
    return number + 1;
}

/* Part `part` of the data that rank `from` sends. */
static const void *part_of(const slot *at, int32_t from, int32_t part) {
    const fm_message *message = &at->message[from];
    size_t part_bytes = (size_t)message->part_count * fm_element_bytes(message->element);
    return (const char *)message->send + (size_t)part * part_bytes;
}

static void receive(const fm_comm *comm, const slot *at) {
    const fm_message *own = &at->message[comm->rank];
    size_t part_bytes = (size_t)own->part_count * fm_element_bytes(own->element);
    const fm_kernels *kernels = table_of(comm, own->element);
    /* rank order, so that sums have one order */
    for (int32_t from = 0; from < comm->size; from++) {
        assert(at->message[from].exchange == own->exchange &&
               at->message[from].part_count == own->part_count);
        void *to = (char *)own->receive + (size_t)from * part_bytes;
        switch (own->exchange) {
        case FM_EXCHANGE_ALL_TO_ALL:
            kernels->copy(NULL, own->part_count, part_of(at, from, comm->rank), to);
            break;
        case FM_EXCHANGE_ALL_GATHER:
            kernels->copy(NULL, own->part_count, part_of(at, from, 0), to);
            break;
        case FM_EXCHANGE_REDUCE_SCATTER:
        case FM_EXCHANGE_ALL_REDUCE: {
            int32_t part = own->exchange == FM_EXCHANGE_ALL_REDUCE ? 0 : comm->rank;
            kernels->axpy(NULL, own->part_count, 1.0, part_of(at, from, part),
                          (fm_out){own->receive, from ? FM_ADD : FM_WRITE});
            break;
        }
        case FM_EXCHANGE_BROADCAST:
            if (from == own->root) {
                kernels->copy(NULL, own->part_count, part_of(at, from, 0), own->receive);
            }
            break;
        }
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
