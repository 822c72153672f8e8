/* parse_mmcif.c: the kind mmcif of foldmill parse. */
#include "featurizer/structure.h"
#include "proto/base/compress.h"
#include "proto/chem/residue.h"
#include "server/cli/parse.h"

#include <stdio.h>
#include <string.h>

/* Makes "<file id>_<chain>", or "<file id>" without --chain. The file id is the file's name without
 * its folder, .gz, .xz or .zst, and the ending before that. */
static fm_status make_domain_name(const fm_parse_request *request, const char **ret_name,
                                  fm_error *reterr) {
    const char *slash = strrchr(request->path, '/');
    const char *base = slash ? slash + 1 : request->path;
    size_t n;
    (void)fm_compression_of_name(base, &n);
    for (size_t i = n; i-- > 1;) {
        if (base[i] != '.') continue;
        n = i;
        break;
    }
    const char *chain = request->chain ? request->chain : "";
    size_t size = n + strlen(chain) + 2;
    char *name = fm_arena_alloc(request->arena, size);
    if (!name) return fm_arena_full(request->arena, reterr);
    snprintf(name, size, "%.*s%s%s", (int)n, base, chain[0] ? "_" : "", chain);
    *ret_name = name;
    return FM_OK;
}

static fm_status append_arrays(fm_array_writer *writer, const fm_structure_array *arrays, size_t n,
                               fm_error *reterr) {
    for (size_t i = 0; i < n; i++) {
        const fm_structure_array *array = &arrays[i];
        fm_status status = fm_array_writer_append(writer, array->key, array->dtype, array->rank,
                                                  array->shape, array->data, reterr);
        if (status) return status;
    }
    return FM_OK;
}

fm_status fm_parse_write_structure(const fm_parse_request *request,
                                   const fm_part_sequence *sequence,
                                   const fm_part_structure *structure, fm_error *reterr) {
    const char *name;
    fm_structure_array arrays[FM_STRUCTURE_N_ARRAY];
    size_t n;
    fm_array_writer *writer;
    fm_status status = make_domain_name(request, &name, reterr);
    if (!status) {
        status =
            fm_structure_list_arrays(sequence, structure, name, request->arena, arrays, &n, reterr);
    }
    if (!status) status = fm_array_writer_create(request->out, FM_ARRAY_NPZ, &writer, reterr);
    if (status) return status;
    status = append_arrays(writer, arrays, n, reterr);
    if (!status) return fm_array_writer_finish(writer, reterr);
    fm_array_writer_destroy(writer);
    return status;
}

/* Copies text without its control bytes, which --compat openfold accepts; cuts it to fit. */
static const char *printable(char *out, size_t out_bytes, const char *text) {
    size_t n = 0;
    for (; text[n] && n + 1 < out_bytes; n++) {
        bool control = (unsigned char)text[n] < 0x20 || text[n] == 0x7f;
        out[n] = (char)(control ? '?' : text[n]);
    }
    out[n] = '\0';
    return out;
}

typedef struct chain_counts {
    uint32_t n_missing, n_atom;
    double mean_confidence; /* of a predicted structure */
} chain_counts;

static chain_counts count_chain(const fm_mmcif_chain *chain) {
    chain_counts counts = {0};
    double sum = 0;
    for (uint32_t i = 0; i < chain->n_res; i++) {
        counts.n_missing += chain->is_missing[i];
        if (chain->confidence) sum += chain->confidence[i];
    }
    counts.mean_confidence = sum / chain->n_res;
    for (size_t i = 0; i < (size_t)chain->n_res * FM_N_ATOM37; i++)
        counts.n_atom += chain->all_atom_mask[i];
    return counts;
}

static void print_chain(const fm_mmcif_chain *chain) {
    chain_counts counts = count_chain(chain);
    char author[64], label[64];
    printf("  chain %-5s label %-5s %5u residues, %5u without coordinates, %6u atoms%s%s\n",
           printable(author, sizeof author, chain->author_id),
           printable(label, sizeof label, chain->label_id), chain->n_res, counts.n_missing,
           counts.n_atom, chain->fault ? "; refused: " : "", chain->fault ? chain->fault : "");
    if (chain->confidence) printf("              mean confidence %.1f\n", counts.mean_confidence);
}

static void write_chain(fm_json_writer *json, const fm_mmcif_chain *chain) {
    chain_counts counts = count_chain(chain);
    fm_json_open_object(json, NULL);
    fm_json_put_string(json, "chain", chain->author_id);
    fm_json_put_string(json, "label", chain->label_id);
    fm_json_put_u64(json, "residues", chain->n_res);
    fm_json_put_u64(json, "missing", counts.n_missing);
    fm_json_put_u64(json, "atoms", counts.n_atom);
    if (chain->confidence) fm_json_put_f64(json, "confidence", counts.mean_confidence, 3);
    if (chain->fault) fm_json_put_string(json, "refused", chain->fault);
    fm_json_put_string(json, "sequence", chain->sequence);
    fm_json_close(json);
}

static void print_file(const fm_parse_request *request, const fm_mmcif *mmcif) {
    char method[256];
    printf("%s: mmCIF, %u protein chains, %llu atom rows\n", request->path, mmcif->n_chain,
           (unsigned long long)mmcif->n_atom);
    printf("  method      %s\n",
           mmcif->method[0] ? printable(method, sizeof method, mmcif->method) : "not given");
    printf("  released    %s\n", mmcif->release_date[0] ? mmcif->release_date : "not given");
    printf("  resolution  %g Å\n", mmcif->resolution);
}

