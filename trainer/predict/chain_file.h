/* chain_file.h: makes the names of files and folders from a chain's name.
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

/* The 255 bytes of a file's name have room for a chain and a model of these lengths, a seed and an
 * ending, also while the file is temporary. */
enum { FM_CHAIN_FILE_MOST = 120, FM_CHAIN_MODEL_MOST = 80 };

void fm_chain_file_name(const char *chain, char out[FM_CHAIN_FILE_MOST + 1]);

/* "1abc_A" of "pdb:1abc_A", borrowed; *ret_dataset_bytes is the length of "pdb". For a chain
 * without a dataset, it returns the whole name, and 0. */
const char *fm_chain_in_dataset(const char *chain, size_t *ret_dataset_bytes);

#endif
