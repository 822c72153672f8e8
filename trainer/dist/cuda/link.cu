/* link.cu: see link.h. Sets up what the communicators of a rank share. */
#include "trainer/dist/cuda/link_state.cuh"

#include <cudaTypedefs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace fm_dist {

enum { BUS_BYTES = 32 };

/* What each rank says of itself. */
struct introduction {
    fm_host host;
    char bus[BUS_BYTES]; /* of its GPU */
    int32_t kind;
};

/* A region that a rank shares. */
struct offered {
    cudaIpcMemHandle_t handle;
    int64_t offset, bytes; /* of the region in the allocation that the handle names */
    int32_t refused;       /* cudaError_t */
    int32_t reserved;
};

static fm_status gather(const fm_gpu_link *link, const void *own, size_t bytes, void *all,
                        fm_error *reterr) {
    return fm_meeting_gather(link->options.meeting, own, bytes, all, link->options.seconds, reterr);
}

/* -- hosts and GPUs */

static void introduce(const fm_gpu_link *link, introduction *own) {
    *own = {};
    own->kind = link->options.kind;
    fm_host_find(&own->host);
    int device = 0;
    FM_CUDA(cudaGetDevice(&device));
    FM_CUDA(cudaDeviceGetPCIBusId(own->bus, sizeof own->bus, device));
}

static bool is_near(const fm_gpu_link *link, int32_t r) {
    return link->topology.rank[r].host == link->topology.rank[link->rank].host;
}

/* Whether this rank's GPU can read the memory of rank r's, where that is on this host. */
static fm_status check_peer(const fm_gpu_link *link, const introduction *all, int32_t r,
                            fm_error *reterr) {
    const introduction *own = &all[link->rank];
    int device = 0, other = 0, can = 0;
    if (all[r].kind != own->kind) {
        return fm_fail(reterr, FM_ERR_USAGE, "rank %d uses another way to communicate than rank %d",
                       (int)r, (int)link->rank);
    }
    if (link->options.kind != FM_LINK_PEER || !is_near(link, r)) return FM_OK;
    if (strcmp(all[r].bus, own->bus) == 0) {
        if (link->options.may_share_gpus) return FM_OK;
        return fm_fail(reterr, FM_ERR_USAGE, "ranks %d and %d have the same GPU %s",
                       (int)link->rank, (int)r, own->bus);
    }
    FM_CUDA(cudaGetDevice(&device));
    if (cudaDeviceGetByPCIBusId(&other, all[r].bus) != cudaSuccess ||
        cudaDeviceCanAccessPeer(&can, device, other) != cudaSuccess || !can) {
        (void)cudaGetLastError();
        return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                       "GPU %s of rank %d cannot read the memory of GPU %s of rank %d; use NCCL",
                       own->bus, (int)link->rank, all[r].bus, (int)r);
    }
    return FM_OK;
}

/* Finds where all ranks are, and decides how they exchange. */
static fm_status find_hosts(fm_gpu_link *link, const introduction *all, fm_error *reterr) {
    fm_host *hosts = (fm_host *)calloc((size_t)link->size, sizeof *hosts);
    if (!hosts) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a link between ranks");
    for (int32_t r = 0; r < link->size; r++)
        hosts[r] = all[r].host;
    fm_status status = fm_topology_make(hosts, link->size, &link->topology, reterr);
    free(hosts);
    if (status) return status;
    bool reads_peers = link->options.kind == FM_LINK_PEER;
    link->uses_nccl = !reads_peers || link->topology.n_host > 1;
    for (int32_t h = 0; h < link->topology.n_host && reads_peers; h++) {
        const fm_topology_host *host = &link->topology.host[h];
        if (host->size <= FM_LINK_RANKS) continue;
        return fm_fail(reterr, FM_ERR_LIMIT, "%d ranks on host %s, expected at most %d GPUs",
                       (int)host->size, host->name, FM_LINK_RANKS);
    }
    return FM_OK;
}

static fm_status meet(fm_gpu_link *link, fm_error *reterr) {
    introduction own;
    introduce(link, &own);
    introduction *all = (introduction *)calloc((size_t)link->size, sizeof *all);
    if (!all) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a link between ranks");
    fm_status status = gather(link, &own, sizeof own, all, reterr);
    if (!status) status = find_hosts(link, all, reterr);
    for (int32_t r = 0; r < link->size && !status; r++) {
        if (r != link->rank) status = check_peer(link, all, r, reterr);
    }
    free(all);
    return status;
}

/* -- shared memory */

