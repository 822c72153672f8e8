/* inspect_json.h: the JSON objects of foldmill inspect --json, written to stdout. */
#ifndef FM_CLI_INSPECT_JSON_H
#define FM_CLI_INSPECT_JSON_H

#include "cache/store/refusals.h"
#include "cache/store/store.h"
#include "proto/base/json_text.h"

/* {"generation", "content", "chains", "refused", "shards", "shard_bytes",
 *  "parts": {NAME: {"chains", "stored_bytes", "decoded_bytes"}},
 *  "refusals": [{"chain", "reason"}]}, with all refusals. */
FM_MUST_USE fm_status fm_inspect_cache_json(const char *path, const fm_store *store,
                                            fm_arena *arena, fm_error *reterr);

/* {"chain", "number" (from 0, in the generation), "residues", "sequence",
 *  "msa": {"rows", "sources": [{"name", "rows"}]},
 *  "hits": {"hits", "mapped"},
 *  "structure": {"atoms", "resolution", "release_date", "predicted"},
 *  "parts": {NAME: {"hash", "stored_bytes", "decoded_bytes"}}}
 * Parts that the chain lacks are omitted, as are an unknown resolution and date. */
FM_MUST_USE fm_status fm_inspect_chain_json(const fm_store *store, uint32_t chain, fm_arena *arena,
                                            fm_error *reterr);

/* Members of the object that is open, which other commands print too. Identity of the generation:
 * "generation", "content", "chains", "refused", "shards", "shard_bytes". */
void fm_inspect_json_info(fm_json_writer *json, const fm_store_info *info);
/* "parts", as above. */
void fm_inspect_json_parts(fm_json_writer *json, const fm_store *store);
/* "refusals", as above. */
void fm_inspect_json_refusals(fm_json_writer *json, const fm_refusal *refusal, uint32_t n);

#endif
