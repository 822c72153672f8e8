/* train.h: `foldmill train`: the loop that turns a server's stream of samples into updated
 * parameters. */
#ifndef FM_TRAINER_TRAIN_H
#define FM_TRAINER_TRAIN_H

/* argv[0] is the command's name. Returns the exit code: 0 if all steps are made, 1 if the run
 * failed, 2 for bad usage, 3 if all steps are made and no score reached --stop-at. A signal that
 * asked it to stop gives 128 plus its number. */
int fm_train_main(int argc, char **argv);

#endif
