# library.sh: shell functions for tests of runs with several processes. Tests read them through fm_test_write_library.
# Each wait ends after about a minute, so that a test that waits in vain fails and does not hang.
# shellcheck shell=sh

# beside COMMAND: starts it beside the shell, and kills it when the shell ends; $run is its process.
beside() {
    "$@" &
    run=$!
    trap 'kill -9 $run 2>/dev/null' EXIT
}

# until_true COMMAND: repeats the command until it succeeds.
until_true() {
    tries=0
    until "$@" || [ $tries -ge 3000 ]; do
        sleep 0.02
        tries=$((tries + 1))
    done
    [ $tries -lt 3000 ]
}

has_steps() {
    [ -f "$1/metrics.jsonl" ] && [ "$(wc -l <"$1/metrics.jsonl")" -ge "$2" ]
}

# until_step DIR N: waits until the metrics of a run have N steps.
until_step() {
    until_true has_steps "$1" "$2"
}

# rank_of PROCESS R: prints the process of one rank, or of all ranks where R is empty.
rank_of() {
    tr ' ' '\n' <"/proc/$1/task/$1/children" | while read -r child; do
        tr '\0' '\n' <"/proc/$child/environ" | grep -q "^FOLDMILL_RANK=$2${2:+\$}" && echo "$child"
    done
}

ranks_of() {
    rank_of "$1" ''
}

# A process that has ended remains as a zombie where nobody waits for it.
is_gone() {
    ! grep -q '^State:[^Z]*$' "/proc/$1/status" 2>/dev/null
}

# all_gone PROCESSES: waits until none of them is left.
all_gone() {
    for process in "$@"; do
        until_true is_gone "$process" || return 1
    done
}

# losses DIR: prints the metrics of a run, without the times.
losses() {
    sed 's/,"step_s".*//' "$1/metrics.jsonl"
}

# close_losses A B: do two runs have the same samples, and the same losses apart from rounding?
close_losses() {
    python3 - "$1" "$2" <<'END'
import json, sys
a, b = ([json.loads(line) for line in open(run + "/metrics.jsonl")] for run in sys.argv[1:])
worst = max(abs(x["loss"] / y["loss"] - 1) for x, y in zip(a, b))
print("largest difference", worst)
sys.exit([x["index"] for x in a] != [x["index"] for x in b] or worst > 1e-3)
END
}
