/* greeting.c: see greeting.h. */
#include "server/greeting.h"

#include "proto/schema.h"

fm_status fm_greeting_check(const fm_wire_hello *hello, fm_error *reterr) {
    if (hello->version_max < FM_WIRE_VERSION_MIN || hello->version_min > FM_WIRE_VERSION_MAX) {
        return fm_fail(
            reterr, FM_ERR_UNSUPPORTED,
            "the client speaks protocol %u to %u, this server %u to %u: use the same version of "
            "foldmill for both",
            hello->version_min, hello->version_max, FM_WIRE_VERSION_MIN, FM_WIRE_VERSION_MAX);
    }
    if (hello->schema_hash != fm_schema_hash()) {
        return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                       "the client's feature table is %016llx, this server's %016llx: use the same "
                       "version of foldmill for both",
                       (unsigned long long)hello->schema_hash,
                       (unsigned long long)fm_schema_hash());
    }
    if (hello->features != 0) {
        return fm_fail(reterr, FM_ERR_UNSUPPORTED, "the server does not know features %x",
                       hello->features);
    }
    return FM_OK;
}

fm_wire_message fm_greeting_welcome(const fm_sample_source *source, uint32_t heartbeat_ms) {
    fm_wire_message answer = {.kind = FM_WIRE_WELCOME};
    answer.welcome = (fm_wire_welcome){.version = FM_WIRE_VERSION_MAX,
                                       .schema_hash = fm_schema_hash(),
                                       .snapshot = source->snapshot,
                                       .n_chain = source->n_chain,
                                       .heartbeat_ms = heartbeat_ms,
                                       .max_stream = FM_LIMIT_N_STREAM,
                                       .agent = "foldmill serve"};
    fm_wire_text(answer.welcome.snapshot_name, sizeof answer.welcome.snapshot_name,
                 source->snapshot_name);
    return answer;
}
