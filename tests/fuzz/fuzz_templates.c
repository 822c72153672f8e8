/* fuzz_templates.c: arbitrary bytes as a template search, mapped onto a fixed structure, in both
 * modes. The first byte selects the format of the rest.
 *
 * Mapped hits can be encoded and decoded to the same bytes, ranked, chosen, and turned into
 * features whose mapped letters are those of the hits. */
#include "featurizer/parse/hhr.h"
#include "featurizer/parse/hmmsearch.h"
#include "featurizer/templates.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char query[] = "SEFKVTVCFGRTRVVVPCGDGRMKVFSLIQQ";
static const char chain_a[] = "GGSEFKVTVCFGRTRVVVPCGDGRMKVFSLIQQXAA",
                  chain_b[] = "MKTAYIAKQRXXXSFVKSHF";

enum { N_RES = sizeof chain_a - 1 };

typedef struct fuzz_source {
    fm_template_chain chain[2];
    fm_template_entry entry;
    uint8_t n_atom[N_RES];
} fuzz_source;

static fm_status give_entry(void *context, const char *id, const fm_template_entry **ret_entry,
                            fm_error *reterr) {
    fuzz_source *source = context;
    assert(strlen(id) == 4);
    if (id[0] == '9') return fm_fail(reterr, FM_ERR_NOT_FOUND, "none");
    *ret_entry = &source->entry;
    return FM_OK;
}

static fm_status give_structure(void *context, const char *id, uint32_t chain,
                                fm_sha256 *ret_identity, fm_error *reterr) {
    (void)context;
    (void)id;
    (void)reterr;
    assert(chain < 2);
    *ret_identity = fm_sha256_of("chain", 4 + chain);
    return FM_OK;
}

/* Returns two rows that any two sequences have: one after the other. */
static fm_status give_rows(void *context, fm_bytes hit, fm_bytes chain, fm_arena *arena,
                           const char **ret_hit_row, const char **ret_chain_row,
                           size_t *ret_n_column, fm_error *reterr) {
    size_t shift = hit.size > 8 ? 4 : 0,
           n = hit.size > chain.size + shift ? hit.size : chain.size + shift;
    char *rows = fm_arena_alloc(arena, 2 * n);
    (void)context;
    if (!rows) return fm_arena_full(arena, reterr);
    memset(rows, '-', 2 * n);
    memcpy(rows, hit.data, hit.size);
    memcpy(rows + n + shift, chain.data, chain.size);
    *ret_hit_row = rows;
    *ret_chain_row = rows + n;
    *ret_n_column = n;
    return FM_OK;
}

static fm_status give_part(void *context, const fm_sha256 *identity,
                           const fm_part_structure **ret_structure, fm_error *reterr) {
    static float positions[N_RES * 37 * 3];
    static uint8_t mask[N_RES * 37];
    static const fm_part_structure structure = {
        .n_res = N_RES, .all_atom_positions = positions, .all_atom_mask = mask};
    (void)context;
    (void)identity;
    (void)reterr;
    *ret_structure = &structure;
    return FM_OK;
}

static void check_part(const fm_part_hits *part, bool compat, fm_arena *arena) {
    fm_part_hits decoded;
    fm_bytes bytes, again;
    uint32_t *order, *chosen, n_order, n_templ;
    fm_template_features features;
    fm_array arrays[FM_TEMPLATES_N_ARRAY];
    const fm_template_options options = {compat, "2010-01-01", 4, false};
    fm_status status = fm_part_hits_encode(part, arena, &bytes, NULL);
    if (status == FM_ERR_LIMIT) return;
    assert(!status);
    assert(!fm_part_hits_decode(bytes, arena, &decoded, NULL));
    assert(!fm_part_hits_encode(&decoded, arena, &again, NULL));
    assert(again.size == bytes.size && memcmp(again.data, bytes.data, bytes.size) == 0);
    assert(!fm_templates_rank(&decoded, &options, arena, &order, &n_order, NULL));
    status =
        fm_templates_choose(&decoded, order, n_order, &options, arena, &chosen, &n_templ, NULL);
    assert(!status || compat);
    if (status) return;
    assert(n_templ <= 4);
    status = fm_templates_featurize(&decoded, chosen, n_templ, false, give_part, NULL, arena,
                                    &features, NULL);
    assert(!status);
    assert(!fm_templates_list_arrays(&features, arena, arrays, NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fm_arena arena;
    fuzz_source made = {0};
    if (size < 1 || fm_arena_init(&arena, (size_t)512 << 20, NULL)) return 0;
    memset(made.n_atom, 5, sizeof made.n_atom);
    made.chain[0] = (fm_template_chain){"A", N_RES, chain_a, made.n_atom, false};
    made.chain[1] = (fm_template_chain){"B", sizeof chain_b - 1, chain_b, made.n_atom, false};
    made.entry = (fm_template_entry){"2001-02-03", 2, made.chain};
    const fm_bytes text = {data + 1, size - 1},
                   letters = {(const uint8_t *)query, sizeof query - 1};
    const fm_part_sequence sequence = {sizeof query - 1, query};
    const fm_template_source source = {
        .context = &made, .entry = give_entry, .structure = give_structure, .align = give_rows};
    for (int compat = 0; compat < 2; compat++) {
        fm_hits hits;
        fm_part_hits part;
        fm_error error = {0};
        fm_arena_reset(&arena);
        fm_status status = data[0] & 1
                               ? fm_hmmsearch_parse(text, letters, compat, &arena, &hits, &error)
                               : fm_hhr_parse(text, compat, &arena, &hits, &error);
        if (!status) {
            status = fm_templates_map(&sequence, &hits, 1, compat, &source, &arena, &part, &error);
        }
        if (status) {
            assert(error.message[0]);
        } else {
            check_part(&part, compat, &arena);
        }
    }
    fm_arena_fini(&arena);
    return 0;
}
