#!/bin/bash
# foldmill build --dry-run, snapshot, stats and gc as a user runs them.
. "$(dirname "$0")/expect.sh"

set_up() {
    foldmill synth --chains 10 --seed 6 --max-length 80 --depth 50 --quiet -o data > /dev/null
}

dry_run() {
    mkdir data/alignments/lone_A
    foldmill build data --dry-run > out
    test ! -e cache
    test $(grep -c '^chain ' out) = 10
    grep '^refused lone_A' out | grep -q 'without a structure'
    says '^alignments data/alignments: a folder for each chain: 10' out
    says '^chain .*mmcifs/.*uniref90_hits.a3m [0-9]' out
    mkdir -p none/mmcifs
    exits 1 foldmill build none -n > /dev/null
    # The plan has what the build does with chains and structures without alignments.
    mkdir -p alone/mmcifs alone/alignments/$(basename $(ls -d data/alignments/*_? | head -1))
    cp data/mmcifs/*.cif alone/mmcifs
    exits 1 foldmill build alone --dry-run > out
    says '^chain .*refused: found no alignment .*; --single-sequence builds the chain without' out
    exits 0 foldmill build alone --dry-run --single-sequence > out
    says '^structure .*each protein chain, a single sequence' out
    says '^total 0 chains and 0 inputs refused' out
    # What was built of sequences alone is seen in the cache, too.
    foldmill build alone --cache ac --single-sequence -q > out
    n=$(sed -n 's/^noted *\([0-9]*\) chains without alignments.*/\1/p' out)
    foldmill stats --cache ac > out
    says "^$n of $n chains have no row beside the query" out
}

progress_for_programs() {
    foldmill build data --cache c --progress json 2> err > /dev/null
    tail -1 err | grep -q '^{"chains_done": 10, "chains": 10, .*"done": 1.000000, .*}$'
    not grep -qv '^{' err
    exits 2 foldmill build data --cache c --progress xml 2> /dev/null
}

snapshots() {
    foldmill build data --cache c -q > /dev/null
    ls data/alignments > names
    head -3 names > few
    { head -4 names | tr '\n' ' '; echo; } | tr a-z A-Z > clusters
    foldmill snapshot create eval --cache c --chains few > out
    says '^chains    3, sum of weights 768' out
    # What the rules excluded is no reason for this failure.
    tail -1 names > last
    exits 1 foldmill snapshot create train --cache c --clusters clusters --exclude last --disjoint-from eval 2> err
    says '4 chains share a cluster with snapshot eval' err
    not grep -q '^excluded' err
    foldmill snapshot create train --cache c --clusters clusters --apart-from eval --disjoint-from eval > out
    says '^chains    6, sum of weights 6442450944' out
    foldmill snapshot diff eval train --cache c --clusters clusters > out
    says '3 only in the first, 6 only in the second, 0 changed' out
    says '^0 chains of the first share' out
    foldmill snapshot pin train --cache c
    foldmill snapshot list --cache c > out
    says '^train .*6 chains.*pinned to generation 1' out
    says '^all .*10 chains' out
    exits 2 foldmill snapshot create --cache c 2> /dev/null
    exits 2 foldmill snapshot create x --cache c --weights af2 2> /dev/null
    exits 2 foldmill snapshot create x --cache c --until 2020 2> /dev/null
    exits 1 foldmill snapshot create x --cache c --min-length 900 2> /dev/null
    test ! -e c/snapshots/x
}

# A snapshot is served by its name; python3 reads what --json says.
served_and_inspected() {
    foldmill build data --cache c -q > /dev/null
    ls data/alignments | head -3 > few
    foldmill snapshot create few --cache c --chains few > made
    foldmill serve --cache c --snapshot few --listen unix:$PWD/s 2> log &
    server=$!
    await test -S s
    code=0
    foldmill fetch --data unix:$PWD/s --steps 3 --batch 2 --seed 1 > fetched 2>&1 || code=$?
    finish $server
    test $code = 0
    says 'samples   6, 0 skipped' fetched
    says "$(sed -n 's/^hash  *\(.\{16\}\).*/\1/p' made)" log
    c=$(head -1 few)
    foldmill inspect --cache c --json > cache.json
    foldmill inspect --cache c --chain $c --json > chain.json
    python3 -c \
        "import json; a = json.load(open('cache.json')); b = json.load(open('chain.json')); assert a['chains'] == 10; assert b['residues'] == len(b['sequence']); assert sum(s['rows'] for s in b['msa']['sources']) == b['msa']['rows']; assert set(b['parts']) <= set(a['parts'])"
}

clean_and_count() {
    (
        foldmill build data --cache c -q > /dev/null
        set -- data/alignments/*
        echo junk > $1/mgnify_hits.a3m
        foldmill build data --cache c -q > /dev/null || true
        foldmill gc --cache c --dry-run | grep -q '1 kept, 1 to remove'
        foldmill gc --cache c | grep -q '1 kept, 1 removed'
        foldmill verify --cache c > /dev/null
    )
    # The picture: whole, the same bytes every time, a bar for each part at least.
    foldmill stats --cache c --svg a.svg > a
    foldmill stats --cache c --svg b.SVG > b
    cmp a b
    cmp a.svg b.SVG
    head -c 5 a.svg | grep -q '^<svg '
    tail -n 1 a.svg | grep -qx '</svg>'
    says '>Residues of a chain<' a.svg
    says '>Rows of an alignment<' a.svg
    test $(grep -c '^<rect' a.svg) -gt 8
    /usr/bin/python3 -c 'import xml.dom.minidom as m; m.parse("a.svg")' || test ! -x /usr/bin/python3
    exits 1 foldmill stats --cache c --svg nowhere/a.svg > a 2> err
    foldmill stats --cache c > out
    says '^lengths: 9 chains' out
    says '^depths: 9 chains' out
    says '^refused: 1 chain$' out
    says '^msa  *9 ' out
    exits 2 foldmill gc 2> /dev/null
    exits 1 foldmill gc --cache nowhere 2> /dev/null
}

# Hits without a structure are counted with the reason, and a search of AlphaFold-Multimer's name is
# read as one.
template_trouble_is_counted() {
    foldmill synth --chains 5 --seed 4 --max-length 60 --depth 40 --quiet -o t > /dev/null
    foldmill build t --cache tc -q > all
    says '^templates [1-9][0-9]* hits, [1-9]' all
    not grep -q 'no structure file of that id' all
    cp -r t u
    for f in u/mmcifs/*; do
        mv $f kept
        foldmill build u --cache uc -q --json > out || true
        grep -q 'no structure file of that id' out && break
        mv kept $f
        rm -r uc
    done
    python3 -c \
        "import json; o = json.load(open('out'))['templates']; u = o['unmapped']; assert u['no structure file of that id'] > 0, o; assert sum(u.values()) + o['mapped'] == o['hits'], o"
    foldmill stats --cache uc | grep -q 'not mapped: no structure file'
    foldmill stats --cache uc --json > s
    python3 -c \
        "import json; a = json.load(open('out')); b = json.load(open('s')); assert a['templates'] == b['templates']"
    for f in t/alignments/*; do
        rm -f $f/*.hhr $f/hmm_output.sto
    done
    foldmill build t --cache nc -q | grep -q '[1-9] chains without a file of template'
    c=$(ls t/alignments | head -1)
    printf '# STOCKHOLM 1.0\n//\n' > t/alignments/$c/pdb_hits.sto
    foldmill build t --cache nc -q > out || true
    says '1 chain whose files list no hit' out
}

each_test=alone
run_tests dry_run \
    progress_for_programs \
    snapshots \
    served_and_inspected \
    clean_and_count \
    template_trouble_is_counted

