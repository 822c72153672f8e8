#!/bin/sh
# test_bench_scaling.sh BENCH: the preset tiny on two CPU ranks, and rank 0 of four alone; every layout has its
# rows in all tables, with as many exchanges in both ways.
set -u
short="--cycles 2 --rounds 1 --steps 1"
# shellcheck disable=SC2086 # words
real=$("$1" $short --layouts 1,dap2,dp2) || exit 1
# shellcheck disable=SC2086
alone=$("$1" $short --alone --layouts dap2,dp2.dap2) || exit 1
rows() { printf '%s\n' "$1" | grep -c "^| $2 |"; }
exchanges() { printf '%s\n' "$1" | awk -F'|' -v name=" $2 " '$2 == name && NF > 9 { print $4; exit }'; }
for layout in dap2 dp2; do
    [ "$(rows "$real" "$layout")" = 3 ] || { echo "$real"; echo "not three rows of $layout"; exit 1; }
done
[ "$(rows "$alone" dp2.dap2)" = 2 ] || { echo "$alone"; echo "not two rows of dp2.dap2"; exit 1; }
counted=$(exchanges "$alone" dap2)
if [ -z "$counted" ] || [ "$(exchanges "$real" dap2)" != "$counted" ]; then
    printf '%s\n' "$real" "$alone" "dap2 has not the same exchanges alone"
    exit 1
fi
for wrong in dap0 dap17 bp ap2; do
    # shellcheck disable=SC2086
    "$1" $short --layouts "$wrong" 2>/dev/null && { echo "layout $wrong was taken"; exit 1; }
done
exit 0
