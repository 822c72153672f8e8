/* dap.c: the change of axis as one all-to-all; see dap.h.
 *
 * Both sides of the exchange have parts of n0/D rows of n1/D * c elements; of an array of higher
 * rank, c is the product of all further extents. On the side that is
 * split along axis 1 the parts are contiguous and follow each other; on the side that is split
 * along axis 0 they are blocks of columns. So the exchange itself transposes. */
#include "trainer/dist/dap.h"

#include <assert.h>

fm_switch fm_dap_switch_begin(fm_tape *tape, const char *name, fm_comm *comm, fm_tensor_ref x,
                              int to_axis, bool patient) {
    fm_tensor from = *fm_tape_tensor(tape, x);
    assert(from.rank >= 3 && from.shard_axis == 1 - to_axis && from.shard_count == comm->size);
    assert(from.shape[0] % comm->size == 0 && from.shape[1] % comm->size == 0);
    int64_t rows = from.shape[0] / comm->size, run = from.shape[1] / comm->size;
    for (int i = 2; i < from.rank; i++)
        run *= from.shape[i];
    const fm_parts along0 = {run, comm->size * run}, along1 = {rows * run, run};
    const fm_exchange_shape shape = {.rows = rows,
                                     .run = run,
                                     .sent = to_axis == 1 ? along0 : along1,
                                     .received = to_axis == 1 ? along1 : along0,
                                     .patient = patient};
    fm_tensor result;
    fm_tensor_init(&result, name, from.element, from.rank, from.shape);
    fm_tensor_shard(&result, to_axis, comm->rank, comm->size);
    return (fm_switch){
        fm_exchange_begin(tape, name, comm, FM_EXCHANGE_ALL_TO_ALL, &shape, x, &result)};
}

fm_tensor_ref fm_dap_switch_finish(fm_tape *tape, const fm_switch *change) {
    return fm_exchange_finish(tape, change->pending);
}