/* The allocation that has this memory, and the place in it. */
static cudaError_t find_allocation(void *memory, int64_t *ret_offset) {
    void *found = NULL;
    cudaDriverEntryPointQueryResult answer;
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &found, 12000,
                                                         cudaEnableDefault, &answer);
    if (error != cudaSuccess || answer != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUresult status =
        ((PFN_cuMemGetAddressRange_v3020)found)(&base, &bytes, (CUdeviceptr)(uintptr_t)memory);
    *ret_offset = (int64_t)((uintptr_t)memory - (uintptr_t)base);
    return status == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

static offered offer(void *memory, size_t bytes) {
    offered o = {};
    o.bytes = (int64_t)bytes;
    cudaError_t error = find_allocation(memory, &o.offset);
    if (error == cudaSuccess) error = cudaIpcGetMemHandle(&o.handle, memory);
    if (error != cudaSuccess) (void)cudaGetLastError();
    o.refused = error;
    return o;
}

static fm_status open_all(fm_gpu_link *link, int32_t number, const offered *all, fm_error *reterr) {
    region *at = &link->region[number];
    for (int32_t r = 0; r < link->size; r++) {
        if (all[r].refused) {
            return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                           "rank %d cannot share its GPU memory with other processes: %s", (int)r,
                           cudaGetErrorString((cudaError_t)all[r].refused));
        }
        if (!is_near(link, r)) continue;
        const int32_t place = link->topology.rank[r].place;
        at->base[place] = at->memory;
        if (r == link->rank) continue;
        cudaError_t error =
            cudaIpcOpenMemHandle(&at->opened[place], all[r].handle, cudaIpcMemLazyEnablePeerAccess);
        if (error != cudaSuccess) {
            (void)cudaGetLastError();
            at->opened[place] = NULL;
            return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                           "rank %d cannot open GPU memory of rank %d: %s", (int)link->rank, (int)r,
                           cudaGetErrorString(error));
        }
        at->base[place] = (char *)at->opened[place] + all[r].offset;
    }
    return FM_OK;
}

static bool is_over(const fm_gpu_link *link) {
    return link->watch && fm_nccl_watch_is_over(link->watch);
}

/* Closes the peers' regions from `first` on and waits until the others have done so. */
static void close_from(fm_gpu_link *link, int32_t first, bool was_over) {
    for (int32_t number = first; number < link->n_region; number++) {
        for (int32_t place = 0; place < FM_LINK_RANKS; place++) {
            void *opened = link->region[number].opened[place];
            if (opened && cudaIpcCloseMemHandle(opened) != cudaSuccess) (void)cudaGetLastError();
        }
        link->region[number] = {};
    }
    /* A rank that failed has no peers to wait for. */
    if (link->n_region > first && !link->trouble->happened && !was_over) {
        char none = 0, all[FM_MEETING_RANKS];
        fm_status status = gather(link, &none, sizeof none, all, NULL);
        (void)status;
    }
    link->n_region = fm_cuda::min_size(link->n_region, first);
}

/* -- creating */

static fm_status allocate(fm_gpu_link *link, fm_error *reterr) {
    int low = 0, high = 0;
    FM_CUDA(cudaDeviceGetStreamPriorityRange(&low, &high));
    size_t flags_bytes = FM_LINK_GROUPS * sizeof *link->flags;
    bool made =
        cudaStreamCreateWithPriority(&link->stream, cudaStreamNonBlocking, high) == cudaSuccess &&
        cudaStreamCreateWithPriority(&link->copies, cudaStreamNonBlocking, high) == cudaSuccess &&
        cudaMalloc((void **)&link->flags, flags_bytes) == cudaSuccess &&
        cudaMalloc((void **)&link->memory, sizeof *link->memory) == cudaSuccess &&
        cudaHostAlloc((void **)&link->trouble, sizeof *link->trouble, cudaHostAllocPortable) ==
            cudaSuccess;
    if (!made) {
        (void)cudaGetLastError();
        return fm_fail(reterr, FM_ERR_NOMEM, "the GPU refused a stream or memory for exchanges");
    }
    FM_CUDA(cudaMemset(link->flags, 0, flags_bytes));
    FM_CUDA(cudaMemset(link->memory, 0, sizeof *link->memory));
    memset(link->trouble, 0, sizeof *link->trouble);
    FM_CUDA(cudaDeviceSynchronize()); /* before a peer writes a flag */
    return FM_OK;
}

/* -- the thread that watches exchanges */

static fm_nccl_beat look(void *context, int32_t number) {
    const fm_gpu_link *link = (const fm_gpu_link *)context;
    const volatile beat *b = &link->trouble->beats[link->watched[number]->index];
    const uint32_t ended = b->ended, begun = b->begun; /* in this order, since both may move */
    return {begun, ended, link->name[b->name]};
}

static const char *reason(void *context) {
    const fm_run_end *run = &((const fm_gpu_link *)context)->options.run;
    return run->reason ? run->reason(run->context) : NULL;
}

