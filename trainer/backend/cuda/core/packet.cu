/* packet.cu: takes the next packet of a ring, and reports the results of a sample. Only the device
 * knows which packet is next and how large it is, so the grid is the same for every packet: blocks
 * without an item end at once. */
#include "trainer/backend/cuda/core/clock.cuh"
#include "trainer/backend/cuda/core/families.cuh"

namespace fm_cuda {

enum { TAKE_THREADS = 256, TAKE_BLOCKS = 128 }; /* blocks per item */

__device__ inline const uint8_t *next_packet(const fm_take &a) {
    return a.ring + (int64_t)(*a.n_taken % (uint64_t)a.n_slot) * a.slot_bytes;
}

/* Element i of the source: an integer, or the bits of a float. */
__device__ inline uint32_t packed_word(const fm_item &item, const uint8_t *x, int64_t i) {
    switch (item.x_element) {
    case FM_ELEMENT_U8: return x[i];
    case FM_ELEMENT_U16: return ((const uint16_t *)x)[i];
    default: return ((const uint32_t *)x)[i];
    }
}

__device__ inline void put_word(const fm_item &item, uint8_t *y, int64_t i, uint32_t word,
                                bool is_real) {
    float value = is_real ? __uint_as_float(word) : (float)word;
    switch (item.y_element) {
    case FM_ELEMENT_U8: y[i] = (uint8_t)word; break;
    case FM_ELEMENT_U16: ((uint16_t *)y)[i] = (uint16_t)word; break;
    case FM_ELEMENT_U32:
    case FM_ELEMENT_I32: ((uint32_t *)y)[i] = word; break;
    case FM_ELEMENT_BF16: ((bf16 *)y)[i] = to<bf16>(value); break;
    default: ((float *)y)[i] = value;
    }
}

__device__ inline void expand_item(const fm_item &item, const uint8_t *x, uint8_t *y) {
    uint32_t c = (uint32_t)item.c, per_row = (uint32_t)item.rows * c, n = (uint32_t)item.n;
    for (uint32_t at = blockIdx.x * TAKE_THREADS + threadIdx.x; at < n;
         at += TAKE_BLOCKS * TAKE_THREADS) {
        uint32_t i = at / per_row, in_row = at % per_row, j = in_row / c, k = in_row % c;
        uint32_t word = item.padding;
        bool is_real = false;
        if (i < item.n0 && j < item.n1) {
            int64_t from = ((int64_t)i * item.n1 + j) * c + k;
            word = item.kind == FM_ITEM_VALUES ? packed_word(item, x, from)
                   : item.kind == FM_ITEM_BITS ? x[from / 8] >> (from % 8) & 1
                                               : 1;
            is_real = item.kind == FM_ITEM_VALUES && item.x_element == FM_ELEMENT_F32;
        }
        put_word(item, y, at, word, is_real);
    }
}

/* blockIdx.y is the item. */
__global__ void __launch_bounds__(TAKE_THREADS) take_kernel(fm_take a) {
    const uint8_t *bytes = next_packet(a);
    const fm_packet *packet = (const fm_packet *)bytes;
    if (blockIdx.y >= packet->n_item) return;
    const fm_item item = packet->item[blockIdx.y];
    const uint8_t *x = bytes + item.x;
    uint8_t *y = (uint8_t *)a.state + item.y;
    if (item.kind != FM_ITEM_BYTES && item.kind != FM_ITEM_ZERO) {
        expand_item(item, x, y);
        return;
    }
    int64_t words = divide_up(item.n, 16);
    for (int64_t i = blockIdx.x * (int64_t)TAKE_THREADS + threadIdx.x; i < words;
         i += TAKE_BLOCKS * TAKE_THREADS)
        ((uint4 *)y)[i] = item.kind == FM_ITEM_BYTES ? ((const uint4 *)x)[i] : uint4{0, 0, 0, 0};
}

/* Runs after all items, because it increments the counter that says which packet they read. */
__global__ void take_scalars_kernel(fm_take a) {
    const fm_packet *packet = (const fm_packet *)next_packet(a);
    for (int i = 0; i < FM_CLOCK_WORDS; i++)
        a.clock[i] = packet->clock[i];
    a.step->lr = packet->lr;
    a.step->step = packet->step;
    a.step->pending = packet->pending;
    a.step->holds = packet->holds;
    ++*a.n_taken;
}

void take_packet(fm_stream *stream, const fm_take *args) {
    take_kernel<<<dim3(TAKE_BLOCKS, FM_PACKET_ITEMS), TAKE_THREADS, 0, queue(stream)>>>(*args);
    FM_LAUNCHED();
    take_scalars_kernel<<<1, 1, 0, queue(stream)>>>(*args);
    FM_LAUNCHED();
}

__global__ void report_kernel(fm_report a) {
    fm_step_record *record = &a.record[*a.n_made % (uint64_t)a.n_record];
    bool finite = true;
#pragma unroll
    for (int i = 0; i < FM_STEP_RECORD_TERMS; i++) {
        if (i >= a.n_term) break;
        float term = *(const float *)a.term[i];
        finite = finite && isfinite(term);
        record->term[i] = (double)term;
    }
    if (!finite) a.step->nonfinite |= FM_NONFINITE_SAMPLE;
    record->norm_squared = a.step->norm_squared;
    record->nonfinite = a.step->nonfinite;
    record->done_ns = device_clock_ns();
    __threadfence_system();
    ++*a.n_made;
}

void report(fm_stream *stream, const fm_report *args) {
    report_kernel<<<1, 1, 0, queue(stream)>>>(*args);
    FM_LAUNCHED();
}

} // namespace fm_cuda
