/* last_words.c: see last_words.h. */
#include "trainer/app/common/last_words.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char fm_last_words_name[] = "FOLDMILL_LAST_WORDS";
const char fm_last_words_begun[] = "begun", fm_last_words_why[] = "why ";

/* The descriptor; -1 where the variable names none that is a pipe. */
static int find_pipe(void) {
    const char *text = getenv(fm_last_words_name);
    char *end;
    struct stat file;
    const long fd = text ? strtol(text, &end, 10) : -1;
    const bool is_number = text && *text >= '0' && *text <= '9' && !*end && fd <= 1 << 20;
    if (!is_number || fstat((int)fd, &file) < 0 || !S_ISFIFO(file.st_mode)) return -1;
    return (int)fd;
}

bool fm_last_words_are_heard(void) {
    return getenv(fm_last_words_name) != NULL;
}

static void say(const char *kind, const char *text) {
    char line[FM_LAST_WORDS_BYTES];
    const int fd = find_pipe();
    if (fd < 0) return;
    int n = snprintf(line, sizeof line - 1, "%s%s", kind, text);
    n = n < (int)sizeof line - 1 ? n : (int)sizeof line - 2;
    for (int i = 0; i < n; i++)
        line[i] = line[i] == '\n' ? ' ' : line[i];
    line[n++] = '\n';
    const ssize_t ignored = write(fd, line, (size_t)n); /* who supervises may have ended */
    (void)ignored;
}

void fm_last_words_say_begun(void) {
    say(fm_last_words_begun, "");
}

void fm_last_words_say_why(const char *why) {
    say(fm_last_words_why, why);
}
