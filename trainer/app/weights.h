/* weights.h: `foldmill import` and `foldmill export-weights`: other people's weights into a
 * checkpoint, and a checkpoint's weights into files that others read. */
#ifndef FM_TRAINER_WEIGHTS_H
#define FM_TRAINER_WEIGHTS_H

/* argv[0] is the command's name. Return the exit code: 0 done, 1 failed, 2 bad usage. */
int fm_import_main(int argc, char **argv);
int fm_export_weights_main(int argc, char **argv);

#endif
