/* templates.c: maps the hits of search files to structures. See templates.h.
 *
 * For each hit, the steps are:
 *   1. read_name   takes the structure id and the chain id from the hit's name.
 *   2. find_entry  asks the source for the structure of that id.
 *   3. list_pairs  turns the hit's alignment into pairs (residue of the query, letter of the hit).
 *   4. locate      looks for a chain that contains the hit's letters. When none does, realign
 *                  aligns the letters with the chain that the name gives.
 *   5. fill_residues combines 3 and 4: for each residue of the query, a residue of the chain.
 *   6. keep_runs   stores that map as runs of consecutive residues.
 *
 * A hit that fails in any step is kept with its fault. Working memory is above the arena's mark and
 * is released after each hit; only its `kept` block stays. */
#include "featurizer/templates.h"

#include "proto/chem/pdb_id.h"
#include "proto/chem/residue.h"
#include "proto/limits.h"

#include <math.h>
#include <string.h>

static const float FAR_APART = 150.0f; /* Å */
static const double LEAST_SAME = 0.9;  /* of the shorter sequence, after realigning */
enum { LEAST_ATOMS = 5, ID_BYTES = 4, LEAST_PROGRAM_LETTERS = 6 };

const char *fm_template_fault_text(fm_hit_fault fault) {
    switch (fault) {
    case FM_HIT_MAPPED: return "mapped";
    case FM_HIT_NO_FILE: return "no structure file of that id";
    case FM_HIT_BAD_FILE: return "its structure file cannot be used";
    case FM_HIT_NO_DATE: return "its structure file has no release date";
    case FM_HIT_BAD_NAME: return "its name does not start with id_chain";
    case FM_HIT_NOT_QUERY: return "its query letters are not the chain's";
    case FM_HIT_NO_SEQUENCE: return "its letters are in no chain of the structure";
    case FM_HIT_NO_ATOMS: return "the chain has no coordinates that can be read";
    case FM_HIT_FAR_APART: return "neighbouring residues of the chain are over 150 Å apart";
    case FM_HIT_FEW_ATOMS: return "fewer than 5 atoms are mapped";
    }
    return "unknown";
}

/* -- structures */

static bool is_far_apart(const fm_mmcif_chain *chain) {
    const float *previous = NULL;
    for (size_t i = 0; i < chain->n_res; i++) {
        size_t cell = i * FM_N_ATOM37 + FM_ATOM37_CA;
        const float *ca = chain->all_atom_mask[cell] ? chain->all_atom_positions + cell * 3 : NULL;
        if (ca && previous) {
            float x = ca[0] - previous[0], y = ca[1] - previous[1], z = ca[2] - previous[2];
            if (sqrtf(x * x + y * y + z * z) > FAR_APART) return true;
        }
        previous = ca;
    }
    return false;
}

static uint8_t *count_atoms(const fm_mmcif_chain *chain, fm_arena *arena) {
    uint8_t *n_atom = fm_arena_calloc(arena, chain->n_res, 1);
    for (size_t i = 0; n_atom && i < chain->n_res; i++) {
        for (size_t atom = 0; atom < FM_N_ATOM37; atom++)
            n_atom[i] = (uint8_t)(n_atom[i] + chain->all_atom_mask[i * FM_N_ATOM37 + atom]);
    }
    return n_atom;
}

fm_status fm_template_entry_of(const fm_mmcif *mmcif, fm_arena *arena, fm_template_entry *ret_entry,
                               fm_error *reterr) {
    fm_template_chain *chains = fm_arena_alloc_array(arena, mmcif->n_chain, sizeof *chains);
    if (!chains) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < mmcif->n_chain; i++) {
        const fm_mmcif_chain *chain = &mmcif->chains[i];
        chains[i] = (fm_template_chain){
            .author_id = chain->author_id, .n_res = chain->n_res, .sequence = chain->sequence};
        if (chain->fault) continue;
        chains[i].n_atom = count_atoms(chain, arena);
        if (!chains[i].n_atom) return fm_arena_full(arena, reterr);
        chains[i].far_apart = is_far_apart(chain);
    }
    *ret_entry = (fm_template_entry){.n_chain = mmcif->n_chain, .chain = chains};
    memcpy(ret_entry->release_date, mmcif->release_date, sizeof ret_entry->release_date);
    return FM_OK;
}

/* -- state of one hit */

