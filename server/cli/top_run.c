/* top_run.c: see top_run.h. Only the end of the file is read, so a run of a million steps costs no
 * more than a short one. Rates are medians over the last steps: a step that waited for a checkpoint
 * would spoil a mean. */
#include "server/cli/top_run.h"

#include "proto/base/json_text.h"
#include "proto/base/json_tree.h"
#include "proto/base/utf8.h"
#include "server/cli/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { N_STEP = 200, TAIL_BYTES = 1 << 20, LINE_BYTES = 512, TIME_BYTES = 32, SHOWN_BYTES = 60 };
static const double gib = 1024.0 * 1024 * 1024;

/* The last lines of a file, the oldest first, and what is computed from those of metrics.jsonl. */
typedef struct run_tail {
    fm_json *step[N_STEP]; /* [n_step], each one line */
    size_t n_step;
    double age_s;   /* since the file was written last */
    bool has_ended; /* no process trains into the folder */
    double step_s, data_wait_s, longest_wait_s, loss, loss_before;
} run_tail;

/* -- reading */

static fm_status fail_errno(fm_error *reterr, const char *path, const char *what) {
    return fm_fail_in(reterr, errno == ENOENT ? FM_ERR_NOT_FOUND : FM_ERR_IO, path, "%s: %s", what,
                      strerror(errno));
}

/* Reads the last bytes of the file and closes it; *ret_text is terminated and belongs to the
 * caller. */
static fm_status read_tail(const char *path, int fd, char **ret_text, size_t *ret_bytes,
                           bool *ret_is_whole, double *ret_age_s, fm_error *reterr) {
    struct stat info;
    char *text = malloc(TAIL_BYTES + 1);
    fm_status status = FM_OK;
    if (!text) {
        status = fm_fail(reterr, FM_ERR_NOMEM, "no memory for metrics");
    } else if (fstat(fd, &info) != 0) {
        status = fail_errno(reterr, path, "cannot read");
    } else {
        off_t at = info.st_size > TAIL_BYTES ? info.st_size - TAIL_BYTES : 0;
        ssize_t n = pread(fd, text, TAIL_BYTES, at);
        if (n < 0) status = fail_errno(reterr, path, "cannot read");
        *ret_bytes = n < 0 ? 0 : (size_t)n;
        *ret_is_whole = at == 0;
        *ret_age_s = difftime(time(NULL), info.st_mtime);
    }
    close(fd);
    if (status) {
        free(text);
        return status;
    }
    text[*ret_bytes] = 0;
    *ret_text = text;
    return FM_OK;
}

/* Parses the last lines. The first line is skipped unless the text is the whole file, because it
 * may be cut. A last line without a line feed is skipped, too: it is still being written. */
static fm_status parse_steps(const char *path, const char *text, size_t bytes, bool is_whole,
                             run_tail *tail, fm_error *reterr) {
    const char *end = memrchr(text, '\n', bytes);
    while (end && tail->n_step < N_STEP) {
        const char *before = memrchr(text, '\n', (size_t)(end - text));
        if (!before && !is_whole) break;
        const char *line = before ? before + 1 : text;
        fm_json *step = fm_json_parse(line, (size_t)(end - line));
        int64_t number;
        if (!fm_json_get_integer(fm_json_get_member(step, "step"), &number)) {
            fm_json_free(step);
            const int shown = end - line < SHOWN_BYTES ? (int)(end - line) : SHOWN_BYTES;
            return fm_fail_in(reterr, FM_ERR_CORRUPT, path,
                              "a line is no step of a training run: '%.*s'", shown, line);
        }
        tail->step[tail->n_step++] = step;
        end = before;
    }
    if (tail->n_step == 0) {
        return fm_fail_in(reterr, FM_ERR_NOT_FOUND, path, "the run has no finished step yet");
    }
    for (size_t i = 0; i < tail->n_step / 2; i++) {
        fm_json *other = tail->step[tail->n_step - 1 - i];
        tail->step[tail->n_step - 1 - i] = tail->step[i];
        tail->step[i] = other;
    }
    return FM_OK;
}

/* Whether a process holds the lock of the run's folder (trainer/app/common/folder_lock.h). A copied
 * folder may have no lock, and a file system may have no locks; then the run counts as running. */
static bool has_ended(const char *folder) {
    char path[4200];
    if (snprintf(path, sizeof path, "%s/lock", folder) >= (int)sizeof path) return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    bool is_free = flock(fd, LOCK_SH | LOCK_NB) == 0;
    close(fd);
    return is_free;
}

/* -- summary */

