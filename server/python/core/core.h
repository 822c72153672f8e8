/* core.h: the types of the extension module foldmill._core, for its own files.
 *
 * The module wraps the C client, the expansion and the cache for Python 3.11 and later (stable
 * ABI). It returns plain tuples and Block objects; the Python files beside it turn these into NumPy
 * arrays, so the module needs no NumPy to build.
 *
 *     Stream   a fm_loader: a receiver thread that never holds the interpreter lock
 *     Sample   a received sample; its slab returns to the receiver when the last view of it dies
 *     Arena    the memory of computed arrays
 *     Block    one array's bytes (buffer protocol); keeps its Sample or Arena alive
 *     Cache    an open generation of a cache
 *
 * Ownership: a Block owns a reference to the object that owns its memory, a Sample one to its
 * Stream. Blocking calls release the interpreter lock. */
#ifndef FM_PYTHON_CORE_H
#define FM_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Python's tables of slots hold functions as pointers to void. */
#pragma GCC diagnostic ignored "-Wpedantic"

#include "featurizer/arrays.h"
#include "proto/base/arena.h"
#include "proto/batch.h"

/* Raises foldmill.Error(status name, sentence) and returns NULL. */
PyObject *fm_py_raise(const fm_error *error);

/* Adds a type to the module; 0, or -1 with an exception set. */
int fm_py_add_type(PyObject *module, const char *name, PyType_Spec *spec, PyObject **ret_type);

/* -- blocks */

int fm_py_add_blocks(PyObject *module);

/* A new Arena with `max_bytes` of address space, and the arena in it. NULL with an exception. */
PyObject *fm_py_arena_new(size_t max_bytes, fm_arena **ret_arena);

/* A new Block of `bytes` bytes at `data`, which `owner` keeps alive. NULL with an exception. */
PyObject *fm_py_block_new(PyObject *owner, const void *data, size_t bytes);

/* The tuple (key, dtype, shape, block) of an array. NULL with an exception. */
PyObject *fm_py_array(PyObject *owner, const fm_array *array);

/* Appends such tuples of n arrays to a list; -1 with an exception. */
int fm_py_append_arrays(PyObject *list, PyObject *owner, const fm_array *arrays, size_t n);

/* -- samples, streams, caches */

int fm_py_add_samples(PyObject *module);
int fm_py_add_streams(PyObject *module);
int fm_py_add_caches(PyObject *module);

/* Gives the sample's slab back when the last reference to the Sample dies. */
typedef void fm_py_release_fn(PyObject *stream, uint32_t slab, size_t bytes);

/* A new Sample over a slab of `stream`. NULL with an exception; the slab is then not released. */
PyObject *fm_py_sample_new(PyObject *stream, const fm_sample *sample, uint32_t slab, size_t bytes,
                           fm_py_release_fn *release);

#endif
