/* stream.c: a stream of samples: a loader with its receiver thread. */
#include "server/python/core/core.h"

#include "proto/base/date.h"
#include "trainer/data/loader.h"

#include <string.h>
#include <unistd.h>

enum { SIGNAL_MS = 100 }; /* how often a waiting call looks for signals */

typedef struct stream_object {
    PyObject ob_base;
    fm_loader *loader; /* NULL: closed */
    uint32_t n_slab;
    uint32_t n_held;    /* samples that Python holds */
    uint32_t n_waiting; /* threads in next, without the interpreter lock */
    bool closing;       /* close was called; the loader's last user closes it */
    pid_t process;      /* that opened it; a forked process has no receiver thread */
} stream_object;

static PyObject *stream_type;

/* -- opening */

static bool put_text(char *out, size_t bytes, const char *text, const char *what) {
    if (strlen(text) >= bytes) {
        PyErr_Format(PyExc_ValueError, "%s is longer than %d bytes", what, (int)bytes - 1);
        return false;
    }
    memcpy(out, text, strlen(text) + 1);
    return true;
}

static fm_status parse_params(const char *order, const char *delivered, fm_wire_open *open,
                              fm_error *reterr) {
    fm_status status = fm_wire_order_parse(order, &open->order, &open->window, reterr);
    if (!status && delivered) status = fm_token_parse(delivered, &open->token, reterr);
    return status;
}

/* Whether a signal's handler raised an exception, such as KeyboardInterrupt. */
static bool has_raised(void *context) {
    (void)context;
    PyGILState_STATE before = PyGILState_Ensure();
    bool raised = PyErr_CheckSignals() != 0;
    PyGILState_Release(before);
    return raised;
}

static PyObject *open_loader(const fm_loader_options *options) {
    stream_object *self = PyObject_New(stream_object, (PyTypeObject *)stream_type);
    if (!self) return NULL;
    fm_error error;
    fm_status status;
    self->loader = NULL;
    self->n_slab = options->n_slab;
    self->n_held = 0;
    self->n_waiting = 0;
    self->closing = false;
    self->process = getpid();
    Py_BEGIN_ALLOW_THREADS;
    status = fm_loader_open(options, &self->loader, &error);
    Py_END_ALLOW_THREADS;
    if (!status) return (PyObject *)self;
    Py_DECREF(self);
    return status == FM_ERR_CANCELLED ? NULL : fm_py_raise(&error);
}

static PyObject *open_stream(PyObject *module, PyObject *arguments, PyObject *keywords) {
    static char *names[] = {
        "url",          "plan",      "snapshot", "seed",     "first_step", "steps",
        "group",        "groups",    "batch",    "crop",     "cycles",     "max_template_date",
        "msa_clusters", "extra_msa", "order",    "skip",     "delivered",  "ahead",
        "resume_ms",    "event_ms",  "agent",    "tls_cert", "tls_key",    "tls_ca",
        "token_file",   "insecure",  NULL};
    (void)module;
    const char *plan, *order, *delivered = NULL;
    unsigned long long seed, first_step, steps;
    unsigned group, groups, ahead, resume_ms, event_ms;
    int skip, insecure;
    fm_loader_options options = {0};
    fm_client_options *client = &options.supply.client;
    fm_wire_open *open = &options.stream;
    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "sszKKKIIIIIIIIspzIIIszzzzp", names, &client->url, &plan,
            &client->snapshot_name, &seed, &first_step, &steps, &group, &groups,
            &open->global_batch, &open->crop_size, &open->max_cycle, &open->max_template_date,
            &open->max_msa_clusters, &open->max_extra_msa, &order, &skip, &delivered, &ahead,
            &resume_ms, &event_ms, &client->agent, &client->credentials.tls_cert,
            &client->credentials.tls_key, &client->credentials.tls_ca,
            &client->credentials.token_file, &insecure)) {
        return NULL;
    }
    if (!put_text(open->plan, sizeof open->plan, plan, "plan")) return NULL;
    if (ahead < 2 || ahead > 1024) {
        PyErr_SetString(PyExc_ValueError, "ahead must be 2 to 1024");
        return NULL;
    }
    fm_error error;
    if (parse_params(order, delivered, open, &error)) return fm_py_raise(&error);
    open->seed = seed;
    open->first_step = first_step;
    open->n_step = steps;
    open->group = group;
    open->n_group = groups;
    open->policy = skip ? FM_WIRE_SKIP : FM_WIRE_STOP;
    options.supply.resume_ms = resume_ms;
    client->event_ms = event_ms;
    client->cancel = (fm_cancel){.is_asked = has_raised};
    client->credentials.is_insecure = insecure;
    options.n_slab = ahead;
    return open_loader(&options);
}

