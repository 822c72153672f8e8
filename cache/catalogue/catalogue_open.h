/* catalogue_open.h: opens the implementations behind catalogue.h. Options are complete (no zeros,
 * no NULL except worker and cache) and must stay valid. */
#ifndef FM_CACHE_CATALOGUE_OPEN_H
#define FM_CACHE_CATALOGUE_OPEN_H

#include "cache/catalogue/catalogue.h"

FM_MUST_USE fm_status fm_catalogue_open_embedded(const char *path,
                                                 const fm_catalogue_options *options,
                                                 fm_catalogue **ret_catalogue, fm_error *reterr);
FM_MUST_USE fm_status fm_catalogue_open_postgresql(const char *url,
                                                   const fm_catalogue_options *options,
                                                   fm_catalogue **ret_catalogue, fm_error *reterr);
FM_MUST_USE fm_status fm_catalogue_migrate_postgresql(const char *url, uint32_t patience_ms,
                                                      uint32_t *ret_n_applied,
                                                      uint32_t *ret_n_known, fm_error *reterr);

/* The pause after failure number `failures` >= 1, in ms. */
uint64_t fm_catalogue_backoff_ms(const fm_catalogue_options *options, uint32_t failures);

/* The error for a job that has another list: FM_ERR_EXISTS. */
fm_status fm_catalogue_fail_listing(const fm_catalogue *catalogue, bool other_options,
                                    fm_error *reterr);

#endif
