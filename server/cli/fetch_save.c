/* fetch_save.c: see fetch_save.h. */
#include "server/cli/fetch_save.h"

#include "proto/base/file.h"
#include "server/cli/output_note.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 4096, N_FIELD = 10, NAME_BYTES = 40 };

fm_status fm_fetch_save_begin(const fm_fetch_save *save, const fm_wire_welcome *welcome,
                              const fm_wire_open *open, const fm_wire_opened *opened,
                              fm_arena *arena, fm_error *reterr) {
    char note[FM_OUTPUT_NOTE_BYTES], hash[FM_SHA256_HEX];
    fm_sha256_format(&welcome->snapshot, hash);
    snprintf(note, sizeof note,
             "{\"snapshot_hash\": \"%s\", \"plan\": \"%s\", \"seed\": %llu, \"global_batch\": %u, "
             "\"crop_size\": %u, \"max_msa_clusters\": %u, \"max_extra_msa\": %u, "
             "\"max_cycle\": %u, \"max_template_date\": %u, \"format\": \"%s\"}\n",
             hash, open->plan, (unsigned long long)open->seed, opened->global_batch,
             opened->crop_size, opened->max_msa_clusters, opened->max_extra_msa, opened->max_cycle,
             opened->max_template_date, fm_array_format_name(save->format));
    fm_status status = fm_dir_make(save->folder, reterr);
    if (status) return status;
    return fm_output_note_check(save->folder, "fetch.json", note,
                                "samples of another snapshot, plan or seed, or in another format",
                                arena, reterr);
}

/* Values and names stay in place until the file is finished, as the writer wants it. */
typedef struct fields {
    uint64_t value[N_FIELD];
    float resolution;
    uint8_t flag[2];
} fields;

static fm_status append_fields(fm_array_writer *writer, const fm_sample *s, fields *f,
                               fm_error *reterr) {
    static const char *const names[N_FIELD] = {"index",      "step",       "slot",  "epoch",
                                               "chain",      "n_cycle",    "n_res", "n_res_chain",
                                               "crop_start", "n_seq_chain"};
    *f = (fields){{s->index, s->step, s->slot, s->epoch, s->chain, s->n_cycle, s->n_res,
                   s->n_res_chain, s->crop_start, s->n_seq_chain},
                  s->resolution,
                  {s->is_distillation, s->use_clamped_fape}};
    const struct {
        const char *name, *dtype;
        const void *data;
    } rest[] = {{"resolution", "<f4", &f->resolution},
                {"is_distillation", "|u1", &f->flag[0]},
                {"use_clamped_fape", "|u1", &f->flag[1]}};
    const uint64_t name_bytes = strlen(s->name);
    fm_status status =
        fm_array_writer_append(writer, "name", "|u1", 1, &name_bytes, s->name, reterr);
    for (int i = 0; i < N_FIELD && !status; i++)
        status = fm_array_writer_append(writer, names[i], "<u8", 0, NULL, &f->value[i], reterr);
    for (size_t i = 0; i < sizeof rest / sizeof rest[0] && !status; i++)
        status = fm_array_writer_append(writer, rest[i].name, rest[i].dtype, 0, NULL, rest[i].data,
                                        reterr);
    return status;
}

static fm_status append_tensor(fm_array_writer *writer, const fm_tensor_view *view, char *name,
                               fm_error *reterr) {
    uint64_t shape[FM_LIMIT_RANK];
    for (uint32_t k = 0; k < view->rank; k++)
        shape[k] = view->shape[k];
    const char *key = fm_schema_find(view->id)->name;
    if (view->cycle == FM_SHARED) {
        snprintf(name, NAME_BYTES, "%s", key);
    } else {
        snprintf(name, NAME_BYTES, "%s.%u", key, view->cycle);
    }
    return fm_array_writer_append(writer, name, fm_dtype_numpy(view->dtype), view->rank, shape,
                                  view->data, reterr);
}

static fm_status write_sample(const fm_fetch_save *save, const char *path, const fm_sample *sample,
                              fm_arena *arena, fm_error *reterr) {
    fields values;
    char(*names)[NAME_BYTES] = fm_arena_alloc_array(arena, sample->n_tensor, NAME_BYTES);
    if (!names) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the names of tensors");
    fm_array_writer *writer;
    fm_status status = fm_array_writer_create(path, save->format, &writer, reterr);
    if (status) return status;
    status = append_fields(writer, sample, &values, reterr);
    for (uint32_t i = 0; i < sample->n_tensor && !status; i++)
        status = append_tensor(writer, &sample->tensor[i], names[i], reterr);
    if (!status) return fm_array_writer_finish(writer, reterr);
    fm_array_writer_destroy(writer);
    return status;
}

fm_status fm_fetch_save_sample(fm_fetch_save *save, const fm_sample *sample, fm_arena *arena,
                               fm_error *reterr) {
    char path[PATH_BYTES];
    bool has;
    int n = snprintf(path, sizeof path, "%s/%012llu.%s", save->folder,
                     (unsigned long long)sample->index, fm_array_format_name(save->format));
    if (n < 0 || (size_t)n >= sizeof path) {
        return fm_fail_in(reterr, FM_ERR_IO, save->folder, "the path is longer than %d bytes",
                          PATH_BYTES - 1);
    }
    fm_status status = fm_output_has_file(path, &has, reterr);
    if (status) return status;
    if (has) {
        save->n_kept++;
        return FM_OK;
    }
    sigset_t ending, before;
    sigemptyset(&ending);
    sigaddset(&ending, SIGINT);
    sigaddset(&ending, SIGTERM);
    sigaddset(&ending, SIGHUP);
    sigprocmask(SIG_BLOCK, &ending, &before);
    status = write_sample(save, path, sample, arena, reterr);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (!status) save->n_written++;
    return status;
}
