/* chain_file.h: the names of files and folders that are made of a chain's name.
 *
 * A chain's name comes from a file or a server, and may have any byte. Different chains have
 * different names of files:
 *
 *     '/', '%', blanks, control bytes, a dot at the beginning    %2F, %25, %20, %2E
 *     a name that a command uses itself, such as "lock"          %6Cock
 *     more than FM_CHAIN_FILE_MOST bytes                         cut, "%~" and a hash */
#ifndef FM_TRAINER_CHAIN_FILE_H
#define FM_TRAINER_CHAIN_FILE_H

#include <stddef.h>

/* With a model's name of FM_CHAIN_MODEL_MOST bytes, a seed and an ending, and while the file is a
 * temporary one, this fits into the 255 bytes of a file's name. */
enum { FM_CHAIN_FILE_MOST = 120, FM_CHAIN_MODEL_MOST = 80 };

void fm_chain_file_name(const char *chain, char out[FM_CHAIN_FILE_MOST + 1]);

/* "1abc_A" of "pdb:1abc_A", borrowed; *ret_dataset_bytes is the length of "pdb". Of a chain without
 * a dataset it is the whole name, and 0. */
const char *fm_chain_in_dataset(const char *chain, size_t *ret_dataset_bytes);

#endif
