#!/bin/bash
# test_eight_gpus.sh BUILD: the runs for eight GPUs on eight CPU ranks; every layout has its row in the tables. Run in
# the repository's root.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
deploy/experiments/eight-gpus "$1" "$folder" --device cpu >"$folder/log" 2>&1 || { cat "$folder/log" && exit 1; }
for row in initial:1 initial:dap8 initial:dp8 initial:dp2.dap4 branches:dp4.bp2 finetuning:dap8; do
    grep -q "^| ${row#*:} | [18] |.*\*\*" "$folder/${row%:*}.txt" || { echo "no row of $row" && exit 1; }
done
