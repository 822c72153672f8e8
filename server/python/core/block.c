/* block.c: the memory that arrays are in. */
#include "server/python/core/core.h"

/* -- Arena: released when the last Block in it dies */

typedef struct arena_object {
    PyObject ob_base;
    fm_arena arena;
} arena_object;

static PyObject *arena_type, *block_type;

static void arena_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    fm_arena_fini(&((arena_object *)self)->arena);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot arena_slots[] = {
    {Py_tp_dealloc, arena_dealloc},
    {Py_tp_doc, "The memory of computed arrays."},
    {0, NULL},
};

static PyType_Spec arena_spec = {
    .name = "foldmill._core.Arena",
    .basicsize = sizeof(arena_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = arena_slots,
};

PyObject *fm_py_arena_new(size_t max_bytes, fm_arena **ret_arena) {
    arena_object *self = PyObject_New(arena_object, (PyTypeObject *)arena_type);
    if (!self) return NULL;
    fm_error error;
    self->arena = (fm_arena){0};
    if (fm_arena_init(&self->arena, max_bytes, &error)) {
        Py_DECREF(self);
        return fm_py_raise(&error);
    }
    *ret_arena = &self->arena;
    return (PyObject *)self;
}

/* -- Block */

typedef struct block_object {
    PyObject ob_base;
    PyObject *owner;
    void *data;
    Py_ssize_t size;
} block_object;

static void block_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((block_object *)self)->owner);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* Writable, because torch.from_numpy demands it; no other code reads this memory. */
static int block_get_buffer(PyObject *self, Py_buffer *view, int flags) {
    block_object *block = (block_object *)self;
    return PyBuffer_FillInfo(view, self, block->data, block->size, 0, flags);
}

static Py_ssize_t block_length(PyObject *self) {
    return ((block_object *)self)->size;
}

static PyType_Slot block_slots[] = {
    {Py_tp_dealloc, block_dealloc},
    {Py_bf_getbuffer, block_get_buffer},
    {Py_sq_length, block_length},
    {Py_tp_doc, "The bytes of one array."},
    {0, NULL},
};

static PyType_Spec block_spec = {
    .name = "foldmill._core.Block",
    .basicsize = sizeof(block_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = block_slots,
};

PyObject *fm_py_block_new(PyObject *owner, const void *data, size_t bytes) {
    block_object *self = PyObject_New(block_object, (PyTypeObject *)block_type);
    if (!self) return NULL;
    self->owner = Py_NewRef(owner);
    self->data = (void *)(uintptr_t)data;
    self->size = (Py_ssize_t)bytes;
    return (PyObject *)self;
}

/* -- arrays */

static PyObject *shape_tuple(const fm_array *array) {
    PyObject *shape = PyTuple_New((Py_ssize_t)array->rank);
    for (size_t i = 0; shape && i < array->rank; i++) {
        PyObject *size = PyLong_FromUnsignedLongLong(array->shape[i]);
        if (!size || PyTuple_SetItem(shape, (Py_ssize_t)i, size)) Py_CLEAR(shape);
    }
    return shape;
}

PyObject *fm_py_array(PyObject *owner, const fm_array *array) {
    size_t bytes = (size_t)(array->dtype[2] - '0');
    for (size_t i = 0; i < array->rank; i++)
        bytes *= array->shape[i];
    PyObject *shape = shape_tuple(array), *block = fm_py_block_new(owner, array->data, bytes);
    PyObject *tuple =
        shape && block ? Py_BuildValue("(ssOO)", array->key, array->dtype, shape, block) : NULL;
    Py_XDECREF(shape);
    Py_XDECREF(block);
    return tuple;
}

int fm_py_append_arrays(PyObject *list, PyObject *owner, const fm_array *arrays, size_t n) {
    for (size_t i = 0; i < n; i++) {
        PyObject *tuple = fm_py_array(owner, &arrays[i]);
        int failed = tuple ? PyList_Append(list, tuple) : -1;
        Py_XDECREF(tuple);
        if (failed) return -1;
    }
    return 0;
}

int fm_py_add_blocks(PyObject *module) {
    return fm_py_add_type(module, "Arena", &arena_spec, &arena_type) ||
                   fm_py_add_type(module, "Block", &block_spec, &block_type)
               ? -1
               : 0;
}