static double number(const fm_json *step, const char *name) {
    return fm_json_get_number(fm_json_get_member(step, name), NAN);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of a field over the steps first .. last - 1 that have it; NAN if none has. */
static double median(const run_tail *tail, const char *name, size_t first, size_t last) {
    double value[N_STEP];
    size_t n = 0;
    for (size_t i = first; i < last; i++) {
        double one = number(tail->step[i], name);
        if (!isnan(one)) value[n++] = one;
    }
    qsort(value, n, sizeof value[0], by_value);
    return n ? value[n / 2] : NAN;
}

static void summarise(run_tail *tail) {
    size_t n = tail->n_step;
    tail->step_s = median(tail, "step_s", 0, n);
    tail->data_wait_s = median(tail, "data_wait_s", 0, n);
    tail->longest_wait_s = 0;
    for (size_t i = 0; i < n; i++)
        tail->longest_wait_s = fmax(tail->longest_wait_s, number(tail->step[i], "data_wait_s"));
    tail->loss = median(tail, "loss", n - (n + 1) / 2, n);
    tail->loss_before = n > 1 ? median(tail, "loss", 0, n / 2) : NAN;
}

FM_PRINTF(3, 4) static void draw(FILE *out, size_t columns, const char *format, ...) {
    char line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fm_utf8_make_plain(line);
    fwrite(line, 1, fm_utf8_prefix(line, columns ? columns : SIZE_MAX), out);
    fputc('\n', out);
}

/* Fields of a step with a separate place on the screen; all others are terms and scores. */
static bool is_named(const char *name) {
    static const char *const names[] = {"step",
                                        "index",
                                        "cycles",
                                        "sample",
                                        "loss",
                                        "grad_norm",
                                        "learning_rate",
                                        "step_s",
                                        "data_wait_s",
                                        "left_s",
                                        "memory_bytes",
                                        "device_used_bytes",
                                        "device_free_bytes"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) return true;
    }
    return false;
}

/* Members of an evaluation with a separate place on the screen. */
static bool is_named_score(const char *name) {
    static const char *const names[] = {"step",     "time",      "lddt_ca", "n_chain", "samples",
                                        "n_failed", "n_residue", "eval_s",  "wall_s"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) return true;
    }
    return false;
}

/* "3 h 05 min", "12 min 07 s" or "42 s". Returns out. */
static const char *format_time(double seconds, char out[TIME_BYTES]) {
    unsigned long long s = (unsigned long long)fmax(seconds + 0.5, 0);
    if (s >= 3600) {
        snprintf(out, TIME_BYTES, "%llu h %02llu min", s / 3600, s / 60 % 60);
    } else if (s >= 60) {
        snprintf(out, TIME_BYTES, "%llu min %02llu s", s / 60, s % 60);
    } else {
        snprintf(out, TIME_BYTES, "%llu s", s);
    }
    return out;
}

/* When the run ends, and its memory, where the last step says so. */
static void draw_rest(const run_tail *tail, size_t columns, FILE *out) {
    const fm_json *last = tail->step[tail->n_step - 1];
    double left_s = number(last, "left_s"), used = number(last, "device_used_bytes");
    char text[TIME_BYTES];
    if (left_s >= 0 && !tail->has_ended) {
        draw(out, columns, "ends in   %10s", format_time(left_s, text));
    }
    if (used > 0) {
        draw(out, columns,
             "memory    %10.2f  GiB of the trainer; of the device %.2f GiB are used, %.2f free",
             number(last, "memory_bytes") / gib, used / gib,
             number(last, "device_free_bytes") / gib);
    } else if (number(last, "memory_bytes") > 0) {
        draw(out, columns, "memory    %10.2f  GiB of the trainer",
             number(last, "memory_bytes") / gib);
    }
}

/* The held-out scores of the newest evaluation, and the best lDDT of the last ones: lDDT-CA of
 * chains, or with a model of af3, lDDT of samples. */
static void draw_scores(const run_tail *scores, size_t columns, FILE *out) {
    const fm_json *last = scores->n_step ? scores->step[scores->n_step - 1] : NULL;
    const fm_json *best = last;
    if (!last) return;
    const bool has_chains = fm_json_get_member(last, "lddt_ca");
    const char *key = has_chains ? "lddt_ca" : "lddt";
    for (size_t i = 0; i < scores->n_step; i++) {
        const double score = number(scores->step[i], key), most = number(best, key);
        if (score > most || (isnan(most) && !isnan(score))) best = scores->step[i];
    }
    draw(out, columns,
         "held out  %10.4f  %s of %.0f %s after step %.0f; best %.4f after "
         "step %.0f",
         number(last, key), key, number(last, has_chains ? "n_chain" : "samples"),
         has_chains ? "chains" : "samples", number(last, "step"), number(best, key),
         number(best, "step"));
    fm_json_member member;
    for (bool any = fm_json_first_member(last, &member); any;
         any = fm_json_next_member(last, &member)) {
        double value = fm_json_get_number(member.value, NAN);
        if (isnan(value) || is_named_score(member.name)) continue;
        draw(out, columns, "  held out %-15.64s %10.4f", member.name, value);
    }
}

