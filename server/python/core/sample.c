/* sample.c: a received sample. */
#include "server/python/core/core.h"

#include "featurizer/sample/expand_geometry.h"
#include "proto/base/hash.h"
#include "proto/complex_sample.h"

#include <assert.h>
#include <string.h>

typedef struct sample_object {
    PyObject ob_base;
    PyObject *stream;
    const fm_sample *sample; /* in the stream's slab */
    fm_py_release_fn *release;
    uint32_t slab;
    size_t bytes;
} sample_object;

static PyObject *sample_type;

static void sample_dealloc(PyObject *self) {
    sample_object *s = (sample_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (s->release) s->release(s->stream, s->slab, s->bytes);
    Py_DECREF(s->stream);
    PyObject_Free(self);
    Py_DECREF(type);
}

PyObject *fm_py_sample_new(PyObject *stream, const fm_sample *sample, uint32_t slab, size_t bytes,
                           fm_py_release_fn *release) {
    sample_object *self = PyObject_New(sample_object, (PyTypeObject *)sample_type);
    if (!self) return NULL;
    self->stream = Py_NewRef(stream);
    self->sample = sample;
    self->release = release;
    self->slab = slab;
    self->bytes = bytes;
    return (PyObject *)self;
}

static PyObject *sample_head(PyObject *self, PyObject *ignored) {
    (void)ignored;
    const fm_sample *s = ((sample_object *)self)->sample;
    return Py_BuildValue(
        "{sssKsKsKsIsIsIsIsIsIsIsIsdsOsO}", "name", s->name, "seed", (unsigned long long)s->seed,
        "index", (unsigned long long)s->index, "step", (unsigned long long)s->step, "slot", s->slot,
        "epoch", s->epoch, "chain", s->chain, "n_cycle", s->n_cycle, "n_res_chain", s->n_res_chain,
        "crop_start", s->crop_start, "n_res", s->n_res, "n_seq_chain", s->n_seq_chain, "resolution",
        (double)s->resolution, "is_distillation", s->is_distillation ? Py_True : Py_False,
        "use_clamped_fape", s->use_clamped_fape ? Py_True : Py_False);
}

/* The tensors as received: tuples of cycle (None: shared by all) and array. */
static PyObject *sample_tensors(PyObject *self, PyObject *ignored) {
    (void)ignored;
    const fm_sample *s = ((sample_object *)self)->sample;
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < s->n_tensor; i++) {
        const fm_tensor_view *view = &s->tensor[i];
        fm_array array = {.key = fm_schema_find(view->id)->name,
                          .dtype = fm_dtype_numpy(view->dtype),
                          .rank = view->rank,
                          .data = view->data};
        for (uint32_t k = 0; k < view->rank; k++)
            array.shape[k] = view->shape[k];
        PyObject *tuple = fm_py_array(self, &array);
        PyObject *cycle =
            view->cycle == FM_SHARED ? Py_NewRef(Py_None) : PyLong_FromLong(view->cycle);
        PyObject *pair = tuple && cycle ? PyTuple_Pack(2, cycle, tuple) : NULL;
        if (!pair || PyList_Append(list, pair)) Py_CLEAR(list);
        Py_XDECREF(pair);
        Py_XDECREF(cycle);
        Py_XDECREF(tuple);
    }
    return list;
}

/* An upper bound of the bytes of the expanded arrays, intermediate results included. */
static size_t arena_bytes(const fm_sample *s, const fm_expand_sizes *sizes) {
    size_t n_res = sizes->n_res, n_cycle = s->n_cycle;
    size_t per_residue = 16 * ((size_t)sizes->n_clust * (FM_N_MSA_FEAT + 4) +
                               (size_t)sizes->n_extra * 4 + ((size_t)sizes->n_templ + 2) * 1024);
    return ((size_t)64 << 20) + per_residue * (n_res ? n_res : 1) * n_cycle;
}

static PyObject *expand(const fm_sample *s, const fm_expand_sizes *sizes) {
    fm_array arrays[FM_N_EXPANDED + FM_N_EXPANDED_GEOMETRY];
    fm_arena *arena;
    fm_error error;
    fm_status status;
    PyObject *owner = fm_py_arena_new(arena_bytes(s, sizes), &arena);
    if (!owner) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = fm_expand_sample(s, sizes, arena, arrays, &error);
    if (!status) status = fm_expand_geometry(s, sizes, arena, arrays + FM_N_EXPANDED, &error);
    Py_END_ALLOW_THREADS;
    PyObject *list = status ? fm_py_raise(&error) : PyList_New(0);
    size_t n = sizeof arrays / sizeof arrays[0];
    if (list && fm_py_append_arrays(list, owner, arrays, n)) Py_CLEAR(list);
    Py_DECREF(owner);
    return list;
}

/* -- complexes */

enum { MOST_WHOLE = 64 /* arrays of a whole sample, and two of ours */ };

static const size_t WHOLE_ARENA_BYTES = (size_t)4 << 30; /* address space */

/* Whether the array is one of the compact sample, whose memory is the stream's. */
static bool is_borrowed(const fm_npz *compact, const fm_npy *array) {
    size_t i = 0;
    while (i < compact->n_array && compact->arrays[i].data != array->data)
        i++;
    return i < compact->n_array;
}

/* Describes an array of the whole form, with memory in the arena. */
static fm_status take_whole(const fm_npz *compact, const fm_npy *from, fm_arena *arena,
                            fm_array *ret_array, fm_error *reterr) {
    *ret_array =
        (fm_array){.key = from->name, .dtype = from->dtype, .rank = from->rank, .data = from->data};
    memcpy(ret_array->shape, from->shape, from->rank * sizeof *from->shape);
    if (!is_borrowed(compact, from)) return FM_OK;
    void *copy = fm_arena_alloc_array(arena, from->count, from->item_bytes);
    if (!copy) return fm_arena_full(arena, reterr);
    memcpy(copy, from->data, from->count * from->item_bytes);
    ret_array->data = copy;
    return FM_OK;
}

