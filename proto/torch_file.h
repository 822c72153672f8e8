/* torch_file.h: reads the tensors of a file that PyTorch's torch.save wrote (version 1.6 and
 * later): a zip archive with a pickle that names tensors, and a member of raw numbers for each
 * storage.
 *
 *     NAME/data.pkl     the tables (pickle.h)
 *     NAME/data/KEY     the numbers of a storage, little-endian
 *     NAME/byteorder    "little"; older versions have none
 *
 * Nothing of the file is executed. Every size and offset is checked before it is used. The numbers
 * are read when they are asked for, so that the optimiser's state of a training checkpoint costs
 * nothing. Members are stored, not deflated. */
#ifndef FM_PROTO_TORCH_FILE_H
#define FM_PROTO_TORCH_FILE_H

#include "proto/pickle.h"

typedef struct fm_torch_file fm_torch_file;

/* Opens a file, reads its tables and checks that every contiguous tensor is in the file. Errors
 * carry the path, and offsets are those in the file. FM_ERR_IO, FM_ERR_NOT_FOUND, FM_ERR_FORMAT,
 * FM_ERR_UNSUPPORTED, FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_torch_file_open(const char *path, fm_torch_file **ret_file,
                                         fm_error *reterr);
void fm_torch_file_close(fm_torch_file *file);

size_t fm_torch_file_count(const fm_torch_file *file);
/* The tensor at `index`, in the order of the dictionaries; valid while the file is open. */
const fm_pickled_tensor *fm_torch_file_at(const fm_torch_file *file, size_t index);

/* Reads the count * item_bytes bytes of a contiguous tensor. FM_ERR_IO, FM_ERR_FORMAT. */
FM_MUST_USE fm_status fm_torch_file_read(const fm_torch_file *file, const fm_pickled_tensor *tensor,
                                         void *out, fm_error *reterr);

#endif
