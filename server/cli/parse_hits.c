/* parse_hits.c: the kinds hhr and hmmsearch of foldmill parse. */
#include "featurizer/parse/hhr.h"
#include "featurizer/parse/hmmsearch.h"
#include "server/cli/parse.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N_SHOWN = 20 };

static fm_status write_hits(const fm_parse_request *request, const fm_hits *hits,
                            fm_error *reterr) {
    fm_array_writer *writer;
    fm_array arrays[FM_HITS_N_ARRAY];
    fm_status status = fm_hits_list_arrays(hits, request->arena, arrays, reterr);
    if (!status) status = fm_array_writer_create(request->out, FM_ARRAY_NPZ, &writer, reterr);
    if (status) return status;
    for (size_t i = 0; i < FM_HITS_N_ARRAY && !status; i++) {
        const fm_array *array = &arrays[i];
        status = fm_array_writer_append(writer, array->key, array->dtype, array->rank, array->shape,
                                        array->data, reterr);
    }
    if (!status) return fm_array_writer_finish(writer, reterr);
    fm_array_writer_destroy(writer);
    return status;
}

/* The length of the first word of the name, at most 16. */
static int name_bytes(const fm_hit *hit) {
    const uint8_t *blank = memchr(hit->name.data, ' ', hit->name.size);
    size_t n = blank ? (size_t)(blank - hit->name.data) : hit->name.size;
    return n > 16 ? 16 : (int)n;
}

static void print_hit(const fm_hit *hit) {
    int n = name_bytes(hit);
    printf("  %5d  %.*s%*s  %4d columns", hit->index, n, (const char *)hit->name.data, 16 - n, "",
           hit->aligned_cols);
    if (!isnan(hit->sum_probs)) printf("  sum_probs %.1f", hit->sum_probs);
    printf("\n");
}

static void write_json(const fm_parse_request *request, const char *format, const fm_hits *hits) {
    fm_json_writer json;
    fm_parse_begin_json(request, format, &json);
    fm_json_open_array(&json, "hits");
    for (uint32_t i = 0; i < hits->n_hit; i++) {
        const fm_hit *hit = &hits->hit[i];
        fm_json_open_object(&json, NULL);
        fm_json_put_i64(&json, "index", hit->index);
        fm_json_put_text(&json, "name", hit->name.data, hit->name.size);
        fm_json_put_i64(&json, "columns", hit->aligned_cols);
        if (!isnan(hit->sum_probs)) fm_json_put_f64(&json, "sum_probs", hit->sum_probs, 3);
        fm_json_close(&json);
    }
    fm_json_close(&json);
    fm_json_end(&json);
}

static fm_status show_hits(const fm_parse_request *request, const char *format, const fm_hits *hits,
                           fm_error *reterr) {
    if (request->out) return write_hits(request, hits, reterr);
    if (request->json) {
        write_json(request, format, hits);
        return FM_OK;
    }
    printf("%s: %s, %u template hits\n", request->path, format, hits->n_hit);
    for (uint32_t i = 0; i < hits->n_hit && i < N_SHOWN; i++)
        print_hit(&hits->hit[i]);
    if (hits->n_hit > N_SHOWN) printf("  and %u more\n", hits->n_hit - N_SHOWN);
    return FM_OK;
}

fm_status fm_parse_kind_hhr(const fm_parse_request *request, fm_error *reterr) {
    fm_hits hits;
    fm_status status =
        fm_hhr_parse(request->text, request->compat_openfold, request->arena, &hits, reterr);
    return status ? status : show_hits(request, "HHR", &hits, reterr);
}

fm_status fm_parse_kind_hmmsearch(const fm_parse_request *request, fm_error *reterr) {
    fm_hits hits;
    const char *query = request->query ? request->query : "";
    if (request->out && !request->query) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "the arrays need the chain's sequence: give it with --query");
    }
    fm_bytes letters = {(const uint8_t *)query, strlen(query)};
    fm_status status = fm_hmmsearch_parse(request->text, letters, request->compat_openfold,
                                          request->arena, &hits, reterr);
    return status ? status : show_hits(request, "hmmsearch", &hits, reterr);
}
