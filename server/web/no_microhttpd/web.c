/* web.c: web.h in a build without libmicrohttpd: every request for a listener is refused. */
#include "server/web/web.h"

fm_status fm_web_start(const char *address, const fm_web_site *site, fm_web **ret_web,
                       fm_error *reterr) {
    (void)site;
    (void)ret_web;
    return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                   "cannot serve HTTP on %s: this program was built without libmicrohttpd",
                   address);
}

void fm_web_stop(fm_web *web) {
    (void)web;
}

const char *fm_web_get_url(const fm_web *web) {
    (void)web;
    return NULL;
}
