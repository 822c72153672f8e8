/* world.c: see world.h. */
#include "trainer/app/ranks/world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char fm_world_own_launcher[] = "foldmill";
const char fm_world_rank_name[] = "FOLDMILL_RANK", fm_world_size_name[] = "FOLDMILL_RANKS",
           fm_world_local_name[] = "FOLDMILL_LOCAL_RANK",
           fm_world_meeting_name[] = "FOLDMILL_MEETING",
           fm_world_began_name[] = "FOLDMILL_BEGAN_NS",
           fm_world_secret_name[] = "FOLDMILL_MEETING_SECRET";

/* torchrun's own store listens on MASTER_PORT, so ranks meet at the port behind it. */
enum { TORCH_PORTS_ON = 1, SLURM_FIRST_PORT = 20000, SLURM_PORTS = 10000 };

enum { MOST_GPUS = 64, LIST_BYTES = 1024, PART_BYTES = 64 };
static const char visible[] = "CUDA_VISIBLE_DEVICES";

static const struct launcher {
    const char *name, *rank, *size, *local;
} launchers[] = {
    {fm_world_own_launcher, fm_world_rank_name, fm_world_size_name, fm_world_local_name},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
};

static fm_status read_number(const char *name, int32_t least, int32_t most, int32_t *ret_number,
                             fm_error *reterr) {
    const char *text = getenv(name);
    char *end;
    long number = text ? strtol(text, &end, 10) : 0;
    if (text && *text >= '0' && *text <= '9' && !*end && number >= least && number <= most) {
        *ret_number = (int32_t)number;
        return FM_OK;
    }
    return fm_fail(reterr, FM_ERR_USAGE, "the variable %s is '%.32s', expected %d to %d", name,
                   text ? text : "not set", (int)least, (int)most);
}

static fm_status read_began(uint64_t *ret_ns, fm_error *reterr) {
    const char *text = getenv(fm_world_began_name);
    char *end;
    *ret_ns = 0;
    if (!text) return FM_OK;
    errno = 0;
    unsigned long long ns = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno) {
        return fm_fail(reterr, FM_ERR_USAGE, "the variable %s is '%.32s', expected nanoseconds",
                       fm_world_began_name, text);
    }
    *ret_ns = ns;
    return FM_OK;
}

/* The error does not show the secret. */
static fm_status read_secret(char out[FM_MEETING_SECRET_BYTES + 1], fm_error *reterr) {
    const char *text = getenv(fm_world_secret_name);
    size_t bytes = text ? strlen(text) : 0;
    if (bytes && (bytes < FM_MEETING_SECRET_LEAST || bytes > FM_MEETING_SECRET_BYTES)) {
        return fm_fail(
            reterr, FM_ERR_USAGE, "the variable %s has %zu characters, expected %d to %d",
            fm_world_secret_name, bytes, FM_MEETING_SECRET_LEAST, FM_MEETING_SECRET_BYTES);
    }
    if (bytes) memcpy(out, text, bytes);
    out[bytes] = '\0';
    return FM_OK;
}

/* Writes the first host of a list such as "node[003-007,9],other": "node003". */
static void first_host(const char *list, char *out, size_t out_bytes) {
    size_t n = strcspn(list, "[,"), digits = 0;
    const char *inside = list[n] == '[' ? list + n + 1 : "";
    digits = strcspn(inside, "-,]");
    snprintf(out, out_bytes, "%.*s%.*s", (int)n, list, (int)digits, inside);
}

/* `out` is empty where the variables do not say it. */
static fm_status find_torch_meeting(char out[FM_MEETING_ADDRESS_BYTES], fm_error *reterr) {
    const char *host = getenv("MASTER_ADDR"), *run = getenv("TORCHELASTIC_RUN_ID");
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    int32_t port;
    out[0] = '\0';
    if (!host || !getenv("MASTER_PORT")) return FM_OK;
    fm_status status = read_number("MASTER_PORT", 1, 65535 - TORCH_PORTS_ON, &port, reterr);
    if (status) return status;
    bool is_taken = agent && strcmp(agent, "True") == 0;
    snprintf(out, FM_MEETING_ADDRESS_BYTES, "tcp://%s%s%s:%d#%s", strchr(host, ':') ? "[" : "",
             host, strchr(host, ':') ? "]" : "", (int)port + (is_taken ? TORCH_PORTS_ON : 0),
             run ? run : "");
    return FM_OK;
}

