#!/bin/bash
# `foldmill forecast` as a user runs it: layouts, schedules, the comparison with what was measured, and mistakes.
. "$(dirname "$0")/expect.sh"

layouts_are_compared() {
    foldmill forecast --gpus 4 --batch 1 >out
    says '^DP-1 x DAP-4 .* 126.0 m .* computing$' out
    foldmill forecast --gpus 256 --json >out
    python3 -c 'import json; l = json.load(open("out"))["layouts"]; assert len(l) == 5
assert all(x["mark"] == "e" for x in l) and {x["gpus"] for x in l} == {128, 256}'
}

# What `foldmill train` would be on many hosts: memory by its own plan, steps by the forecast.
a_run_is_forecast_before_it_starts() {
    foldmill forecast --gpus 256 --batch 128 --dap 2 >one
    test $(wc -l <one) = 3
    exits 2 foldmill forecast --gpus 256 --batch 128 --dap 3 >out 2>err
    says 'has no step with dap 3 and bp 1 in the table' err
    printf '[model]\nn_block = 2\n[data]\ncrop_size = 48\nmax_msa_clusters = 16\nglobal_batch = 2\n' >few.ini
    foldmill train --preset tiny --config few.ini --ranks 4 --dap 2 --dry-run --out none >out 2>err
    says '^ranks     4: dap 2, bp 1, dp 2$' out
    says '^memory    0[.][0-9]* GiB of each rank, of which [0-9.]* MiB are gradients$' out
    says 'tiny has no step with dap 2 and bp 1 in the table' err
    says '^          there is none$' out
    test ! -e none
    foldmill train --preset tiny --config few.ini --ranks 2 --dap 2 --dry-run >two
    memory_of() { awk '/^memory/ {print $2}' "$1" | head -1; }
    test "$(memory_of out)" = "$(memory_of two)"
    exits 2 foldmill train --preset tiny --ranks 3 --dap 2 --dry-run >out 2>err
    says '3 ranks cannot be divided' err
}

published_runs_are_computed() {
    foldmill forecast --gpus 1024 --schedule scalefold >out
    says '^ScaleFold, initial training: 0.42 days p$' out
    says '2080 H100 .* 0.650 p .* 4, 1 ' out
    says '^here: 0.* days e, .* GPU-hours e: steps alone' out
    foldmill forecast --check >out
    test $(wc -l <out) = 4
    awk 'NR > 1 && ($7 > 2 || $7 < -2) {exit 1}' out
}

mistakes_are_named() {
    exits 2 foldmill forecast --preset tiny >out 2>err
    says "found the preset 'tiny', expected af2-initial" err
    exits 2 foldmill forecast --network fast >out 2>err
    says "--network: found 'fast', expected infiniband, ethernet or" err
    exits 2 foldmill forecast --schedule fold >out 2>err
    says "--schedule: found 'fold', expected scalefold" err
    exits 2 foldmill forecast --schedule scalefold --check >out 2>err
    says 'either --schedule or --check' err
    exits 2 foldmill forecast --json --check >out 2>err
    says 'json is for layouts' err
}

run_tests layouts_are_compared \
    a_run_is_forecast_before_it_starts \
    published_runs_are_computed \
    mistakes_are_named
