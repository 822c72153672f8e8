/* postgresql.c: see postgresql.h. */
#include "tests/testing/postgresql.h"

#include "tests/testing/testing.h"

#include <assert.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { START_SECONDS = 120 };

static bool find_programs(char *out, size_t out_bytes) {
    const char *given = getenv("FM_POSTGRESQL_BIN");
    glob_t found = {0};
    bool there = false;
    if (given && given[0]) {
        snprintf(out, out_bytes, "%s", given);
        return true;
    }
    if (glob("/usr/lib/postgresql/*/bin/postgres", 0, NULL, &found) == 0) {
        const char *last = found.gl_pathv[found.gl_pathc - 1];
        snprintf(out, out_bytes, "%.*s", (int)(strrchr(last, '/') - last), last);
        there = true;
    }
    globfree(&found);
    return there;
}

/* In the child: drops root and asks to be killed with the parent. */
static void become_nobody(void) {
    const struct passwd *nobody = getuid() == 0 ? getpwnam("nobody") : NULL;
    if (nobody && (setgroups(0, NULL) || setgid(nobody->pw_gid) || setuid(nobody->pw_uid))) {
        _exit(8);
    }
    prctl(PR_SET_PDEATHSIG, SIGQUIT);
}

static pid_t run(const fm_test_postgresql *server, const char *program, char *const *arguments) {
    char path[256], log[256];
    snprintf(path, sizeof path, "%s/%s", server->bin, program);
    snprintf(log, sizeof log, "%s/log", server->folder);
    fflush(NULL);
    pid_t child = fork();
    assert(child >= 0);
    if (child == 0) {
        become_nobody();
        int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0666);
        if (fd < 0 || chdir(server->folder) != 0) _exit(9);
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
        execv(path, arguments);
        _exit(10);
    }
    return child;
}

/* Reads the server's own state from the last line of its pid file. */
static bool is_ready(const fm_test_postgresql *server) {
    char path[128], text[1024];
    snprintf(path, sizeof path, "%s/data/postmaster.pid", server->folder);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    return strstr(text, "\nready") != NULL;
}

void fm_test_postgresql_start(fm_test_postgresql *server) {
    char *const arguments[] = {"postgres",
                               "-D",
                               "data",
                               "-k",
                               server->folder,
                               "-h",
                               "",
                               "-F",
                               "-c",
                               "max_connections=30",
                               "-c",
                               "shared_buffers=16MB",
                               NULL};
    assert(server->pid == 0);
    server->pid = run(server, "postgres", arguments);
    for (int i = 0; i < START_SECONDS * 50 && !is_ready(server); i++) {
        const struct timespec moment = {0, 20000000};
        int status;
        pid_t ended = waitpid(server->pid, &status, WNOHANG);
        assert(ended == 0);
        (void)ended;
        nanosleep(&moment, NULL);
    }
    assert(is_ready(server));
}

void fm_test_postgresql_stop(fm_test_postgresql *server, bool crash) {
    int status;
    if (!server->pid) return;
    kill(server->pid, crash ? SIGQUIT : SIGINT);
    pid_t ended = waitpid(server->pid, &status, 0);
    assert(ended == server->pid);
    (void)ended;
    server->pid = 0;
}

const char *fm_test_postgresql_url(const fm_test_postgresql *server, const char *user, char *out,
                                   size_t out_bytes) {
    snprintf(out, out_bytes, "postgresql:///postgres?host=%s&user=%s", server->folder, user);
    return out;
}

bool fm_test_postgresql_create(fm_test_postgresql *server) {
    *server = (fm_test_postgresql){.pid = 0};
    if (!find_programs(server->bin, sizeof server->bin)) {
        fprintf(stderr, "skipped: PostgreSQL's server is not installed (postgresql-15)\n");
        return false;
    }
    /* The folder's name must be short for the socket's path, and the user nobody must be able to
     * enter it. */
    snprintf(server->folder, sizeof server->folder, "/tmp/fm-pg-XXXXXX");
    char *made = mkdtemp(server->folder);
    const struct passwd *nobody = getuid() == 0 ? getpwnam("nobody") : NULL;
    int failed = !made || (nobody && chown(server->folder, nobody->pw_uid, nobody->pw_gid));
    assert(!failed);
    (void)failed;
    char *const arguments[] = {"initdb", "-D",   "data",       "-A",
                               "trust",  "-N",   "-U",         "postgres",
                               "-E",     "UTF8", "--locale=C", "--no-instructions",
                               NULL};
    int status;
    pid_t child = run(server, "initdb", arguments);
    pid_t ended = waitpid(child, &status, 0);
    assert(ended == child && status == 0);
    (void)ended;
    fm_test_postgresql_url(server, "postgres", server->url, sizeof server->url);
    fm_test_postgresql_start(server);
    return true;
}

void fm_test_postgresql_signal(const fm_test_postgresql *server, const char *name) {
    char command[128];
    /* A process may end after it was listed. */
    snprintf(command, sizeof command, "for p in $(pgrep -P %d); do kill -%s $p; done; true",
             (int)server->pid, name);
    int code = system(command);
    assert(code == 0);
    (void)code;
}

void fm_test_postgresql_destroy(fm_test_postgresql *server) {
    if (!server->folder[0]) return;
    fm_test_postgresql_stop(server, true);
    fm_test_remove_tree(server->folder);
    server->folder[0] = '\0';
}
