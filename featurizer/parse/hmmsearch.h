/* hmmsearch.h: parses template hits in the alignment that hmmsearch writes (-A; HMMER 3 user
 * guide).
 *
 *     # STOCKHOLM 1.0
 *     #=GS 3zee_A/2-84 DE [subseq from] mol:protein length:84  PARTITIONING DEFECTIVE 3 HOMOLOG
 *     3zee_A/2-84         -EFKVTVCFGR.TrVV         one row per hit, in blocks
 *     //
 *
 * The database holds the PDB's sequences, so a row's name is `id_chain/first-last` and its
 * description names the kind of molecule. Rows that are not "mol:protein" are skipped. The columns
 * are the positions of the profile, which was built with the chain as its first sequence, so column
 * i is residue i of the chain. An upper-case letter or '-' is a column, a lower-case letter is an
 * insertion between two columns, and dots are padding.
 *
 * Memory is in the caller's arena: per hit its letters, and 4 bytes per column. */
#ifndef FM_PARSE_HMMSEARCH_H
#define FM_PARSE_HMMSEARCH_H

#include "featurizer/parse/hits.h"

#include <stdbool.h>

/* Parses a whole file. query is the chain's sequence, [n_query] letters, and the same for every
 * hit. A hit's index is the number of its row, its sum_probs is NaN and its name is "id_chain".
 * Returns FM_ERR_FORMAT and FM_ERR_UNSUPPORTED with the place, and
 * FM_ERR_LIMIT.
 *
 * A text without rows has no hits. By default, a text with rows must have the line "# STOCKHOLM"
 * or a row of a protein, and a row has as many letters as its name's positions say.
 *
 * compat_openfold reads as OpenFold does. Ids are lower case, the description must have "protein
 * length:N", and "//" is a comment. Any byte but a letter, '-' and '.' is a column. By default
 * ids have either case, and only letters, '-' and '.' are allowed. `text` and `query` must
 * outlive the value. */
FM_MUST_USE fm_status fm_hmmsearch_parse(fm_bytes text, fm_bytes query, bool compat_openfold,
                                         fm_arena *arena, fm_hits *ret_hits, fm_error *reterr);

#endif
