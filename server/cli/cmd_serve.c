/* cmd_serve.c: foldmill serve: runs the feature server. */
#include "proto/address.h"
#include "proto/base/log.h"
#include "proto/base/machine.h"
#include "proto/limits.h"
#include "server/cli/commands.h"
#include "server/cli/open_cache.h"
#include "server/server.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    PRIVATE_GRACE_S = 10,
    MIB_SHIFT = 20,
    MAX_MEMORY_MIB = 2048, /* defaults, where the machine has the memory */
    WORKER_MEMORY_MIB = 4096,
    LEAST_MEMORY_MIB = 256,
    LOG_BURST = 1000, /* lines of one event at once: a job of some hundred ranks can begin */
    LOG_PER_S = 50,   /* and per second later: an attacker cannot fill the disk */
    FOLLOW_MS = 1000,
};

static const char description[] =
    "Serves crop-ready samples from caches to any number of trainers. A sample is a pure\n"
    "function of the snapshot and the parameters that the client sends. So the server keeps no\n"
    "state. It can be stopped and started at any time, and several can serve one cache. A client\n"
    "that stalls, vanishes or sends garbage does not harm the others.\n\n"
    "Caches and snapshots: --cache and --snapshot may be repeated. Clients ask for the snapshots\n"
    "of --cache DIR by their names, and for those of --cache NAME=DIR as NAME/SNAPSHOT. A client\n"
    "that asks for none gets the first. A cache serves its snapshot `all`, or those of\n"
    "--snapshot, or with --all-snapshots every snapshot that it has. A pinned snapshot is served\n"
    "from its generation.\n\n"
    "Newer generations: SIGHUP, or --follow within a second, opens new generations and snapshots.\n"
    "Streams keep the snapshot that they began with; later connections get the newer one. A\n"
    "client that resumes asks by hash and gets the same samples as long as a generation on disk\n"
    "has its snapshot. If a generation cannot be opened, the one before is served.\n\n"
    "Addresses: unix:PATH is for clients on the same host. Its owner, root, and the members of\n"
    "--unix-group may connect. tls://HOST:PORT is for a network, with the certificate of\n"
    "--tls-cert and --tls-key. --tls-ca demands a certificate of every client, --token-file an\n"
    "access token. One of them is required, unless --open-to-all admits every client that\n"
    "reaches the port.\n"
    "tcp://HOST:PORT is plain TCP and stays on this machine unless --insecure allows more. Port 0\n"
    "takes any free port, which the log line `listening` reports.\n\n"
    "A token file has one token per line: a name, the token (16 to 255 characters), and limits:\n"
    "snapshots=A,B plans=A,B streams=N bytes=N[K|M|G|T].\n\n"
    "systemd may hand over sockets. Those called `data` are served like --listen addresses (TCP\n"
    "is tls:// with --tls-cert, else tcp://), and one called `http` like --http. The server\n"
    "reports readiness, state and signs of life to systemd.\n\n"
    "SIGTERM and SIGINT stop the server. It takes no more connections, tells every stream, and\n"
    "exits with 0, because no work is lost: clients continue with another server. SIGHUP also\n"
    "reads the certificates and tokens again; streams continue, and bad files change nothing.\n\n"
    "Exit codes: 0 stopped by SIGTERM or SIGINT, 1 failed, 2 bad usage.\n\n"
    "Examples:\n"
    "  foldmill serve --cache cache --listen unix:/run/foldmill.sock\n"
    "  foldmill serve --cache cache --listen tls://0.0.0.0:7420 --jobs 16 \\\n"
    "      --tls-cert certs/server.crt --tls-key certs/server.key \\\n"
    "      --token-file tokens\n"
    "  foldmill serve --cache pdb=/data/pdb --cache distilled=/data/distilled \\\n"
    "      --follow --snapshot pdb/train --listen unix:/run/foldmill.sock";

