/* train.h: `foldmill train`: the loop that turns a server's stream of samples into updated
 * parameters. */
#ifndef FM_TRAINER_TRAIN_H
#define FM_TRAINER_TRAIN_H

/* argv[0] is the command's name. Returns the exit code: 0 if all steps are made or the run was
 * asked to stop and did so after a whole step, 1 if it failed, 2 for bad usage. */
int fm_train_main(int argc, char **argv);

#endif
