/* last_words.h: what a command and its ranks say to the process that supervises them, through a
 * pipe that they inherit: that the run has begun, and why it ends. The environment variable
 * FOLDMILL_LAST_WORDS has the descriptor of the pipe. Without it nothing is said.
 *
 * A message is a line, "begun" or "why REASON", and is written at once. */
#ifndef FM_TRAINER_LAST_WORDS_H
#define FM_TRAINER_LAST_WORDS_H

#include <stdbool.h>

enum { FM_LAST_WORDS_BYTES = 420 }; /* of a message, with its end */

extern const char fm_last_words_name[], fm_last_words_begun[], fm_last_words_why[];

/* Whether another process supervises this one. */
bool fm_last_words_are_heard(void);
/* Says that the run has begun: its settings, data and folder are right. */
void fm_last_words_say_begun(void);
/* Says why the run ends. The supervisor keeps the first reason. */
void fm_last_words_say_why(const char *why);

#endif