static void draw_text(const run_tail *tail, const run_tail *scores, const char *folder,
                      size_t columns, FILE *out) {
    const fm_json *last = tail->step[tail->n_step - 1];
    const char *sample = fm_json_get_text(fm_json_get_member(last, "sample"));
    draw(out, columns, "%s  step %.0f  written %.0f s ago%s", folder, number(last, "step"),
         tail->age_s, tail->has_ended ? ", no process trains here" : "");
    if (tail->n_step > 1) {
        draw(out, columns, "loss      %10.4f  median of the newer half of %zu steps, before %.4f",
             tail->loss, tail->n_step, tail->loss_before);
    } else {
        draw(out, columns, "loss      %10.4f  of the only step", tail->loss);
    }
    draw(out, columns, "rate      %10.3f  steps/s, %.3f s a step in the median", 1 / tail->step_s,
         tail->step_s);
    draw(out, columns, "data wait %10.3f  ms in the median, at most %.3f", tail->data_wait_s * 1000,
         tail->longest_wait_s * 1000);
    draw_rest(tail, columns, out);
    draw(out, columns, "last step %10.4f  loss, norm of the gradient %.3g, rate %.3g, sample %s",
         number(last, "loss"), number(last, "grad_norm"), number(last, "learning_rate"),
         sample ? sample : "?");
    fm_json_member member;
    for (bool any = fm_json_first_member(last, &member); any;
         any = fm_json_next_member(last, &member)) {
        if (is_named(member.name)) continue;
        draw(out, columns, "  %-24s %10.4f", member.name, fm_json_get_number(member.value, NAN));
    }
    draw_scores(scores, columns, out);
}

/* Writes an object with the members of a row. */
static void put_row(fm_json_writer *json, const char *name, const fm_json *row) {
    fm_json_open_object(json, name);
    fm_json_member member;
    for (bool any = fm_json_first_member(row, &member); any;
         any = fm_json_next_member(row, &member)) {
        const char *text = fm_json_get_text(member.value);
        if (text) {
            fm_json_put_string(json, member.name, text);
        } else {
            fm_json_put_f64(json, member.name, fm_json_get_number(member.value, NAN), 6);
        }
    }
    fm_json_close(json);
}

static void draw_json(const run_tail *tail, const run_tail *scores, const char *folder, FILE *out) {
    const fm_json *last = tail->step[tail->n_step - 1];
    fm_json_writer json;
    fm_json_begin(&json, out);
    fm_json_put_string(&json, "run", folder);
    fm_json_put_u64(&json, "step", (uint64_t)number(last, "step"));
    fm_json_put_f64(&json, "age_s", tail->age_s, 0);
    fm_json_put_bool(&json, "ended", tail->has_ended);
    fm_json_put_u64(&json, "steps_seen", tail->n_step);
    fm_json_put_f64(&json, "loss", tail->loss, 6);
    fm_json_put_f64(&json, "loss_before", tail->loss_before, 6);
    fm_json_put_f64(&json, "step_s", tail->step_s, 6);
    fm_json_put_f64(&json, "data_wait_s", tail->data_wait_s, 9);
    put_row(&json, "last", last);
    if (scores->n_step) put_row(&json, "held_out", scores->step[scores->n_step - 1]);
    fm_json_end(&json);
}

/* Reads the end of a file of the folder. */
static fm_status read_file(const char *folder, const char *name, run_tail *tail, fm_error *reterr) {
    char path[PATH_MAX], *text;
    int fd;
    size_t bytes = 0;
    bool is_whole = false;
    fm_status status = fm_run_folder_open(folder, name, path, &fd, reterr);
    if (!status) status = read_tail(path, fd, &text, &bytes, &is_whole, &tail->age_s, reterr);
    if (status) return status;
    status = parse_steps(path, text, bytes, is_whole, tail, reterr);
    free(text);
    return status;
}

static void free_tail(run_tail *tail) {
    for (size_t i = 0; i < tail->n_step; i++)
        fm_json_free(tail->step[i]);
}

fm_status fm_top_draw_run(const char *folder, bool json, size_t columns, FILE *out,
                          fm_error *reterr) {
    run_tail tail = {0}, scores = {0};
    fm_status status = read_file(folder, "metrics.jsonl", &tail, reterr);
    if (!status) {
        /* Most runs have no evaluation, or none yet. */
        status = read_file(folder, "eval.jsonl", &scores, reterr);
        if (status == FM_ERR_NOT_FOUND) status = FM_OK;
    }
    if (!status) {
        summarise(&tail);
        tail.has_ended = has_ended(folder);
        if (json) {
            draw_json(&tail, &scores, folder, out);
        } else {
            draw_text(&tail, &scores, folder, columns, out);
        }
    }
    free_tail(&tail);
    free_tail(&scores);
    return status;
}