typedef struct mapper {
    fm_bytes query;
    bool compat;
    const fm_template_source *source;
    fm_arena *arena;
    fm_error *reterr;
    /* The fields below belong to the current hit. All are above the arena's mark and released with
     * it. */
    const fm_hit *hit;
    char id[ID_BYTES + 1], chain_id[FM_LIMIT_NAME_BYTES + 1];
    fm_bytes letters;     /* the hit's letters, without gaps */
    int32_t *pair_query;  /* [n_pair] residue of the query; -1 is possible in compat */
    int32_t *pair_letter; /* [n_pair] letter of the hit */
    size_t n_pair;
    const fm_template_entry *entry;
    uint32_t chain;   /* index in the entry, once found */
    fm_status failed; /* an error of the external aligner, which ends the mapping */
    /* [letters.size] residue of the chain for each letter of a realigned hit, -1 = none; else
     * NULL */
    const int32_t *place;
    size_t offset;    /* when not realigned: letter k is residue offset + k */
    int32_t *residue; /* [query.size] residue of the chain, -1 = none */
    char *letter;     /* [query.size] */
} mapper;

static bool is_digit_or_letter(uint8_t c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* Reads "1ABC_A ...": four letters or digits, '_', then letters, digits or '.'. The id becomes
 * lower case. An extended id, "pdb_00001abc_A", is the same; the reference does not know it. */
static bool read_name(mapper *m) {
    const uint8_t *name = m->hit->name.data;
    size_t n = m->hit->name.size, at = 0, n_chain = 0;
    size_t zeros = m->compat ? 0 : fm_pdb_id_zeros((const char *)name, n);
    name += zeros;
    n -= zeros;
    for (; at < ID_BYTES; at++) {
        if (at == n || !is_digit_or_letter(name[at])) return false;
        uint8_t c = name[at];
        m->id[at] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    m->id[ID_BYTES] = 0;
    if (at == n || name[at++] != '_') return false;
    while (at < n && (is_digit_or_letter(name[at]) || name[at] == '.')) {
        if (n_chain == FM_LIMIT_NAME_BYTES - ID_BYTES - 1) return false;
        m->chain_id[n_chain++] = (char)name[at++];
    }
    m->chain_id[n_chain] = 0;
    return n_chain > 0;
}

/* Copies the letters of a row without its gaps. */
static fm_status drop_gaps(const mapper *m, const char *row, uint32_t n, fm_bytes *ret_letters) {
    uint8_t *letters = fm_arena_alloc(m->arena, n);
    size_t n_letter = 0;
    if (!letters) return fm_arena_full(m->arena, m->reterr);
    for (uint32_t i = 0; i < n; i++) {
        if (row[i] != '-') letters[n_letter++] = (uint8_t)row[i];
    }
    *ret_letters = (fm_bytes){letters, n_letter};
    return FM_OK;
}

/* Returns where `part` first occurs in `whole`, or SIZE_MAX. */
static size_t find(fm_bytes whole, fm_bytes part) {
    if (part.size == 0) return 0;
    if (part.size > whole.size) return SIZE_MAX;
    const uint8_t *at = memmem(whole.data, whole.size, part.data, part.size);
    return at ? (size_t)(at - whole.data) : SIZE_MAX;
}

/* -- pairs */

/* Returns the smallest index that is not a gap, or -1 when all are gaps. */
static int32_t first_index(const int32_t *index, uint32_t n) {
    int32_t first = -1;
    for (uint32_t i = 0; i < n; i++) {
        if (index[i] > -1 && (first == -1 || index[i] < first)) first = index[i];
    }
    return first;
}

/* Returns whether the query letters of the hit are at the positions that its indices give; an X on
 * either side matches any letter. */
static bool is_where_it_says(const mapper *m) {
    const fm_hit *hit = m->hit;
    for (uint32_t i = 0; i < hit->n_query; i++) {
        int32_t at = hit->indices_query[i];
        if (at < 0) continue;
        if ((size_t)at >= m->query.size) return false;
        uint8_t a = (uint8_t)hit->query[i], b = m->query.data[at];
        if (a != b && a != 'X' && b != 'X') return false;
    }
    return true;
}

/* Finds what must be added to a query index after subtracting the hit's first index. The reference
 * searches the query for the letters and uses the first place, or -1 when there is none. The
 * default trusts the indices when the letters at these positions match, and searches otherwise. */
static bool find_query_offset(const mapper *m, fm_bytes letters, int32_t first, int32_t *ret) {
    if (!m->compat && is_where_it_says(m)) {
        *ret = first;
        return true;
    }
    size_t at = find(m->query, letters);
    *ret = at == SIZE_MAX ? -1 : (int32_t)at;
    return m->compat || at != SIZE_MAX;
}

static fm_status list_pairs(mapper *m, fm_hit_fault *ret_fault) {
    const fm_hit *hit = m->hit;
    uint32_t n = hit->n_query < hit->n_column ? hit->n_query : hit->n_column;
    int32_t first_query = first_index(hit->indices_query, hit->n_query), offset;
    int32_t first_letter = first_index(hit->indices_hit, hit->n_column);
    fm_bytes query_letters;
    m->pair_query = fm_arena_alloc_array(m->arena, n, sizeof *m->pair_query);
    m->pair_letter = fm_arena_alloc_array(m->arena, n, sizeof *m->pair_letter);
    if (!m->pair_query || !m->pair_letter) return fm_arena_full(m->arena, m->reterr);
    fm_status status = drop_gaps(m, hit->query, hit->n_query, &query_letters);
    if (status) return status;
    if (!find_query_offset(m, query_letters, first_query, &offset)) {
        *ret_fault = FM_HIT_NOT_QUERY;
        return FM_OK;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (hit->indices_query[i] < 0 || hit->indices_hit[i] < 0) continue;
        int64_t query = (int64_t)hit->indices_query[i] - first_query + offset;
        int64_t letter = (int64_t)hit->indices_hit[i] - first_letter;
        if (query >= (int64_t)m->query.size || letter >= (int64_t)m->letters.size) continue;
        m->pair_query[m->n_pair] = (int32_t)query;
        m->pair_letter[m->n_pair++] = (int32_t)letter;
    }
    return FM_OK;
}

/* -- the chain */

static fm_bytes chain_letters(const fm_template_chain *chain) {
    return (fm_bytes){(const uint8_t *)chain->sequence, chain->n_res};
}

static bool find_named_chain(mapper *m) {
    for (uint32_t i = 0; i < m->entry->n_chain; i++) {
        if (strcmp(m->entry->chain[i].author_id, m->chain_id) != 0) continue;
        m->chain = i;
        return true;
    }
    return false;
}

/* Returns where the letters occur in the chain, or SIZE_MAX. An X on either side matches any
 * letter. */
static size_t find_with_wildcards(fm_bytes chain, fm_bytes letters) {
    for (size_t at = 0; at + letters.size <= chain.size; at++) {
        size_t i = 0;
        while (i < letters.size) {
            uint8_t a = letters.data[i], b = chain.data[at + i];
            bool is_wild = a == 'X' || (b == 'X' && a >= 'A' && a <= 'Z');
            if (a != b && !is_wild) break;
            i++;
        }
        if (i == letters.size) return at;
    }
    return SIZE_MAX;
}

/* Finds the chain and the offset of the hit's letters: in the chain that the name gives, then in
 * any chain, then in any chain with wildcards. In the named chain, the default prefers the position
 * that the hit's own indices give. */
static bool locate(mapper *m) {
    bool named = find_named_chain(m);
    if (named) {
        fm_bytes chain = chain_letters(&m->entry->chain[m->chain]);
        int32_t first = first_index(m->hit->indices_hit, m->hit->n_column);
        size_t n = m->letters.size, at = first < 0 ? 0 : (size_t)first;
        if (!m->compat && n <= chain.size && at <= chain.size - n &&
            memcmp(chain.data + at, m->letters.data, n) == 0) {
            m->offset = at;
            return true;
        }
        m->offset = find(chain, m->letters);
        if (m->offset != SIZE_MAX) return true;
    }
    for (int is_wild = 0; is_wild < 2; is_wild++) {
        for (uint32_t i = 0; i < m->entry->n_chain; i++) {
            fm_bytes chain = chain_letters(&m->entry->chain[i]);
            m->offset = is_wild ? find_with_wildcards(chain, m->letters) : find(chain, m->letters);
            if (m->offset == SIZE_MAX) continue;
            m->chain = i;
            return true;
        }
    }
    return false;
}

/* -- realigning */

static fm_status run_aligner(mapper *m, fm_bytes chain, fm_template_alignment *ret_alignment) {
    const fm_template_source *source = m->source;
    const char *hit_row, *chain_row;
    size_t n_column;
    if (!m->compat) return fm_template_align(m->letters, chain, m->arena, ret_alignment, NULL);
    if (!source->align || m->letters.size < LEAST_PROGRAM_LETTERS ||
        chain.size < LEAST_PROGRAM_LETTERS) {
        return FM_ERR_UNSUPPORTED;
    }
    fm_status status = source->align(source->context, m->letters, chain, m->arena, &hit_row,
                                     &chain_row, &n_column, m->reterr);
    if (status && status != FM_ERR_DATA) m->failed = status;
    if (status) return status;
    return fm_template_alignment_of(m->letters, chain, hit_row, chain_row, n_column, m->arena,
                                    ret_alignment, NULL);
}

/* Aligns the hit's letters with the chain that its name gives. Returns false when the two are not
 * similar enough or there is no such chain. The default takes a file's only chain under any
 * name. */
static bool realign(mapper *m) {
    fm_template_alignment alignment;
    if (!find_named_chain(m)) {
        if (m->compat || m->entry->n_chain != 1) return false;
        m->chain = 0;
    }
    fm_bytes chain = chain_letters(&m->entry->chain[m->chain]);
    if (m->letters.size == 0 || chain.size == 0) return false;
    if (run_aligner(m, chain, &alignment)) return false;
    size_t shorter = m->letters.size < chain.size ? m->letters.size : chain.size;
    if ((double)alignment.n_same / (double)shorter < LEAST_SAME) return false;
    m->place = alignment.place;
    return true;
}

/* -- the mapping */

/* Returns the template's letter for a pair: the hit's letter, or after realigning the chain's. The
 * default takes the letter of the chain, to which the coordinates belong, unless it is X. */
static char letter_of(const mapper *m, size_t pair, int32_t residue) {
    char chain = m->entry->chain[m->chain].sequence[residue];
    char hit = (char)m->letters.data[m->pair_letter[pair]];
    if (m->place) return chain;
    return !m->compat && chain != 'X' ? chain : hit;
}

/* Processes pairs in order, so a later pair replaces an earlier one. In compat, index -1 means the
 * last element, as in Python: for a query residue of -1, and for a letter that has no residue after
 * realigning. */
static fm_status fill_residues(mapper *m, uint32_t *ret_n_atom) {
    const fm_template_chain *chain = &m->entry->chain[m->chain];
    size_t n_res = m->query.size;
    m->residue = fm_arena_alloc_array(m->arena, n_res, sizeof *m->residue);
    m->letter = fm_arena_alloc(m->arena, n_res);
    if (!m->residue || !m->letter) return fm_arena_full(m->arena, m->reterr);
    for (size_t i = 0; i < n_res; i++)
        m->residue[i] = -1;
    for (size_t k = 0; k < m->n_pair; k++) {
        size_t query = m->pair_query[k] < 0 ? n_res - 1 : (size_t)m->pair_query[k];
        int32_t letter = m->pair_letter[k];
        int32_t residue = m->place ? m->place[letter] : (int32_t)m->offset + letter;
        if (residue < 0 && !m->compat) continue;
        if (residue < 0) residue = (int32_t)chain->n_res - 1;
        m->residue[query] = residue;
        m->letter[query] = letter_of(m, k, residue);
    }
    *ret_n_atom = 0;
    for (size_t i = 0; i < n_res; i++) {
        if (m->residue[i] >= 0) *ret_n_atom += chain->n_atom[m->residue[i]];
    }
    return FM_OK;
}

/* Finds the chain's residue for each residue of the query, or the fault that prevents it. */
static fm_status map_pairs(mapper *m, fm_hit_fault *ret_fault) {
    uint32_t n_atom;
    fm_status status = list_pairs(m, ret_fault);
    if (status || *ret_fault) return status;
    if (!locate(m) && !realign(m)) {
        *ret_fault = FM_HIT_NO_SEQUENCE;
        return m->failed;
    }
    const fm_template_chain *chain = &m->entry->chain[m->chain];
    if (!chain->n_atom || chain->far_apart) {
        *ret_fault = chain->n_atom ? FM_HIT_FAR_APART : FM_HIT_NO_ATOMS;
        return FM_OK;
    }
    status = fill_residues(m, &n_atom);
    if (!status && n_atom < LEAST_ATOMS) *ret_fault = FM_HIT_FEW_ATOMS;
    return status;
}

static bool continues(const mapper *m, size_t i) {
    return m->residue[i] >= 0 && m->residue[i - 1] >= 0 && m->residue[i] == m->residue[i - 1] + 1;
}

/* The lasting data of a hit: three arrays of runs, letters and the name. The block is allocated at
 * its largest size before the working memory, and trimmed after it is filled. */
typedef struct kept {
    uint8_t *block;
    size_t used;
} kept;

static size_t kept_bytes(size_t n_res) {
    return n_res * (3 * sizeof(uint16_t) + 1) + FM_LIMIT_NAME_BYTES + 1;
}

static void *keep(kept *kept_part, const void *data, size_t size) {
    uint8_t *at = kept_part->block + kept_part->used;
    if (size) memcpy(at, data, size);
    kept_part->used += size;
    return at;
}

/* Stores the map of residues as runs. */
static fm_status keep_runs(const mapper *m, kept *kept_part, fm_template_hit *hit) {
    size_t n_res = m->query.size, n_run = 0, n_letter = 0;
    uint16_t *query = fm_arena_alloc_array(m->arena, n_res, sizeof *query);
    uint16_t *template = fm_arena_alloc_array(m->arena, n_res, sizeof *template);
    uint16_t *size = fm_arena_alloc_array(m->arena, n_res, sizeof *size);
    char *letters = fm_arena_alloc(m->arena, n_res);
    if (!query || !template || !size || !letters) return fm_arena_full(m->arena, m->reterr);
    for (size_t i = 0; i < n_res; i++) {
        if (m->residue[i] < 0) continue;
        letters[n_letter++] = m->letter[i];
        if (i > 0 && continues(m, i)) {
            size[n_run - 1]++;
            continue;
        }
        query[n_run] = (uint16_t)i;
        template[n_run] = (uint16_t)m->residue[i];
        size[n_run++] = 1;
    }
    hit->n_run = (uint32_t)n_run;
    hit->run_query = keep(kept_part, query, n_run * sizeof *query);
    hit->run_template = keep(kept_part, template, n_run * sizeof *template);
    hit->run_size = keep(kept_part, size, n_run * sizeof *size);
    hit->letters = keep(kept_part, letters, n_letter);
    return FM_OK;
}

/* Stores "<id>_<chain>" as the name, or for a bad name its printable beginning. */
static void keep_name(const mapper *m, kept *kept_part, fm_template_hit *hit) {
    char name[FM_LIMIT_NAME_BYTES + 1] = "?";
    size_t n = 1;
    if (hit->fault == FM_HIT_BAD_NAME) {
        for (size_t i = 0; i < m->hit->name.size && i < 40; i++) {
            uint8_t c = m->hit->name.data[i];
            if (c <= ' ') break;
            name[i] = c < 0x7f ? (char)c : '?';
            n = i + 1;
        }
    } else {
        const char *chain = hit->fault ? m->chain_id : m->entry->chain[m->chain].author_id;
        memcpy(name, m->id, ID_BYTES);
        name[ID_BYTES] = '_';
        n = strlen(chain);
        if (n > FM_LIMIT_NAME_BYTES - ID_BYTES - 1) n = FM_LIMIT_NAME_BYTES - ID_BYTES - 1;
        memcpy(name + ID_BYTES + 1, chain, n);
        n += ID_BYTES + 1;
    }
    name[n] = 0;
    hit->name = keep(kept_part, name, n + 1);
}

/* -- one hit */

static bool replace_id(mapper *m) {
    const fm_template_source *source = m->source;
    const char *id = source->successor ? source->successor(source->context, m->id) : NULL;
    if (!id || strlen(id) != ID_BYTES) return false;
    memcpy(m->id, id, ID_BYTES);
    return true;
}

static bool is_unusable(fm_status status) {
    return status == FM_ERR_FORMAT || status == FM_ERR_DATA || status == FM_ERR_LIMIT ||
           status == FM_ERR_UNSUPPORTED;
}

/* Finds the structure for the hit's id. The reference replaces every obsolete id by its successor;
 * the default replaces only an id that has no file. */
static fm_status find_entry(mapper *m, fm_hit_fault *ret_fault) {
    const fm_template_source *source = m->source;
    if (m->compat) replace_id(m);
    fm_status status = source->entry(source->context, m->id, &m->entry, m->reterr);
    if (status == FM_ERR_NOT_FOUND && !m->compat && replace_id(m)) {
        status = source->entry(source->context, m->id, &m->entry, m->reterr);
    }
    if (status == FM_ERR_NOT_FOUND || is_unusable(status)) {
        *ret_fault = status == FM_ERR_NOT_FOUND ? FM_HIT_NO_FILE : FM_HIT_BAD_FILE;
        m->entry = NULL;
        return FM_OK;
    }
    if (status) return status;
    if (m->compat && !m->entry->release_date[0]) {
        *ret_fault = FM_HIT_NO_DATE;
    } else if (m->entry->n_chain == 0) {
        *ret_fault = FM_HIT_BAD_FILE;
    }
    return FM_OK;
}

static fm_status find_mapping(mapper *m, kept *kept_part, fm_template_hit *hit) {
    fm_hit_fault fault = FM_HIT_MAPPED;
    const fm_template_source *source = m->source;
    fm_status status = find_entry(m, &fault);
    if (status) return status;
    if (m->entry) memcpy(hit->release_date, m->entry->release_date, sizeof hit->release_date);
    if (source->listed_date && !source->listed_date(source->context, m->id, hit->listed_date)) {
        memset(hit->listed_date, 0, sizeof hit->listed_date);
    }
    if (!fault) status = map_pairs(m, &fault);
    hit->fault = fault;
    if (status || fault) return status;
    status = keep_runs(m, kept_part, hit);
    if (status) return status;
    return source->structure(source->context, m->id, m->chain, &hit->structure, m->reterr);
}

static fm_status map_hit(mapper *m, fm_template_hit *ret_hit) {
    fm_template_hit hit = {.sum_probs = m->hit->sum_probs, .aligned_cols = m->hit->aligned_cols};
    kept kept_part = {.block = fm_arena_alloc(m->arena, kept_bytes(m->query.size))};
    if (!kept_part.block) return fm_arena_full(m->arena, m->reterr);
    size_t mark = fm_arena_mark(m->arena);
    fm_status status = drop_gaps(m, m->hit->hit, m->hit->n_hit, &m->letters);
    if (status) return status;
    hit.n_letter = (uint32_t)m->letters.size;
    hit.in_query = find(m->query, m->letters) != SIZE_MAX;
    if (read_name(m)) {
        status = find_mapping(m, &kept_part, &hit);
    } else if (m->compat) {
        int shown = m->hit->name.size < 60 ? (int)m->hit->name.size : 60;
        status = fm_fail(m->reterr, FM_ERR_DATA, "hit %d: '%.*s' does not start with id_chain",
                         m->hit->index, shown, (const char *)m->hit->name.data);
    } else {
        hit.fault = FM_HIT_BAD_NAME;
    }
    if (status) return status;
    keep_name(m, &kept_part, &hit);
    fm_arena_rewind(m->arena, mark);
    fm_arena_trim(m->arena, kept_part.block, kept_part.used);
    *ret_hit = hit;
    return FM_OK;
}

fm_status fm_templates_map(const fm_part_sequence *query, const fm_hits *lists, size_t n_list,
                           bool compat_openfold, const fm_template_source *source, fm_arena *arena,
                           fm_part_hits *ret_hits, fm_error *reterr) {
    uint64_t n = 0;
    for (size_t i = 0; i < n_list; i++)
        n += lists[i].n_hit;
    if (n > FM_LIMIT_N_HIT) {
        return fm_fail(reterr, FM_ERR_LIMIT, "%llu template hits, the limit is %u",
                       (unsigned long long)n, FM_LIMIT_N_HIT);
    }
    fm_template_hit *mapped = fm_arena_alloc_array(arena, (size_t)n, sizeof *mapped);
    if (!mapped) return fm_arena_full(arena, reterr);
    n = 0;
    for (size_t i = 0; i < n_list; i++) {
        for (uint32_t k = 0; k < lists[i].n_hit; k++) {
            mapper m = {.query = {(const uint8_t *)query->sequence, query->n_res},
                        .compat = compat_openfold,
                        .source = source,
                        .arena = arena,
                        .reterr = reterr,
                        .hit = &lists[i].hit[k]};
            fm_status status = map_hit(&m, &mapped[n++]);
            if (status) return status;
        }
    }
    *ret_hits = (fm_part_hits){.n_res = query->n_res, .n_hit = (uint32_t)n, .hit = mapped};
    return FM_OK;
}
