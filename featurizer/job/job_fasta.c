/* job_fasta.c: FASTA of one complex: each record is a chain; see job_read.h.
 *
 *     >A|protein|a.a3m     Boltz: the chain's id, its type (protein, dna, rna, ccd), its alignment
 *     >anything|rna        plain: the type, where the letters do not tell it
 *
 * Records become entities of nodes of their own, so that messages have the place of the record. */
#include "featurizer/job/job_read.h"
#include "featurizer/parse/lines.h"
#include "proto/base/hash.h"
#include "proto/limits.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { N_FIELD = 3 };

typedef struct fasta_record {
    fm_value node; /* its header's place */
    char *header;  /* terminated; cut into fields at '|' */
    char *fields[N_FIELD];
    uint32_t n_field;
    char *letters; /* terminated */
    uint32_t n_letter;
    uint64_t hash;    /* of the letters */
    int32_t molecule; /* fm_molecule */
    bool is_taken;    /* a copy of an earlier record */
} fasta_record;

static fm_status take_header(fm_job_reader *reader, fm_bytes text, const fm_line *line,
                             fasta_record *record) {
    size_t size = line->end - line->begin - 1;
    *record = (fasta_record){.node = {.kind = FM_DOCUMENT_TEXT,
                                      .line = (uint32_t)line->number,
                                      .column = 1,
                                      .offset = line->begin}};
    record->header = fm_arena_alloc(reader->arena, size + 1);
    if (!record->header) return fm_arena_full(reader->arena, reader->reterr);
    memcpy(record->header, text.data + line->begin + 1, size);
    record->header[size] = '\0';
    if (strlen(record->header) != size) {
        return fm_value_fail(&record->node, reader->reterr, FM_ERR_FORMAT,
                             "found a zero byte in the header, expected text");
    }
    for (char *at = record->header; at && record->n_field < N_FIELD; record->n_field++) {
        record->fields[record->n_field] = at;
        at = record->n_field + 1 < N_FIELD ? strchr(at, '|') : NULL;
        if (at) *at++ = '\0';
    }
    return FM_OK;
}

static fm_status take_letters(fm_job_reader *reader, fm_bytes text, const fm_line *line,
                              fasta_record *record) {
    for (size_t at = line->begin; at < line->end; at++) {
        char c = (char)toupper(text.data[at]);
        if (c == ' ' || c == '\t' || (c == '*' && at + 1 == line->end)) continue;
        bool is_code = record->n_field > 1 && strcasecmp(record->fields[1], "ccd") == 0;
        if ((c < 'A' || c > 'Z') && !(is_code && c > ' ' && c <= '~')) {
            return fm_fail_at(reader->reterr, FM_ERR_FORMAT, line->number, at - line->start + 1, at,
                              "found the byte 0x%02x in a sequence, expected letters",
                              text.data[at]);
        }
        record->letters[record->n_letter++] = c;
    }
    return FM_OK;
}

/* Cuts the text into records. */
static fm_status read_records(fm_job_reader *reader, fm_bytes text, fasta_record **ret_records,
                              uint32_t *ret_n) {
    fm_lines lines = fm_lines_of(text, false, 0, 1);
    fm_line line;
    uint32_t n = 0, most = 0;
    while (fm_lines_next(&lines, &line))
        most += line.begin < line.end && text.data[line.begin] == '>';
    if (most == 0 || most > FM_LIMIT_N_JOB_CHAIN) {
        return fm_fail_at(reader->reterr, most ? FM_ERR_LIMIT : FM_ERR_FORMAT, 1, 1, 0,
                          "found %u records '>NAME', expected 1 to %u", most, FM_LIMIT_N_JOB_CHAIN);
    }
    fasta_record *records = fm_arena_alloc_array(reader->arena, most, sizeof *records);
    char *letters = fm_arena_alloc(reader->arena, text.size + most);
    if (!records || !letters) return fm_arena_full(reader->arena, reader->reterr);
    fm_status status = FM_OK;
    lines = fm_lines_of(text, false, 0, 1);
    while (!status && fm_lines_next(&lines, &line)) {
        uint8_t first = line.begin < line.end ? text.data[line.begin] : ';';
        if (first == '>') {
            if (n) letters = records[n - 1].letters + records[n - 1].n_letter + 1;
            status = take_header(reader, text, &line, &records[n++]);
            records[n - 1].letters = letters;
        } else if (first != ';' && n) {
            status = take_letters(reader, text, &line, &records[n - 1]);
        } else if (first != ';') {
            status = fm_fail_at(reader->reterr, FM_ERR_FORMAT, line.number, 1, line.begin,
                                "found letters before the first record, expected '>NAME'");
        }
    }
    for (uint32_t i = 0; i < n && !status; i++) {
        records[i].letters[records[i].n_letter] = '\0';
        records[i].hash = fm_xxh3(records[i].letters, records[i].n_letter);
    }
    *ret_records = records;
    *ret_n = n;
    return status;
}

/* -- what a record is */

/* Looks for the type in the second field of Boltz, or the last one of others. */
static int32_t type_of(const char *word) {
    static const char *const words[] = {"protein", "rna", "dna", "ccd", "smiles"};
    for (int32_t i = 0; i < 5; i++)
        if (strcasecmp(word, words[i]) == 0) return i;
    return -1;
}

