/* greeting.c: see greeting.h. */
#include "server/greeting.h"

#include "proto/schema.h"

#include <string.h>

static bool is_zero_hash(const fm_sha256 *hash) {
    static const fm_sha256 zero;
    return memcmp(hash, &zero, sizeof zero) == 0;
}

static fm_status check_snapshot(const fm_wire_hello *hello, const fm_sample_source *source,
                                fm_error *reterr) {
    if (hello->snapshot_name[0] && strcmp(hello->snapshot_name, source->snapshot_name) != 0) {
        return fm_fail(reterr, FM_ERR_NOT_FOUND, "snapshot %s is not served, %s is",
                       hello->snapshot_name, source->snapshot_name);
    }
    if (is_zero_hash(&hello->snapshot) ||
        memcmp(&hello->snapshot, &source->snapshot, sizeof source->snapshot) == 0) {
        return FM_OK;
    }
    char wanted[FM_SHA256_HEX], served[FM_SHA256_HEX];
    fm_sha256_format(&hello->snapshot, wanted);
    fm_sha256_format(&source->snapshot, served);
    return fm_fail(reterr, FM_ERR_NOT_FOUND, "snapshot %.16s... is not served, %.16s... is", wanted,
                   served);
}

fm_status fm_greeting_check(const fm_wire_hello *hello, const fm_sample_source *source,
                            const fm_access_token *token, fm_error *reterr) {
    if (token && !fm_access_allows(token->snapshots, source->snapshot_name)) {
        return fm_fail(reterr, FM_ERR_DENIED, "this access token is not for the server's snapshot");
    }
    if (hello->version_max < FM_WIRE_VERSION_MIN || hello->version_min > FM_WIRE_VERSION_MAX) {
        return fm_fail(
            reterr, FM_ERR_UNSUPPORTED, "the client speaks protocol %u to %u, this server %u to %u",
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
    return check_snapshot(hello, source, reterr);
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
