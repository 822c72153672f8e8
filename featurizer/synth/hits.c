/* hits.c: writes template hits in the layout of HHsearch's .hhr files.
 *
 * Two chains of one family are aligned where they are on the same sites, so a hit's columns are
 * right by construction. Scores are simple increasing functions of columns and identities. */
#include "featurizer/synth/alignments.h"

#include "featurizer/synth/text.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>

enum {
    MAX_RELATIVES = 10, /* of the family, including the chain itself */
    MAX_STRANGERS = 2,
    MAX_HITS = MAX_RELATIVES + MAX_STRANGERS,
    LOOK_BACK = 2048, /* entries searched for relatives */
    BLOCK = 80,       /* columns per line */
};

typedef struct template_hit {
    char name[8]; /* "9A0X_A" */
    bool related;
    uint32_t family;
    uint8_t *query, *target; /* [length] aligned letters and '-' */
    uint8_t *consensus;      /* [length] of the query's family; '-' where the query has a gap */
    uint32_t length;
    uint32_t query_start, target_start; /* from 0 */
    uint32_t n_query, n_target;         /* residues of the whole chains */
    uint32_t n_aligned, n_same;         /* columns with two residues; with two equal ones */
} template_hit;

static char consensus_letter(const fm_synth_family *family, int32_t site) {
    if (site == FM_SYNTH_NO_SITE) return '~';
    uint8_t rate = family->sites[site].rate;
    char letter = fm_synth_letter(family->sites[site].ancestor);
    return rate <= 1 ? letter : rate <= 10 ? (char)tolower((unsigned char)letter) : '~';
}

/* Adds one column: residue i of the query and residue j of the target, either of them < 0 for a
 * gap. */
static void put_column(template_hit *hit, const fm_synth_chain *query, int64_t i,
                       const fm_synth_chain *target, int64_t j) {
    uint32_t at = hit->length++;
    hit->query[at] = i < 0 ? '-' : (uint8_t)fm_synth_letter(query->residues[i].aatype);
    hit->target[at] = j < 0 ? '-' : (uint8_t)fm_synth_letter(target->residues[j].aatype);
    hit->consensus[at] =
        i < 0 ? '-' : (uint8_t)consensus_letter(query->family, query->residues[i].site);
    if (i >= 0 && j >= 0) {
        hit->n_aligned++;
        hit->n_same += hit->query[at] == hit->target[at];
    }
}

static fm_status begin_hit(fm_arena *arena, const fm_synth_entry *entry, uint32_t slot,
                           const fm_synth_chain *query, const fm_synth_chain *target,
                           template_hit *ret_hit, fm_error *reterr) {
    size_t most = (size_t)query->n_res + target->n_res;
    template_hit new = {
        .n_query = query->n_res, .n_target = target->n_res, .family = entry->family[slot]};
    new.query = fm_arena_alloc(arena, most);
    new.target = fm_arena_alloc(arena, most);
    new.consensus = fm_arena_alloc(arena, most);
    if (!new.query || !new.target || !new.consensus) return fm_arena_full(arena, reterr);
    snprintf(new.name, sizeof new.name, "%c%c%c%c_%c", entry->id[0],
             toupper((unsigned char)entry->id[1]), toupper((unsigned char)entry->id[2]),
             toupper((unsigned char)entry->id[3]), entry->auth_chain[slot]);
    *ret_hit = new;
    return FM_OK;
}

/* Aligns by site, from the first common site to the last. */
static void align_relatives(template_hit *hit, const fm_synth_chain *query,
                            const fm_synth_chain *target) {
    uint32_t i = 0, j = 0, end = 0;
    hit->related = true;
    while (i < query->n_res && j < target->n_res) {
        int32_t site = query->residues[i].site, other = target->residues[j].site;
        bool same = site == other && site != FM_SYNTH_NO_SITE;
        if (end == 0 && same) hit->query_start = i, hit->target_start = j;
        bool started = end > 0 || same;
        if (same) {
            put_column(hit, query, i++, target, j++);
            end = hit->length;
        } else if (site == FM_SYNTH_NO_SITE || (other != FM_SYNTH_NO_SITE && site < other)) {
            if (started) put_column(hit, query, i, target, -1);
            i++;
        } else {
            if (started) put_column(hit, query, -1, target, j);
            j++;
        }
    }
    hit->length = end; /* drops gaps after the last common site */
}

/* Aligns a short run without gaps at random places of both chains. */
static void align_strangers(template_hit *hit, fm_synth_draws *draws, const fm_synth_chain *query,
                            const fm_synth_chain *target) {
    uint32_t shorter = query->n_res < target->n_res ? query->n_res : target->n_res;
    uint32_t length = fm_synth_draw_between(draws, 8, shorter < 24 ? shorter : 24);
    hit->query_start = fm_synth_draw_below(draws, query->n_res - length + 1);
    hit->target_start = fm_synth_draw_below(draws, target->n_res - length + 1);
    for (uint32_t k = 0; k < length; k++)
        put_column(hit, query, hit->query_start + k, target, hit->target_start + k);
}

