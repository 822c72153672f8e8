/* weights.h: `foldmill import`, which turns weights of other programs into a checkpoint, and
 * `foldmill export-weights`, which writes a checkpoint's weights for other programs. */
#ifndef FM_TRAINER_WEIGHTS_H
#define FM_TRAINER_WEIGHTS_H

/* argv[0] is the command's name. Both return the exit code: 0 done, 1 failed, 2 bad usage. */
int fm_import_main(int argc, char **argv);
int fm_export_weights_main(int argc, char **argv);

#endif
