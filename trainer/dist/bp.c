/* bp.c: see bp.h. */
#include "trainer/dist/bp.h"

#include <assert.h>

fm_pending *fm_bp_join_begin(fm_tape *tape, const char *name, fm_comm *comm, fm_tensor_ref x) {
    fm_tensor like = fm_tensor_like(fm_tape_tensor(tape, x), name);
    return fm_exchange_begin_on_all(tape, name, comm, FM_EXCHANGE_ALL_REDUCE, 0, x, &like);
}

fm_pending *fm_bp_share_begin(fm_tape *tape, const char *name, fm_comm *comm, int32_t root,
                              fm_tensor_ref x, const fm_tensor *like) {
    assert((x != FM_TENSOR_NONE) == (comm->rank == root));
    fm_tensor received = fm_tensor_like(like, name);
    return fm_exchange_begin_on_all(tape, name, comm, FM_EXCHANGE_BROADCAST, root, x, &received);
}