typedef struct serve_settings {
    fm_option_list caches, snapshots;
    const char *listen, *also_listen, *unix_group, *http;
    fm_credentials credentials;
    uint64_t jobs, max_memory_mib, worker_memory_mib, max_connections, hello_ms, stall_s, idle_s;
    uint64_t min_rate_kib, peer_connections, peer_streams, peer_memory_mib, peer_requests;
    bool all_snapshots, follow, open_to_all, quiet, verbose, is_private;
} serve_settings;

static int parse(serve_settings *set, int argc, char **argv) {
    const fm_option options[] = {
        {"cache", FM_OPTION_LIST, &set->caches, "[NAME=]DIR",
         .help = "a cache to serve; may be repeated", .is_required = true},
        {"listen", FM_OPTION_STRING, &set->listen, "ADDRESS",
         .help = "unix:PATH, tls://HOST:PORT or tcp://HOST:PORT",
         .again = "--also-listen takes the second address"},
        {"also-listen", FM_OPTION_STRING, &set->also_listen, "ADDRESS", .help = "a second address",
         .again = "a server has at most two addresses"},
        {"snapshot", FM_OPTION_LIST, &set->snapshots, "[CACHE/]NAME",
         .help = "a snapshot to serve (all); may be repeated"},
        {"all-snapshots", FM_OPTION_FLAG, &set->all_snapshots, NULL,
         .help = "serve all snapshots of the caches that have no --snapshot"},
        {"follow", FM_OPTION_FLAG, &set->follow, NULL,
         .help = "take over newer generations and snapshots within a second"},
        {"jobs", FM_OPTION_U64, &set->jobs, "N", .help = "worker threads (2)", .letter = 'j',
         .min = 1, .max = 512},
        {"max-memory", FM_OPTION_U64, &set->max_memory_mib, "MIB",
         .help = "memory for samples that are made or sent (2048, at most a quarter of the "
                 "machine's)",
         .min = 16, .max = 1 << 24},
        {"worker-memory", FM_OPTION_U64, &set->worker_memory_mib, "MIB",
         .help = "memory limit of each worker thread (4096, at most three fifths of the machine's "
                 "for all)",
         .min = 16, .max = 1 << 24},
        {"max-connections", FM_OPTION_U64, &set->max_connections, "N",
         .help = "limit on connections (256); a sixteenth is kept for Unix sockets", .min = 1,
         .max = FM_LIMIT_N_CONNECTION},
        {"peer-connections", FM_OPTION_U64, &set->peer_connections, "N",
         .help = "of them, for one address or user (half)", .min = 1, .max = FM_LIMIT_N_CONNECTION},
        {"peer-streams", FM_OPTION_U64, &set->peer_streams, "N",
         .help = "limit on the streams of one address or user (256)", .min = 1, .max = 65536},
        {"peer-memory", FM_OPTION_U64, &set->peer_memory_mib, "MIB",
         .help = "of --max-memory, for one address or user (half)", .min = 1, .max = 1 << 24},
        {"peer-requests", FM_OPTION_U64, &set->peer_requests, "N",
         .help = "limit on the requests of one address or user per second (1000)", .min = 1,
         .max = 1000000},
        {"hello-timeout", FM_OPTION_U64, &set->hello_ms, "MS",
         .help = "time that a new connection has to send HELLO (5000)", .min = 10, .max = 600000},
        {"stall-timeout", FM_OPTION_U64, &set->stall_s, "S",
         .help = "time that a client may grant credit and read too slowly (300)", .min = 1,
         .max = 86400},
        {"min-rate", FM_OPTION_U64, &set->min_rate_kib, "KIB",
         .help = "a client that reads less per second reads too slowly (64)", .min = 1,
         .max = 1 << 20},
        {"idle-timeout", FM_OPTION_U64, &set->idle_s, "S",
         .help = "time that a connection may have no stream (60)", .min = 1, .max = 86400},
        FM_CREDENTIALS_OPTIONS(&set->credentials, "file with the access tokens of the clients"),
        {"http", FM_OPTION_STRING, &set->http, "HOST:PORT",
         .help = "serve a status page, /metrics and /healthz there"},
        {"open-to-all", FM_OPTION_FLAG, &set->open_to_all, NULL,
         .help = "serve tls:// to every client, without --tls-ca and --token-file"},
        {"unix-group", FM_OPTION_STRING, &set->unix_group, "GROUP",
         .help = "members of this group may use unix: addresses"},
        {"quiet", FM_OPTION_FLAG, &set->quiet, NULL, .help = "log warnings and errors only",
         .letter = 'q'},
        {"verbose", FM_OPTION_FLAG, &set->verbose, NULL, .help = "log more"},
        {"private", FM_OPTION_FLAG, &set->is_private, NULL,
         .help = "stop when standard input ends, and remove the folder of the socket"},
        {0}};
    const fm_command command = {
        .program = "foldmill serve",
        .arguments = "--cache [NAME=]DIR [--listen ADDRESS] [options]",
        .summary = "serve samples from caches to trainers",
        .description = description,
        .options = options,
    };
    int n_positional;
    return fm_cli_parse(&command, argc, argv, &n_positional);
}

