/* train_keys.h: the table of all settings of a run: each key with its place in fm_train_config, its
 * type and range, and its sentence of documentation. The parser, the formatter, the suggestions for
 * misspelt keys and the documentation all read it (train_config.c). */
#ifndef FM_TRAINER_TRAIN_KEYS_H
#define FM_TRAINER_TRAIN_KEYS_H

#include "trainer/app/settings/train_config.h"

typedef enum fm_key_kind {
    FM_KEY_INTEGER, /* int64_t */
    FM_KEY_INT32,
    FM_KEY_NUMBER, /* double */
    FM_KEY_PLAN,
    FM_KEY_DATE, /* uint32_t as in proto/template_date.h */
    FM_KEY_WORD  /* an enumeration */
} fm_key_kind;

/* The networks that have a key. */
typedef enum fm_key_owner { FM_KEY_BOTH, FM_KEY_AF2, FM_KEY_AF3 } fm_key_owner;

/* A setting that is one of some words; values are those of an enumeration. */
typedef struct fm_key_word {
    const char *word; /* NULL ends the list */
    int value;
} fm_key_word;

typedef struct fm_train_key {
    const char *section, *name;
    const char *unit; /* "" for a plain number, a word or a name */
    const char *help; /* one sentence */
    fm_key_kind kind;
    size_t offset; /* in fm_train_config */
    double min, max;
    const fm_key_word *words; /* of FM_KEY_WORD */
    const char *expected;     /* the words, for messages */
    bool no_result;           /* the run's numbers do not depend on it */
    bool is_implied;          /* checkpoints leave the first of its words out */
    fm_key_owner of;
} fm_train_key;

extern const fm_train_key fm_train_keys[];
extern const size_t fm_train_n_key;

/* Whether the network has the key. */
static inline bool fm_train_key_is_of(const fm_train_key *key, fm_network_kind network) {
    return key->of == FM_KEY_BOTH || (key->of == FM_KEY_AF3) == (network == FM_NETWORK_AF3);
}

#endif
