/* schedule.c: see schedule.h. Both halves of an exchange count, since ranks must also finish their
 * exchanges in one order. Ranks of one branch record the same nodes, and some exchange inside
 * (model/triangle_part.h), so between them all nodes count. Ranks must also agree which
 * exchanges wait for their readers (fm_step.held). */
#include "trainer/step/schedule.h"

#include "proto/base/hash.h"

#include <string.h>

static void add_tape(fm_xxh3_state *hash, const fm_tape *tape, bool joint) {
    for (int32_t i = 0; i < tape->n_step; i++) {
        const fm_step *step = &tape->step[i];
        const fm_node *node = &tape->node[step->node];
        if (joint && !node->on_all_ranks) continue;
        int64_t count =
            node->n_output > 0 ? fm_tensor_local_count(fm_tape_tensor(tape, node->output[0])) : 0;
        const int64_t facts[] = {step->phase, step->held, count};
        fm_xxh3_update(hash, facts, sizeof facts);
        fm_xxh3_update(hash, node->op->name, strlen(node->op->name));
    }
}

uint64_t fm_schedule_digest_tapes(const fm_tape *const *tape, int n, bool joint) {
    fm_xxh3_state *hash = fm_xxh3_create();
    for (int i = 0; i < n; i++)
        add_tape(hash, tape[i], joint);
    uint64_t digest = fm_xxh3_digest(hash);
    fm_xxh3_destroy(hash);
    return digest;
}

uint64_t fm_schedule_digest(const fm_trainer *trainer, bool joint) {
    const fm_tape *const tapes[] = {&trainer->recording.tape[FM_TRAINER_CYCLE],
                                    &trainer->recording.tape[FM_TRAINER_LAST]};
    return fm_schedule_digest_tapes(tapes, 2, joint);
}
