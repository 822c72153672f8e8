/* most_blocks.h: configurations whose stacks have the most blocks that their keys allow. */
#ifndef FM_TRAINER_MOST_BLOCKS_H
#define FM_TRAINER_MOST_BLOCKS_H

#include "trainer/app/settings/train_keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Gives every stack of a section of the configuration its most blocks. Returns their number. */
static inline int fm_test_take_most_blocks(fm_train_config *config, const char *section) {
    int n = 0;
    for (size_t i = 0; i < fm_train_n_key; i++) {
        const fm_train_key *key = &fm_train_keys[i];
        if (strcmp(key->section, section) != 0 || strcmp(key->unit, "blocks") != 0) continue;
        assert_int_equal(key->kind, FM_KEY_INT32);
        const int32_t most = (int32_t)key->max;
        memcpy((char *)config + key->offset, &most, sizeof most);
        n++;
    }
    return n;
}

#endif
