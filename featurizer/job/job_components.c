/* job_components.c: the components of one job; see prepare.h.
 *
 * The user's come first, so that one of them may replace a component of the dictionary. */
#include "featurizer/complex/components_code.h"
#include "featurizer/job/job_read.h"
#include "featurizer/job/molfile.h"
#include "featurizer/job/prepare.h"
#include "proto/base/options.h"
#include "proto/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ID_BYTES = 5, /* of ids and names that the tables have */
    NAME_BYTES = 4,
};
/* Model coordinates of older components are in what published networks learned from. */
static const char model_date[] = "2021-09-30";

/* -- the user's */

static fm_status check_user(const fm_job_work *work, const fm_job_text *text,
                            const fm_component *component) {
    bool is_small = component->n_atom <= FM_LIMIT_USER_COMPONENT_ATOM;
    if (strlen(component->id) > ID_BYTES || !is_small) {
        return fm_job_fail(work, &text->place, is_small ? FM_ERR_FORMAT : FM_ERR_LIMIT,
                           "found the component '%s' of %u atoms, expected an id of at most %d "
                           "letters and at most %u atoms",
                           component->id, component->n_atom, ID_BYTES,
                           FM_LIMIT_USER_COMPONENT_ATOM);
    }
    for (uint32_t i = 0; i < component->n_atom; i++) {
        if (strlen(component->atoms[i].name) <= NAME_BYTES) continue;
        return fm_job_fail(work, &text->place, FM_ERR_FORMAT,
                           "found the atom '%s' of the component %s, expected names of at most %d "
                           "letters",
                           component->atoms[i].name, component->id, NAME_BYTES);
    }
    return FM_OK;
}

static fm_status read_user(fm_job_work *work, uint32_t i, fm_components *ret_components) {
    const fm_job_text *text = &work->job->users[i];
    fm_components found = {0};
    fm_bytes bytes = {0};
    fm_status status = fm_job_text_read(work, text, &bytes);
    if (status) return status;
    if (work->job->format == FM_JOB_PROTENIX) {
        fm_component *component = fm_arena_alloc(work->arena, sizeof *component);
        char id[FM_COMPONENT_ID];
        fm_job_molfile_id(i, id);
        if (!component) return fm_arena_full(work->arena, work->reterr);
        status = fm_molfile_parse(bytes, id, work->arena, component, work->reterr);
        found = (fm_components){.n = 1, .items = component};
    } else {
        status = fm_components_parse(bytes, work->arena, &found, work->reterr);
    }
    if (status) return fm_job_text_failed(work, text, status);
    if (found.n > FM_LIMIT_N_USER_COMPONENT) {
        return fm_job_fail(work, &text->place, FM_ERR_LIMIT,
                           "found %u components, expected at most %u", found.n,
                           FM_LIMIT_N_USER_COMPONENT);
    }
    for (uint32_t k = 0; k < found.n && !status; k++)
        status = check_user(work, text, &found.items[k]);
    if (!status) *ret_components = found;
    return status;
}

/* -- what the job needs */

typedef struct needed {
    fm_component component;
    bool is_users;
} needed;

typedef struct finder {
    fm_job_work *work;
    fm_components *users; /* [n_user] */
    needed *items;
    uint32_t n, max;
    bool **is_met; /* by set: the users', and last the dictionary; by component */
} finder;

static fm_status fail_unknown(const finder *f, const fm_job_place *place, uint32_t residue,
                              const char *id) {
    const fm_components *dictionary = f->work->dictionary;
    const char **names = fm_arena_alloc_array(f->work->arena, dictionary->n, sizeof *names);
    const char *nearest = NULL;
    for (uint32_t i = 0; i < dictionary->n && names; i++)
        names[i] = dictionary->items[i].id;
    if (names) nearest = fm_options_nearest(id, names, dictionary->n);
    return fm_job_fail(f->work, place, FM_ERR_NOT_FOUND,
                       "found the component %s at residue %u, which is not among the %u "
                       "components%s%s; it may be newer than they are",
                       id, residue + 1, dictionary->n, nearest ? "; the nearest is " : "",
                       nearest ? nearest : "");
}

/* Takes model coordinates where a component has no ideal ones. */
static fm_status take_model(const finder *f, needed *item) {
    fm_component *component = &item->component;
    bool is_old = component->date[0] && strcmp(component->date, model_date) < 0;
    bool lacks = false;
    for (uint32_t i = 0; i < component->n_atom; i++)
        lacks = lacks || !component->atoms[i].has_ideal;
    if (!lacks) return FM_OK;
    if (f->work->options->compat_protenix) return FM_OK;
    fm_component_atom *atoms =
        fm_arena_alloc_array(f->work->arena, component->n_atom, sizeof *atoms);
    if (!atoms) return fm_arena_full(f->work->arena, f->work->reterr);
    memcpy(atoms, component->atoms, component->n_atom * sizeof *atoms);
    uint32_t n_model = 0;
    for (uint32_t i = 0; i < component->n_atom; i++)
        n_model += atoms[i].has_model;
    bool takes = (item->is_users || is_old) && n_model == component->n_atom;
    for (uint32_t i = 0; i < component->n_atom && takes; i++) {
        memcpy(atoms[i].ideal, atoms[i].model, sizeof atoms[i].ideal);
        atoms[i].has_ideal = true;
    }
    component->atoms = atoms;
    if (!takes) {
        fm_job_warn(f->work->arena, f->work->warnings, "",
                    "the component %s has no reference coordinates; its frames and confidences "
                    "mean little",
                    component->id);
    }
    return FM_OK;
}