/* In tenths. */
static uint32_t sum_probs(const template_hit *hit) {
    if (hit->n_aligned == 0) return 0;
    return hit->related ? 8 * hit->n_aligned + 3 * hit->n_same / 2 : 5 * hit->n_aligned;
}

static fm_status find_relatives(fm_arena *arena, const fm_synth_options *options,
                                const fm_synth_entry *entry, const fm_synth_chain *query,
                                uint32_t slot, template_hit *hits, uint32_t *n_hit,
                                fm_error *reterr) {
    uint32_t looked = entry->index < LOOK_BACK ? entry->index + 1 : LOOK_BACK;
    for (uint32_t back = 0; back < looked && *n_hit < MAX_RELATIVES; back++) {
        fm_synth_entry other = fm_synth_entry_of(options, entry->index - back);
        /* The database holds one chain of each kind, the query's own kind included. */
        uint32_t first = back == 0 && !entry->same ? slot : 0;
        if (other.family[first] != entry->family[slot]) continue;
        fm_synth_chain target;
        fm_status status =
            fm_synth_chain_make(arena, options, &other, first, query->family, &target, reterr);
        if (!status) {
            status = begin_hit(arena, &other, first, query, &target, &hits[*n_hit], reterr);
        }
        if (status) return status;
        align_relatives(&hits[*n_hit], query, &target);
        *n_hit += hits[*n_hit].n_aligned > 0;
    }
    return FM_OK;
}

static fm_status find_strangers(fm_arena *arena, const fm_synth_options *options,
                                const fm_synth_entry *entry, const fm_synth_chain *query,
                                uint32_t slot, template_hit *hits, uint32_t *n_hit,
                                fm_error *reterr) {
    fm_synth_draws draws =
        fm_synth_draws_of(options->seed, FM_SYNTH_DRAW_HITS, entry->index, entry->same ? 0 : slot);
    uint32_t wanted = entry->index ? fm_synth_draw_below(&draws, MAX_STRANGERS + 1) : 0;
    for (uint32_t i = 0; i < wanted; i++) {
        fm_synth_entry other =
            fm_synth_entry_of(options, fm_synth_draw_below(&draws, entry->index));
        if (other.family[0] == entry->family[slot]) continue;
        fm_synth_family family;
        fm_synth_chain target;
        fm_status status = fm_synth_family_make(arena, options, other.family[0], &family, reterr);
        if (!status) {
            status = fm_synth_chain_make(arena, options, &other, 0, &family, &target, reterr);
        }
        if (!status) status = begin_hit(arena, &other, 0, query, &target, &hits[*n_hit], reterr);
        if (status) return status;
        align_strangers(&hits[*n_hit], &draws, query, &target);
        (*n_hit)++;
    }
    return FM_OK;
}

/* Sorts by sum_probs, best first; equal hits keep their order. */
static void sort_hits(template_hit *hits, uint32_t n_hit) {
    for (uint32_t i = 1; i < n_hit; i++) {
        template_hit moving = hits[i];
        uint32_t k = i;
        for (; k > 0 && sum_probs(&hits[k - 1]) < sum_probs(&moving); k--)
            hits[k] = hits[k - 1];
        hits[k] = moving;
    }
}

static uint32_t count_residues(const uint8_t *letters, uint32_t from, uint32_t to) {
    uint32_t n = 0;
    for (uint32_t i = from; i < to; i++)
        n += letters[i] != '-';
    return n;
}

/* "Q query             1 SEFK...   80 (84)" */
static void put_line(fm_synth_text *text, const char *label, const uint8_t *letters,
                     const uint8_t *residues, uint32_t start, uint32_t from, uint32_t to,
                     uint32_t n_whole) {
    uint32_t first = start + count_residues(residues, 0, from) + 1;
    uint32_t last = first + count_residues(residues, from, to) - 1;
    fm_synth_text_format(text, "%-16s %4u ", label, first);
    fm_synth_text_bytes(text, letters + from, to - from);
    fm_synth_text_format(text, " %4u (%u)\n", last, n_whole);
}

static void put_block(fm_synth_text *text, const template_hit *hit, uint32_t from, uint32_t to) {
    char label[16];
    snprintf(label, sizeof label, "T %s", hit->name);
    put_line(text, "Q query", hit->query, hit->query, hit->query_start, from, to, hit->n_query);
    put_line(text, "Q Consensus", hit->consensus, hit->query, hit->query_start, from, to,
             hit->n_query);
    fm_synth_text_fill(text, ' ', 22);
    for (uint32_t i = from; i < to; i++) {
        bool gap = hit->query[i] == '-' || hit->target[i] == '-';
        fm_synth_text_char(text, gap ? ' ' : hit->query[i] == hit->target[i] ? '|' : '.');
    }
    fm_synth_text_char(text, '\n');
    put_line(text, "T Consensus", hit->target, hit->target, hit->target_start, from, to,
             hit->n_target);
    put_line(text, label, hit->target, hit->target, hit->target_start, from, to, hit->n_target);
    fm_synth_text_string(text, "Confidence            ");
    for (uint32_t i = from; i < to; i++) {
        bool gap = hit->query[i] == '-' || hit->target[i] == '-';
        fm_synth_text_char(text, gap ? ' ' : hit->related ? '9' : '4');
    }
    fm_synth_text_string(text, "\n\n");
}

