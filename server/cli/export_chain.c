/* export_chain.c: see export_chain.h. */
#include "server/cli/export_chain.h"

#include "cache/export/chain_features.h"
#include "cache/source/names.h"
#include "featurizer/nonensembled.h"
#include "featurizer/structure.h"
#include "featurizer/templates.h"
#include "server/cli/parse.h"

#include <string.h>

static fm_status append_structure(fm_array_writer *writer, const fm_record *record, fm_arena *arena,
                                  fm_error *reterr) {
    fm_structure_array arrays[FM_STRUCTURE_N_ARRAY];
    size_t n;
    fm_status status =
        fm_structure_list_arrays(record->sequence, record->structure,
                                 fm_name_in_dataset(record->name), arena, arrays, &n, reterr);
    for (size_t i = 0; !status && i < n; i++) {
        status = fm_array_writer_append(writer, arrays[i].key, arrays[i].dtype, arrays[i].rank,
                                        arrays[i].shape, arrays[i].data, reterr);
    }
    return status;
}

/* Stage chain: the features before any transform. */
static fm_status append_chain(fm_array_writer *writer, const fm_record *record,
                              const fm_template_features *templates, fm_arena *arena,
                              fm_error *reterr) {
    fm_array arrays[FM_TEMPLATES_N_ARRAY];
    fm_status status = fm_templates_list_arrays(templates, arena, arrays, reterr);
    if (!status && record->structure) status = append_structure(writer, record, arena, reterr);
    if (!status) status = fm_array_writer_append_all(writer, arrays, FM_TEMPLATES_N_ARRAY, reterr);
    if (!status && record->msa) status = fm_parse_append_msa(writer, record->msa, arena, reterr);
    return status;
}

/* Stage nonensembled: the features after every transform that draws no random numbers. */
static fm_status append_nonensembled(fm_array_writer *writer, const fm_record *record,
                                     const fm_template_features *templates, fm_arena *arena,
                                     fm_error *reterr) {
    const fm_nonensembled_input input = {record->sequence, record->msa, record->structure,
                                         templates};
    fm_array arrays[FM_NONENSEMBLED_N_ARRAY];
    size_t n = 0;
    fm_status status = fm_nonensembled_list_arrays(&input, arena, arrays, &n, reterr);
    return status ? status : fm_array_writer_append_all(writer, arrays, n, reterr);
}

fm_status fm_export_chain(const fm_export_options *options, const fm_store *store, uint32_t chain,
                          const char *path, fm_arena *arena, fm_error *reterr) {
    fm_array_writer *writer;
    fm_record record;
    fm_template_features templates;
    const fm_template_options choice = {.compat_openfold = options->compat != NULL,
                                        .max_date = options->max_date,
                                        .max_templates = FM_EXPORT_TEMPLATES};
    if (fm_store_item_kind(store, chain) == FM_STORED_COMPLEX) {
        return fm_export_complex(options, store, chain, path, arena, reterr);
    }
    fm_status status = fm_store_load(store, chain, arena, &record, reterr);
    if (!status) status = fm_chain_templates(store, &record, &choice, arena, &templates, reterr);
    if (!status) status = fm_array_writer_create(path, options->format, &writer, reterr);
    if (status) return status;
    bool is_chain = strcmp(options->stage, "chain") == 0;
    status =
        (is_chain ? append_chain : append_nonensembled)(writer, &record, &templates, arena, reterr);
    if (!status) return fm_array_writer_finish(writer, reterr);
    fm_array_writer_destroy(writer);
    return status;
}
