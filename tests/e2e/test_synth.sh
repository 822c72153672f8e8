#!/bin/bash
# `foldmill synth` as a user runs it: exit codes, the tree it writes, a larger dataset holding the
# smaller one, and its structures read by gemmi where that is installed.
. "$(dirname "$0")/expect.sh"

wrong_usage_is_reported_with_exit_code_2() {
    foldmill synth --help | grep -q -- --chains
    exits 2 foldmill synth 2>/dev/null
    exits 2 foldmill synth -o x --chains 0 2>/dev/null
    exits 2 foldmill synth -o x --min-length 90 --max-length 80 2>err
    says 'min-length: found 90, expected at most' err
    exits 2 foldmill synth -o x --min-depth 5000 2>err
    says 'min-depth: found 5000, expected at most --depth 2000' err
    test ! -e x
    exits 1 foldmill synth -o err/x --chains 1 2>/dev/null
}

a_folder_of_others_is_left_alone() {
    mkdir full
    echo mine > full/mine
    exits 2 foldmill synth --chains 1 -o full 2>/dev/null
    exits 1 foldmill synth --chains 1 -o full --force 2>err
    says 'has other files (mine) and no synth.json' err
    test $(ls full) = mine
    says mine full/mine
    # A structure of the Protein Data Bank may have the name of a drawn one.
    foldmill synth --chains 1 -o own >/dev/null
    mkdir -p real/mmcifs
    for f in own/mmcifs/*; do
        echo real > real/mmcifs/${f##*/}
    done
    exits 1 foldmill synth --chains 1 -o real --force 2>err
    says real real/mmcifs/*
    test ! -e real/alignments
}

# Files of two seeds would be a dataset that no options give.
only_a_dataset_of_the_same_options_is_extended() {
    foldmill synth --chains 2 --depth 30 -o a >/dev/null
    cp -r a before
    exits 1 foldmill synth --chains 2 --depth 30 --seed 1 --force -o a 2>err
    says 'synth.json: the folder has a dataset of other options' err
    diff -r a before
    foldmill synth --chains 4 --depth 30 --force -o a >/dev/null
    foldmill synth --chains 4 --depth 30 -o whole >/dev/null
    diff -r a whole
}

# A limit on the size of files simulates a full disk.
a_partly_written_file_is_removed() {
    foldmill synth --seed 6 --chains 4 -o whole >/dev/null
    code=0
    (ulimit -f 30; trap '' XFSZ; exec foldmill synth --seed 6 --chains 4 -o cut 2>err) || code=$?
    test $code = 1
    says 'cannot write: File too large' err
    (
        cd cut
        test $(find . -type f | wc -l) -gt 0
        code=0
        find . -type f -exec cmp {} ../whole/{} \; 2>&1 | grep . >&2 || code=$?
        test $code = 1
    )
    exits 2 foldmill synth --seed 6 --chains 4 -o cut 2>err >/dev/null
    says '--force, which completes a stopped synth' err
    foldmill synth --seed 6 --chains 4 -o cut --force >/dev/null
    diff -r cut whole
}

# A process that is killed within a file, here by the signal of the same limit, leaves no file cut
# short under its name, and --force removes what is left beside it.
a_kill_cuts_no_file_short() {
    foldmill synth --seed 6 --chains 4 -o whole >/dev/null
    code=0
    (ulimit -c 0; ulimit -f 30; exec foldmill synth --seed 6 --chains 4 -o cut) 2>err || code=$?
    test $code -gt 128
    find cut -type f -name '*.tmp.*' | grep -q .
    (
        cd cut
        find . -type f ! -name '*.tmp.*' | while read -r f; do
            cmp "$f" "../whole/$f"
        done
    )
    foldmill synth --seed 6 --chains 4 -o cut --force >/dev/null
    diff -r cut whole
}

a_larger_dataset_holds_the_smaller_one() {
    foldmill synth --seed 5 --depth 50 --chains 4 -o small
    foldmill synth --seed 5 --depth 50 --chains 9 -o large
    foldmill synth --seed 5 --depth 50 --chains 9 -o again
    test $(ls small/alignments | wc -l) = 4
    test $(ls large/alignments | wc -l) = 9
    test -z "$(diff -r small large | grep -v '^Only in large')"
    diff -r large again
    (
        cd large/alignments
        for d in *; do
            test -s $d/bfd_uniclust_hits.a3m -a -s $d/mgnify_hits.a3m -a -s $d/uniref90_hits.a3m -a -s \
                $d/pdb70_hits.hhr -a -s ../mmcifs/${d%_*}.cif
        done
    )
}

stockholm_files_are_written_on_request() {
    foldmill synth --chains 2 --stockholm --depth 30 -o sto
    (
        cd sto/alignments
        for d in *; do
            head -1 $d/mgnify_hits.sto | grep -q '^# STOCKHOLM 1.0'
            tail -1 $d/uniref90_hits.sto | grep -q '^//'
            test -s $d/bfd_uniclust_hits.a3m
        done
    )
}

gemmi_reads_the_structures() {
    command -v gemmi >/dev/null || skip "gemmi is not installed"
    foldmill synth --chains 16 --seed 9 --depth 20 -o g
    for f in g/mmcifs/*.cif; do
        gemmi validate $f
        gemmi convert $f out.pdb
    done
    # The sequence gemmi reads from the entities is the alignments' query.
    (
        cd g/alignments
        for d in *_A; do
            q=$(sed -n 2p $d/bfd_uniclust_hits.a3m)
            awk '/^_entity_poly.pdbx_strand_id/{on=1} on' ../mmcifs/${d%_*}.cif | tr -d '\n;' | grep -q "$q"
        done
    )
}

each_test=alone
run_tests wrong_usage_is_reported_with_exit_code_2 \
    a_folder_of_others_is_left_alone \
    only_a_dataset_of_the_same_options_is_extended \
    a_partly_written_file_is_removed \
    a_kill_cuts_no_file_short \
    a_larger_dataset_holds_the_smaller_one \
    stockholm_files_are_written_on_request \
    gemmi_reads_the_structures

