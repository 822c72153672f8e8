/* pass.c: see pass.h. */
#include "trainer/step/pass.h"

/* Returns whether the pass has a graph now. */
static bool capture(fm_pass *pass, fm_stream *stream) {
    if (pass->direct || !pass->is_warm) return false;
    if (pass->device->capture_begin(stream)) {
        pass->queue(pass->context, stream);
        pass->graph = pass->device->capture_end(stream);
    }
    if (pass->agree && !pass->agree(pass->agree_context, pass->graph != NULL)) fm_pass_forget(pass);
    pass->direct = !pass->graph; /* a capture that failed once is not tried again */
    return pass->graph != NULL;
}

void fm_pass_run(fm_pass *pass, fm_stream *stream) {
    if (pass->graph || capture(pass, stream)) {
        pass->device->graph_launch(pass->graph, stream);
        pass->n_launch++;
    } else {
        pass->queue(pass->context, stream);
        pass->n_direct++;
    }
    pass->is_warm = true;
}

void fm_pass_forget(fm_pass *pass) {
    if (pass->graph) {
        pass->device->graph_destroy(pass->graph);
        pass->graph = NULL;
    }
}
