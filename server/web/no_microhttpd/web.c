/* web.c: web.h in a build without libmicrohttpd: every request for a listener is refused. */
#include "server/web/web.h"

#include <unistd.h>

static fm_status fail_web(const char *address, fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                   "cannot serve HTTP on %s: this program was built without libmicrohttpd",
                   address);
}

fm_status fm_web_start(const char *address, bool is_insecure, const fm_web_site *site,
                       fm_web **ret_web, fm_error *reterr) {
    (void)is_insecure;
    (void)site;
    (void)ret_web;
    return fail_web(address, reterr);
}

fm_status fm_web_start_on(int listening, const fm_address *bound, const fm_web_site *site,
                          fm_web **ret_web, fm_error *reterr) {
    char text[FM_ADDRESS_TEXT_BYTES];
    (void)site;
    (void)ret_web;
    close(listening);
    return fail_web(fm_address_format(bound, text), reterr);
}

void fm_web_stop(fm_web *web) {
    (void)web;
}

const char *fm_web_get_url(const fm_web *web) {
    (void)web;
    return NULL;
}
