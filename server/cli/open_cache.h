/* open_cache.h: how commands open a cache and find its chains, with advice where that fails. */
#ifndef FM_CLI_OPEN_CACHE_H
#define FM_CLI_OPEN_CACHE_H

#include "cache/source/names.h"
#include "cache/store/refusals.h"
#include "cache/store/store.h"

/* fm_store_open, with fm_cli_explain_cache. */
FM_MUST_USE fm_status fm_cli_open_store(const char *path, fm_store **ret_store, fm_error *reterr);

/* `status` is what opening the cache in folder `path` failed with. Where it means that there is no
 * cache, replaces the message. The new one names what the path is (nothing, a file, a dataset,
 * components alone, an unfinished cache) and the remedy. Returns status. */
FM_MUST_USE fm_status fm_cli_explain_cache(const char *path, fm_status status, fm_error *reterr);

/* FM_ERR_USAGE when `path`, which should be the folder of a dataset, is a cache or a file. */
FM_MUST_USE fm_status fm_cli_check_dataset(const char *path, fm_error *reterr);

/* FM_ERR_USAGE when `cache`, where a build of `dataset` would write, is a file or the folder of
 * this or another dataset: one with a cache in it would no longer be accepted as a dataset.
 * `option` is the option that names `cache`, for the error: "--cache". dataset may be NULL. */
FM_MUST_USE fm_status fm_cli_check_target(const char *option, const char *cache,
                                          const char *dataset, fm_error *reterr);

/* The chain that a user calls `name`. An exact name goes first. Otherwise the id is compared
 * without regard to case, but the chain, which is the letters after the last '_', with it. The
 * dataset may be omitted when one chain fits. `path` is the cache's folder; refusals are read into
 * the arena when they are needed.
 *
 * FM_ERR_NOT_FOUND says why the build refused the chain, if it did, or else which chains the entry
 * has. FM_ERR_USAGE: several chains fit. */
FM_MUST_USE fm_status fm_cli_find_chain(const char *path, const fm_store *store, const char *name,
                                        fm_arena *arena, uint32_t *ret_chain, fm_error *reterr);

/* Replaces the names of a list by the store's spelling of them, compared as fm_cli_find_chain does.
 * A name without a dataset selects the chains of all datasets. *ret_missing are the names that no
 * chain of the store has; they stay in *ret_names, too. Memory is the arena's. */
FM_MUST_USE fm_status fm_cli_resolve_names(const fm_store *store, const fm_names *names,
                                           fm_arena *arena, fm_names *ret_names,
                                           fm_names *ret_missing, fm_error *reterr);

/* Those of `names` that the build of the current generation refused, with its reasons, and how many
 * of the names it did not refuse. Memory is the arena's. */
FM_MUST_USE fm_status fm_cli_find_refusals(const char *path, const fm_names *names, fm_arena *arena,
                                           fm_refusals *ret_refusals, uint32_t *ret_n_unknown,
                                           fm_error *reterr);

#endif
