/* step_write.c: writes a sample to the state of a step; see step_internal.h. */
#include "trainer/step/af3/step_internal.h"

#include "trainer/backend/draw.h"
#include "trainer/backend/normal.h"

#include <assert.h>

/* -- the clock */

static void put_clock(fm_af3_trainer *t, int32_t tensor, int64_t first, uint32_t cycle) {
    const uint32_t word[FM_CLOCK_WORDS] = {[FM_CLOCK_STEP] = (uint32_t)t->recording.optimizer.step,
                                           [FM_CLOCK_SLOT] = t->features->slot,
                                           [FM_CLOCK_CYCLE] = cycle};
    for (int i = 0; i < FM_CLOCK_WORDS; i++)
        fm_mirror_put(&t->mirror, tensor, first + i, word[i]);
}

static void host_clock(uint64_t step, uint32_t slot, uint32_t cycle, uint32_t out[FM_CLOCK_WORDS]) {
    out[FM_CLOCK_STEP] = (uint32_t)step;
    out[FM_CLOCK_SLOT] = slot;
    out[FM_CLOCK_CYCLE] = cycle;
    out[FM_CLOCK_WORDS - 1] = 0;
}

/* -- noise */

/* The noise level of a training structure, and the factors that follow from it. */
static void write_level(fm_af3_trainer *t, int64_t k, double sigma) {
    const double data = t->options.model.noise.sigma_data;
    const fm_af3_structures *to = &t->inputs.training;
    double factors[FM_AF3_FACTORS];
    fm_af3_noise_factors(sigma, data, factors);
    fm_mirror_put(&t->mirror, t->noise.sigma, k, sigma);
    fm_mirror_put(&t->mirror, to->in, k, factors[FM_AF3_FACTOR_IN]);
    fm_mirror_put(&t->mirror, to->skip, k, factors[FM_AF3_FACTOR_SKIP]);
    fm_mirror_put(&t->mirror, to->out, k, factors[FM_AF3_FACTOR_OUT]);
    fm_mirror_put(&t->mirror, to->log, k, factors[FM_AF3_FACTOR_LOG]);
    fm_mirror_put(&t->mirror, t->targets.scale, k, fm_complex_scale(sigma, data));
}

static fm_status write_levels(fm_af3_trainer *t, fm_error *reterr) {
    const fm_af3_config *c = &t->options.model;
    const fm_af3_draws *draws = t->features->draws;
    size_t mark = fm_arena_mark(&t->scratch);
    double *sigma = fm_arena_alloc_array(&t->scratch, (size_t)c->n_sample, sizeof *sigma);
    if (!sigma) return fm_arena_full(&t->scratch, reterr);
    uint32_t clock[FM_CLOCK_WORDS];
    host_clock(t->recording.optimizer.step, t->features->slot, 0, clock);
    fm_af3_draw_levels(&c->noise, t->options.seed, clock, c->n_sample, sigma);
    for (int64_t k = 0; k < c->n_sample; k++)
        write_level(t, k,
                    draws ? fm_af3_training_level(&c->noise, (double)draws->level[k]) : sigma[k]);
    fm_arena_rewind(&t->scratch, mark);
    return FM_OK;
}

/* Writes recorded numbers [n_group, n] to a tensor that may have longer and more groups. */
static void put_groups(fm_af3_trainer *t, int32_t to, const float *from, int64_t n_group,
                       int64_t n) {
    const fm_tensor *tensor = &t->recording.state.tensor[to];
    int64_t length = fm_tensor_local_count(tensor) / tensor->local[0];
    for (int64_t g = 0; g < n_group; g++)
        for (int64_t i = 0; i < n; i++)
            fm_mirror_put(&t->mirror, to, g * length + i, (double)from[g * n + i]);
}

static void write_draws(fm_af3_trainer *t, const fm_af3_draws *d) {
    const fm_af3_config *c = &t->options.model;
    const int64_t n = 3 * t->features->sample.n_atom, n_step = c->n_rollout_step;
    assert(t->options.given);
    put_groups(t, t->noise.rotation, d->training_rotation, c->n_sample, 9);
    put_groups(t, t->noise.offset, d->training_offset, c->n_sample, 3);
    put_groups(t, t->noise.noise, d->training_noise, c->n_sample, n);
    put_groups(t, t->rollout.rotation, d->rotation, n_step, 9);
    put_groups(t, t->rollout.offset, d->offset, n_step, 3);
    put_groups(t, t->rollout.noise, d->noise, n_step, n);
}