/* Formats E-value and P-value, five to seven characters each. */
static void format_values(const template_hit *hit, char out[2][16]) {
    if (!hit->related) {
        snprintf(out[0], 16, "%u.%u", 1 + hit->n_aligned % 8, hit->n_same % 10);
        snprintf(out[1], 16, "0.0%u", 12 + hit->n_aligned);
        return;
    }
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(out[i], 16, "%u.%uE-%02u", 1 + hit->n_same % 9, hit->n_aligned % 10,
                 3 + hit->n_aligned / 5 + 3 * i);
    }
}

static void put_summary(fm_synth_text *text, uint32_t number, const template_hit *hit) {
    char title[64], values[2][16], query[24], target[24];
    snprintf(title, sizeof title, "%s synthetic family %u", hit->name, hit->family);
    format_values(hit, values);
    snprintf(query, sizeof query, "%u-%u", hit->query_start + 1,
             hit->query_start + count_residues(hit->query, 0, hit->length));
    snprintf(target, sizeof target, "%u-%u", hit->target_start + 1,
             hit->target_start + count_residues(hit->target, 0, hit->length));
    uint32_t score = hit->n_aligned * 13;
    fm_synth_text_format(text, "%3u %-30.30s  %4s %7s %7s %4u.%u   0.0 %4u %8s %9s (%u)\n", number,
                         title, hit->related ? "99.8" : " 3.6", values[0], values[1], score / 10,
                         score % 10, hit->n_aligned, query, target, hit->n_target);
}

static void put_hit(fm_synth_text *text, uint32_t number, const template_hit *hit) {
    char values[2][16];
    format_values(hit, values);
    uint32_t probs = sum_probs(hit), score = hit->n_aligned * 130;
    uint32_t identity = 100 * hit->n_same / hit->n_aligned;
    fm_synth_text_format(text, "No %u\n>%s synthetic family %u\n", number, hit->name, hit->family);
    fm_synth_text_format(text,
                         "Probab=%s  E-value=%s  Score=%u.%02u  Aligned_cols=%u  Identities=%u%%  "
                         "Similarity=%u.%03u  Sum_probs=%u.%u  Template_Neff=%s\n\n",
                         hit->related ? "99.80" : "3.61", values[0], score / 100, score % 100,
                         hit->n_aligned, identity, identity / 64, identity % 64 * 15, probs / 10,
                         probs % 10, hit->related ? "8.100" : "1.200");
    for (uint32_t at = 0; at < hit->length; at += BLOCK)
        put_block(text, hit, at, at + BLOCK < hit->length ? at + BLOCK : hit->length);
    fm_synth_text_char(text, '\n');
}

fm_status fm_synth_hhr(fm_arena *arena, const fm_synth_options *options,
                       const fm_synth_entry *entry, uint32_t slot, const fm_synth_chain *chain,
                       fm_bytes *ret_content, fm_error *reterr) {
    template_hit hits[MAX_HITS];
    uint32_t n_hit = 0;
    fm_status status = find_relatives(arena, options, entry, chain, slot, hits, &n_hit, reterr);
    if (!status) status = find_strangers(arena, options, entry, chain, slot, hits, &n_hit, reterr);
    if (status) return status;
    sort_hits(hits, n_hit);
    size_t most = 4096;
    for (uint32_t i = 0; i < n_hit; i++)
        most += 1024 + (size_t)(hits[i].length / BLOCK + 1) * 6 * (BLOCK + 64);
    fm_synth_text text;
    status = fm_synth_text_begin(&text, arena, most, reterr);
    if (status) return status;
    fm_synth_text_format(&text,
                         "Query         query\nMatch_columns %u\nNo_of_seqs    %u out of %u\n"
                         "Neff          8.1\nSearched_HMMs %u\n"
                         "Date          Mon Jan  1 00:00:00 2024\nCommand       foldmill synth\n\n"
                         " No Hit                             Prob E-value P-value  Score    SS "
                         "Cols Query HMM  Template HMM\n",
                         chain->n_res, chain->family->n_row, chain->family->n_row,
                         entry->index + 1);
    for (uint32_t i = 0; i < n_hit; i++)
        put_summary(&text, i + 1, &hits[i]);
    fm_synth_text_char(&text, '\n');
    for (uint32_t i = 0; i < n_hit; i++)
        put_hit(&text, i + 1, &hits[i]);
    *ret_content = fm_synth_text_end(&text);
    return FM_OK;
}