/* Adds an array of whole numbers. */
static fm_status take_numbers(const char *key, const uint32_t *values, size_t n, fm_arena *arena,
                              fm_array *ret_array, fm_error *reterr) {
    int64_t *data = fm_arena_alloc_array(arena, n, sizeof *data);
    if (!data) return fm_arena_full(arena, reterr);
    for (size_t i = 0; i < n; i++)
        data[i] = values[i];
    *ret_array = (fm_array){.key = key, .dtype = "<i8", .rank = 1, .data = data};
    ret_array->shape[0] = n;
    return FM_OK;
}

/* Expands all cycles of a complex to the whole form of docs/reference/complex-samples.md. */
static fm_status expand_whole(const fm_sample *s, fm_arena *arena, fm_array *arrays, size_t *ret_n,
                              fm_error *reterr) {
    fm_npz compact, whole;
    uint32_t first_row[FM_LIMIT_N_CYCLE + 1], n_left_out = 0;
    size_t n = 0;
    fm_status status = fm_complex_sample_list(s, s->n_cycle, arena, &compact, first_row, reterr);
    if (!status) status = fm_complex_sample_expand(&compact, arena, &whole, &n_left_out, reterr);
    if (status) return status;
    assert(whole.n_array + 2 <= MOST_WHOLE);
    for (; n < whole.n_array && !status; n++)
        status = take_whole(&compact, &whole.arrays[n], arena, &arrays[n], reterr);
    if (!status) {
        status = take_numbers("msa_first_row", first_row, (size_t)s->n_cycle + 1, arena,
                              &arrays[n++], reterr);
    }
    if (!status) {
        status = take_numbers("atom_order_left_out", &n_left_out, 1, arena, &arrays[n++], reterr);
    }
    *ret_n = n;
    return status;
}

static PyObject *expand_complex(const fm_sample *s) {
    fm_array arrays[MOST_WHOLE];
    size_t n = 0;
    fm_arena *arena;
    fm_error error;
    fm_status status;
    PyObject *owner = fm_py_arena_new(WHOLE_ARENA_BYTES, &arena);
    if (!owner) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = expand_whole(s, arena, arrays, &n, &error);
    Py_END_ALLOW_THREADS;
    PyObject *list = status ? fm_py_raise(&error) : PyList_New(0);
    if (list && fm_py_append_arrays(list, owner, arrays, n)) Py_CLEAR(list);
    Py_DECREF(owner);
    return list;
}

static bool is_of_complex(const fm_sample *s) {
    return s->n_tensor > 0 && fm_schema_kind(s->tensor[0].id) == FM_SAMPLE_OF_COMPLEX;
}

static PyObject *sample_expand(PyObject *self, PyObject *arguments) {
    unsigned n_res, n_clust, n_extra, n_templ;
    if (!PyArg_ParseTuple(arguments, "IIII", &n_res, &n_clust, &n_extra, &n_templ)) return NULL;
    if (n_res > FM_LIMIT_N_RES || n_clust > FM_LIMIT_N_SEQ || n_extra > FM_LIMIT_N_SEQ ||
        n_templ > FM_LIMIT_N_SEQ) {
        PyErr_SetString(PyExc_ValueError, "a size is above foldmill's limits");
        return NULL;
    }
    const fm_expand_sizes sizes = {n_res, n_clust, n_extra, n_templ};
    const fm_sample *s = ((sample_object *)self)->sample;
    return is_of_complex(s) ? expand_complex(s) : expand(s, &sizes);
}

/* The hash of a sample that foldmill fetch --digest combines. */
static PyObject *sample_hash(PyObject *self, PyObject *ignored) {
    (void)ignored;
    const fm_sample *s = ((sample_object *)self)->sample;
    size_t bytes = fm_sample_encoded_bytes(s);
    fm_arena arena;
    fm_error error;
    if (fm_arena_init(&arena, bytes + 64, &error)) return fm_py_raise(&error);
    uint8_t *encoded = fm_arena_alloc(&arena, bytes);
    uint64_t hash;
    Py_BEGIN_ALLOW_THREADS;
    fm_sample_encode(s, encoded);
    hash = fm_xxh3(encoded, bytes);
    Py_END_ALLOW_THREADS;
    fm_arena_fini(&arena);
    return PyLong_FromUnsignedLongLong(hash);
}

static PyMethodDef sample_methods[] = {
    {"hash", sample_hash, METH_NOARGS, "XXH3 of the sample's encoded bytes."},
    {"head", sample_head, METH_NOARGS, "Which sample this is, as a dict."},
    {"tensors", sample_tensors, METH_NOARGS,
     "The compact tensors: a list of (cycle or None, (key, dtype, shape, block))."},
    {"expand", sample_expand, METH_VARARGS,
     "expand(n_res, n_clust, n_extra, n_templ): OpenFold's arrays, or Protenix's of a complex, as "
     "(key, dtype, shape, block)."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot sample_slots[] = {
    {Py_tp_dealloc, sample_dealloc},
    {Py_tp_methods, sample_methods},
    {Py_tp_doc, "A received sample."},
    {0, NULL},
};

static PyType_Spec sample_spec = {
    .name = "foldmill._core.Sample",
    .basicsize = sizeof(sample_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = sample_slots,
};

int fm_py_add_samples(PyObject *module) {
    return fm_py_add_type(module, "Sample", &sample_spec, &sample_type);
}
