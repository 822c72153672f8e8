/* cmd_certs.c: foldmill certs: makes the certificates of a small authority. */
#include "proto/base/certificates.h"
#include "proto/base/directory.h"
#include "proto/base/file.h"
#include "server/cli/commands.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    PATH_BYTES = 4096,
    DAY_S = 86400,
    SKEW_S = 3600,         /* clocks of other machines may be behind */
    AUTHORITY_DAYS = 3650, /* at least */
    N_HOST_OWN = 3,        /* hosts that every server's certificate has */
};

static const char authority_name[] = "ca";

static const char description[] =
    "Makes what `foldmill serve` and its clients need for tls:// addresses: an authority (ca.crt,\n"
    "ca.key), a server's certificate (server.crt, server.key) and a client's (client.crt,\n"
    "client.key). Keys are ECDSA P-256, and only their owner can read them. The authority is for "
    "a\n"
    "laboratory: whoever has ca.key can make a certificate for any host and client, so keep it on\n"
    "one machine.\n\n"
    "A folder that has an authority keeps it: --client and --server add certificates to it. Files\n"
    "are never overwritten without --replace, which makes new certificates of these names and\n"
    "keeps the authority.\n\n"
    "The server's certificate is for the names and addresses of --host, as they are in the\n"
    "tls:// addresses of its clients, and for localhost, 127.0.0.1 and ::1.\n\n"
    "Exit codes: 0 done, 1 failed, 2 bad usage.\n\n"
    "Examples:\n"
    "  foldmill certs --out certs --host data1.lab.example --host 10.0.0.7\n"
    "  foldmill certs --out certs --client gpu-node-2\n"
    "  foldmill serve --cache cache --listen tls://0.0.0.0:7420 \\\n"
    "      --tls-cert certs/server.crt --tls-key certs/server.key \\\n"
    "      --tls-ca certs/ca.crt\n"
    "  foldmill fetch --data tls://data1.lab.example:7420 --steps 1 \\\n"
    "      --tls-ca certs/ca.crt --tls-cert certs/client.crt \\\n"
    "      --tls-key certs/client.key";

typedef struct certs_settings {
    const char *out;
    fm_option_list hosts, servers, clients;
    uint64_t days;
    bool replace;
} certs_settings;

typedef struct certs_paths {
    char cert[PATH_BYTES], key[PATH_BYTES];
} certs_paths;

/* A certificate's name is also that of its files. */
static fm_status paths_of(const char *folder, const char *name, certs_paths *paths,
                          fm_error *reterr) {
    bool is_plain = name[0] && name[0] != '.' && !strchr(name, '/');
    int bytes = snprintf(paths->cert, PATH_BYTES, "%s/%s.crt", folder, name);
    snprintf(paths->key, PATH_BYTES, "%s/%s.key", folder, name);
    if (is_plain && bytes < PATH_BYTES) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE,
                   "'%.100s' cannot be the name of a certificate, because its files are %.100s.crt "
                   "and .key in %.100s",
                   name, name, folder);
}

/* *ret_exists: both files are there. One without the other is an error. */
static fm_status look(const certs_paths *paths, bool *ret_exists, fm_error *reterr) {
    fm_path_kind cert, key;
    fm_status status = fm_path_look(paths->cert, &cert, reterr);
    if (!status) status = fm_path_look(paths->key, &key, reterr);
    if (status) return status;
    *ret_exists = cert != FM_PATH_ABSENT && key != FM_PATH_ABSENT;
    if (*ret_exists || cert == key) return FM_OK;
    bool has_cert = cert != FM_PATH_ABSENT;
    return fm_fail_in(reterr, FM_ERR_EXISTS, has_cert ? paths->cert : paths->key,
                      "is here without %.200s; move it away", has_cert ? paths->key : paths->cert);
}

static fm_status make(const certs_settings *set, const fm_certificate_request *request,
                      const certs_paths *authority, fm_error *reterr) {
    certs_paths paths;
    bool exists;
    fm_status status = paths_of(set->out, request->name, &paths, reterr);
    if (!status) status = look(&paths, &exists, reterr);
    if (status) return status;
    if (exists && !set->replace) {
        return fm_fail_in(reterr, FM_ERR_EXISTS, paths.cert,
                          "exists; --replace makes it anew, --client NAME or --server NAME adds "
                          "another");
    }
    const fm_certificate_files from = {authority->cert, authority->key};
    const fm_certificate_files to = {paths.cert, paths.key};
    status = fm_certificate_make(request, &from, &to, reterr);
    if (!status) printf("%s, %s\n", paths.cert, paths.key);
    return status;
}

