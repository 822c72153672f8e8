/* kernel_trace.c: writes when each kernel, copy and fill of a program ran, by the device's clock.
 *
 * A shared library that CUDA loads into an unchanged program:
 *
 *     CUDA_INJECTION64_PATH=libfm_kernel_trace.so FM_TRACE=FILE bench_step ...
 *
 * CUPTI records every node of every graph replay. Recording slows the host, not the kernels; the
 * gaps between nodes grow by some tenths of a microsecond. The first %p in FILE stands for the
 * number of the process, since ranks are processes. At exit FILE holds one line per record:
 *
 *     start_ns <tab> end_ns <tab> graph <tab> node <tab> blocks <tab> threads <tab>
 *     registers <tab> shared_bytes <tab> name
 *
 * graph is 0 for what was launched without one. deploy/gpu/trace makes tables of it. */
#include <cupti.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_BYTES = 8 << 20, BUFFER_ALIGNMENT = 8 };

static FILE *output;

static void request_buffer(uint8_t **ret_buffer, size_t *ret_bytes, size_t *ret_max_records) {
    *ret_buffer = aligned_alloc(BUFFER_ALIGNMENT, BUFFER_BYTES);
    *ret_bytes = *ret_buffer ? BUFFER_BYTES : 0;
    *ret_max_records = 0; /* as many as fit */
}

static void write_kernel(const CUpti_ActivityKernel10 *k) {
    fprintf(output,
            "%" PRIu64 "\t%" PRIu64 "\t%u\t%" PRIu64 "\t%" PRId64 "\t%" PRId64 "\t%u\t%u\t%s\n",
            k->start, k->end, k->graphId, k->graphNodeId, (int64_t)k->gridX * k->gridY * k->gridZ,
            (int64_t)k->blockX * k->blockY * k->blockZ, k->registersPerThread,
            k->staticSharedMemory + k->dynamicSharedMemory, k->name);
}

static void write_record(const CUpti_Activity *record) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        write_kernel((const CUpti_ActivityKernel10 *)record);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const CUpti_ActivityMemcpy6 *m = (const CUpti_ActivityMemcpy6 *)record;
        fprintf(output,
                "%" PRIu64 "\t%" PRIu64 "\t%u\t%" PRIu64 "\t0\t0\t0\t0\tcopy of %" PRIu64
                " bytes\n",
                m->start, m->end, m->graphId, m->graphNodeId, m->bytes);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const CUpti_ActivityMemset4 *m = (const CUpti_ActivityMemset4 *)record;
        fprintf(output,
                "%" PRIu64 "\t%" PRIu64 "\t%u\t%" PRIu64 "\t0\t0\t0\t0\tfill of %" PRIu64
                " bytes\n",
                m->start, m->end, m->graphId, m->graphNodeId, m->bytes);
    }
}

static void complete_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes,
                            size_t valid_bytes) {
    (void)context, (void)stream, (void)bytes;
    CUpti_Activity *record = NULL;
    while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS)
        write_record(record);
    free(buffer);
}

static void finish(void) {
    (void)cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    if (fclose(output) != 0) perror("kernel_trace");
}

static int check(CUptiResult result, const char *call) {
    const char *text = "unknown error";
    if (result == CUPTI_SUCCESS) return 1;
    (void)cuptiGetResultString(result, &text);
    fprintf(stderr, "kernel_trace: %s: %s\n", call, text);
    return 0;
}
#define CHECK(call) check(call, #call)

/* Opens the file that `pattern` names for this process. */
static FILE *open_output(const char *pattern) {
    char path[4096];
    const char *at = strstr(pattern, "%p");
    if (!at) return fopen(pattern, "w");
    int n = snprintf(path, sizeof path, "%.*s%ld%s", (int)(at - pattern), pattern, (long)getpid(),
                     at + 2);
    return n < (int)sizeof path ? fopen(path, "w") : NULL;
}

/* CUDA calls this when the program's first context is made. */
int InitializeInjection(void);
int InitializeInjection(void) {
    const char *path = getenv("FM_TRACE");
    if (!path || !(output = open_output(path))) {
        fprintf(stderr, "kernel_trace: FM_TRACE must name a file that can be written\n");
        return 0;
    }
    atexit(finish);
    return CHECK(cuptiActivityRegisterCallbacks(request_buffer, complete_buffer)) &&
           CHECK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) &&
           CHECK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY)) &&
           CHECK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
}