/* The port follows from the job, so that jobs of one host rarely take each other's. */
static bool find_slurm_meeting(char out[FM_MEETING_ADDRESS_BYTES]) {
    const char *hosts = getenv("SLURM_STEP_NODELIST"), *job = getenv("SLURM_JOB_ID");
    const char *step = getenv("SLURM_STEP_ID");
    char host[256];
    if (!hosts || !job) return false;
    first_host(hosts, host, sizeof host);
    unsigned long number = strtoul(job, NULL, 10);
    snprintf(out, FM_MEETING_ADDRESS_BYTES, "tcp://%s:%lu#%s.%s", host,
             SLURM_FIRST_PORT + number % SLURM_PORTS, job, step ? step : "");
    return true;
}

static fm_status find_meeting(const char *meet, fm_world *world, fm_error *reterr) {
    const char *own = getenv(fm_world_meeting_name);
    if (!meet) meet = own;
    if (meet) {
        snprintf(world->meeting, sizeof world->meeting, "%s", meet);
        return FM_OK;
    }
    fm_status status = find_torch_meeting(world->meeting, reterr);
    if (status || world->meeting[0] || find_slurm_meeting(world->meeting)) return status;
    return fm_fail(reterr, FM_ERR_USAGE,
                   "%s has started rank %d of %d, but not said where the ranks meet; give --meet "
                   "tcp://HOST:PORT with a host of rank 0, or --meet file:PATH on a file system "
                   "that all hosts share",
                   world->launcher, (int)world->rank, (int)world->size);
}

fm_status fm_world_find(const char *meet, bool *ret_found, fm_world *ret_world, fm_error *reterr) {
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        const struct launcher *l = &launchers[i];
        if (!getenv(l->rank) || !getenv(l->size)) continue;
        *ret_world = (fm_world){.launcher = l->name};
        fm_status status = read_number(l->size, 1, FM_MEETING_RANKS, &ret_world->size, reterr);
        if (!status) {
            status = read_number(l->rank, 0, ret_world->size - 1, &ret_world->rank, reterr);
        }
        if (!status && getenv(l->local)) {
            status = read_number(l->local, 0, ret_world->rank, &ret_world->local_rank, reterr);
        }
        if (!status && i == 0) status = read_began(&ret_world->began_ns, reterr);
        if (!status) status = read_secret(ret_world->secret, reterr);
        *ret_found = !status && ret_world->size > 1;
        return status || !*ret_found ? status : find_meeting(meet, ret_world, reterr);
    }
    *ret_found = false;
    return FM_OK;
}

/* The part of a list "a,b,c" with that number; returns its length, 0 where there is none. */
static size_t find_part(const char *list, int32_t number, const char **ret_part) {
    for (; number > 0 && *list; number--) {
        list += strcspn(list, ",");
        list += *list == ',';
    }
    *ret_part = list;
    return strcspn(list, ",");
}

void fm_world_put_gpu_first(const fm_world *world) {
    char list[LIST_BYTES], first[LIST_BYTES + PART_BYTES];
    const char *given = getenv(visible), *part;
    size_t at = 0;
    list[0] = '\0';
    /* CUDA reads a list up to the first number that it does not have. */
    for (int i = 0; !given && i < MOST_GPUS; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", i ? "," : "", i);
    if (given) snprintf(list, sizeof list, "%s", given);
    size_t n = find_part(list, world->local_rank, &part);
    if (n == 0 || n >= PART_BYTES || part == list) return;
    /* "a,b,c" with b in front: "b,a,c". */
    snprintf(first, sizeof first, "%.*s,%.*s%s", (int)n, part, (int)(part - list - 1), list,
             part + n);
    setenv(visible, first, 1);
}