/* -- the rollout */

static void write_start(fm_af3_trainer *t, double level) {
    const fm_af3_draws *given = t->features->draws;
    uint32_t clock[FM_CLOCK_WORDS];
    host_clock(t->recording.optimizer.step, t->features->slot, 0, clock);
    const fm_draw draw = {t->options.seed, clock, FM_DRAW_ROLLOUT, FM_PURPOSE_START};
    for (int64_t i = 0; i < 3 * t->features->sample.n_atom; i++) {
        double pair[2];
        fm_normal_pair(&fm_draw_block(&draw, (uint64_t)i).word[i & 2], pair);
        fm_mirror_put(&t->mirror, t->rollout.x, i,
                      level * (given ? (double)given->start[i] : pair[i & 1]));
    }
}

static fm_status write_rollout(fm_af3_trainer *t, fm_error *reterr) {
    const fm_af3_config *c = &t->options.model;
    size_t mark = fm_arena_mark(&t->scratch);
    double *levels =
        fm_arena_alloc_array(&t->scratch, (size_t)c->n_rollout_step + 1, sizeof *levels);
    if (!levels) return fm_arena_full(&t->scratch, reterr);
    fm_af3_schedule(&c->noise, c->n_rollout_step, levels);
    write_start(t, levels[0]);
    for (int64_t i = 0; i < t->features->sample.n_token; i++)
        fm_mirror_put(&t->mirror, t->rollout.mask, i, 1);
    for (int32_t k = 0; k < c->n_rollout_step; k++) {
        fm_af3_write_step(c, &t->rollout, k, levels + k, fm_mirror_put, &t->mirror);
        put_clock(t, t->clocks, (int64_t)k * FM_CLOCK_WORDS, (uint32_t)k);
    }
    fm_arena_rewind(&t->scratch, mark);
    return FM_OK;
}

/* -- all */

#define ADD(mirror, ...)                                                                           \
    fm_mirror_add(mirror, (const int32_t[]){__VA_ARGS__},                                          \
                  sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

void fm_af3_trainer_choose_mirrored(fm_af3_trainer *t) {
    const fm_af3_inputs *in = &t->inputs;
    const fm_af3_structures *to = &in->training;
    const fm_complex_targets *of = &t->targets;
    ADD(&t->shared, in->relative, in->bonds, in->templates, in->token_features, in->mask_single,
        in->mask_pair, to->mask);
    ADD(&t->shared, in->atom_token, in->first_atom, in->atom_charge, in->atom_has_reference,
        in->atom_classes, in->space, in->atom_mask, in->representative, in->slot_row,
        in->atom_of_row);
    ADD(&t->mirror, in->atom_position, in->position, in->msa, in->mask_msa, t->recording.clock,
        t->seed_gradient);
    ADD(&t->mirror, to->in, to->skip, to->out, to->log, t->noise.sigma, t->noise.rotation,
        t->noise.offset, t->noise.noise, t->rollout.x, t->rollout.mask);
    ADD(&t->mirror, of->position, of->mask, of->weight, of->radius, of->partner, of->atoms,
        of->known, of->bond, of->bond_length, of->bond_weight, of->token_atom, of->token_position,
        of->token_mask, of->token_position_f32, of->token_mask_f32, of->frame, of->centre,
        of->scale, of->structure, of->factors, of->confidence_factors);
    const fm_af3_rollout *r = &t->rollout;
    ADD(&t->mirror, r->spread, r->keep, r->minus_move, r->in, r->skip, r->out, r->log, r->rotation,
        r->offset, r->noise, t->clocks);
}

fm_status fm_af3_check_features(const fm_af3_trainer_options *options,
                                const fm_af3_features *features, fm_error *reterr) {
    const fm_af3_config *c = &options->model;
    const fm_af3_sample *sample = &features->sample;
    const struct {
        const char *what;
        int64_t found, most;
        const char *key; /* of the setting that gives the limit */
    } sizes[] = {{"tokens", sample->n_token, c->n_token, "crop_size"},
                 {"atoms", sample->n_atom, c->n_atom, "max_atoms"},
                 {"bonds of polymers and ligands", fm_complex_count_bonds(&features->labels),
                  options->n_bond, "crop_size"}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i].found <= sizes[i].most) continue;
        return fm_fail(reterr, FM_ERR_LIMIT, "found %lld %s, expected at most %lld (%s)",
                       (long long)sizes[i].found, sizes[i].what, (long long)sizes[i].most,
                       sizes[i].key);
    }
    for (int64_t l = 0; l < sample->n_atom; l++) {
        if (sample->atom_to_tokatom_idx[l] < c->max_atoms_per_token) continue;
        return fm_fail(reterr, FM_ERR_LIMIT, "found atom %lld in slot %lld, expected at most %lld",
                       (long long)l, (long long)sample->atom_to_tokatom_idx[l],
                       (long long)c->max_atoms_per_token - 1);
    }
    for (uint32_t k = 0; features->first_row && k < features->n_cycle; k++) {
        const int64_t n = (int64_t)features->first_row[k + 1] - features->first_row[k];
        if (n >= 1 && n <= c->n_msa) continue;
        return fm_fail(reterr, FM_ERR_LIMIT,
                       "found %lld MSA rows in cycle %u, expected 1 to %lld (max_msa)",
                       (long long)n, k, (long long)c->n_msa);
    }
    if (sample->n_template == c->n_template) return FM_OK;
    return fm_fail(reterr, FM_ERR_LIMIT, "found %lld templates, expected %lld (n_template)",
                   (long long)sample->n_template, (long long)c->n_template);
}