/* Fills in the limits that were not given. Says so when the machine is too small for the usual
 * limits, or for those that were given. */
static void choose_memory(serve_settings *set) {
    uint64_t machine = fm_machine_memory() >> MIB_SHIFT;
    uint64_t samples = fm_machine_fit(MAX_MEMORY_MIB, machine, 0.25, LEAST_MEMORY_MIB);
    uint64_t worker =
        fm_machine_fit(WORKER_MEMORY_MIB, machine, 0.6 / (double)set->jobs, LEAST_MEMORY_MIB);
    bool is_lowered = (!set->max_memory_mib && samples < MAX_MEMORY_MIB) ||
                      (!set->worker_memory_mib && worker < WORKER_MEMORY_MIB);
    if (!set->max_memory_mib) set->max_memory_mib = samples;
    if (!set->worker_memory_mib) set->worker_memory_mib = worker;
    bool is_exceeded = set->max_memory_mib + set->jobs * set->worker_memory_mib > machine;
    if (!is_lowered && !is_exceeded) return;
    fm_log(FM_LOG_WARN, is_exceeded ? "memory_exceeded" : "memory_lowered",
           "max_memory_mib=%llu worker_memory_mib=%llu jobs=%llu machine_mib=%llu",
           (unsigned long long)set->max_memory_mib, (unsigned long long)set->worker_memory_mib,
           (unsigned long long)set->jobs, (unsigned long long)machine);
}

/* What a service manager has left in the environment. */
typedef struct from_systemd {
    fm_service_sockets sockets;
    fm_service_manager *manager;
} from_systemd;

static fm_status find_systemd(const serve_settings *set, from_systemd *ret_systemd,
                              fm_error *reterr) {
    const fm_credentials *credentials = &set->credentials;
    fm_status status = fm_service_take_sockets(credentials->tls_cert, credentials->is_insecure,
                                               &ret_systemd->sockets, reterr);
    if (status) return status;
    if (set->http && ret_systemd->sockets.http.fd) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--http has no use where a service manager hands over the socket 'http'");
    }
    if (!set->listen && !set->also_listen && !ret_systemd->sockets.n_data) {
        return fm_fail(
            reterr, FM_ERR_USAGE,
            "--listen ADDRESS is required, unless a service manager hands over a socket");
    }
    return fm_service_manager_create(&ret_systemd->manager, reterr);
}

static void log_start(const fm_server *server, const fm_sample_source *first, size_t n_source,
                      const serve_settings *set) {
    char hash[FM_SHA256_HEX], name[300], address[400];
    fm_sha256_format(&first->snapshot, hash);
    for (size_t i = 0; fm_server_get_address(server, i); i++) {
        fm_log(FM_LOG_INFO, "listening",
               "address=%s generation=%llu chains=%u snapshot=%s snapshot_hash=%s snapshots=%zu "
               "jobs=%llu max_memory_mib=%llu",
               fm_log_quote(address, sizeof address, fm_server_get_address(server, i)),
               (unsigned long long)first->generation, first->n_chain,
               fm_log_quote(name, sizeof name, first->snapshot_name), hash, n_source,
               (unsigned long long)set->jobs, (unsigned long long)set->max_memory_mib);
    }
}