/* -- closing. A sample's memory belongs to the loader, so the loader outlives the samples. */

/* In a forked process the loader stays as it is, because its connection is the parent's. */
static bool is_forked(const stream_object *self) {
    return self->process != getpid();
}

static void close_loader(stream_object *self) {
    fm_loader *loader = self->loader;
    self->loader = NULL;
    if (is_forked(self)) return;
    Py_BEGIN_ALLOW_THREADS;
    fm_loader_close(loader);
    Py_END_ALLOW_THREADS;
}

static void close_unused(stream_object *self) {
    if (self->closing && self->n_held == 0 && self->n_waiting == 0) close_loader(self);
}

static void release_slab(PyObject *stream, uint32_t slab, size_t bytes) {
    stream_object *self = (stream_object *)stream;
    const fm_loaded loaded = {.slab = slab, .bytes = bytes};
    if (is_forked(self)) return;
    fm_loader_release(self->loader, &loaded);
    self->n_held--;
    close_unused(self);
}

static PyObject *stream_close(PyObject *object, PyObject *ignored) {
    (void)ignored;
    stream_object *self = (stream_object *)object;
    self->closing = true;
    close_unused(self);
    Py_RETURN_NONE;
}

static void stream_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    close_loader((stream_object *)object);
    PyObject_Free(object);
    Py_DECREF(type);
}

static bool is_open(const stream_object *self) {
    if (is_forked(self)) {
        PyErr_Format(PyExc_RuntimeError,
                     "the stream was opened by process %d, which forked this one; begin a new loop "
                     "here, or make a Stream after the fork",
                     (int)self->process);
        return false;
    }
    if (self->loader && !self->closing) return true;
    PyErr_SetString(PyExc_ValueError, "the stream is closed");
    return false;
}

/* -- the next sample */

/* Waits until a sample is ready or the stream is over, and handles signals meanwhile. Returns false
 * with an exception. */
static bool wait_ready(stream_object *self, fm_loaded *ret_loaded) {
    for (;;) {
        bool ready = false;
        fm_error error;
        fm_status status;
        Py_BEGIN_ALLOW_THREADS;
        status = fm_loader_next(self->loader, SIGNAL_MS, &ready, ret_loaded, &error);
        Py_END_ALLOW_THREADS;
        if (status) return fm_py_raise(&error);
        if (ready) return true;
        if (PyErr_CheckSignals()) return false;
        if (!is_open(self)) return false;
    }
}

/* An unreadable sample has no content, so its slab returns at once. */
static PyObject *report_unreadable(stream_object *self, const fm_loaded *loaded) {
    PyObject *report = Py_BuildValue("(Kss)", (unsigned long long)loaded->index,
                                     fm_status_name(loaded->why->status), loaded->why->message);
    fm_loader_release(self->loader, loaded);
    return report;
}

