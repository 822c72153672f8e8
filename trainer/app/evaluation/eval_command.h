/* eval_command.h: the `eval` command of foldmill-train. */
#ifndef FM_TRAINER_EVAL_COMMAND_H
#define FM_TRAINER_EVAL_COMMAND_H

/* argv[0] is "eval". Returns the process's exit code. */
int fm_eval_main(int argc, char **argv);

#endif
