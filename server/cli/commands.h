/* commands.h: the commands of the `foldmill` program, each in its own file cmd_<name>.c.
 *
 * A command receives its own argv; argv[0] is its name. It prints results to stdout, and
 * messages and progress to stderr. It returns the exit code: 0 all done, 1 failed, 2 bad usage,
 * 3 done in part (some inputs were refused), 128 + N cut short by signal N. main.c checks that
 * stdout could be written. */
#ifndef FM_CLI_COMMANDS_H
#define FM_CLI_COMMANDS_H

#include "proto/base/options.h"
#include "proto/base/program.h"

/* The exit code of a command whose work a signal cut short, as a shell shows it: 143 after SIGTERM,
 * 130 after SIGINT, 129 after SIGHUP. */
static inline int fm_cli_signal_code(int signal_number) {
    return 128 + signal_number;
}

/* Calls `handler` for SIGINT, SIGTERM and SIGHUP, except those that the program was started to
 * ignore (nohup). */
void fm_cli_catch_signals(void (*handler)(int signal_number));
/* For a command that makes a cache or other files: neither a lost reader of its output nor a limit
 * on file sizes ends it before its work is whole. A failed write is an error instead. */
void fm_cli_survive_writes(void);

/* fm_options_parse for commands: returns -1 when the command should run, else the exit code. */
int fm_cli_parse(const fm_command *command, int argc, char **argv, int *ret_positional);

int fm_cmd_parse(int argc, char **argv);
int fm_cmd_components(int argc, char **argv);
int fm_cmd_prepare(int argc, char **argv);
int fm_cmd_score(int argc, char **argv);
int fm_cmd_build(int argc, char **argv);
int fm_cmd_featurize(int argc, char **argv);
int fm_cmd_merge(int argc, char **argv);
int fm_cmd_catalogue(int argc, char **argv);
int fm_cmd_verify(int argc, char **argv);
int fm_cmd_inspect(int argc, char **argv);
int fm_cmd_export(int argc, char **argv);
int fm_cmd_snapshot(int argc, char **argv);
int fm_cmd_gc(int argc, char **argv);
int fm_cmd_stats(int argc, char **argv);
int fm_cmd_synth(int argc, char **argv);
int fm_cmd_serve(int argc, char **argv);
int fm_cmd_fetch(int argc, char **argv);
int fm_cmd_certs(int argc, char **argv);
int fm_cmd_simulate(int argc, char **argv);
int fm_cmd_forecast(int argc, char **argv);
int fm_cmd_top(int argc, char **argv);
int fm_cmd_plot(int argc, char **argv);
/* train, eval, predict, distill, import and export-weights: runs the program foldmill-train in
 * place of this one, with the command as its first argument. */
int fm_cmd_train(int argc, char **argv);

#endif
