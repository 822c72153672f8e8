/* job_tables.c: what a prepared job has beside its sample: names, seeds and tables as text; see
 * prepare.h and docs/reference/jobs.md. */
#include "featurizer/complex/assembly_arrays.h"
#include "featurizer/job/job_data.h"
#include "featurizer/job/prepare.h"
#include "proto/chem/element.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 256 };

static fm_status add(fm_prepared_job *prepared, const char *key, const char *dtype, uint64_t n,
                     uint64_t width, const void *data) {
    assert(prepared->n_array < FM_PREPARED_ARRAYS);
    prepared->arrays[prepared->n_array++] = (fm_array){
        .key = key, .dtype = dtype, .rank = width ? 2 : 1, .shape = {n, width}, .data = data};
    return FM_OK;
}

static fm_status add_text(fm_prepared_job *prepared, const char *key, const char *text) {
    return add(prepared, key, "|u1", strlen(text), 0, text);
}

/* -- tables */

static const char *polymer_name(uint8_t polymer) {
    return polymer == FM_POLYMER_NONE ? "non-polymer" : fm_polymer_name(polymer);
}

static int write_atom(const fm_assembly *a, uint32_t i, uint32_t token, char *out, size_t room) {
    static const char *const molecules[FM_N_MOLECULE] = {"protein", "rna", "dna", "ligand"};
    const fm_assembly_atom *atom = &a->atoms[i];
    const fm_assembly_residue *residue = &a->residues[atom->residue];
    const fm_assembly_chain *chain = &a->chains[residue->chain];
    const fm_assembly_entity *entity = &a->entities[chain->entity];
    return snprintf(
        out, room, "%u\t%s\t%s\t%d\t%s\t%d\t%.8s\t%.8s\t%s\t%d\t%u\t%u\t%s\t%s\n", i, chain->id,
        entity->id, (int)chain->sym_id, polymer_name(entity->polymer), (int)residue->number,
        residue->name, atom->name, fm_element_symbol(atom->element),
        residue->component->atoms[atom->in_component].charge, token, atom->slot,
        molecules[residue->molecule], entity->polymer == FM_POLYMER_NONE ? "HETATM" : "ATOM");
}

static fm_status add_atoms(fm_job_work *work, fm_prepared_job *prepared) {
    static const char head[] = "atom\tchain\tentity\tsym\tentity_type\tresidue\tcomponent\tname\t"
                               "element\tcharge\ttoken\tslot\tmol_type\thetero\n";
    const fm_assembly *a = &prepared->assembly;
    size_t room = sizeof head + (size_t)a->n_atom * LINE_BYTES, n = sizeof head - 1;
    char *text = fm_arena_alloc(work->arena, room);
    if (!text) return fm_arena_full(work->arena, work->reterr);
    memcpy(text, head, sizeof head);
    for (uint32_t t = 0; t < a->n_token; t++) {
        for (uint32_t i = 0; i < a->tokens[t].n_atom; i++)
            n += (size_t)write_atom(a, a->tokens[t].first_atom + i, t, text + n, room - n);
    }
    fm_arena_trim(work->arena, text, n);
    return add(prepared, "job/atoms", "|u1", n, 0, text);
}

/* Bonds between residues. */
static fm_status add_bonds(fm_job_work *work, fm_prepared_job *prepared) {
    static const char head[] = "atom1\tatom2\n";
    const fm_assembly *a = &prepared->assembly;
    size_t room = sizeof head + (size_t)a->n_bond * 24, n = sizeof head - 1;
    char *text = fm_arena_alloc(work->arena, room);
    if (!text) return fm_arena_full(work->arena, work->reterr);
    memcpy(text, head, sizeof head);
    for (uint32_t i = 0; i < a->n_bond; i++) {
        const fm_assembly_bond *bond = &a->bonds[i];
        if (a->atoms[bond->a].residue == a->atoms[bond->b].residue) continue;
        n += (size_t)snprintf(text + n, room - n, "%u\t%u\n", bond->a, bond->b);
    }
    fm_arena_trim(work->arena, text, n);
    return add(prepared, "job/bonds", "|u1", n, 0, text);
}

/* -- the others */

static fm_status add_ideal(fm_job_work *work, fm_prepared_job *prepared) {
    const fm_assembly *a = &prepared->assembly;
    float(*ideal)[3] = fm_arena_calloc(work->arena, a->n_atom, sizeof *ideal);
    if (!ideal) return fm_arena_full(work->arena, work->reterr);
    for (uint32_t i = 0; i < a->n_atom; i++) {
        const fm_component *component = a->residues[a->atoms[i].residue].component;
        const fm_component_atom *atom = &component->atoms[a->atoms[i].in_component];
        if (atom->has_ideal) memcpy(ideal[i], atom->ideal, sizeof ideal[i]);
    }
    return add(prepared, "features/ref_pos_ideal", "<f4", a->n_atom, 3, ideal);
}

/* Joins texts by newlines. */
static fm_status add_lines(fm_job_work *work, fm_prepared_job *prepared, const char *key,
                           char *const *lines, uint32_t n) {
    size_t room = 1, at = 0;
    for (uint32_t i = 0; i < n; i++)
        room += strlen(lines[i]) + 1;
    char *text = fm_arena_alloc(work->arena, room);
    if (!text) return fm_arena_full(work->arena, work->reterr);
    for (uint32_t i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, room - at, i ? "\n%s" : "%s", lines[i]);
    return add(prepared, key, "|u1", at, 0, text);
}

/* The text of the user's components, as it was given. */
static fm_status add_users(fm_job_work *work, fm_prepared_job *prepared) {
    fm_bytes all = {(const uint8_t *)"", 0};
    for (uint32_t i = 0; i < work->job->n_user; i++) {
        fm_bytes bytes = {0};
        fm_status status = fm_job_text_read(work, &work->job->users[i], &bytes);
        if (status) return status;
        uint8_t *joined = fm_arena_alloc(work->arena, all.size + bytes.size + 1);
        if (!joined) return fm_arena_full(work->arena, work->reterr);
        memcpy(joined, all.data, all.size);
        if (bytes.size) memcpy(joined + all.size, bytes.data, bytes.size);
        all = (fm_bytes){joined, all.size + bytes.size};
    }
    return add(prepared, "job/user_components", "|u1", all.size, 0, all.data);
}

/* The job as AlphaFold 3's JSON. */
static fm_status add_data(fm_job_work *work, fm_prepared_job *prepared) {
    fm_bytes text;
    fm_status status = fm_job_make_data(work, &text);
    return status ? status : add(prepared, "job/data", "|u1", text.size, 0, text.data);
}

fm_status fm_job_list_tables(fm_job_work *work, fm_prepared_job *prepared) {
    const fm_complex_job *job = work->job;
    fm_status status = add_ideal(work, prepared);
    if (!status) status = add_text(prepared, "job/name", job->name);
    if (!status) status = add_text(prepared, "job/folder", job->folder);
    if (!status) {
        status = add_text(prepared, "job/format", fm_job_format_title((fm_job_format)job->format));
    }
    if (!status) status = add(prepared, "job/seeds", "<u4", job->n_seed, 0, job->seeds);
    if (!status) status = add_atoms(work, prepared);
    if (!status) status = add_bonds(work, prepared);
    if (!status) status = add_users(work, prepared);
    if (!status) status = add_data(work, prepared);
    if (!status) {
        status =
            add_lines(work, prepared, "job/warnings", work->warnings->texts, work->warnings->n);
    }
    return status;
}