static void end(void *context, const char *why) {
    const fm_run_end *run = &((const fm_gpu_link *)context)->options.run;
    if (run->end) run->end(run->context, why);
}

static void stop(void *context) {
    *(volatile uint32_t *)&((const fm_gpu_link *)context)->trouble->stops = 1;
}

static fm_status watch(fm_gpu_link *link, fm_error *reterr) {
    if (!link->uses_nccl && !link->options.run.reason) return FM_OK;
    fm_nccl_watch_options options = {};
    options.nccl = link->uses_nccl ? nccl_library() : NULL;
    options.wait_s = link->options.wait_s;
    options.look = look, options.reason = reason, options.end = end, options.stop = stop;
    options.context = link;
    return fm_nccl_watch_start(&options, &link->watch, reterr);
}

} // namespace fm_dist

using namespace fm_dist;

fm_status fm_gpu_link_create(const fm_gpu_link_options *options, fm_gpu_link **ret_link,
                             fm_error *reterr) {
    fm_gpu_link *link = (fm_gpu_link *)calloc(1, sizeof *link);
    if (!link) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a link between ranks");
    link->options = *options;
    link->rank = fm_meeting_rank(options->meeting);
    link->size = fm_meeting_size(options->meeting);
    fm_status status = meet(link, reterr);
    if (!status && link->uses_nccl) status = nccl_open(reterr);
    if (!status) status = allocate(link, reterr);
    if (!status) status = watch(link, reterr);
    if (!status) {
        status = fm_gpu_link_share(link, link->flags, FM_LINK_GROUPS * sizeof *link->flags, reterr);
    }
    if (status) {
        fm_gpu_link_destroy(link);
        return status;
    }
    *ret_link = link;
    return FM_OK;
}

static void destroy_group(group *g) {
    for (int i = 0; i < TICKETS; i++) {
        if (g->asked[i]) FM_CUDA(cudaEventDestroy(g->asked[i]));
        if (g->met[i]) FM_CUDA(cudaEventDestroy(g->met[i]));
        if (g->ended[i]) FM_CUDA(cudaEventDestroy(g->ended[i]));
    }
    FM_CUDA(cudaFree(g->sends));
    FM_CUDA(cudaFree(g->arrives));
    free(g->member);
    free(g);
}

void fm_gpu_link_destroy(fm_gpu_link *link) {
    if (!link) return;
    if (link->stream) FM_CUDA(cudaStreamSynchronize(link->stream));
    if (link->copies) FM_CUDA(cudaStreamSynchronize(link->copies));
    /* Until here the thread ends what would be waited for in vain. It leaves NCCL in the end. */
    const bool was_over = is_over(link);
    fm_nccl_watch_stop(link->watch);
    link->watch = NULL;
    for (int32_t i = 0; i < link->n_group; i++)
        destroy_group(link->group[i]);
    close_from(link, 0, was_over);
    FM_CUDA(cudaFree(link->flags));
    FM_CUDA(cudaFree(link->memory));
    FM_CUDA(cudaFreeHost(link->trouble));
    if (link->stream) FM_CUDA(cudaStreamDestroy(link->stream));
    if (link->copies) FM_CUDA(cudaStreamDestroy(link->copies));
    fm_topology_free(&link->topology);
    free(link);
}

fm_status fm_gpu_link_share(fm_gpu_link *link, void *memory, size_t bytes, fm_error *reterr) {
    if (link->n_region == FM_LINK_REGIONS) {
        return fm_fail(reterr, FM_ERR_LIMIT, "ranks share at most %d regions of GPU memory",
                       FM_LINK_REGIONS);
    }
    region *at = &link->region[link->n_region];
    at->memory = (char *)memory, at->bytes = bytes;
    if (link->options.kind != FM_LINK_PEER) {
        link->n_region++;
        return FM_OK;
    }
    bool is_alone = link->topology.host[link->topology.rank[link->rank].host].size == 1;
    offered own = is_alone ? offered{} : offer(memory, bytes);
    offered *all = (offered *)calloc((size_t)link->size, sizeof *all);
    if (!all) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for what ranks share");
    fm_status status = gather(link, &own, sizeof own, all, reterr);
    if (!status) status = open_all(link, link->n_region++, all, reterr);
    free(all);
    return status;
}

void fm_gpu_link_unshare(fm_gpu_link *link) {
    FM_CUDA(cudaStreamSynchronize(link->stream));
    FM_CUDA(cudaStreamSynchronize(link->copies));
    close_from(link, 1, is_over(link));
}

