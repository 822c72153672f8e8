/* cache.c: chains of a cache on disk, without a server. */
#include "server/python/core/core.h"

#include "cache/export/chain_features.h"
#include "cache/snapshot/snapshot.h"
#include "featurizer/nonensembled.h"

/* Address space for the features of a chain. */
#define ARENA_BYTES ((size_t)16 << 30)

typedef struct cache_object {
    PyObject ob_base;
    fm_store *store;
} cache_object;

static PyObject *cache_type;

static PyObject *open_cache(PyObject *module, PyObject *arguments) {
    (void)module;
    const char *path;
    unsigned long long generation;
    if (!PyArg_ParseTuple(arguments, "sK", &path, &generation)) return NULL;
    cache_object *self = PyObject_New(cache_object, (PyTypeObject *)cache_type);
    if (!self) return NULL;
    fm_error error;
    fm_status status;
    self->store = NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = fm_store_open_generation(path, generation, &self->store, &error);
    Py_END_ALLOW_THREADS;
    if (!status) return (PyObject *)self;
    Py_DECREF(self);
    return fm_py_raise(&error);
}

static void cache_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    fm_store *store = ((cache_object *)object)->store;
    if (store) fm_store_close(store);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *cache_generation(PyObject *object, PyObject *ignored) {
    (void)ignored;
    const fm_store_info *info = fm_store_get_info(((cache_object *)object)->store);
    return PyLong_FromUnsignedLongLong(info->generation);
}

static PyObject *cache_length(PyObject *object, PyObject *ignored) {
    (void)ignored;
    return PyLong_FromUnsignedLong(fm_store_get_info(((cache_object *)object)->store)->n_chain);
}

/* Reads a chain's number; false with IndexError. */
static bool parse_chain(const cache_object *self, PyObject *number, uint32_t *ret_chain) {
    unsigned long long value = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return false;
    if (value >= fm_store_get_info(self->store)->n_chain) {
        PyErr_SetString(PyExc_IndexError, "the cache has no chain of that number");
        return false;
    }
    *ret_chain = (uint32_t)value;
    return true;
}

static PyObject *cache_name(PyObject *object, PyObject *number) {
    const cache_object *self = (cache_object *)object;
    uint32_t chain;
    if (!parse_chain(self, number, &chain)) return NULL;
    return PyUnicode_FromString(fm_store_chain_name(self->store, chain));
}

static PyObject *cache_find(PyObject *object, PyObject *name) {
    const cache_object *self = (cache_object *)object;
    uint32_t chain;
    fm_error error;
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    if (!text) return NULL;
    fm_status status = fm_store_find(self->store, text, &chain, &error);
    if (status == FM_ERR_NOT_FOUND) Py_RETURN_NONE;
    return status ? fm_py_raise(&error) : PyLong_FromUnsignedLong(chain);
}

static fm_status load_arrays(const fm_store *store, uint32_t chain,
                             const fm_template_options *options, fm_arena *arena,
                             fm_array arrays[FM_NONENSEMBLED_N_ARRAY], size_t *ret_n,
                             fm_error *reterr) {
    fm_record record;
    fm_template_features templates;
    fm_status status = fm_store_load(store, chain, arena, &record, reterr);
    if (!status) status = fm_chain_templates(store, &record, options, arena, &templates, reterr);
    if (status) return status;
    const fm_nonensembled_input input = {record.sequence, record.msa, record.structure, &templates};
    return fm_nonensembled_list_arrays(&input, arena, arrays, ret_n, reterr);
}

static PyObject *cache_load(PyObject *object, PyObject *arguments) {
    const cache_object *self = (cache_object *)object;
    PyObject *number;
    unsigned max_templates;
    const char *max_date;
    uint32_t chain;
    if (!PyArg_ParseTuple(arguments, "OIz", &number, &max_templates, &max_date)) return NULL;
    if (!parse_chain(self, number, &chain)) return NULL;
    fm_array arrays[FM_NONENSEMBLED_N_ARRAY];
    fm_arena *arena;
    size_t n = 0;
    fm_error error;
    fm_status status;
    const fm_template_options options = {.max_date = max_date, .max_templates = max_templates};
    PyObject *owner = fm_py_arena_new(ARENA_BYTES, &arena);
    if (!owner) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = load_arrays(self->store, chain, &options, arena, arrays, &n, &error);
    Py_END_ALLOW_THREADS;
    PyObject *list = status ? fm_py_raise(&error) : PyList_New(0);
    if (list && fm_py_append_arrays(list, owner, arrays, n)) Py_CLEAR(list);
    Py_DECREF(owner);
    return list;
}

/* A snapshot: its hash and a list of (number of the chain, weight). */
static PyObject *list_snapshot(const fm_snapshot *snapshot) {
    char hash[FM_SHA256_HEX];
    fm_sha256_format(&snapshot->hash, hash);
    PyObject *rows = PyList_New(0);
    for (uint32_t i = 0; rows && i < snapshot->n_chain; i++) {
        PyObject *row = Py_BuildValue("(II)", snapshot->chain[i], snapshot->weight[i]);
        if (!row || PyList_Append(rows, row)) Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    PyObject *pair = rows ? Py_BuildValue("(sO)", hash, rows) : NULL;
    Py_XDECREF(rows);
    return pair;
}

static PyObject *cache_snapshot(PyObject *object, PyObject *name) {
    const cache_object *self = (cache_object *)object;
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    fm_arena arena;
    fm_snapshot snapshot;
    fm_error error;
    if (!text) return NULL;
    fm_status status = fm_arena_init(&arena, (size_t)1 << 30, &error);
    if (!status) status = fm_snapshot_open(self->store, text, &arena, &snapshot, &error);
    PyObject *pair = status ? fm_py_raise(&error) : list_snapshot(&snapshot);
    fm_arena_fini(&arena);
    return pair;
}

static PyMethodDef cache_methods[] = {
    {"generation", cache_generation, METH_NOARGS, "The number of the open generation."},
    {"length", cache_length, METH_NOARGS, "The number of chains."},
    {"name", cache_name, METH_O, "The name of a chain by its number."},
    {"find", cache_find, METH_O, "The number of a chain by its name, or None."},
    {"load", cache_load, METH_VARARGS,
     "load(number, max_templates, max_date): the features before random transforms."},
    {"snapshot", cache_snapshot, METH_O, "(hash, [(number, weight), ...]) of a snapshot."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot cache_slots[] = {
    {Py_tp_dealloc, cache_dealloc},
    {Py_tp_methods, cache_methods},
    {Py_tp_doc, "An open generation of a cache."},
    {0, NULL},
};

static PyType_Spec cache_spec = {
    .name = "foldmill._core.Cache",
    .basicsize = sizeof(cache_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = cache_slots,
};

static PyMethodDef functions[] = {
    {"open_cache", open_cache, METH_VARARGS, "open_cache(path, generation): 0 is the current one."},
    {NULL, NULL, 0, NULL},
};

int fm_py_add_caches(PyObject *module) {
    return fm_py_add_type(module, "Cache", &cache_spec, &cache_type) ||
                   PyModule_AddFunctions(module, functions)
               ? -1
               : 0;
}
