#!/bin/sh
# test_bench_step.sh BENCH FILE: one step of the preset tiny gives the same parameters from a made-up
# sample and from the file that it was saved to, and every part of its report is there. The same of
# AlphaFold 3's tiny preset.
set -u
bench=$1
file=$2
trap 'rm -f "$file" "$file.schedule"' EXIT

short="--cycles 1 --rounds 1 --steps 1 --warm-up 1 --digest"
# shellcheck disable=SC2086 # words
made=$("$bench" $short --save "$file") || exit 1
# shellcheck disable=SC2086
read=$("$bench" $short --batch "$file" --table --schedule "$file.schedule") || exit 1
for part in '^mean step [0-9.]* ms' '^graph ' '^digest ' 'msa row attention' 'Adam and average'; do
    printf '%s\n' "$read" | grep -q "$part" || { echo "no line with '$part'"; exit 1; }
done
[ "$(printf '%s\n' "$made" | grep ^digest)" = "$(printf '%s\n' "$read" | grep ^digest)" ] || {
    echo "other parameters from the file"
    exit 1
}
grep -q "^last	backward	msa row attention" "$file.schedule" || {
    echo "the schedule has no line for the row attention's backward"
    exit 1
}
# shellcheck disable=SC2086
"$bench" $short --crops 15,16 | grep -q '^worst crop' || { echo "no report of crops"; exit 1; }
# shellcheck disable=SC2086
"$bench" $short --shapes --crops 16 | grep -q '^worst crop 1.000' || { echo "no crop of 16"; exit 1; }
# AlphaFold 3: the same parameters with and without NaN in fresh memory, and a table of its parts.
# shellcheck disable=SC2086
made=$("$bench" --preset af3-tiny $short) || exit 1
# shellcheck disable=SC2086
read=$("$bench" --preset af3-tiny $short --spoil --table) || exit 1
for part in '^mean step [0-9.]* ms' 'part of a step' 'rollout$' 'confidence pairs'; do
    printf '%s\n' "$read" | grep -q "$part" || { echo "AlphaFold 3: no line with '$part'"; exit 1; }
done
[ "$(printf '%s\n' "$made" | grep ^digest)" = "$(printf '%s\n' "$read" | grep ^digest)" ] || {
    echo "AlphaFold 3: other parameters with --spoil"
    exit 1
}
