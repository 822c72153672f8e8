/* svg_png.c: see svg_png.h. librsvg draws on a surface of cairo, which encodes it. */
#include "server/cli/svg_png.h"

#include "proto/base/file.h"

#include <librsvg/rsvg.h>
#include <stdlib.h>
#include <string.h>

/* The encoded picture so far. */
typedef struct png_bytes {
    unsigned char *data;
    size_t n, room;
} png_bytes;

static cairo_status_t append(void *closure, const unsigned char *data, unsigned int length) {
    png_bytes *png = closure;
    if (png->n + length > png->room) {
        size_t room = 2 * (png->n + length);
        unsigned char *grown = realloc(png->data, room);
        if (!grown) return CAIRO_STATUS_NO_MEMORY;
        png->data = grown;
        png->room = room;
    }
    memcpy(png->data + png->n, data, length);
    png->n += length;
    return CAIRO_STATUS_SUCCESS;
}

/* False when the picture cannot be drawn, which is a lack of memory: it is one of ours. */
static bool draw(RsvgHandle *handle, double scale, png_bytes *png) {
    double width = 0, height = 0;
    if (!rsvg_handle_get_intrinsic_size_in_pixels(handle, &width, &height)) return false;
    width *= scale;
    height *= scale;
    cairo_surface_t *surface =
        cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)width, (int)height);
    cairo_t *context = cairo_create(surface);
    const RsvgRectangle page = {.width = width, .height = height};
    bool is_drawn = rsvg_handle_render_document(handle, context, &page, NULL) &&
                    cairo_surface_write_to_png_stream(surface, append, png) == CAIRO_STATUS_SUCCESS;
    cairo_destroy(context);
    cairo_surface_destroy(surface);
    return is_drawn;
}

fm_status fm_svg_write_png(const char *path, const char *svg, size_t svg_bytes, double scale,
                           fm_error *reterr) {
    png_bytes png = {.n = 0};
    RsvgHandle *handle = rsvg_handle_new_from_data((const guint8 *)svg, svg_bytes, NULL);
    bool is_drawn = handle && draw(handle, scale, &png);
    if (handle) g_object_unref(handle);
    fm_status status = is_drawn
                           ? fm_file_write_atomic(path, png.data, png.n, reterr)
                           : fm_fail_in(reterr, FM_ERR_NOMEM, path, "the picture cannot be drawn");
    free(png.data);
    return status;
}
