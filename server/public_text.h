/* public_text.h: what a client may read of an error. */
#ifndef FM_SERVER_PUBLIC_TEXT_H
#define FM_SERVER_PUBLIC_TEXT_H

/* Shortens each path in the text to its last part, in place: `/srv/cache/0001.shard: page 3`
 * becomes `0001.shard: page 3`. A path is a word with a slash that does not begin with a digit, so
 * `1/2` and `20/s` stay. Logs keep the whole text. */
void fm_public_text(char *text);

#endif