static void log_end(const fm_server *server) {
    fm_server_stats stats;
    fm_server_get_stats(server, &stats);
    fm_log(FM_LOG_INFO, "stopped",
           "accepted=%llu samples=%llu bytes=%llu failed=%llu log_dropped=%llu",
           (unsigned long long)stats.n_accepted, (unsigned long long)stats.n_sample_sent,
           (unsigned long long)stats.n_bytes_sent, (unsigned long long)stats.n_sample_failed,
           (unsigned long long)fm_log_get_losses().n_dropped);
}

/* Signals that stop the server reach it only while its loop runs, which blocks them again when it
 * stops. A second one that comes while everything is closed would otherwise end the process before
 * it has removed its socket's folder. Threads inherit the mask, so this thread calls it before it
 * starts any. */
static void mask_signals(int how) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(how, &signals, NULL);
}

static fm_status serve(const serve_settings *set, const from_systemd *systemd, fm_library *library,
                       fm_error *reterr) {
    const fm_server_options options = {
        .listen = {set->listen ? set->listen : set->also_listen,
                   set->listen ? set->also_listen : NULL},
        .handed = &systemd->sockets,
        .manager = systemd->manager,
        .n_job = (uint32_t)set->jobs,
        .max_memory_bytes = (size_t)set->max_memory_mib << MIB_SHIFT,
        .worker_memory_bytes = (size_t)set->worker_memory_mib << MIB_SHIFT,
        .max_connection = (uint32_t)set->max_connections,
        .hello_ms = (uint32_t)set->hello_ms,
        .stall_ms = (uint32_t)set->stall_s * 1000,
        .idle_ms = (uint32_t)set->idle_s * 1000,
        .min_bytes_per_s = set->min_rate_kib << 10,
        .peer = {.n_connection = (uint32_t)set->peer_connections,
                 .n_stream = (uint32_t)set->peer_streams,
                 .requests_per_s = (uint32_t)set->peer_requests,
                 .memory_bytes = (size_t)set->peer_memory_mib << MIB_SHIFT},
        .watch_signals = true,
        .credentials = set->credentials,
        .unix_group = set->unix_group,
        .is_open_to_all = set->open_to_all,
        .http = set->http,
        .version = FM_VERSION,
        .library = library,
        .follow_ms = set->follow ? FOLLOW_MS : 0,
    };
    size_t n_source;
    fm_sample_source *first = fm_library_get_list(library, &n_source)[0];
    fm_server *server;
    fm_status status = fm_server_create(&options, NULL, &server, reterr);
    if (status) return status;
    log_start(server, first, n_source, set);
    const char *http = fm_server_get_http_url(server);
    if (http) fm_log(FM_LOG_INFO, "http", "url=%s", http);
    mask_signals(SIG_UNBLOCK);
    fm_server_run(server);
    log_end(server);
    fm_server_destroy(server);
    return FM_OK;
}

/* -- the server of one run (trainer/app/samples/private_server.h) */

/* Waits for the end of standard input, which a parent holds open for as long as it lives. Then the
 * server ends as on SIGTERM, or at once when it does not within a grace period. */
static void *watch_parent(void *unused) {
    char bytes[64];
    ssize_t n;
    (void)unused;
    do {
        n = read(STDIN_FILENO, bytes, sizeof bytes);
    } while (n > 0 || (n < 0 && errno == EINTR));
    kill(getpid(), SIGTERM);
    sleep(PRIVATE_GRACE_S);
    _exit(FM_EXIT_FAILED);
}