/* Makes the authority unless the folder has one. */
static fm_status make_authority(const certs_settings *set, int64_t now_s, certs_paths *paths,
                                fm_error *reterr) {
    bool exists;
    fm_status status = paths_of(set->out, authority_name, paths, reterr);
    if (!status) status = look(paths, &exists, reterr);
    if (status || exists) return status;
    uint64_t days = set->days > AUTHORITY_DAYS ? set->days : AUTHORITY_DAYS;
    const fm_certificate_request request = {.kind = FM_CERTIFICATE_AUTHORITY,
                                            .name = "foldmill laboratory authority",
                                            .from_s = now_s - SKEW_S,
                                            .until_s = now_s + (int64_t)days * DAY_S};
    const fm_certificate_files to = {paths->cert, paths->key};
    status = fm_certificate_make(&request, NULL, &to, reterr);
    if (!status) printf("%s, %s\n", paths->cert, paths->key);
    return status;
}

/* Every name is that of one pair of files, and none is the authority's. */
static fm_status check_names(const certs_settings *set, const fm_certificate_request *request,
                             fm_error *reterr) {
    const uint32_t n = set->servers.n + set->clients.n;
    const char *names[2 * FM_OPTION_LIST_MAX];
    memcpy(names, set->servers.value, set->servers.n * sizeof names[0]);
    memcpy(names + set->servers.n, set->clients.value, set->clients.n * sizeof names[0]);
    for (uint32_t i = 0; i < n; i++) {
        fm_certificate_request one = *request;
        certs_paths ignored;
        one.name = names[i];
        fm_status status = paths_of(set->out, names[i], &ignored, reterr);
        if (!status) status = fm_certificate_check(&one, reterr);
        if (status) return status;
        if (strcmp(names[i], authority_name) == 0) {
            return fm_fail(reterr, FM_ERR_USAGE,
                           "'%s' is the name of the authority's files; choose another name",
                           names[i]);
        }
        for (uint32_t j = 0; j < i; j++) {
            if (strcmp(names[i], names[j]) != 0) continue;
            return fm_fail(reterr, FM_ERR_USAGE,
                           "'%.100s' is given twice; every certificate needs a name of its own",
                           names[i]);
        }
    }
    if (set->hosts.n == 0 || set->servers.n) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE,
                   "--host is for the certificate of a server; add --server NAME");
}

static fm_status make_all(const certs_settings *set, fm_error *reterr) {
    const char *hosts[FM_OPTION_LIST_MAX + N_HOST_OWN] = {"localhost", "127.0.0.1", "::1"};
    memcpy(hosts + N_HOST_OWN, set->hosts.value, sizeof set->hosts.value);
    int64_t now_s = (int64_t)time(NULL);
    fm_certificate_request request = {.kind = FM_CERTIFICATE_SERVER,
                                      .hosts = hosts,
                                      .n_host = set->hosts.n + N_HOST_OWN,
                                      .from_s = now_s - SKEW_S,
                                      .until_s = now_s + (int64_t)set->days * DAY_S};
    certs_paths authority;
    fm_status status = check_names(set, &request, reterr);
    if (!status) status = fm_dir_make(set->out, reterr);
    if (!status) status = make_authority(set, now_s, &authority, reterr);
    for (uint32_t i = 0; !status && i < set->servers.n; i++) {
        request.name = set->servers.value[i];
        status = make(set, &request, &authority, reterr);
    }
    request.kind = FM_CERTIFICATE_CLIENT;
    request.n_host = 0;
    for (uint32_t i = 0; !status && i < set->clients.n; i++) {
        request.name = set->clients.value[i];
        status = make(set, &request, &authority, reterr);
    }
    return status;
}

int fm_cmd_certs(int argc, char **argv) {
    certs_settings set = {.days = 365};
    const fm_option options[] = {
        {"out", FM_OPTION_STRING, &set.out, "DIR", .help = "the folder for the files",
         .is_required = true},
        {"host", FM_OPTION_LIST, &set.hosts, "NAME|IP",
         .help = "a name or address of the server, as its clients write it; may be repeated"},
        {"server", FM_OPTION_LIST, &set.servers, "NAME",
         .help = "make NAME.crt and NAME.key for a server (server, unless --client is given)"},
        {"client", FM_OPTION_LIST, &set.clients, "NAME",
         .help = "make NAME.crt and NAME.key for a client (client, unless --server is given)"},
        {"days", FM_OPTION_U64, &set.days, "N",
         .help = "days until they expire (365); the authority stays valid for 3650 at least",
         .min = 1, .max = 36500},
        {"replace", FM_OPTION_FLAG, &set.replace, NULL,
         .help = "overwrite the certificates of servers and clients"},
        {0}};
    const fm_command command = {
        .program = "foldmill certs",
        .arguments = "--out DIR [--host NAME|IP]... [options]",
        .summary = "make a small authority and certificates for tls://",
        .description = description,
        .options = options,
    };
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    if (set.servers.n == 0 && set.clients.n == 0) {
        set.servers = (fm_option_list){.value = {"server"}, .n = 1};
        set.clients = (fm_option_list){.value = {"client"}, .n = 1};
    }
    fm_error error;
    return make_all(&set, &error) ? fm_program_report("foldmill certs", &error) : FM_EXIT_OK;
}
