/* catalogue_absent.c: takes the place of postgresql/ when libpq was not found. */
#include "cache/catalogue/catalogue_open.h"

static fm_status refuse(fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                   "this foldmill was built without libpq; use a path for the embedded catalogue, "
                   "or build with libpq-dev installed");
}

fm_status fm_catalogue_open_postgresql(const char *url, const fm_catalogue_options *options,
                                       fm_catalogue **ret_catalogue, fm_error *reterr) {
    (void)url;
    (void)options;
    (void)ret_catalogue;
    return refuse(reterr);
}

fm_status fm_catalogue_migrate_postgresql(const char *url, uint32_t patience_ms,
                                          uint32_t *ret_n_applied, uint32_t *ret_n_known,
                                          fm_error *reterr) {
    (void)url;
    (void)patience_ms;
    (void)ret_n_applied;
    (void)ret_n_known;
    return refuse(reterr);
}