static PyObject *stream_next(PyObject *object, PyObject *ignored) {
    (void)ignored;
    stream_object *self = (stream_object *)object;
    if (!is_open(self)) return NULL;
    if (self->n_held == self->n_slab) {
        return PyErr_Format(PyExc_RuntimeError,
                            "all %u received samples are still in use; copy what must be kept, or "
                            "open the stream with a larger `ahead`",
                            self->n_slab);
    }
    fm_loaded loaded;
    self->n_waiting++;
    bool is_ready = wait_ready(self, &loaded);
    self->n_waiting--;
    if (!is_ready) {
        close_unused(self);
        return NULL;
    }
    if (!loaded.sample) return report_unreadable(self, &loaded);
    PyObject *sample =
        fm_py_sample_new(object, loaded.sample, loaded.slab, loaded.bytes, release_slab);
    if (sample) {
        self->n_held++;
    } else {
        fm_loader_release(self->loader, &loaded);
    }
    return sample;
}

/* -- facts */

static PyObject *stream_facts(PyObject *object, PyObject *ignored) {
    (void)ignored;
    stream_object *self = (stream_object *)object;
    if (!is_open(self)) return NULL;
    const fm_wire_opened *opened = fm_loader_get_stream(self->loader);
    const fm_wire_welcome *welcome = fm_loader_get_server(self->loader);
    char hash[FM_SHA256_HEX];
    fm_sha256_format(&welcome->snapshot, hash);
    return Py_BuildValue("{sssssIsKsKsIsIsIsIsIsIsI}", "snapshot", welcome->snapshot_name,
                         "snapshot_hash", hash, "n_chain", welcome->n_chain, "n_sample",
                         (unsigned long long)opened->n_sample, "max_sample_bytes",
                         (unsigned long long)opened->max_sample_bytes, "global_batch",
                         opened->global_batch, "crop_size", opened->crop_size, "max_msa_clusters",
                         opened->max_msa_clusters, "max_extra_msa", opened->max_extra_msa,
                         "max_cycle", opened->max_cycle, "epoch_samples", opened->epoch_samples,
                         "samples_per_step", opened->samples_per_step);
}

static PyObject *stream_stats(PyObject *object, PyObject *ignored) {
    (void)ignored;
    stream_object *self = (stream_object *)object;
    if (!is_open(self)) return NULL;
    fm_loader_stats stats = fm_loader_get_stats(self->loader);
    const fm_histogram *wait = &stats.ready_wait_ns;
    return Py_BuildValue(
        "{sKsKsKsdsdsd}", "samples", (unsigned long long)stats.n_sample, "skipped",
        (unsigned long long)stats.n_skipped, "bytes", (unsigned long long)stats.bytes, "wait_p50_s",
        (double)fm_histogram_percentile(wait, 500) * 1e-9, "wait_p99_s",
        (double)fm_histogram_percentile(wait, 990) * 1e-9, "wait_max_s", (double)wait->max * 1e-9);
}

static PyMethodDef stream_methods[] = {
    {"next", stream_next, METH_NOARGS,
     "The next Sample, or (index, kind, sentence) of one that the server could not make. Raises "
     "Error('closed', ...) after the last."},
    {"facts", stream_facts, METH_NOARGS, "What the server announced, as a dict."},
    {"stats", stream_stats, METH_NOARGS, "Counters and waiting times, as a dict."},
    {"close", stream_close, METH_NOARGS, "Ends the stream."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot stream_slots[] = {
    {Py_tp_dealloc, stream_dealloc},
    {Py_tp_methods, stream_methods},
    {Py_tp_doc, "A stream of samples."},
    {0, NULL},
};

static PyType_Spec stream_spec = {
    .name = "foldmill._core.Stream",
    .basicsize = sizeof(stream_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = stream_slots,
};

static PyMethodDef functions[] = {
    {"open_stream", (PyCFunction)(void (*)(void))open_stream, METH_VARARGS | METH_KEYWORDS,
     "Connects and opens a stream; every keyword must be given."},
    {NULL, NULL, 0, NULL},
};

int fm_py_add_streams(PyObject *module) {
    return fm_py_add_type(module, "Stream", &stream_spec, &stream_type) ||
                   PyModule_AddFunctions(module, functions)
               ? -1
               : 0;
}