fm_status fm_gpu_link_add_group(fm_gpu_link *link, const int32_t *members, int32_t size,
                                const fm_kernels *kernels, fm_comm **ret_comm, fm_error *reterr) {
    assert(size >= 1 && link->n_group < FM_LINK_GROUPS);
    group *g = (group *)calloc(1, sizeof *g);
    if (g) g->member = (int32_t *)calloc((size_t)size, sizeof *g->member);
    if (!g || !g->member) {
        free(g);
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a group of ranks");
    }
    g->link = link, g->index = link->n_group, g->size = size;
    link->group[link->n_group++] = g;
    g->comm.size = size, g->comm.kernels = kernels, g->comm.context = g;
    g->comm.rank = -1;
    g->uses_nccl = link->options.kind == FM_LINK_NCCL;
    for (int32_t r = 0; r < size; r++) {
        g->member[r] = members[r];
        if (members[r] == link->rank) g->comm.rank = r;
        g->uses_nccl = g->uses_nccl || !is_near(link, members[r]);
    }
    assert(g->comm.rank >= 0);
    for (int32_t r = 0; r < size && !g->uses_nccl; r++)
        g->place[r] = link->topology.rank[members[r]].place;
    g->comm.begin = g->uses_nccl ? begin_nccl : begin_peer;
    g->comm.finish = wait_for_end;
    for (int i = 0; i < TICKETS; i++) {
        FM_CUDA(cudaEventCreateWithFlags(&g->asked[i], cudaEventDisableTiming));
        FM_CUDA(cudaEventCreateWithFlags(&g->met[i], cudaEventDisableTiming));
        FM_CUDA(cudaEventCreateWithFlags(&g->ended[i], cudaEventDisableTiming));
    }
    if (link->uses_nccl) {
        fm_status status = nccl_join(link, g, reterr);
        if (status) return status;
    }
    *ret_comm = &g->comm;
    return FM_OK;
}

fm_status fm_gpu_link_check(fm_gpu_link *link, fm_error *reterr) {
    const volatile trouble *t = link->trouble;
    fm_status status = link->watch ? fm_nccl_watch_check(link->watch, reterr) : FM_OK;
    if (status || !t->happened) return status;
    const char *name = link->name[t->name] ? link->name[t->name] : "unnamed";
    if (t->stage == STAGE_PLACE) {
        return fm_fail(reterr, FM_ERR_CLOSED,
                       "rank %d sends from another place than this rank in the exchange '%s'",
                       (int)t->rank, name);
    }
    return fm_fail(reterr, FM_ERR_CLOSED, "rank %d did not %s within %.0f s in the exchange '%s'",
                   (int)t->rank, t->stage == STAGE_READY ? "arrive" : "finish reading",
                   link->options.wait_s, name);
}

int64_t fm_gpu_link_least(fm_gpu_link *link, int64_t value) {
    int64_t all[FM_MEETING_RANKS];
    if (gather(link, &value, sizeof value, all, NULL)) return 0;
    for (int32_t r = 0; r < link->size; r++)
        value = fm_cuda::min_size(value, all[r]);
    return value;
}

double fm_gpu_link_waited_s(fm_gpu_link *link) {
    uint64_t cycles = 0;
    int device = 0, khz = 1;
    FM_CUDA(cudaGetDevice(&device));
    FM_CUDA(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, device));
    FM_CUDA(cudaMemcpy(&cycles, &link->memory->waited, sizeof cycles, cudaMemcpyDeviceToHost));
    return (double)cycles / (1e3 * khz);
}

namespace fm_dist {

/* -- exchanges of both kinds */

/* Names are text constants, so their addresses tell them apart. */
uint32_t name_of(fm_gpu_link *link, const char *name) {
    for (int32_t i = 0; i < link->n_name; i++) {
        if (link->name[i] == name) return (uint32_t)i;
    }
    if (link->n_name == NAMES) return NAMES - 1;
    link->name[link->n_name] = name;
    return (uint32_t)link->n_name++;
}

fm_ticket ask(group *g, fm_stream *stream) {
    uint32_t at = g->begun++ % TICKETS;
    FM_CUDA(cudaEventRecord(g->asked[at], fm_cuda::queue(stream)));
    FM_CUDA(cudaStreamWaitEvent(g->link->stream, g->asked[at], 0));
    return at + 1;
}

void queued(group *g, fm_ticket ticket) {
    FM_CUDA(cudaEventRecord(g->ended[ticket - 1], g->link->stream));
}

void branch(group *g, fm_ticket ticket) {
    FM_CUDA(cudaEventRecord(g->met[ticket - 1], g->link->stream));
    FM_CUDA(cudaStreamWaitEvent(g->link->copies, g->met[ticket - 1], 0));
}

void wait_for_end(fm_comm *comm, fm_ticket ticket, fm_stream *stream) {
    const group *g = (const group *)comm->context;
    assert(ticket >= 1 && ticket <= TICKETS);
    FM_CUDA(cudaStreamWaitEvent(fm_cuda::queue(stream), g->ended[ticket - 1], 0));
}

} // namespace fm_dist
