/* public_text.c: see public_text.h. */
#include "server/public_text.h"

#include <string.h>

static size_t last_slash(const char *word, size_t bytes) {
    while (bytes && word[bytes - 1] != '/')
        bytes--;
    return bytes;
}

void fm_public_text(char *text) {
    static const char between_words[] = " \t'\"()[]{}<>,;=|";
    char *to = text;
    for (const char *from = text; *from;) {
        size_t bytes = strcspn(from, between_words);
        if (bytes == 0) {
            *to++ = *from++;
            continue;
        }
        size_t hidden = from[0] >= '0' && from[0] <= '9' ? 0 : last_slash(from, bytes);
        if (hidden == bytes) hidden = last_slash(from, bytes - 1); /* `/srv/cache/` */
        memmove(to, from + hidden, bytes - hidden);
        to += bytes - hidden;
        from += bytes;
    }
    *to = '\0';
}
