/* fuzz_query.c: arbitrary bytes as a FASTA file or an alignment whose chain is predicted; the first
 * byte chooses the format.
 *
 * Refused input has a message, and a letter that is refused has a place. An accepted sequence has 1
 * to FM_LIMIT_N_RES letters, each of the 20 or X, and as FASTA it is read again as it is. */
#include "featurizer/query.h"

#include "proto/limits.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(const fm_part_sequence *sequence, fm_arena *arena) {
    fm_part_sequence again;
    const fm_bytes text = {(const uint8_t *)sequence->sequence, sequence->n_res};
    fm_status status = fm_query_parse(text, FM_QUERY_FASTA, arena, &again, NULL);
    assert(!status && again.n_res == sequence->n_res);
    assert(memcmp(again.sequence, sequence->sequence, again.n_res) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const fm_query_format formats[] = {FM_QUERY_FASTA, FM_QUERY_A3M, FM_QUERY_STOCKHOLM};
    fm_arena arena;
    fm_part_sequence sequence;
    fm_part_structure structure;
    fm_error error = {.status = FM_OK};
    if (size == 0 || fm_arena_init(&arena, (size_t)64 << 20, NULL)) return 0;
    const fm_bytes text = {data + 1, size - 1};
    fm_status status = fm_query_parse(text, formats[data[0] % 3], &arena, &sequence, &error);
    if (status) {
        assert(error.status == status && error.message[0] != '\0');
    } else {
        assert(sequence.n_res >= 1 && sequence.n_res <= FM_LIMIT_N_RES);
        for (uint32_t i = 0; i < sequence.n_res; i++)
            assert(strchr("ACDEFGHIKLMNPQRSTVWYX", sequence.sequence[i]) && sequence.sequence[i]);
        check_again(&sequence, &arena);
        if (sequence.n_res < 1000) {
            status = fm_query_structure(&sequence, &arena, &structure, NULL);
            assert(!status && structure.n_res == sequence.n_res);
        }
    }
    fm_arena_fini(&arena);
    return 0;
}