static fm_status check_component(const finder *f, const fm_job_place *place,
                                 const fm_component *component) {
    if (component->n_atom == 0) {
        return fm_job_fail(f->work, place, FM_ERR_UNSUPPORTED,
                           "found the component %s, which has no atom but hydrogen, expected one "
                           "with atoms",
                           component->id);
    }
    for (uint32_t i = 0; i < component->n_atom; i++) {
        if (component->atoms[i].element) continue;
        return fm_job_fail(f->work, place, FM_ERR_UNSUPPORTED,
                           "found the component %s, whose atom %s has no element, expected "
                           "elements up to 118",
                           component->id, component->atoms[i].name);
    }
    if (strcmp(component->id, "HOH") == 0) {
        fm_job_warn(f->work->arena, f->work->warnings, place->path,
                    "water is taken as an ion of one atom");
    }
    return FM_OK;
}

/* Adds the component of one residue, unless it is there. */
static fm_status need(finder *f, const fm_job_place *place, uint32_t residue, const char *id) {
    const fm_component *found = NULL;
    uint32_t set = 0;
    for (; !found && set < f->work->job->n_user; set++)
        found = fm_components_find(&f->users[set], id);
    bool is_users = found;
    const fm_components *of = is_users ? &f->users[--set] : f->work->dictionary;
    if (!found) found = fm_components_find(of, id);
    if (!found) return fail_unknown(f, place, residue, id);
    bool *is_met = &f->is_met[set][found - of->items];
    if (*is_met) return FM_OK;
    *is_met = true;
    fm_status status = check_component(f, place, found);
    if (status) return status;
    if (f->n == f->max) {
        uint32_t max = f->max ? 2 * f->max : 64;
        needed *items = fm_arena_alloc_array(f->work->arena, max, sizeof *items);
        if (!items) return fm_arena_full(f->work->arena, f->work->reterr);
        if (f->n) memcpy(items, f->items, f->n * sizeof *items);
        f->items = items;
        f->max = max;
    }
    f->items[f->n++] = (needed){*found, is_users};
    return strcmp(id, "MSE") == 0 ? need(f, place, residue, "MET") : FM_OK;
}

static int compare_items(const void *left, const void *right) {
    return memcmp(((const needed *)left)->component.id, ((const needed *)right)->component.id,
                  FM_COMPONENT_ID);
}

static fm_status make_set(finder *f) {
    fm_job_work *work = f->work;
    fm_bytes form = {0};
    fm_component *items = fm_arena_alloc_array(work->arena, f->n, sizeof *items);
    if (!items) return fm_arena_full(work->arena, work->reterr);
    if (f->n) qsort(f->items, f->n, sizeof *f->items, compare_items);
    for (uint32_t i = 0; i < f->n; i++) {
        fm_status status = take_model(f, &f->items[i]);
        if (status) return status;
        items[i] = f->items[i].component;
    }
    work->components = (fm_components){.n = f->n, .items = items, .has_words = true};
    fm_status status = fm_components_encode(&work->components, work->arena, &form, work->reterr);
    if (!status) work->components.hash = fm_sha256_of(form.data, form.size);
    return status;
}

fm_status fm_job_find_components(fm_job_work *work) {
    const fm_complex_job *job = work->job;
    finder f = {.work = work};
    f.users = fm_arena_calloc(work->arena, (size_t)job->n_user + 1, sizeof *f.users);
    f.is_met = fm_arena_calloc(work->arena, (size_t)job->n_user + 1, sizeof *f.is_met);
    if (!f.users || !f.is_met) return fm_arena_full(work->arena, work->reterr);
    for (uint32_t i = 0; i <= job->n_user; i++) {
        fm_status status = i < job->n_user ? read_user(work, i, &f.users[i]) : FM_OK;
        if (status) return status;
        uint32_t n = i < job->n_user ? f.users[i].n : work->dictionary->n;
        f.is_met[i] = fm_arena_calloc(work->arena, n, 1);
        if (!f.is_met[i]) return fm_arena_full(work->arena, work->reterr);
    }
    for (uint32_t e = 0; e < job->n_entity; e++) {
        const fm_job_entity *entity = &job->entities[e];
        for (uint32_t r = 0; r < entity->n_residue; r++) {
            fm_status status = need(&f, &entity->place, r, entity->components[r]);
            if (status) return status;
        }
    }
    return make_set(&f);
}