static fm_status start_watch(const serve_settings *set, fm_error *reterr) {
    pthread_t thread;
    if (!set->listen || strncmp(set->listen, "unix:", 5) != 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "--private needs --listen unix:PATH");
    }
    if (pthread_create(&thread, NULL, watch_parent, NULL) != 0) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no thread for watching the parent");
    }
    pthread_detach(thread);
    return FM_OK;
}

/* The parent may have been killed, and then no other process removes the folder. */
static void remove_folder(const char *listen) {
    char path[FM_ADDRESS_PATH_BYTES];
    snprintf(path, sizeof path, "%s", listen + 5);
    char *slash = strrchr(path, '/');
    if (!slash || slash == path) return;
    *slash = '\0';
    rmdir(path); /* its parent may have done it */
}

/* -- serving caches */

/* Opens the caches and snapshots of the options, which must outlive the library. The cache of one
 * run is a folder without a name, whatever is in its path. */
static fm_status open_library(const serve_settings *set, fm_library_cache *caches,
                              fm_library **ret_library, fm_error *reterr) {
    for (uint32_t i = 0; i < set->caches.n; i++)
        caches[i] = set->is_private ? (fm_library_cache){.path = set->caches.value[i]}
                                    : fm_library_cache_parse(set->caches.value[i]);
    const fm_library_options options = {.cache = caches,
                                        .n_cache = set->caches.n,
                                        .snapshot = set->snapshots.value,
                                        .n_snapshot = set->snapshots.n,
                                        .takes_all = set->all_snapshots};
    fm_status status = fm_library_open(&options, ret_library, reterr);
    for (uint32_t i = 0; i < set->caches.n && status && status != FM_ERR_USAGE; i++)
        status = fm_cli_explain_cache(caches[i].path, status, reterr);
    return status;
}

/* Before the caches are opened, which takes a while where they are large. */
static fm_status check_addresses(const serve_settings *set, fm_error *reterr) {
    fm_address address;
    fm_status status = FM_OK;
    if (set->listen) status = fm_address_parse(set->listen, &address, reterr);
    if (!status && set->also_listen) status = fm_address_parse(set->also_listen, &address, reterr);
    if (status || !set->listen || !set->also_listen) return status;
    const bool is_any = address.kind != FM_ADDRESS_UNIX && address.port == 0;
    if (is_any || strcmp(set->listen, set->also_listen) != 0) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE, "--also-listen: %.200s is the address of --listen",
                   set->also_listen);
}

static fm_status serve_caches(const serve_settings *set, const from_systemd *systemd,
                              fm_error *reterr) {
    fm_library_cache caches[FM_LIBRARY_N_CACHE];
    fm_library *library;
    fm_status status = check_addresses(set, reterr);
    if (!status) status = open_library(set, caches, &library, reterr);
    if (status) return status;
    status = serve(set, systemd, library, reterr);
    fm_library_close(library);
    return status;
}

int fm_cmd_serve(int argc, char **argv) {
    serve_settings set = {.jobs = 2,
                          .max_connections = 256,
                          .hello_ms = 5000,
                          .stall_s = 300,
                          .idle_s = 60,
                          .min_rate_kib = 64};
    int code = parse(&set, argc, argv);
    if (code >= 0) return code;
    if (set.quiet) fm_log_set_level(FM_LOG_WARN);
    if (set.verbose) fm_log_set_level(FM_LOG_DEBUG);
    mask_signals(SIG_BLOCK);
    fm_log_start_dropping((fm_log_rate){.burst = LOG_BURST, .per_s = LOG_PER_S});
    fm_error error;
    from_systemd systemd = {0};
    fm_status status =
        set.is_private ? start_watch(&set, &error) : find_systemd(&set, &systemd, &error);
    if (!status) {
        choose_memory(&set);
        status = serve_caches(&set, &systemd, &error);
        if (set.is_private) remove_folder(set.listen);
    }
    fm_service_manager_destroy(systemd.manager);
    return status ? fm_program_report("foldmill serve", &error) : FM_EXIT_OK;
}
