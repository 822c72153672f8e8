/* comm_peer.cu: exchanges between the GPUs of one host. A kernel reads what it needs out of its
 * peers' memory and writes the result where the message says, transposed, summed or added.
 *
 *     1. tell each peer that this rank's messages are ready, and where they are     (ready flags)
 *     2. wait until each peer's are; read them, combine in rank order, write
 *     3. tell each peer that its messages have been read, and wait for the same     (done flags);
 *        left out where all messages are held
 *
 * Why reading is safe. A peer reads `send` after (1), which comes after all work that the compute
 * stream had queued before begin, and before (3), for which this rank's kernel waits; finish waits
 * for the kernel. So peers read `send` between begin and finish only, when it belongs to the
 * exchange. `send` of a held message stays unchanged until an exchange has finished that began
 * after this one ended. The kernel of that exchange waits for the peers' ready flags, which the
 * peers write after they have read the data of this one. Only this rank writes to its memory,
 * except for flags, which are in separate memory. The address of `send` travels with the ready
 * flag, so memory plans of ranks may differ.
 *
 * Patience. Copy engines carry out an all-to-all that is patient and held, which leaves the
 * multiprocessors to other work. A kernel of one block does (1) and the waiting of (2). Then each
 * part is one copy on a separate stream, so later exchanges do not wait. The addresses of a copy
 * are fixed when it is recorded. So the kernel checks that every peer sends from the same place in
 * its memory as this rank. Ranks that record the same nodes have the same plans.
 *
 * Numbers. The last block of an exchange counts it in device memory, so a replayed graph goes on
 * counting. A rank waits for a flag to equal the number of the exchange. A peer may be one exchange
 * further, but not two, because the next one needs this rank's ready flag; so ready flags have two
 * places, and numbers may wrap around.
 *
 * Waiting is bounded. A block that has waited for the link's limit sets `failed` and writes who did
 * not come to page-locked memory. From then on nobody waits and nothing is read: the queued work
 * runs to its end with wrong results, which the host finds in fm_gpu_link_check. */
#include "trainer/backend/cuda/core/clock.cuh"
#include "trainer/backend/cuda/core/keep.cuh"
#include "trainer/dist/cuda/link_state.cuh"

