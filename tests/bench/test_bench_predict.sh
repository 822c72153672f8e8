#!/bin/sh
# test_bench_predict.sh BENCH: --many counts each chain once, under its recorded length; its ratio is that of the two
# sums; the lengths depend on the seed alone; the parts of --every are all chains; a range that is empty and
# --by-cycle without a GPU are refused.
set -u
many="--many --chains 5 --shortest 10 --longest 40 --cycles 1 --warm-up 0"
# shellcheck disable=SC2086 # words
out=$("$1" $many) || exit 1
# shellcheck disable=SC2086
again=$("$1" $many) || exit 1
# shellcheck disable=SC2086
other=$("$1" $many --seed 4) || exit 1
rows() { printf '%s\n' "$1" | awk '$1 == "all" { exit } seen { print $1, $2 } $1 == "recorded" { seen = 1 }'; }
printf '%s\n' "$out" | awk '
    $1 == "recorded" { seen = 1; next }
    $1 == "all" { all = $2; single = $3; many = $4; next }
    $1 == "many" { n = $5; ratio = $9; next }
    seen && !all { chains += $2; sum += $4; lines++; if ($1 % 16 || $1 > 48) wrong = 1 }
    END {
        if (wrong || chains != 5 || all != 5 || lines != n || lines < 2) exit 1
        if (sum - many > 0.01 || many - sum > 0.01) exit 1
        if (ratio < many / single * 0.9 - 0.1 || ratio > many / single * 1.1 + 0.1) exit 1
    }' || { printf '%s\n' "$out" "the table and its sums do not agree"; exit 1; }
[ "$(rows "$out")" = "$(rows "$again")" ] || { printf '%s\n' "$out" "$again" "one seed, other lengths"; exit 1; }
[ "$(rows "$out")" != "$(rows "$other")" ] || { printf '%s\n' "$out" "$other" "another seed, equal lengths"; exit 1; }
# shellcheck disable=SC2086
halves=$(rows "$("$1" $many --every 2 --from 1)" && rows "$("$1" $many --every 2)") || exit 1
[ "$(printf '%s\n' "$halves" | sort)" = "$(rows "$out" | sort)" ] || { echo "two halves are not the whole"; exit 1; }
"$1" --many --every 2 --from 2 2>/dev/null && { echo "a part that does not exist was taken"; exit 1; }
"$1" --many --by-cycle 2>/dev/null && { echo "replays of graphs were timed without a GPU"; exit 1; }
"$1" --many --shortest 5 --longest 4 2>/dev/null && { echo "an empty range was taken"; exit 1; }
exit 0