fm_status fm_af3_trainer_check(const fm_af3_trainer *t, const fm_af3_features *features,
                               fm_error *reterr) {
    return fm_af3_check_features(&t->options, features, reterr);
}

/* Writes the features that all cycles share to their own mirror. Their writers fill some tensors
 * only where the sample has values. */
static fm_status write_shared(fm_af3_trainer *t, const fm_af3_features *features,
                              fm_error *reterr) {
    const fm_af3_writer to = {fm_mirror_put, &t->shared};
    t->written = NULL;
    t->drawn_of = NULL;
    fm_status status = fm_af3_trainer_check(t, features, reterr);
    if (status) return status;
    fm_mirror_begin(&t->shared);
    fm_mirror_clear_all(&t->shared);
    status = fm_af3_write_sample(&features->sample, &t->options.model, &t->inputs, &to, &t->scratch,
                                 reterr);
    if (!status) t->written = features;
    return status;
}

/* Writes the reference conformers of a sample, placed for the step with this number. */
static fm_status write_conformers(fm_af3_trainer *t, const fm_af3_features *f, uint64_t step,
                                  fm_error *reterr) {
    const fm_af3_sample *sample = &f->sample;
    const fm_af3_writer to = {fm_mirror_put, &t->mirror};
    const float *position = sample->ref_pos;
    size_t mark = fm_arena_mark(&t->scratch);
    if (!t->options.given && !t->options.keeps_conformers) {
        uint32_t clock[FM_CLOCK_WORDS];
        float *placed =
            fm_arena_alloc_array(&t->scratch, (size_t)sample->n_atom, 3 * sizeof *placed);
        if (!placed) return fm_arena_full(&t->scratch, reterr);
        host_clock(step, f->slot, 0, clock);
        fm_af3_place_conformers(t->options.seed, clock, sample, placed);
        position = placed;
    }
    fm_mirror_clear(&t->mirror, t->inputs.atom_position);
    fm_mirror_clear(&t->mirror, t->inputs.position);
    fm_af3_write_conformers(sample->n_atom, position, &t->inputs, &to);
    fm_arena_rewind(&t->scratch, mark);
    return FM_OK;
}

/* Returns the numbers of the MSA rows that a cycle of a sample reads in the step with this number,
 * and how many there are. Drawn and counted ones are in the scratch arena, which holds far larger
 * things in fm_af3_trainer_write. */
