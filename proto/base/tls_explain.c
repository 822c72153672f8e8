/* tls_explain.c: see tls_explain.h. A peer's alerts and our own findings have different codes. */
#include "proto/base/tls_explain.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

static const char no_tls_server[] =
    "the server speaks no TLS at this address; use the address that foldmill serve logs";
static const char no_tls_client[] =
    "the client speaks no TLS; an address that begins with tls:// is for this port";
static const char no_alpn_client[] = "the server does not speak " FM_TLS_ALPN " (ALPN)";
static const char no_alpn_server[] = "the client does not ask for " FM_TLS_ALPN " (ALPN)";

/* What a code means at the client and at the server. */
static const struct {
    int reason;
    fm_status status;
    const char *at_client, *at_server;
} reasons[] = {
    {SSL_R_WRONG_VERSION_NUMBER, FM_ERR_PROTOCOL, no_tls_server, no_tls_client},
    {SSL_R_HTTP_REQUEST, FM_ERR_PROTOCOL, no_tls_server, no_tls_client},
    {SSL_R_HTTPS_PROXY_REQUEST, FM_ERR_PROTOCOL, no_tls_server, no_tls_client},
    {SSL_R_UNSUPPORTED_PROTOCOL, FM_ERR_UNSUPPORTED, "the server does not speak TLS 1.3",
     "the client does not speak TLS 1.3"},
    {SSL_R_TLSV1_ALERT_PROTOCOL_VERSION, FM_ERR_UNSUPPORTED, "the server does not speak TLS 1.3",
     "the client does not speak TLS 1.3"},
    {SSL_R_NO_APPLICATION_PROTOCOL, FM_ERR_UNSUPPORTED, no_alpn_client, no_alpn_server},
    {SSL_R_CALLBACK_FAILED, FM_ERR_UNSUPPORTED, no_alpn_client, no_alpn_server},
    {SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL, FM_ERR_UNSUPPORTED, no_alpn_client, no_alpn_server},
    {SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, FM_ERR_DENIED, "the server has no certificate",
     "the client has no certificate, which --tls-ca demands"},
    {SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED, FM_ERR_DENIED,
     "the server wants a client certificate; give one by --tls-cert and --tls-key",
     "the client wants a certificate"},
    {SSL_R_TLSV1_ALERT_UNKNOWN_CA, FM_ERR_DENIED,
     "the server does not know the authority of our certificate; --tls-cert must come from the "
     "authority that the server has as --tls-ca",
     "the client does not know the authority of this server's certificate; it needs the "
     "certificate of that authority as --tls-ca"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED, FM_ERR_DENIED,
     "the server says that our certificate has expired; make a new one for --tls-cert",
     "the client says that the server's certificate has expired; make a new one for --tls-cert"},
    {SSL_R_SSLV3_ALERT_BAD_CERTIFICATE, FM_ERR_DENIED, "the server refuses our certificate",
     "the client refuses the server's certificate, which may not name the host in its address"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, FM_ERR_DENIED, "the server refuses our certificate",
     "the client refuses the server's certificate"},
    {SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE, FM_ERR_DENIED,
     "the server refuses our certificate, which is not one for clients",
     "the client refuses the server's certificate, which is not one for servers"},
    {SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC, FM_ERR_CORRUPT,
     "bytes were changed on the way: a TLS record does not match its authentication code",
     "bytes were changed on the way: a TLS record does not match its authentication code"},
};

static fm_status explain_certificate(fm_tls_side side, const char *host, long verify,
                                     fm_error *reterr) {
    const char *whose = side == FM_TLS_CLIENT ? "the server's" : "the client's";
    switch (verify) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return fm_fail(reterr, FM_ERR_DENIED,
                       "%s certificate, or its authority's, has expired; make a new one "
                       "(foldmill certs)",
                       whose);
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return fm_fail(reterr, FM_ERR_DENIED,
                       "%s certificate is not valid yet; compare the clocks of both machines",
                       whose);
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return fm_fail(reterr, FM_ERR_DENIED,
                       "the server's certificate does not name %.200s; connect to a name that it "
                       "has, or make one for this name (foldmill certs --host %.200s)",
                       host, host);
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        return fm_fail(reterr, FM_ERR_DENIED,
                       "%s certificate does not come from an authority that is trusted here; "
                       "--tls-ca must be the ca.crt that signed it",
                       whose);
    case X509_V_ERR_INVALID_PURPOSE:
        return fm_fail(reterr, FM_ERR_DENIED, "%s certificate is for the other side: %s", whose,
                       side == FM_TLS_CLIENT ? "the server needs one for servers"
                                             : "the client needs one for clients");
    default:
        return fm_fail(reterr, FM_ERR_DENIED, "%s certificate is refused: %s", whose,
                       X509_verify_cert_error_string(verify));
    }
}

const char *fm_tls_take_reason(void) {
    const char *words = ERR_reason_error_string(ERR_peek_error());
    ERR_clear_error();
    return words ? words : "unknown error";
}

fm_status fm_tls_explain(fm_tls_side side, const char *host, long verify, fm_error *reterr) {
    int reason = ERR_GET_REASON(ERR_peek_error());
    const char *words = fm_tls_take_reason();
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
        return explain_certificate(side, host, verify, reterr);
    }
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        if (reasons[i].reason != reason) continue;
        return fm_fail(reterr, reasons[i].status, "%s",
                       side == FM_TLS_CLIENT ? reasons[i].at_client : reasons[i].at_server);
    }
    return fm_fail(reterr, FM_ERR_PROTOCOL, "TLS with the %s failed: %s",
                   side == FM_TLS_CLIENT ? "server" : "client", words);
}
