/* inspect_json.h: `foldmill inspect --json`: one JSON object on stdout. */
#ifndef FM_CLI_INSPECT_JSON_H
#define FM_CLI_INSPECT_JSON_H

#include "cache/store/store.h"

/* {"generation", "content", "chains", "refused", "shards", "shard_bytes", "parts": {NAME:
 * {"chains", "stored_bytes", "decoded_bytes"}}, "refusals": [{"chain", "reason"}]}; all refusals.
 */
FM_MUST_USE fm_status fm_inspect_cache_json(const char *path, const fm_store *store,
                                            fm_arena *arena, fm_error *reterr);

/* {"chain", "residues", "sequence", "msa": {"rows", "sources": [{"name", "rows"}]}, "hits":
 * {"hits", "mapped"}, "structure": {"atoms", "resolution", "release_date", "predicted"}, "parts":
 * {NAME:
 * {"hash", "stored_bytes", "decoded_bytes"}}}; what a chain does not have is left out, and so are
 * a resolution and a date that are not known. */
FM_MUST_USE fm_status fm_inspect_chain_json(const fm_store *store, const char *name,
                                            fm_arena *arena, fm_error *reterr);

#endif