/* Prints the object for the file, with chains chain[0..n-1]. */
static void write_json(const fm_parse_request *request, const fm_mmcif *mmcif,
                       const fm_mmcif_chain *chain, uint32_t n) {
    fm_json_writer json;
    fm_parse_begin_json(request, "mmCIF", &json);
    fm_json_put_u64(&json, "atoms", mmcif->n_atom);
    fm_json_put_string(&json, "method", mmcif->method[0] ? mmcif->method : NULL);
    fm_json_put_string(&json, "release_date", mmcif->release_date[0] ? mmcif->release_date : NULL);
    fm_json_put_f64(&json, "resolution", mmcif->resolution, 3);
    fm_json_open_array(&json, "chains");
    for (uint32_t i = 0; i < n; i++)
        write_chain(&json, &chain[i]);
    fm_json_close(&json);
    fm_json_end(&json);
}

/* Shows or writes the chain of --chain. */
static fm_status show_chain(const fm_parse_request *request, const fm_mmcif *mmcif,
                            const fm_mmcif_chain *chain, fm_error *reterr) {
    const fm_mmcif_options options = {.compat_openfold = request->compat_openfold,
                                      .is_predicted = request->is_predicted};
    fm_part_sequence sequence;
    fm_part_structure structure;
    fm_status status =
        fm_structure_from_mmcif(mmcif, &options, request->chain, &sequence, &structure, reterr);
    if (status) return status;
    if (request->out) return fm_parse_write_structure(request, &sequence, &structure, reterr);
    if (request->json) {
        write_json(request, mmcif, chain, 1);
        return FM_OK;
    }
    print_chain(chain);
    printf("  %s\n", chain->sequence);
    return FM_OK;
}

static fm_bytes id_of(const void *context, size_t i) {
    const fm_mmcif *mmcif = context;
    const char *id = mmcif->chains[i].author_id;
    return (fm_bytes){(const uint8_t *)id, strlen(id)};
}

/* missing_<chain>: the indices of the residues without any atom row. */
static fm_status write_missing(fm_array_writer *writer, const fm_mmcif_chain *chain,
                               fm_arena *arena, fm_error *reterr) {
    char key[64];
    uint64_t n = 0;
    int32_t *missing = fm_arena_alloc_array(arena, chain->n_res, sizeof *missing);
    if (!missing) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < chain->n_res; i++) {
        if (chain->is_missing[i]) missing[n++] = (int32_t)i;
    }
    snprintf(key, sizeof key, "missing_%.40s", chain->author_id);
    return fm_array_writer_append(writer, key, "<i4", 1, &n, missing, reterr);
}

static fm_status append_file(fm_array_writer *writer, const fm_parse_request *request,
                             const fm_mmcif *mmcif, fm_error *reterr) {
    const uint64_t one = 1, method = strlen(mmcif->method), date = strlen(mmcif->release_date);
    fm_status status = fm_parse_write_strings(writer, "chains", request->arena, mmcif->n_chain,
                                              id_of, mmcif, reterr);
    if (!status) {
        status = fm_array_writer_append(writer, "structure_method", "|u1", 1, &method,
                                        mmcif->method, reterr);
    }
    if (!status) {
        status = fm_array_writer_append(writer, "resolution", "<f8", 1, &one, &mmcif->resolution,
                                        reterr);
    }
    if (!status && date) {
        status = fm_array_writer_append(writer, "release_date", "|u1", 1, &date,
                                        mmcif->release_date, reterr);
    }
    for (uint32_t i = 0; i < mmcif->n_chain && !status; i++)
        status = write_missing(writer, &mmcif->chains[i], request->arena, reterr);
    return status;
}

static fm_status write_file(const fm_parse_request *request, const fm_mmcif *mmcif,
                            fm_error *reterr) {
    fm_array_writer *writer;
    fm_status status = fm_array_writer_create(request->out, FM_ARRAY_NPZ, &writer, reterr);
    if (status) return status;
    status = append_file(writer, request, mmcif, reterr);
    if (!status) return fm_array_writer_finish(writer, reterr);
    fm_array_writer_destroy(writer);
    return status;
}

/* Handles the chain of --chain, or the file: its header and its chains. */
fm_status fm_parse_kind_mmcif(const fm_parse_request *request, fm_error *reterr) {
    const fm_mmcif_options options = {.compat_openfold = request->compat_openfold,
                                      .is_predicted = request->is_predicted};
    fm_mmcif mmcif;
    fm_status status = fm_mmcif_parse(request->text, &options, request->arena, &mmcif, reterr);
    if (status) return status;
    if (!request->chain && request->out) return write_file(request, &mmcif, reterr);
    const fm_mmcif_chain *chain = mmcif.chains;
    if (request->chain) status = fm_mmcif_find_chain(&mmcif, request->chain, &chain, reterr);
    if (status) return status;
    if (!request->out && !request->json) print_file(request, &mmcif);
    if (request->chain) return show_chain(request, &mmcif, chain, reterr);
    if (request->json) {
        write_json(request, &mmcif, chain, mmcif.n_chain);
        return FM_OK;
    }
    for (uint32_t i = 0; i < mmcif.n_chain; i++)
        print_chain(&mmcif.chains[i]);
    return FM_OK;
}
