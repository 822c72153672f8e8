/* template_case.h: a source of structures over a folder of mmCIF files, for the tests of templates.
 * It keeps every structure part that a hit names, as a store would. */
#ifndef FM_TESTS_TEMPLATE_CASE_H
#define FM_TESTS_TEMPLATE_CASE_H

#include "featurizer/structure.h"
#include "featurizer/templates.h"
#include "proto/base/file.h"
#include "proto/limits.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { TEMPLATE_CASE_ENTRIES = 32, TEMPLATE_CASE_PARTS = 256 };

typedef struct template_case_entry {
    char id[8];
    fm_status status;
    fm_mmcif mmcif;
    fm_template_entry entry;
} template_case_entry;

typedef struct template_case {
    fm_arena arena; /* the source's: everything lives until the case ends */
    fm_arena work;  /* the test's */
    char folder[512];
    bool compat;
    template_case_entry entries[TEMPLATE_CASE_ENTRIES];
    size_t n_entry;
    struct {
        fm_sha256 identity;
        fm_bytes bytes;
    } parts[TEMPLATE_CASE_PARTS];
    size_t n_part;
} template_case;

static inline void template_case_init(template_case *test, const char *folder, bool compat) {
    memset(test, 0, sizeof *test);
    snprintf(test->folder, sizeof test->folder, "%s", folder);
    test->compat = compat;
    fm_status status = fm_arena_init(&test->arena, (size_t)8 << 30, NULL);
    assert(!status);
    status = fm_arena_init(&test->work, (size_t)8 << 30, NULL);
    assert(!status);
    (void)status;
}

static inline void template_case_fini(template_case *test) {
    fm_arena_fini(&test->arena);
    fm_arena_fini(&test->work);
}

static inline fm_status template_case_parse(template_case *test, template_case_entry *to) {
    char path[1024];
    fm_bytes text;
    const fm_mmcif_options options = {.compat_openfold = test->compat};
    snprintf(path, sizeof path, "%s/%s.cif", test->folder, to->id);
    fm_status status = fm_file_read_text(&test->arena, path, FM_LIMIT_INPUT_BYTES, &text, NULL);
    if (!status) status = fm_mmcif_parse(text, &options, &test->arena, &to->mmcif, NULL);
    if (status) return status;
    return fm_template_entry_of(&to->mmcif, &test->arena, &to->entry, NULL);
}

static inline template_case_entry *template_case_find(template_case *test, const char *id) {
    for (size_t i = 0; i < test->n_entry; i++) {
        if (strcmp(test->entries[i].id, id) == 0) return &test->entries[i];
    }
    assert(test->n_entry < TEMPLATE_CASE_ENTRIES);
    template_case_entry *to = &test->entries[test->n_entry++];
    snprintf(to->id, sizeof to->id, "%s", id);
    to->status = template_case_parse(test, to);
    return to;
}

static inline fm_status template_case_entry_fn(void *context, const char *id,
                                               const fm_template_entry **ret_entry,
                                               fm_error *reterr) {
    (void)reterr;
    template_case_entry *found = template_case_find(context, id);
    *ret_entry = &found->entry;
    return found->status;
}

static inline fm_status template_case_structure_fn(void *context, const char *id, uint32_t chain,
                                                   fm_sha256 *ret_identity, fm_error *reterr) {
    template_case *test = context;
    template_case_entry *found = template_case_find(test, id);
    const fm_mmcif_options options = {.compat_openfold = test->compat};
    fm_part_sequence sequence;
    fm_part_structure structure;
    fm_bytes bytes;
    fm_status status =
        fm_structure_from_mmcif(&found->mmcif, &options, found->mmcif.chains[chain].author_id,
                                &sequence, &structure, reterr);
    if (!status) status = fm_part_structure_encode(&structure, &test->arena, &bytes, reterr);
    if (status) return status;
    *ret_identity = fm_sha256_of(bytes.data, bytes.size);
    for (size_t i = 0; i < test->n_part; i++) {
        if (!memcmp(&test->parts[i].identity, ret_identity, sizeof *ret_identity)) return FM_OK;
    }
    assert(test->n_part < TEMPLATE_CASE_PARTS);
    test->parts[test->n_part].identity = *ret_identity;
    test->parts[test->n_part++].bytes = bytes;
    return FM_OK;
}

/* A fm_template_structure_fn that decodes the stored part. */
static inline fm_status template_case_load(void *context, const fm_sha256 *identity,
                                           const fm_part_structure **ret_structure,
                                           fm_error *reterr) {
    template_case *test = context;
    for (size_t i = 0; i < test->n_part; i++) {
        if (memcmp(&test->parts[i].identity, identity, sizeof *identity) != 0) continue;
        fm_part_structure *structure = fm_arena_alloc(&test->arena, sizeof *structure);
        assert(structure);
        *ret_structure = structure;
        return fm_part_structure_decode(test->parts[i].bytes, &test->arena, structure, reterr);
    }
    return fm_fail(reterr, FM_ERR_NOT_FOUND, "no such structure part");
}

static inline fm_template_source template_case_source(template_case *test) {
    return (fm_template_source){
        .context = test, .entry = template_case_entry_fn, .structure = template_case_structure_fn};
}

/* Encodes and decodes the part, then computes the features of the hits that the options choose. */
static inline fm_status template_case_featurize(template_case *test, const fm_part_hits *hits,
                                                const fm_template_options *options,
                                                fm_template_features *ret_features,
                                                fm_error *reterr) {
    fm_bytes bytes;
    fm_part_hits decoded;
    uint32_t *order, *chosen, n_order, n_templ;
    fm_arena *arena = &test->work;
    fm_status status = fm_part_hits_encode(hits, arena, &bytes, reterr);
    if (!status) status = fm_part_hits_decode(bytes, arena, &decoded, reterr);
    if (!status) status = fm_templates_rank(&decoded, options, arena, &order, &n_order, reterr);
    if (!status) {
        status = fm_templates_choose(&decoded, order, n_order, options, arena, &chosen, &n_templ,
                                     reterr);
    }
    if (status) return status;
    return fm_templates_featurize(&decoded, chosen, n_templ, options->keep_position,
                                  template_case_load, test, arena, ret_features, reterr);
}

#endif
