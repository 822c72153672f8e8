/* predict.h: the commands `foldmill predict` and `foldmill distill`. The first predicts structures
 * from sequences with alignments, the second turns predictions of a whole cache into a dataset for
 * training. */
#ifndef FM_TRAINER_PREDICT_H
#define FM_TRAINER_PREDICT_H

/* argv[0] is the command's name. Each returns the exit code: 0 done, 1 failed, 2 bad usage, 3 some
 * chains failed, 128 + N stopped by signal N. */
int fm_predict_main(int argc, char **argv);
int fm_distill_main(int argc, char **argv);

#endif