static fm_status guess_type(fm_job_reader *reader, fasta_record *record) {
    bool has_u = strchr(record->letters, 'U'), has_t = strchr(record->letters, 'T');
    if (record->letters[strspn(record->letters, "ACGTUN")]) {
        record->molecule = FM_MOLECULE_PROTEIN;
    } else if (has_u != has_t) {
        record->molecule = has_u ? FM_MOLECULE_RNA : FM_MOLECULE_DNA;
    } else {
        return fm_value_fail(&record->node, reader->reterr, FM_ERR_DATA,
                             "found letters of RNA as well as DNA, expected the header to say "
                             "which: '>%.40s|rna', '|dna' or '|protein'",
                             record->header);
    }
    return FM_OK;
}

static fm_status find_type(fm_job_reader *reader, fasta_record *record) {
    int32_t type = -1;
    for (uint32_t i = 1; i < record->n_field && type < 0; i++)
        type = type_of(record->fields[i]);
    if (record->n_letter == 0) {
        return fm_value_fail(&record->node, reader->reterr, FM_ERR_FORMAT,
                             "found no letters, expected a sequence");
    }
    if (type == 4) return fm_job_refuse_smiles(&record->node, reader->reterr);
    record->molecule = type;
    return type < 0 ? guess_type(reader, record) : FM_OK;
}

/* Whether a record has the three fields that Boltz' have, or two that begin with an id. */
static const char *id_of(const fasta_record *record) {
    const char *id = record->fields[0];
    bool is_typed = record->n_field > 1 && type_of(record->fields[1]) >= 0;
    size_t n = strlen(id), n_good = 0;
    for (size_t i = 0; i < n; i++)
        n_good += isalnum((unsigned char)id[i]) != 0;
    return is_typed && n > 0 && n < FM_JOB_ID && n_good == n ? id : NULL;
}

static const char *alignment_of(const fasta_record *record) {
    return record->n_field == N_FIELD && type_of(record->fields[1]) >= 0 ? record->fields[2] : NULL;
}

static bool is_copy(const fasta_record *a, const fasta_record *b) {
    if (a->hash != b->hash || a->n_letter != b->n_letter) return false;
    const char *one = alignment_of(a), *two = alignment_of(b);
    if (a->molecule != b->molecule || strcmp(a->letters, b->letters) != 0) return false;
    return one && two ? strcmp(one, two) == 0 : !one && !two;
}

/* -- entities */

static fm_status add_record(fm_job_reader *reader, const fasta_record *record) {
    if (record->molecule != FM_MOLECULE_LIGAND) {
        return fm_job_add_polymer(reader, &record->node, (fm_molecule)record->molecule,
                                  record->letters);
    }
    fm_status status = fm_job_add_ligand(reader, &record->node, 1);
    return status ? status : fm_job_set_component(reader, &record->node, 0, record->letters);
}

static fm_status take_alignment(fm_job_reader *reader, const fasta_record *record) {
    fm_job_entity *entity = &reader->entities[reader->job.n_entity - 1];
    const char *file = alignment_of(record);
    entity->needs_alignment = entity->molecule == FM_MOLECULE_PROTEIN && !file;
    if (!file || entity->molecule != FM_MOLECULE_PROTEIN) return FM_OK;
    bool is_none = strcmp(file, "empty") == 0 || !file[0];
    entity->unpaired = (fm_job_text){.is_given = true, .file = is_none ? NULL : file};
    return fm_job_place_of(reader, &record->node, &entity->unpaired.place);
}

/* Adds a record with its copies among those behind it. */
static fm_status add_copies(fm_job_reader *reader, fasta_record *records, uint32_t i, uint32_t n) {
    uint32_t n_copy = 0, k = 0;
    for (uint32_t at = i; at < n; at++)
        n_copy += !records[at].is_taken && is_copy(&records[i], &records[at]);
    fm_status status = add_record(reader, &records[i]);
    if (!status) status = fm_job_take_count(reader, &records[i].node, n_copy);
    if (status) return status;
    const char **ids = (const char **)(uintptr_t)reader->entities[reader->job.n_entity - 1].ids;
    for (uint32_t at = i; at < n; at++) {
        if (records[at].is_taken || !is_copy(&records[i], &records[at])) continue;
        ids[k++] = id_of(&records[at]);
        if (at > i) records[at].is_taken = true;
    }
    records[i].is_taken = true;
    return take_alignment(reader, &records[i]);
}

fm_status fm_job_read_fasta(fm_job_reader *reader, fm_bytes text, const char *name,
                            fm_job_list *jobs) {
    static const fm_value top = {.kind = FM_DOCUMENT_TEXT, .line = 1, .column = 1};
    fasta_record *records = NULL;
    uint32_t n = 0;
    fm_status status = read_records(reader, text, &records, &n);
    for (uint32_t i = 0; i < n && !status; i++)
        status = find_type(reader, &records[i]);
    if (!status) status = fm_job_open(reader, name, &top, n);
    for (uint32_t i = 0; i < n && !status; i++)
        if (!records[i].is_taken) status = add_copies(reader, records, i, n);
    if (!status) status = fm_job_name_chains(reader, false);
    jobs->jobs = status ? NULL : fm_arena_alloc(reader->arena, sizeof *jobs->jobs);
    if (!status && !jobs->jobs) status = fm_arena_full(reader->arena, reader->reterr);
    if (!status) status = fm_job_close(reader, &top, jobs->jobs);
    if (!status) jobs->n = 1;
    return status;
}
