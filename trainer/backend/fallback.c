/* fallback.c: see fallback.h. */
#include "trainer/backend/fallback.h"

#include <assert.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static fm_fallback counters[FM_FALLBACK_KINDS] = {
    [FM_FALLBACK_GEMM] = {.name = "gemm"},
    [FM_FALLBACK_TRIANGLE] = {.name = "triangle"},
    [FM_FALLBACK_ATTENTION] = {.name = "attention"},
};

void fm_backend_fall_back(fm_fallback_kind kind, const char *format, ...) {
    assert(kind >= 0 && kind < FM_FALLBACK_KINDS);
    fm_fallback *counter = &counters[kind];
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&lock);
    if (counter->count++ == 0) vsnprintf(counter->text, sizeof counter->text, format, arguments);
    pthread_mutex_unlock(&lock);
    va_end(arguments);
}

void fm_backend_fallbacks(fm_fallback ret_fallbacks[FM_FALLBACK_KINDS]) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FM_FALLBACK_KINDS; i++)
        ret_fallbacks[i] = counters[i];
    pthread_mutex_unlock(&lock);
}
