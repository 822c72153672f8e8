/* core.c: the module itself, and how it raises the package's exception. */
#include "server/python/core/core.h"

static PyObject *error_type;

PyObject *fm_py_raise(const fm_error *error) {
    char text[FM_ERROR_TEXT_BYTES];
    fm_error_format(error, text, sizeof text);
    PyObject *arguments = Py_BuildValue("(ss)", fm_status_name(error->status), text);
    if (!arguments) return NULL;
    PyErr_SetObject(error_type, arguments);
    Py_DECREF(arguments);
    return NULL;
}

int fm_py_add_type(PyObject *module, const char *name, PyType_Spec *spec, PyObject **ret_type) {
    PyObject *type = PyType_FromSpec(spec);
    if (!type) return -1;
    if (ret_type) *ret_type = type;
    int failed = PyModule_AddObjectRef(module, name, type);
    if (!ret_type) Py_DECREF(type);
    return failed;
}

static int find_error(void) {
    PyObject *errors = PyImport_ImportModule("foldmill.errors");
    error_type = errors ? PyObject_GetAttrString(errors, "Error") : NULL;
    Py_XDECREF(errors);
    return error_type ? 0 : -1;
}

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "foldmill._core",
    .m_doc = "The C client, expansion and cache of foldmill.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    if (find_error() || fm_py_add_blocks(module) || fm_py_add_samples(module) ||
        fm_py_add_streams(module) || fm_py_add_caches(module) ||
        PyModule_AddStringConstant(module, "__version__", FM_VERSION)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
