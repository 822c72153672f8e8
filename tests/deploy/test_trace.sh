#!/bin/sh
# test_trace.sh: deploy/gpu/trace on a small trace: two replays of a graph without stamps, one with. It adds
# up what nodes add to the graph's time, their own times, gaps and bytes, and gives each node the module of the
# step that it ran in. Run in the repository's root.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

# node START END GRAPH BLOCKS NAME: a line of a trace.
node() { printf '%s\t%s\t%s\t1\t%s\t128\t32\t0\t%s\n' "$@"; }

{
    for start in 0 100000; do
        node $((start)) $((start + 1000)) 7 128 take_kernel
        node $((start + 1500)) $((start + 3500)) 7 132 product
        node $((start + 3500)) $((start + 4500)) 7 0 "fill of 4 bytes"
        node $((start + 5000)) $((start + 9000)) 7 132 product
        node $((start + 9000)) $((start + 10000)) 7 64 adam_kernel
    done
    at=200000
    for name in take_kernel stamp_kernel product stamp_kernel "fill of 4 bytes" product stamp_kernel adam_kernel; do
        blocks=1
        case $name in fill*) blocks=0 ;; esac
        node $at $((at + 1000)) 9 $blocks "$name"
        at=$((at + 1000))
    done
} >"$folder/trace"
printf 'cycle\tforward\tother\nlast\tforward\tfirst\nlast\tbackward\tsecond\n' >"$folder/schedule"
{
    echo '"Kernel Name","gpu__time_duration.sum","dram__bytes_read.sum","dram__bytes_write.sum"'
    echo '"","us","Mbyte","Mbyte"'
    for name in take product product adam; do echo "\"$name\",\"1\",\"2\",\"1\""; done
} >"$folder/counters"

report=$(deploy/gpu/trace "$folder/trace" "$folder/schedule" --counters "$folder/counters" \
    --nodes "$folder/nodes") || exit 1
has() { # NAME PATTERN
    if printf '%s\n' "$report" | grep -qE "$2"; then
        echo "$1: ok"
    else
        echo "$1: no line with '$2' in: $report"
        failures=$((failures + 1))
    fi
}
has total '^last cycle: 5 nodes in 10 us; 9 us of kernels, 1 us of gaps; 2 replays traced'
has module '^ +1 +2\.5 +25\.00 .* 2\.0 +0\.5 +3\.0 +1200  forward  first'
has counter_node '^ +2 +5\.5 +55\.00 .* 5\.0 +0\.5 +3\.0 +545  backward second'
has kernel '^ +2 +7\.0 +70\.00 .* 6\.0 +1\.0 +6\.0 +857  product'
[ "$(wc -l <"$folder/nodes")" = 6 ] || { echo "nodes: not a line per node" && failures=$((failures + 1)); }
[ "$(deploy/gpu/trace "$folder/trace" --skip)" = "0 4" ] || { echo "skip: wrong" && failures=$((failures + 1)); }
if deploy/gpu/trace /dev/null "$folder/schedule" 2>/dev/null; then
    echo "empty: a trace without a graph is taken" && failures=$((failures + 1))
fi
[ "$failures" = 0 ]