namespace fm_dist {

using fm_cuda::bf16;
using fm_cuda::raw;

enum { THREADS = 512, POLLS_BEFORE_CLOCK = 256 };

/* Packs that a thread reads at once of each of SIZE ranks. */
template <int SIZE> constexpr int packs_of = SIZE == 1 ? 4 : 8 / SIZE;

/* n / d by a multiplication, for n below 2^31. */
struct divisor {
    uint32_t d, factor, shift;
};

static divisor divisor_of(int64_t d) {
    assert(d > 0 && d < (int64_t)1 << 31);
    uint32_t shift = 0;
    while (((int64_t)1 << shift) < d)
        shift++;
    uint64_t factor = (((uint64_t)1 << 32) * (((uint64_t)1 << shift) - (uint64_t)d)) / (uint64_t)d;
    return {(uint32_t)d, (uint32_t)factor + 1, shift};
}

__device__ inline uint32_t divide(uint32_t n, divisor d) {
    return (__umulhi(n, d.factor) + n) >> d.shift;
}

/* A message as the kernel sees it. Distances and counts are in packs of V elements. */
struct pull {
    const void *send;
    void *receive;
    uint64_t offer; /* where `send` is, as the ready flag says it */
    fm_beta beta;
    bool sums;
    int32_t first_source, n_source; /* of copies: one part of each, from the first on */
    int64_t sent_first;             /* of this rank's part at the source */
    int64_t received_part;
    uint32_t sent_gap, received_gap; /* between the end of a row and the next row */
    uint32_t count;                  /* of a part */
    divisor run;
};

struct job {
    int32_t rank, size, n_message;
    bool held; /* all messages */
    uint32_t name;
    int32_t member[FM_LINK_RANKS];
    group_flags *flags;   /* of this rank */
    int64_t flags_offset; /* of the group in region 0 */
    /* Of each region of each rank of the group. As arguments they cost no load before a flag. */
    char *base[FM_LINK_REGIONS][FM_LINK_RANKS];
    link_memory *memory;
    uint32_t *epoch, *ended;
    trouble *host;
    uint64_t limit_ns;
    pull message[FM_COMM_MESSAGES];
};

/* -- flags */

/* A ready flag has the number in its upper 24 bits, then 4 bits of region, then the offset in units
 * of 16 bytes. */
enum { NUMBER_BITS = 24, OFFSET_BITS = 36 };

__device__ inline uint64_t read_flag(const uint64_t *p) {
    uint64_t v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
__device__ inline uint32_t read_flag(const uint32_t *p) {
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
__device__ inline void write_flag(uint64_t *p, uint64_t v) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
__device__ inline void write_flag(uint32_t *p, uint32_t v) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__device__ inline uint32_t number_in(uint64_t flag) {
    return (uint32_t)(flag >> (64 - NUMBER_BITS));
}
__device__ inline uint32_t number_in(uint32_t flag) {
    return flag;
}

/* Notes once for the whole link that `rank` did not come. */
__device__ __noinline__ void give_up(const job &j, int rank, int stage) {
    if (atomicExch(&j.memory->failed, 1u)) return;
    j.host->name = j.name, j.host->rank = (uint32_t)j.member[rank], j.host->stage = stage;
    __threadfence_system();
    *(volatile uint32_t *)&j.host->happened = 1;
}

/* Waits for the flag of `rank`. False when the link has failed. */
template <typename F>
__device__ inline bool wait_for(const job &j, const F *flag, uint32_t number, int rank, int stage,
                                F *ret_flag) {
    uint64_t start = 0;
    for (uint32_t polls = 1;; polls++) {
        *ret_flag = read_flag(flag);
        if (number_in(*ret_flag) == number) return true;
        if (polls % POLLS_BEFORE_CLOCK) continue;
        if (*(volatile uint32_t *)&j.memory->failed) return false;
        uint64_t now = fm_cuda::device_clock_ns();
        start = start ? start : now;
        bool stops = polls % (64 * POLLS_BEFORE_CLOCK) == 0 && *(volatile uint32_t *)&j.host->stops;
        if (now - start > j.limit_ns || stops) {
            give_up(j, rank, stage);
            return false;
        }
    }
}

/* -- data */

/* Memory of other GPUs is read past L1, which is not coherent with it. */
template <typename T, int V> __device__ inline raw<T, V> read_peer(const T *p) {
    if constexpr (V == 1) {
        return {__ldcg(p)};
    } else {
        return {__ldcg((const decltype(raw<T, V>::word) *)p)};
    }
}

/* y = x, or y += x, of V elements that are floats. */
template <typename T, int V, bool ADD> __device__ inline void put_floats(T *y, float *x) {
    if constexpr (ADD) {
        raw<T, V> old = fm_cuda::read_raw<T, V>(y);
#pragma unroll
        for (int k = 0; k < V; k++)
            x[k] = old.at(k) + x[k];
    }
    fm_cuda::write_raw<T, V>(y, raw<T, V>::of(x));
}

/* A thread's packs of one round: their positions on both sides. Beyond the end it has the last
 * pack, which it reads but does not write, so that all reads of a round are in flight together. */
template <int N> struct round_of {
    uint32_t from[N], to[N];
    __device__ inline round_of(const pull &m, uint32_t first, uint32_t stride) {
        const divisor run = m.run;
        uint32_t last = m.count - 1, sent_gap = m.sent_gap, received_gap = m.received_gap;
#pragma unroll
        for (int u = 0; u < N; u++) {
            uint32_t at = min(first + u * stride, last), row = divide(at, run);
            from[u] = at + row * sent_gap, to[u] = at + row * received_gap;
        }
    }
};

/* A pack is written or added to what is there. */
template <typename T, int V, bool ADD> __device__ inline void put(T *y, const raw<T, V> &x) {
    if constexpr (ADD) {
        float value[V];
#pragma unroll
        for (int k = 0; k < V; k++)
            value[k] = x.at(k);
        put_floats<T, V, true>(y, value);
    } else {
        fm_cuda::write_raw<T, V>(y, x);
    }
}

/* The order in which a thread reads from ranks first to end - 1, at most SIZE of them: the next
 * rank comes first and this one last. If all ranks began with the same one, its side of the wire
 * would bound them. */
template <int SIZE> struct turns {
    int first, n, start;
    __device__ inline turns(int rank, int first, int end)
        : first(first), n(min(SIZE, end - first)) {
        int next = (rank + 1) % SIZE;
        start = next < n ? next : 0;
    }
    /* The rank of turn k; for n and above the last one. */
    __device__ inline int source(int k) const {
        int place = start + min(k, n - 1);
        return first + (place < n ? place : place - n);
    }
};

/* Reads packs of a part of SIZE ranks, without a branch: all reads are under way at once. */
template <typename T, int V, int SIZE, int PACKS>
__device__ inline void read_all(const pull &m, const void *const *base, const turns<SIZE> &turn,
                                const round_of<PACKS> &at, raw<T, V> (&x)[SIZE][PACKS]) {
#pragma unroll
    for (int k = 0; k < SIZE; k++) {
        const T *from = (const T *)base[turn.source(k)] + m.sent_first * V;
#pragma unroll
        for (int u = 0; u < PACKS; u++)
            x[k][u] = read_peer<T, V>(from + (int64_t)at.from[u] * V);
    }
}

/* Copies or adds the parts of ranks first to end - 1. This rank's own arrives first. */
template <typename T, int V, int SIZE, bool ADD>
__device__ inline void copy_parts(const job &j, const pull &m, const void *const *base, int first,
                                  int end) {
    constexpr int PACKS = packs_of<SIZE>;
    uint32_t stride = gridDim.x * THREADS, count = m.count;
    for (; first < end; first += SIZE) {
        const turns<SIZE> turn(j.rank, first, end);
        for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < count; i += PACKS * stride) {
            const round_of<PACKS> at(m, i, stride);
            raw<T, V> x[SIZE][PACKS];
            read_all<T, V>(m, base, turn, at, x);
#pragma unroll
            for (int k = SIZE - 1; k >= 0; k--) {
                T *to = (T *)m.receive + turn.source(k) * m.received_part * V;
#pragma unroll
                for (int u = 0; u < PACKS; u++) {
                    bool is_there = k < turn.n && i + u * stride < count;
                    if (is_there) put<T, V, ADD>(to + (int64_t)at.to[u] * V, x[k][u]);
                }
            }
        }
    }
}

/* Adds packs of all ranks of a turn, in rank order: sum = the first one's where `is_first`. */
template <typename T, int V, int SIZE, int PACKS>
__device__ inline void add_all(const turns<SIZE> &turn, const raw<T, V> (&x)[SIZE][PACKS],
                               bool is_first, float (&sum)[PACKS][V]) {
#pragma unroll
    for (int r = 0; r < SIZE; r++) {
        int place = r < turn.start ? r - turn.start + turn.n : r - turn.start;
#pragma unroll
        for (int k = 0; k < SIZE; k++) { /* a register's number must be known at compile time */
            if (k != place || r >= turn.n) continue;
#pragma unroll
            for (int u = 0; u < PACKS; u++)
#pragma unroll
                for (int v = 0; v < V; v++)
                    sum[u][v] = r || !is_first ? sum[u][v] + x[k][u].at(v) : x[k][u].at(v);
        }
    }
}

/* Sums a part over the ranks. Up to SIZE are read at once, and more of them SIZE at a time. */
template <typename T, int V, int SIZE, bool ADD>
__device__ inline void sum_parts(const job &j, const pull &m, const void *const *base) {
    constexpr int PACKS = packs_of<SIZE>;
    uint32_t stride = gridDim.x * THREADS, count = m.count;
    T *to = (T *)m.receive;
    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < count; i += PACKS * stride) {
        const round_of<PACKS> at(m, i, stride);
        float sum[PACKS][V];
#pragma unroll 1
        for (int first = 0; first < (SIZE < 8 ? 1 : j.size); first += SIZE) {
            const turns<SIZE> turn(j.rank, first, j.size);
            raw<T, V> x[SIZE][PACKS];
            read_all<T, V>(m, base, turn, at, x);
            add_all(turn, x, first == 0, sum);
        }
#pragma unroll
        for (int u = 0; u < PACKS; u++)
            if (i + u * stride < count) put_floats<T, V, ADD>(to + (int64_t)at.to[u] * V, sum[u]);
    }
}

template <typename T, int V, int SIZE, bool ADD>
__device__ inline void fill(const job &j, const pull &m, const void *const *base) {
    if (m.sums) {
        sum_parts<T, V, SIZE, ADD>(j, m, base);
    } else if (m.n_source > 1) {
        copy_parts<T, V, SIZE, ADD>(j, m, base, 0, j.size);
    } else {
        copy_parts<T, V, 1, ADD>(j, m, base, m.first_source, m.first_source + 1);
    }
}

/* Waits for the messages of all ranks and fills in where they are. False when the link has failed.
 * All threads of a block call it; `talks`: those that wait for a flag. */
__device__ inline bool wait_for_all(const job &j, uint32_t number, bool talks,
                                    const void *(*base)[FM_LINK_RANKS], int *n_missing) {
    int peer = threadIdx.x % FM_LINK_RANKS, m = threadIdx.x / FM_LINK_RANKS;
    int64_t began = clock64();
    __syncthreads();
    bool fails = *n_missing != 0;
    __syncthreads();
    if (talks && !fails) {
        uint64_t flag;
        if (wait_for(j, &j.flags->ready[number & 1][peer][m], number, peer, STAGE_READY, &flag)) {
            uint32_t region = (uint32_t)(flag >> OFFSET_BITS) & 15;
            uint64_t units = flag & (((uint64_t)1 << OFFSET_BITS) - 1);
            base[m][peer] = j.base[region][peer] + units * 16;
        } else {
            atomicAdd(n_missing, 1);
        }
    }
    if (m < j.n_message && peer == j.rank) base[m][peer] = j.message[m].send;
    __syncthreads();
    if (threadIdx.x == 0 && blockIdx.x == 0) j.memory->waited += (uint64_t)(clock64() - began);
    return *n_missing == 0;
}

/* Returns the address of a peer's flags of the groups; NULL for this rank and beyond the group. */
__device__ inline group_flags *flags_of(const job &j, int peer) {
    if (peer >= j.size || peer == j.rank) return NULL;
    return (group_flags *)(j.base[0][peer] + j.flags_offset);
}

__device__ inline uint64_t ready_flag(uint32_t number, uint64_t offer) {
    return (uint64_t)number << (64 - NUMBER_BITS) | offer;
}

/* SIZE: ranks that a thread reads from at once. */
template <typename T, int V, int SIZE>
__global__ void __launch_bounds__(THREADS) exchange_kernel(const __grid_constant__ job j) {
    __shared__ const void *base[FM_COMM_MESSAGES][FM_LINK_RANKS];
    __shared__ int n_missing;
    uint32_t mask = (1u << NUMBER_BITS) - 1;
    uint32_t number = (*(volatile uint32_t *)j.epoch + 1) & mask;
    int peer = threadIdx.x % FM_LINK_RANKS, m = threadIdx.x / FM_LINK_RANKS;
    bool talks = m < j.n_message && peer < j.size && peer != j.rank;
    if (threadIdx.x == 0) n_missing = *(volatile uint32_t *)&j.memory->failed;
    group_flags *theirs = flags_of(j, peer);
    if (talks && blockIdx.x == 0) {
        write_flag(&theirs->ready[number & 1][j.rank][m], ready_flag(number, j.message[m].offer));
    }
    bool fails = !wait_for_all(j, number, talks, base, &n_missing);
    for (int i = 0; i < j.n_message && !fails; i++) {
        const pull &p = j.message[i];
        if (p.beta == FM_ADD) {
            fill<T, V, SIZE, true>(j, p, base[i]);
        } else {
            fill<T, V, SIZE, false>(j, p, base[i]);
        }
    }
    __syncthreads();
    if (m == 0 && theirs && !j.held) {
        write_flag(&theirs->done[j.rank][blockIdx.x], number);
        uint32_t flag;
        if (!fails) wait_for(j, &j.flags->done[peer][blockIdx.x], number, peer, STAGE_DONE, &flag);
    }
    if (threadIdx.x == 0 && atomicAdd(j.ended, 1u) == gridDim.x - 1) {
        *j.ended = 0;
        *j.epoch = number;
    }
}

/* Signals that this rank's single message is ready, and waits until each peer's is, at the same
 * place. It has one thread per rank. */
__global__ void meet_kernel(const __grid_constant__ job j) {
    uint32_t mask = (1u << NUMBER_BITS) - 1;
    uint32_t number = (*(volatile uint32_t *)j.epoch + 1) & mask;
    int64_t began = clock64();
    int peer = threadIdx.x;
    group_flags *theirs = flags_of(j, peer);
    uint64_t own = ready_flag(number, j.message[0].offer), flag;
    if (theirs) {
        write_flag(&theirs->ready[number & 1][j.rank][0], own);
        bool comes =
            !*(volatile uint32_t *)&j.memory->failed &&
            wait_for(j, &j.flags->ready[number & 1][peer][0], number, peer, STAGE_READY, &flag);
        if (comes && flag != own) give_up(j, peer, STAGE_PLACE);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        j.memory->waited += (uint64_t)(clock64() - began);
        *j.epoch = number;
    }
}

/* -- the host's side */

/* Returns the number of the shared region that contains this memory. */
static int32_t region_of(const fm_gpu_link *link, const void *memory) {
    int32_t r = 1;
    while (r < link->n_region &&
           ((const char *)memory < link->region[r].memory ||
            (const char *)memory >= link->region[r].memory + link->region[r].bytes))
        r++;
    assert(r < link->n_region && "what is sent is in memory that was shared");
    return r;
}

/* Where a message's `send` is, as a ready flag says it. */
static uint64_t offer_of(const fm_gpu_link *link, const void *send) {
    if (!send) return 0;
    int32_t r = region_of(link, send);
    uint64_t offset = (uint64_t)((const char *)send - link->region[r].memory);
    assert(offset % 16 == 0);
    return (uint64_t)r << OFFSET_BITS | offset / 16;
}

static bool is_vector(const fm_message *m) {
    int64_t v = 16 / (int64_t)fm_element_bytes(m->element);
    return m->run % v == 0 && m->sent.part % v == 0 && m->sent.row % v == 0 &&
           m->received.part % v == 0 && m->received.row % v == 0 && fm_cuda::is_aligned(m->send) &&
           fm_cuda::is_aligned(m->receive.data);
}

static pull pull_of(const group *g, const fm_message *m, int64_t v) {
    pull p = {};
    int64_t rank = g->comm.rank, run = m->run / v;
    bool own_part = fm_exchange_parts_sent(m->exchange, g->size) > 1;
    p.send = m->send, p.receive = m->receive.data, p.beta = m->receive.beta;
    p.offer = offer_of(g->link, m->send);
    p.sums = fm_exchange_sums(m->exchange);
    p.first_source = m->exchange == FM_EXCHANGE_BROADCAST ? m->root : 0;
    p.n_source = fm_exchange_parts_received(m->exchange, g->size);
    p.sent_first = own_part ? rank * m->sent.part / v : 0;
    p.received_part = p.n_source > 1 ? m->received.part / v : 0;
    if (m->rows > 1) {
        p.sent_gap = (uint32_t)(m->sent.row / v - run);
        p.received_gap = (uint32_t)(m->received.row / v - run);
    }
    int64_t count = m->rows * run;
    assert(count > 0 && count < (int64_t)1 << 31);
    p.run = divisor_of(p.sent_gap || p.received_gap ? run : count), p.count = (uint32_t)count;
    return p;
}

/* As many blocks as fill whole rounds of `packs` packs per thread; the same number on all ranks. In
 * a part of a round, many threads would read the last pack again, one after the other. */
static unsigned blocks_of(const job &j, int packs) {
    int64_t count = 0, of_block = THREADS * packs;
    for (int32_t i = 0; i < j.n_message; i++)
        count = fm_cuda::max_size(count, j.message[i].count);
    int64_t rounds = fm_cuda::divide_up(count, of_block * EXCHANGE_BLOCKS);
    return (unsigned)fm_cuda::divide_up(count, of_block * rounds);
}

template <typename T, int V, int SIZE> static void launch(const job &j, cudaStream_t stream) {
    exchange_kernel<T, V, SIZE><<<blocks_of(j, packs_of<SIZE>), THREADS, 0, stream>>>(j);
    FM_LAUNCHED();
}

template <typename T, int V> static void launch(const job &j, cudaStream_t stream) {
    if (j.size <= 2) {
        launch<T, V, 2>(j, stream);
    } else if (j.size <= 4) {
        launch<T, V, 4>(j, stream);
    } else {
        launch<T, V, 8>(j, stream);
    }
}

template <typename T> static void launch(const job &j, bool vector, cudaStream_t stream) {
    if (vector) {
        launch<T, fm_cuda::vector_of<T>()>(j, stream);
    } else {
        launch<T, 1>(j, stream);
    }
}

/* Copies the parts of an all-to-all out of the ranks' memory, this rank's own part last. */
static void copy_all(const group *g, const fm_message *m, cudaStream_t stream) {
    const fm_gpu_link *link = g->link;
    const region *from = &link->region[region_of(link, m->send)];
    int64_t offset = (const char *)m->send - from->memory;
    size_t bytes = fm_element_bytes(m->element), run = (size_t)m->run * bytes;
    for (int32_t i = 1; i <= g->size; i++) {
        int32_t source = (g->comm.rank + i) % g->size;
        const char *send = from->base[g->place[source]] + offset;
        FM_CUDA(cudaMemcpy2DAsync(
            (char *)m->receive.data + (size_t)(source * m->received.part) * bytes,
            (size_t)m->received.row * bytes, send + (size_t)(g->comm.rank * m->sent.part) * bytes,
            (size_t)m->sent.row * bytes, run, (size_t)m->rows, cudaMemcpyDefault, stream));
    }
}

static bool is_patient(const fm_message *m) {
    return m->patient && m->held && m->exchange == FM_EXCHANGE_ALL_TO_ALL &&
           m->receive.beta == FM_WRITE;
}

fm_ticket begin_peer(fm_comm *comm, const fm_message *messages, int32_t count, fm_stream *stream) {
    group *g = (group *)comm->context;
    fm_gpu_link *link = g->link;
    assert(count >= 1 && count <= FM_COMM_MESSAGES);
    fm_element element = messages[0].element;
    bool vector = true;
    for (int32_t i = 0; i < count; i++) {
        assert(messages[i].element == element);
        vector = vector && is_vector(&messages[i]);
    }
    job j = {};
    j.rank = comm->rank, j.size = comm->size, j.n_message = count;
    j.name = name_of(link, messages[0].name);
    memcpy(j.member, g->member, (size_t)g->size * sizeof j.member[0]);
    j.flags = link->flags + g->index;
    j.flags_offset = (int64_t)(g->index * sizeof(group_flags));
    for (int32_t i = 0; i < link->n_region; i++) {
        for (int32_t r = 0; r < g->size; r++)
            j.base[i][r] = link->region[i].base[g->place[r]];
    }
    j.memory = link->memory;
    j.epoch = &link->memory->epoch[g->index];
    j.ended = &link->memory->ended[g->index];
    j.host = link->trouble;
    j.limit_ns = (uint64_t)(1e9 * link->options.wait_s);
    int64_t v = vector ? 16 / (int64_t)fm_element_bytes(element) : 1;
    j.held = true;
    for (int32_t i = 0; i < count; i++) {
        j.message[i] = pull_of(g, &messages[i], v);
        j.held = j.held && messages[i].held;
    }
    fm_ticket ticket = ask(g, stream);
    if (count == 1 && is_patient(&messages[0])) {
        meet_kernel<<<1, FM_LINK_RANKS, 0, link->stream>>>(j);
        FM_LAUNCHED();
        branch(g, ticket);
        copy_all(g, &messages[0], link->copies);
        FM_CUDA(cudaEventRecord(g->ended[ticket - 1], link->copies));
        return ticket;
    }
    if (element == FM_ELEMENT_F32) {
        launch<float>(j, vector, link->stream);
    } else {
        assert(element == FM_ELEMENT_BF16);
        launch<bf16>(j, vector, link->stream);
    }
    queued(g, ticket);
    return ticket;
}

} // namespace fm_dist
