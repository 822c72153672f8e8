/* sum.c: see sum.h. A piece is a reduce-scatter into the scratch memory and an all-gather back.
 * What is left over, less than a part of FM_COMM_SUM_ALIGN elements for each rank, is summed by
 * each rank for itself. Each element is summed in rank order in either case, so slices change no
 * bit. */
#include "trainer/dist/sum.h"

#include <assert.h>

static void run(fm_comm *comm, const fm_message *message, fm_stream *stream) {
    comm->finish(comm, comm->begin(comm, message, 1, stream), stream);
}

/* Sums x [comm->size * part_count] through scratch [part_count]. */
static void sum_parts(fm_comm *comm, int64_t part_count, void *x, void *scratch,
                      fm_stream *stream) {
    fm_element acc = comm->kernels->acc;
    fm_message scatter = fm_message_plain(FM_EXCHANGE_REDUCE_SCATTER, acc, part_count, x, scratch);
    fm_message gather = fm_message_plain(FM_EXCHANGE_ALL_GATHER, acc, part_count, scratch, x);
    scatter.name = gather.name = "gradients";
    run(comm, &scatter, stream);
    run(comm, &gather, stream);
}

static void sum_rest(fm_comm *comm, int64_t count, void *x, void *scratch, fm_stream *stream) {
    fm_message reduce =
        fm_message_plain(FM_EXCHANGE_ALL_REDUCE, comm->kernels->acc, count, x, scratch);
    reduce.name = "gradients";
    run(comm, &reduce, stream); /* all ranks have read x now */
    size_t ratio = fm_element_bytes(comm->kernels->acc) / fm_element_bytes(comm->kernels->act);
    comm->kernels->copy(stream, count * (int64_t)ratio, scratch, x);
}

void fm_comm_sum(fm_comm *comm, int64_t count, void *x, void *scratch, int64_t scratch_count,
                 fm_stream *stream) {
    if (!comm) return;
    int64_t most = scratch_count / FM_COMM_SUM_ALIGN * FM_COMM_SUM_ALIGN, at = 0;
    size_t bytes = fm_element_bytes(comm->kernels->acc);
    assert(most > 0);
    while (count - at >= comm->size * FM_COMM_SUM_ALIGN) {
        int64_t part = (count - at) / comm->size / FM_COMM_SUM_ALIGN * FM_COMM_SUM_ALIGN;
        part = part < most ? part : most;
        sum_parts(comm, part, (char *)x + (size_t)at * bytes, scratch, stream);
        at += comm->size * part;
    }
    for (; at < count; at += most) {
        int64_t n = count - at < most ? count - at : most;
        sum_rest(comm, n, (char *)x + (size_t)at * bytes, scratch, stream);
    }
}

/* Gives slice `sample->rank` of x to the other ranks of the sample, and takes theirs. */
static void gather_slices(fm_comm *sample, int64_t slice, char *x, void *scratch,
                          int64_t scratch_count, fm_stream *stream) {
    const size_t bytes = fm_element_bytes(sample->kernels->acc);
    const int64_t ratio = (int64_t)(bytes / fm_element_bytes(sample->kernels->act));
    for (int64_t at = 0; at < slice; at += scratch_count) {
        const int64_t n = slice - at < scratch_count ? slice - at : scratch_count;
        const int64_t own = sample->rank * slice + at;
        sample->kernels->copy(stream, n * ratio, x + (size_t)own * bytes, scratch);
        fm_message gather = fm_message_plain(FM_EXCHANGE_ALL_GATHER, sample->kernels->acc, n,
                                             scratch, x + (size_t)at * bytes);
        gather.received.part = slice;
        gather.name = "gradients";
        run(sample, &gather, stream);
    }
}

void fm_groups_sum(const fm_groups *groups, int64_t count, void *x, void *scratch,
                   int64_t scratch_count, fm_stream *stream) {
    fm_comm *sample = groups->is_sliced ? groups->sample : NULL;
    if (!groups->dp) return;
    const size_t bytes = fm_element_bytes(groups->dp->kernels->acc);
    const int64_t slice = sample ? count / sample->size / FM_COMM_SUM_ALIGN * FM_COMM_SUM_ALIGN : 0;
    const int64_t sliced = sample ? sample->size * slice : 0;
    char *begin = x;
    if (slice) {
        char *own = begin + (size_t)(sample->rank * slice) * bytes;
        fm_comm_sum(groups->dp, slice, own, scratch, scratch_count, stream);
        gather_slices(sample, slice, begin, scratch, scratch_count, stream);
    }
    fm_comm_sum(groups->dp, count - sliced, begin + (size_t)sliced * bytes, scratch, scratch_count,
                stream);
}

bool fm_comm_agree(fm_comm *comm, bool yes, void *scratch, fm_stream *stream) {
    if (!comm) return yes;
    const fm_kernels *kernels = comm->kernels;
    bool wide = kernels->acc == FM_ELEMENT_F64;
    float single = yes;
    double both = yes;
    size_t bytes = fm_element_bytes(kernels->acc);
    void *sum = (char *)scratch + FM_COMM_SUM_ALIGN * bytes;
    kernels->upload(stream, scratch, wide ? (const void *)&both : &single, bytes);
    fm_message message = fm_message_plain(FM_EXCHANGE_ALL_REDUCE, kernels->acc, 1, scratch, sum);
    message.name = "agreement";
    run(comm, &message, stream);
    kernels->download(stream, wide ? (void *)&both : &single, sum, bytes);
    kernels->synchronize(stream);
    return (wide ? both : (double)single) == (double)comm->size;
}
