/* test_ledger.c: the ledger of a run: its lines, what a resumed run keeps of it, and what a replay
 * accepts. */
#include "trainer/app/train/ledger.h"

#include "proto/base/file.h"
#include "proto/base/rng.h"
#include "proto/limits.h"
#include "tests/testing/testing.h"
#include "trainer/app/samples/sample_features.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[512], path[600];

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/ledger", folder);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

static fm_ledger_facts facts_of(uint32_t window) {
    return (fm_ledger_facts){
        .seed = 7, .snapshot = fm_sha256_of("all", 3), .n_group = 1, .window = window};
}

/* -- lines */

static void lines_are_readable(void **state) {
    (void)state;
    static const uint64_t index[] = {36, 38, 39, 40, 37, 41, 42, 43};
    fm_ledger_line line = {.n = 8}, got;
    for (uint32_t i = 0; i < line.n; i++)
        line.use[i] = (fm_ledger_use){10, 3 + i, i == 4 || i == 6, index[i]};
    char text[FM_LEDGER_LINE_BYTES];
    size_t bytes = fm_ledger_format(&line, text);
    static const char expected[] = "10 3 36 38-40 37! 41 42! 43 ";
    assert_memory_equal(text, expected, sizeof expected - 1);
    assert_int_equal(bytes, sizeof expected - 1 + 9);
    assert_int_equal(fm_ledger_parse(text, bytes, &got, NULL), FM_OK);
    assert_int_equal(got.n, line.n);
    for (uint32_t i = 0; i < line.n; i++) {
        assert_int_equal(got.use[i].step, 10);
        assert_int_equal(got.use[i].slot, 3 + i);
        assert_int_equal(got.use[i].index, index[i]);
        assert_int_equal(got.use[i].is_skipped, i == 4 || i == 6);
    }
}

/* Any line survives, the longest ones too, and no line with another byte is taken for it. */
static void every_line_has_one_text(void **state) {
    (void)state;
    uint32_t draw = 0;
    for (int round = 0; round < 300; round++) {
        fm_ledger_line line = {.n = 1 + (uint32_t)round % FM_LEDGER_ROW}, got;
        for (uint32_t i = 0; i < line.n; i++) {
            fm_philox_counter word = fm_philox(5, (fm_philox_counter){{draw++}});
            uint64_t far = FM_LIMIT_STEP * (uint64_t)FM_LIMIT_GLOBAL_BATCH - word.word[0] % 4;
            uint64_t index = round % 3 ? 100 + i + word.word[0] % 2 : far;
            line.use[i] = (fm_ledger_use){1 + (uint64_t)round * 1000000007u % FM_LIMIT_STEP,
                                          FM_LIMIT_GLOBAL_BATCH - FM_LEDGER_ROW + i,
                                          word.word[1] % 8 == 0, index};
        }
        if (round == 299) line = (fm_ledger_line){.is_facts = true, .facts = facts_of(1024)};
        char text[FM_LEDGER_LINE_BYTES], again[FM_LEDGER_LINE_BYTES];
        size_t bytes = fm_ledger_format(&line, text);
        assert_int_equal(fm_ledger_parse(text, bytes, &got, NULL), FM_OK);
        assert_int_equal(fm_ledger_format(&got, again), bytes);
        assert_memory_equal(text, again, bytes);
        text[(uint32_t)round % bytes] ^= 1;
        assert_int_equal(fm_ledger_parse(text, bytes, &got, NULL), FM_ERR_FORMAT);
        assert_int_equal(fm_ledger_parse(again, bytes - 1, &got, NULL), FM_ERR_FORMAT);
    }
}

/* -- files */

static fm_ledger *open_at(uint64_t step, uint32_t n_sample, uint32_t window, bool expected) {
    const fm_ledger_facts facts = facts_of(window);
    fm_ledger *ledger;
    bool is_whole;
    assert_int_equal(fm_ledger_open(path, &facts, step, n_sample, &is_whole, &ledger, NULL), FM_OK);
    assert_int_equal(is_whole, expected);
    return ledger;
}

/* Steps first .. last of `batch` samples each, whose pairs are swapped; of the last one
 * `n_last`. */
static void use_steps(fm_ledger *ledger, uint64_t first, uint64_t last, uint32_t batch,
                      uint32_t first_slot, uint32_t n_last) {
    for (uint64_t step = first; step <= last; step++) {
        uint32_t begin = step == first ? first_slot : 0, end = step == last ? n_last : batch;
        for (uint32_t i = begin; i < end; i++) {
            /* slots come in any order, as with several groups */
            uint32_t slot = end - 1 - (i - begin);
            const fm_ledger_use use = {step, slot, false, ((step - 1) * batch + slot) ^ 1};
            assert_int_equal(fm_ledger_add(ledger, &use, NULL), FM_OK);
        }
        assert_int_equal(fm_ledger_write(ledger, NULL), FM_OK);
    }
    assert_int_equal(fm_ledger_sync(ledger, NULL), FM_OK);
}

static void assert_whole(uint64_t n_step, uint32_t batch, uint32_t window) {
    fm_ledger_record record;
    fm_error error = {.message = ""};
    if (fm_ledger_read(path, &record, &error)) fail_msg("%s", error.message);
    assert_int_equal(record.facts.window, window);
    assert_int_equal(record.facts.seed, 7);
    assert_int_equal(record.n, n_step * batch);
    for (uint64_t i = 0; i < record.n; i++) {
        assert_int_equal(record.use[i].index, i ^ 1);
        assert_int_equal(record.use[i].step, 1 + i / batch);
        assert_int_equal(record.use[i].slot, i % batch);
    }
    fm_ledger_release(&record);
}

