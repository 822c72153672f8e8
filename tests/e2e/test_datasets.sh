#!/bin/bash
# foldmill build with several datasets, as a user runs it.
. "$(dirname "$0")/expect.sh"

set_up() {
    foldmill synth --chains 6 --seed 6 --max-length 60 --depth 40 --quiet -o a > /dev/null
    foldmill synth --chains 5 --seed 7 --max-length 60 --depth 40 --quiet -o b > /dev/null
}

several() {
    foldmill build --dataset pdb=a --dataset afdb:predicted=b --dry-run > out
    test $(grep -c '^chain pdb:' out) = 6
    test $(grep -c '^chain afdb:' out) = 5
    says '^dataset afdb: predictions' out
    says '^dataset pdb: experimental structures' out
    foldmill build --dataset pdb=a --dataset afdb:predicted=b --cache c --report report.json 2> err > /dev/null
    says '"chains": 11' report.json
    says '"dataset": "pdb=a afdb=b"' report.json
    says '^dataset afdb: predictions' err
    chain=afdb:$(ls b/alignments | head -1)
    foldmill inspect --cache c --chain $chain > out
    foldmill verify --cache c > out
    foldmill snapshot create one --cache c --dataset pdb > out
    says '^chains    6,' out
    says '^excluded  5 of another dataset' out
    foldmill snapshot create two --cache c --no-predicted > out
    says '^excluded  5 predicted' out
    cmp c/snapshots/one c/snapshots/two
    # A bare name is that chain of every dataset; 9a14_A is in both.
    echo 9a14_A > few
    foldmill snapshot create few --cache c --chains few > out
    says '^chains    2,' out
    not grep -q '^unknown' out
    echo afdb:9a14_A nobody > few
    foldmill snapshot create fewer --cache c --chains few > out
    says '^chains    1,' out
    says '^unknown   1 ' out
}

# A dry run reports the needed space, and a build checks it before it writes anything.
room() {
    foldmill build a --dry-run --cache c > out
    says '^space about 0.[0-9] MB for 6 of 6 chains.* GB are free in c' out
    test ! -e c
    foldmill build a --dry-run > out
    says '^space about' out
    not grep -q 'are free' out
    foldmill build a --cache c 2> err > /dev/null
    says '^space about' err
    foldmill build a --cache c --no-space-check -q 2> err > /dev/null
    test ! -s err
    foldmill build a --dry-run --cache c > out
    says '^space about 0.0 MB for 0 of 6 chains' out
}

# Lists are found, and said.
lists() {
    mkdir a/data_caches
    echo '{"9aaa": {"release_date": "2001-01-01"}}' > a/data_caches/mmcif_cache.json
    echo '{"9aaa_A": {"cluster_size": 2}}' > chains.json
    echo 'OBSLTE    31-JUL-94 116L     216L' > a/obsolete.dat
    foldmill build a --dry-run --chain-data chains.json > out
    grep -qx 'dates a/data_caches/mmcif_cache.json: 1 id' out
    grep -qx 'obsolete a/obsolete.dat: 1 id' out
    grep -qx 'chain data chains.json: 1 chain' out
    echo '{"a": ' > chains.json
    exits 1 foldmill build a --dry-run --chain-data chains.json > out 2> err
    says 'chains.json:2:1: ' err
}

usage() {
    for arguments in '' 'a --dataset pdb=b' '--dataset pdb' '--dataset pdb=' '--dataset =a' '--dataset pdb:strange=a' \
        "--dataset p\ b=a" '--dataset pdb=a --dataset pdb=b' '--dataset pdb=a --predicted' \
        '--dataset pdb=a --structures a/mmcifs' '--dataset pdb=a --chain-data chains.json'; do
        code=0
        eval "foldmill build $arguments --cache x" 2>err >/dev/null || code=$?
        test $code = 2 || test $code = 1
        test -s err
        test ! -e x/CURRENT
    done
}

each_test=alone
run_tests several \
    room \
    lists \
    usage

