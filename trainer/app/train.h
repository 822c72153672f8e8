/* train.h: `foldmill train`: the loop from a server's stream to updated parameters. */
#ifndef FM_TRAINER_TRAIN_H
#define FM_TRAINER_TRAIN_H

/* argv[0] is the command's name. Returns the exit code: 0 all steps done or stopped on request
 * after a whole step, 1 failed, 2 bad usage. */
int fm_train_main(int argc, char **argv);

#endif
