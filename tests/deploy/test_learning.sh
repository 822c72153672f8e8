#!/bin/bash
# test_learning.sh BIN: deploy/experiments/learning from datasets to its report, with a model of one block and two
# saved steps on a synthetic dataset, and its clusters on chains whose relations are known. Run in the repository's
# root.
set -u
bin=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
check() { # NAME EXPECTED FOUND
    [ "$2" = "$3" ] || { printf 'learning: %s: expected\n%s\nfound\n%s\n' "$1" "$2" "$3" && failures=$((failures + 1)); }
}

# a and c are related through b; d is alone.
found=$(printf '%s\n' "a MKTAYIAKQRQISFVKSHFSRQ" "d GGGSTTPLLWYYNDCCHHEEPP" "b MKTAYIAKQRQLEERLGLIEVQ" \
    "c WWPTDAMRRLEERLGLIEVQGT" | awk -v SHARE=0.25 -f deploy/experiments/clusters.awk)
check clusters "$(printf 'a b c\nd')" "$found"

"$bin/foldmill" synth --chains 60 --seed 3 --max-length 90 --depth 8 -o "$folder/data" --quiet >/dev/null
printf '[model]\nn_block = 1\nn_structure_iteration = 1\nc_triangle = 16\n[data]\ncrop_size = 16\nmax_msa_clusters = 4\n' \
    >"$folder/tiny.ini"
out=$folder/out
deploy/experiments/learning prepare "$bin" "$out" "one=$folder/data" >"$folder/log" 2>&1 || failures=$((failures + 1))
check "chains in both sets" "" "$(sort "$out/held.chains" "$out/train.chains" | uniq -d)"
# The scored chains are few, so that whole chains take no time on a CPU.
for set in held seen; do head -n 1 "$out/$set.chains" >"$out/$set" && mv "$out/$set" "$out/$set.chains"; done
cat "$out/held.chains" "$out/seen.chains" >"$out/scored.chains"
"$bin/foldmill" snapshot delete scored --cache "$out/cache" >/dev/null
"$bin/foldmill" snapshot create scored --cache "$out/cache" --chains "$out/scored.chains" --weights uniform >/dev/null
deploy/experiments/learning run "$bin" "$out" --steps 4 --saves 2 --seeds "1 2" --config "$folder/tiny.ini" \
    --variants "original:fp32 parallel:fp32" >>"$folder/log" 2>&1 || failures=$((failures + 1))
check "evaluations of a run" "$(printf '0\n2\n4')" \
    "$(sed 's/.*"step": \([0-9]*\).*"lddt_ca".*"seen_lddt_ca".*/\1/' "$out/runs/parallel-fp32-2/eval.jsonl")"
deploy/experiments/learning report "$out" >"$folder/report"
check "runs in the report" 4 "$(grep -cE '^\| (original|parallel)-fp32-[12] \| 4 \|' "$folder/report")"
check "variants in the report" 2 "$(grep -c 'in the mean of 2 seeds' "$folder/report")"

# A held-out loss outside the spread and a run that is no better fail the report.
mkdir -p "$folder/bad/runs"/{a-1,a-2,b-1,b-2}
for run in a-1:5:0.3 a-2:5.1:0.3 b-1:7:0.3 b-2:7.1:0.01; do
    IFS=: read -r name loss score <<<"$run"
    printf '{"step": 0, "loss": 9, "lddt_ca": 0.02}\n{"step": 4, "loss": %s, "lddt_ca": %s}\n' "$loss" "$score" \
        >"$folder/bad/runs/$name/eval.jsonl"
done
deploy/experiments/learning report "$folder/bad" >"$folder/report"
check "status of a failed report" 1 $?
check "what failed" 2 "$(grep -cE 'NOT within the spread|NOT better.* b-2$' "$folder/report")"
[ "$failures" = 0 ] || { cat "$folder/log" && exit 1; }
