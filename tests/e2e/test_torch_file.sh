#!/bin/bash
# Weights that PyTorch saved: `foldmill import` of them gives what the same weights as safetensors give, and runs
# nothing of a file.
. "$(dirname "$0")/expect.sh"

set_up() {
    printf '[model]\nn_block = 1\nn_structure_iteration = 1\nn_extra_block = 0\nn_template = 0\n' >small.ini
    printf '[data]\ncrop_size = 16\nmax_msa_clusters = 4\n' >>small.ini
    foldmill synth --chains 4 --seed 5 --max-length 50 --depth 50 -o data --quiet
    foldmill build data --cache cache --quiet >build.log
    foldmill train --cache cache --config small.ini --steps 1 --out run -q >log 2>err
    foldmill export-weights run/checkpoint-000000000001.safetensors --names openfold --out w.safetensors >log
    foldmill import w.safetensors --config small.ini --out wanted >log
}

save() { python3 "$tests/e2e/torch_save.py" w.safetensors "$@"; }

weights_are_those_of_safetensors() {
    save plain.pt
    save prefixed.pt prefix=model.
    save average.ckpt ema optimizer
    for file in plain.pt prefixed.pt average.ckpt; do
        expect 0 'openfold names' foldmill import "$file" --config small.ini --out "$file.found"
        cmp wanted "$file.found"
    done
    # What is outside of the average is named.
    says '^left out  1 array without the prefix, such as optimizer.state.0.exp_avg' out
}

nothing_is_executed() {
    save evil.pt evil
    expect 1 'which is no part of a table of tensors' foldmill import evil.pt --config small.ini --out none
    says '^foldmill import: evil.pt' err
    not grep -q 'this ran' out err
    test ! -e none
}

damaged_files_are_refused() {
    save short.pt cut=100
    expect 1 'expected ' foldmill import short.pt --config small.ini --out none
    save lost.pt no-storage
    expect 1 'found no member data/0 with its numbers' foldmill import lost.pt --config small.ini --out none
    save packed.pt deflated
    expect 1 'compressed or encrypted, expected stored bytes' foldmill import packed.pt --config small.ini --out none
    head -c 5000 lost.pt >half.pt
    expect 1 'half.pt' foldmill import half.pt --config small.ini --out none
    test ! -e none
}

the_references_file_is_read() {
    [ -e "${FM_REFERENCE_DATA:-}/af3p/tiny_checkpoint.pt" ] || exit 77
    expect 0 "604 arrays with foldmill names after the prefix 'model.module.'" \
        foldmill import "$FM_REFERENCE_DATA/af3p/tiny_checkpoint.pt" --preset af3-tiny --out af3
}

run_tests \
    weights_are_those_of_safetensors \
    nothing_is_executed \
    damaged_files_are_refused \
    the_references_file_is_read
