/* predict.h: `foldmill predict`: structures from sequences with their alignments. */
#ifndef FM_TRAINER_PREDICT_H
#define FM_TRAINER_PREDICT_H

/* argv[0] is the command's name. Returns the exit code: 0 done, 1 failed, 2 bad usage, 3 some
 * failed, 128 + N stopped by signal N. */
int fm_predict_main(int argc, char **argv);

#endif
