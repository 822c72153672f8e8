#!/bin/bash
# Runs whose folder is renamed or removed under them: they stay in their folder, and leave another run that takes its
# name alone; a run without a folder ends.
. "$(dirname "$0")/expect.sh"

set_up() {
    printf '[model]\nn_block = 1\nn_structure_iteration = 1\nn_extra_block = 0\nn_template = 0\n' >small.ini
    printf '[data]\ncrop_size = 16\nmax_msa_clusters = 4\n' >>small.ini
    foldmill synth --chains 4 --seed 5 --max-length 50 --depth 50 -o data --quiet
    foldmill build data --cache cache --quiet >build.log
}

train="foldmill train --cache cache --config small.ini -q"

# The step of the newest checkpoint of a run; fails where there is none.
newest() { # RUN
    local last
    last=$(ls "$1" | sed -n 's/^checkpoint-0*\([0-9]*\)\.safetensors$/\1/p' | tail -n 1)
    [ -n "$last" ] && echo "$last"
}
is_beyond() { # RUN STEP
    [ "$(newest "$1")" -gt "$2" ]
}

a_renamed_run_stays_in_its_folder() {
    local first step
    $train --steps 1000000 --checkpoint-every 2 --keep 2 --out run >first.log 2>&1 &
    first=$!
    await newest run >log
    mv run moved
    expect 0 'checkpoint of step 3' $train --steps 3 --checkpoint-every 1 --keep 9 --out run
    step=$(newest moved)
    await is_beyond moved $((step + 4))
    stop TERM $first 143
    step=$(newest moved)
    [ "$(wc -l <moved/metrics.jsonl)" -ge "$step" ]
    # The other run has its own files, and no others.
    [ "$(ls run/checkpoint-* | wc -l)" = 3 ]
    [ "$(newest run)" = 3 ]
    [ "$(wc -l <run/metrics.jsonl)" = 3 ]
    expect 0 "resumed at step $step" $train --steps $((step + 1)) --resume --out moved
}

a_removed_run_ends() {
    local process
    $train --steps 1000000 --checkpoint-every 0 --out gone >log 2>err &
    process=$!
    await test -s gone/metrics.jsonl
    rm -r gone
    exits 1 wait $process
    says 'gone: another process has removed the folder, after step' err
    [ "$(grep -c 'removed the folder' err)" = 1 ]
    test ! -e gone
}

run_tests a_renamed_run_stays_in_its_folder a_removed_run_ends
