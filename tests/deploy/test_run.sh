#!/bin/sh
# What ./run says about names before it builds anything: misspelt ones are bad usage, and the
# benchmarks are listed and explained.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

expect() { # CODE SENTENCE ARGUMENTS...
    code=$1
    sentence=$2
    shift 2
    found=0
    ./run "$@" >"$folder/out" 2>&1 || found=$?
    if [ "$found" = "$code" ] && grep -qF -- "$sentence" "$folder/out" &&
        ! grep -q '^run: built' "$folder/out"; then
        return
    fi
    echo "failed: ./run $* ends with $found, expected $code and '$sentence'" >&2
    cat "$folder/out" >&2
    exit 1
}

expect 2 "unknown command 'biuld'" biuld
expect 2 "unknown preset 'fast'" build fast
expect 2 "unknown check 'sums'" check sums
expect 2 "no benchmark matches 'nothing'; './run bench --help' lists them" bench nothing
expect 2 "no benchmark matches 'nothing'" bench nothing --help
expect 2 "no fuzz target 'nothing'; the targets are a3m " fuzz nothing 1
expect 2 "build takes one preset, found 'cuda' behind 'release'" build release cuda
expect 2 "wheel takes no argument, found 'all'" wheel all
expect 2 "demo: --steps: found 'many', expected a whole number" demo --steps many
expect 0 "  start: measures how long a server takes to open a large cache." bench --help
expect 0 "bench_parse_hits [--rounds N] [FILE...]" bench parse_hits --help
