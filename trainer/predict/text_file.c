/* text_file.c: see text_file.h. */
#include "trainer/predict/text_file.h"

#include "proto/base/file.h"

#include <stdlib.h>

fm_status fm_text_file_open(fm_text_file *file, fm_error *reterr) {
    *file = (fm_text_file){.text = NULL};
    file->out = open_memstream(&file->text, &file->bytes);
    return file->out ? FM_OK : fm_fail(reterr, FM_ERR_NOMEM, "no memory for a file");
}

void fm_text_file_discard(fm_text_file *file) {
    (void)fclose(file->out);
    free(file->text);
}

fm_status fm_text_file_commit(fm_text_file *file, const char *path, fm_error *reterr) {
    fm_status status = ferror(file->out) ? FM_ERR_NOMEM : FM_OK;
    if (fclose(file->out)) status = FM_ERR_NOMEM;
    if (status) {
        status = fm_fail_in(reterr, FM_ERR_NOMEM, path, "no memory for the file");
    } else {
        status = fm_file_write_atomic(path, file->text, file->bytes, reterr);
    }
    free(file->text);
    return status;
}