static const int64_t *rows_of(fm_af3_trainer *t, const fm_af3_features *f, uint64_t step,
                              uint32_t cycle, int64_t *ret_n) {
    *ret_n = f->n_row;
    if (f->msa_rows) return f->msa_rows + (int64_t)cycle * f->n_row;
    int64_t *rows = fm_arena_alloc_array(&t->scratch, (size_t)f->sample.n_msa, sizeof *rows);
    assert(rows);
    if (f->first_row) {
        const int64_t first = f->first_row[cycle];
        *ret_n = f->first_row[cycle + 1] - first;
        assert(first + *ret_n <= f->sample.n_msa);
        for (int64_t i = 0; i < *ret_n; i++)
            rows[i] = first + i;
        return rows;
    }
    uint32_t clock[FM_CLOCK_WORDS];
    host_clock(step, f->slot, cycle, clock);
    *ret_n =
        fm_af3_draw_msa_rows(t->options.seed, clock, f->sample.n_msa, t->options.model.n_msa, rows);
    return rows;
}

/* Writes the MSA rows of a cycle of a sample, of the step with this number. */
static void write_rows(fm_af3_trainer *t, const fm_af3_features *f, uint64_t step, uint32_t cycle) {
    const fm_af3_writer to = {fm_mirror_put, &t->mirror};
    size_t mark = fm_arena_mark(&t->scratch);
    int64_t n_row;
    const int64_t *rows = rows_of(t, f, step, cycle, &n_row);
    fm_mirror_clear(&t->mirror, t->inputs.msa);
    fm_mirror_clear(&t->mirror, t->inputs.mask_msa);
    fm_af3_write_msa(&f->sample, &t->options.model, &t->inputs, rows, n_row, &to);
    fm_arena_rewind(&t->scratch, mark);
}

void fm_af3_trainer_write_next(fm_af3_trainer *t) {
    if (t->look_ahead && !t->is_announced) t->look_ahead(t->look_ahead_context);
    const fm_af3_features *next = t->next;
    t->next = NULL;
    if (!next || write_shared(t, next, NULL)) return;
    fm_mirror_begin(&t->mirror);
    if (write_conformers(t, next, t->next_step, NULL)) return;
    write_rows(t, next, t->next_step, 0);
    t->drawn_of = next;
    t->drawn_step = t->next_step;
    t->drawn_slot = next->slot;
    fm_mirror_send_early(&t->shared);
    fm_mirror_send_early(&t->mirror);
}

/* Whether conformers and first rows of the sample in hand were written before it came. */
static bool is_drawn(const fm_af3_trainer *t) {
    return t->drawn_of == t->features && t->drawn_step == t->recording.optimizer.step &&
           t->drawn_slot == t->features->slot;
}

fm_status fm_af3_trainer_write(fm_af3_trainer *t, fm_error *reterr) {
    fm_status status = FM_OK;
    if (t->written != t->features) status = write_shared(t, t->features, reterr);
    t->written = NULL; /* a later sample at this address may have other features */
    if (status) return status;
    return is_drawn(t) ? FM_OK : fm_af3_trainer_write_conformers(t, reterr);
}

fm_status fm_af3_trainer_write_conformers(fm_af3_trainer *t, fm_error *reterr) {
    fm_mirror_begin(&t->mirror);
    return write_conformers(t, t->features, t->recording.optimizer.step, reterr);
}

fm_status fm_af3_trainer_write_noise(fm_af3_trainer *t, fm_error *reterr) {
    fm_mirror_begin(&t->mirror);
    fm_mirror_clear(&t->mirror, t->rollout.mask);
    fm_mirror_clear(&t->mirror, t->rollout.x);
    fm_status status = write_levels(t, reterr);
    if (!status) status = write_rollout(t, reterr);
    if (!status && t->features->draws) write_draws(t, t->features->draws);
    fm_mirror_put(&t->mirror, t->seed_gradient, 0,
                  1.0 / fm_groups_sample_ranks(t->options.model.groups));
    return status;
}

void fm_af3_trainer_write_cycle(fm_af3_trainer *t, uint32_t cycle) {
    fm_mirror_begin(&t->mirror); /* the cycle before it runs while this one's rows are written */
    if (!is_drawn(t)) write_rows(t, t->features, t->recording.optimizer.step, cycle);
    t->drawn_of = NULL; /* of the first cycle only */
    put_clock(t, t->recording.clock, 0, cycle);
}