/* A batch of more samples than a line has, a run that went beyond its checkpoint, a checkpoint
 * inside a batch, and a wider window later. */
static void a_resumed_run_goes_on_at_its_place(void **state) {
    (void)state;
    enum { BATCH = 150 };
    fm_ledger *ledger = open_at(0, 0, 4, true);
    use_steps(ledger, 1, 3, BATCH, 0, 70); /* a checkpoint after 2 steps and 70 samples ... */
    use_steps(ledger, 3, 5, BATCH, 70, BATCH);
    fm_ledger_close(ledger);
    ledger = open_at(2, 70, 4, true); /* ... from which the run goes on */
    use_steps(ledger, 3, 4, BATCH, 70, BATCH);
    fm_ledger_close(ledger);
    assert_whole(4, BATCH, 4);
    ledger = open_at(3, 0, 9, true);
    use_steps(ledger, 4, 6, BATCH, 0, BATCH);
    fm_ledger_close(ledger);
    assert_whole(6, BATCH, 9);
    fm_ledger_close(open_at(0, 0, 4, true));
    assert_int_equal(remove(path), 0);
}

static void append(const char *text) {
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* A line that was cut off by a crash is removed. Lines that are missing are noticed. */
static void damage_is_noticed(void **state) {
    (void)state;
    fm_ledger *ledger = open_at(0, 0, 4, true);
    use_steps(ledger, 1, 4, 2, 0, 2);
    fm_ledger_close(ledger);
    append("5 0 8-9 12");
    fm_ledger_record record;
    fm_error error;
    assert_int_equal(fm_ledger_read(path, &record, &error), FM_ERR_FORMAT);
    assert_int_equal(error.line, 6);
    fm_ledger_close(open_at(4, 0, 4, true));
    assert_whole(4, 2, 4);
    ledger = open_at(6, 0, 4, false); /* the checkpoint is newer than the lines */
    use_steps(ledger, 7, 8, 2, 0, 2);
    fm_ledger_close(ledger);
    assert_int_equal(fm_ledger_read(path, &record, &error), FM_ERR_FORMAT);
    assert_non_null(strstr(error.message, "lines are missing"));
    assert_int_equal(fm_ledger_read("/nowhere/ledger", &record, &error), FM_ERR_NOT_FOUND);
    assert_int_equal(remove(path), 0);
    append("");
    assert_int_equal(fm_ledger_read(path, &record, &error), FM_ERR_FORMAT);
    assert_non_null(strstr(error.message, "found an empty file, expected the ledger of a run"));
    assert_int_equal(remove(path), 0);
}

/* Every bit of a small ledger: an error, or what is written there. */
static void a_flipped_bit_is_refused(void **state) {
    (void)state;
    enum { ROOM = 4096 };
    static char whole[ROOM], changed[ROOM];
    fm_ledger *ledger = open_at(0, 0, 4, true);
    use_steps(ledger, 1, 6, 2, 0, 2);
    fm_ledger_close(ledger);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t bytes = fread(whole, 1, sizeof whole, file);
    assert_int_equal(fclose(file), 0);
    assert_true(bytes > 100 && bytes < ROOM);
    memcpy(changed, whole, bytes);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        fm_ledger_record record;
        fm_error error = {.message = ""};
        changed[bit / 8] ^= (char)(1 << bit % 8);
        assert_int_equal(fm_file_write_unsynced(path, changed, bytes, NULL), FM_OK);
        changed[bit / 8] = whole[bit / 8];
        assert_int_equal(fm_ledger_read(path, &record, &error), FM_ERR_FORMAT);
        assert_true(error.line > 0);
    }
    assert_int_equal(remove(path), 0);
}

/* -- features at another place */

static void a_place_gives_its_slot_and_cycles(void **state) {
    (void)state;
    static fm_features features = {.slot = 5, .n_cycle = 3};
    assert_int_equal(fm_features_use(&features, 2, 4, NULL), FM_ERR_PROTOCOL);
    assert_int_equal(features.slot, 5);
    assert_int_equal(fm_features_use(&features, 2, 2, NULL), FM_OK);
    assert_int_equal(features.slot, 2);
    assert_int_equal(features.n_cycle, 2);
}

/* A link in the place of a ledger is not followed: its target is neither made nor changed. */
static void links_are_not_followed(void **state) {
    (void)state;
    char place[256], linked[300], target[300];
    bool is_whole;
    fm_ledger *ledger;
    fm_error error;
    const fm_ledger_facts any = {.window = 1};
    fm_test_make_folder(place, sizeof place);
    snprintf(linked, sizeof linked, "%s/ledger", place);
    snprintf(target, sizeof target, "%s/target", place);
    assert_int_equal(symlink(target, linked), 0);
    assert_int_equal(fm_ledger_open(linked, &any, 0, 0, &is_whole, &ledger, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "is a symbolic link"));
    assert_int_not_equal(access(target, F_OK), 0);
    fm_test_remove_tree(place);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_readable),
        cmocka_unit_test(every_line_has_one_text),
        cmocka_unit_test(a_resumed_run_goes_on_at_its_place),
        cmocka_unit_test(damage_is_noticed),
        cmocka_unit_test(a_flipped_bit_is_refused),
        cmocka_unit_test(links_are_not_followed),
        cmocka_unit_test(a_place_gives_its_slot_and_cycles),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
