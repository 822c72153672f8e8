#!/bin/bash
# `foldmill train --batch-schedule`: which samples steps use, the same bits after a resume, on
# several ranks and behind a score, and what is refused.
. "$(dirname "$0")/expect.sh"

[ ! -w /dev/shm ] || export TMPDIR="${TMPDIR:-/dev/shm}"
export OPENBLAS_NUM_THREADS=1
train='foldmill train --data unix:socket --seed 3 --config small.ini -q'

# Prints the first sample of each step.
firsts() { # RUN
    sed 's/.*"index":\([0-9]*\).*/\1/' $1/metrics.jsonl | paste -sd' '
}

losses() { # RUN
    sed 's/,"step_s".*//' $1/metrics.jsonl >$1.l
}

# Two runs have the same losses, and the same checkpoint after STEPS.
same() { # RUN RUN STEPS
    losses $1
    losses $2
    cmp $1.l $2.l
    cmp $1/checkpoint-$3.safetensors $2/checkpoint-$3.safetensors
}

has_steps() { # RUN STEPS
    [ $(cat $1/metrics.jsonl 2>/dev/null | wc -l) -ge $2 ]
}

set_up() {
    foldmill synth --chains 4 --seed 5 --max-length 60 --depth 100 -o data --quiet
    foldmill build data --cache cache --quiet >build.log
    printf '[model]\nn_block = 1\nn_structure_iteration = 1\n[data]\ncrop_size = 24\n' >small.ini
    printf 'max_msa_clusters = 8\nglobal_batch = 7\n' >>small.ini
    start_server socket --cache cache
    $train --batch-schedule 2@0,4@3 --steps 6 --out one >one.log 2>&1
}

tear_down() {
    stop TERM $server
}

steps_use_the_stream_in_order() {
    test "$(firsts one)" = '0 2 4 6 10 14'
    # The first stage is a run of that batch, to the bit.
    sed 's/= 7/= 2/' small.ini >two.ini
    foldmill train --data unix:socket --seed 3 --config two.ini -q --steps 3 --out two >two.log 2>&1
    losses two
    losses one
    head -3 one.l | cmp - two.l
}

# Stopped in the middle of a grown batch, by one sample and at a step.
a_resumed_run_has_the_same_bits() {
    part="$train --batch-schedule 2@0,4@3 --out part"
    $part --steps 2 >part.log 2>&1
    $part --steps 4 --resume >part.log 2>&1
    $part --steps 6 --resume >part.log 2>&1
    same one part 000000000006
    $train --batch-schedule 2@0,4@3 --out cut --steps 1000000 >cut.log 2>&1 &
    pid=$!
    await has_steps cut 4
    finish $pid
    $train --batch-schedule 2@0,4@3 --out cut --steps 12 --resume >cut.log 2>&1
    $train --batch-schedule 2@0,4@3 --out all --steps 12 >all.log 2>&1
    n=$(ls cut/checkpoint-*12.safetensors | wc -l)
    test $n = 1
    same all cut 000000000012
    expect 2 'batch_schedule' $train --batch-schedule 2@0,4@5 --out part --steps 8 --resume
}

ranks_share_a_grown_batch() {
    $train --batch-schedule 2@0,4@3 --steps 6 --ranks 2 --out ranks >ranks.log 2>&1
    python3 -c \
        'import json; a, b = ([json.loads(l) for l in open(r + "/metrics.jsonl")] for r in ("one", "ranks")); exit(len(b) != 6 or any(abs(x["loss"] / y["loss"] - 1) > 1e-3 or x["index"] != y["index"] for x, y in zip(a, b)))'
}

# The batch grows behind the score, and the run is that of the schedule with its step.
a_score_makes_the_batch_grow() {
    mkdir gate
    printf '{"step":1,"lddt_ca":0.5}\n{"step":2,"lddt_ca":0.9' >gate/eval.jsonl
    gate="$train --batch-schedule 2@0,6@lddt_ca>=0.8 --out gate"
    $gate --steps 3 >gate.log 2>&1
    not grep -q batch_grows gate.log
    echo '}' >>gate/eval.jsonl
    $gate --steps 5 --resume >gate.log 2>&1
    says 'info batch_grows samples=6 after_step=4 lddt_ca=0.9 of_step=2' gate.log
    $gate --steps 6 --resume >gate.log 2>&1
    not grep -q batch_grows gate.log
    test "$(firsts gate)" = '0 2 4 6 8 14'
    $train --batch-schedule 2@0,6@4 --steps 6 --out step >step.log 2>&1
    losses gate
    losses step
    cmp gate.l step.l
}

mistakes_are_named() {
    expect 2 "--batch-schedule:1:5: found '3@5', expected a multiple of" foldmill train --data unix:socket \
        --config small.ini --batch-schedule 2@0,3@5 --out x
    test ! -e x
    expect 2 'needs a run of one rank' foldmill train --data unix:socket --config small.ini --batch-schedule '2@0,4@lddt_ca>=0.8' --ranks 2 --out x
    test ! -e x
    expect 2 "batch of 3 samples cannot be divided evenly" foldmill train --data unix:socket --config small.ini \
        --batch-schedule 3@0,6@2 --ranks 2 --out x
    test ! -e x
}

run_tests steps_use_the_stream_in_order \
    a_resumed_run_has_the_same_bits \
    ranks_share_a_grown_batch \
    a_score_makes_the_batch_grow \
    mistakes_are_named

