#!/bin/bash
# What users get wrong, and what the commands say: settings that cannot work, names
# that do not exist or are no text, pipes in place of files, endings in upper case, outputs that are
# inputs, damaged checkpoints, snapshots that are still needed, folders of others, lost readers and
# narrow terminals.
. "$(dirname "$0")/expect.sh"

train_weights() {
    printf \
        '[model]\nn_block = 1\nn_structure_iteration = 1\nn_extra_block = 0\nn_template = 0\n[data]\ncrop_size = 16\nmax_msa_clusters = 4\n' \
        >fast.ini
    test -e weights.safetensors || { foldmill train --cache cache --config fast.ini --steps 1 \
        --out made -q >log 2>err && mv made/checkpoint-000000000001.safetensors weights.safetensors; }
}

set_up() {
    foldmill synth --chains 4 --seed 5 --max-length 50 --depth 50 -o data --quiet
    foldmill build data --cache cache --quiet >build.log
}

ranks_are_checked_before_the_server_is_asked() {
    printf '[parallel]\nbp = 2\n' >bp.ini
    exits 2 foldmill train --data unix:none --config bp.ini --out none 2>err
    says 'bp = 2 needs a block with two branches' err
    not grep -q unix:none err
    test ! -e none
    exits 2 foldmill train --data unix:none --change dtype=bf16 --out none 2>err
    says '--change is for --resume' err
}

steps_that_are_done_are_said() {
    foldmill serve --cache cache --listen unix:s -q 2>serve.log &
    server=$!
    await test -S s
    printf '[model]\nn_block = 1\n' >small.ini
    train='foldmill train --data unix:s --config small.ini --out r -q'
    $train --steps 2 >log 2>err
    $train --steps 2 --resume >log 2>same
    rc=0
    $train --steps 1 --resume >log 2>less || rc=$?
    finish $server
    test $rc = 0
    says '^steps     2 are done already; --steps 2 needs no more' same
    says '^steps     2 are done already; --steps 1 needs no more' less
}

a_misspelt_action_is_said_first() {
    exits 2 foldmill snapshot creat x 2>err
    says "no action 'creat'; did you mean 'create'" err
    exits 2 foldmill snapshot create x 2>err
    says '--cache DIR is required' err
}

rules_that_leave_no_chain_are_counted() {
    c='foldmill snapshot create x --cache cache'
    exits 1 $c --min-length 5000 2>err
    says '^excluded  4 too short or too long$' err
    says 'no chain is left; no snapshot is made' err
    exits 2 $c --min-length 60 --max-length 10 2>err
    says '--min-length: found 60, expected at most --max-length 10' err
    exits 1 $c --share a=1 2>err
    says "no chain of dataset 'a' is left, so it cannot have a share" err
}

a_list_may_be_a_pipe_by_its_name() {
    mkfifo pipe
    exits 1 foldmill snapshot create x --cache cache --chains pipe 2>err
    says "pipe: not a regular file but a device, a pipe or a socket; a pipe is read with '-', as standard input" err
    ls data/alignments | head -1 | foldmill snapshot create one --cache cache --chains - >log
    says '^chains    1, sum' log
    foldmill snapshot list --cache cache | grep -q '^one  .* 1 chain, sum'
}

# Clusters of other chains, such as those of PDB entries for predictions, would weigh nothing.
clusters_of_other_chains_are_refused() {
    c='foldmill snapshot create clustered --cache cache --clusters'
    echo 'A0A000 A0A001' >others
    exits 1 $c others 2>err
    says "others: found none of the cache's .* expected a cluster on each line" err
    ls data/alignments | head -1 >>others
    $c others >log
    says '^chains' log
    foldmill snapshot delete clustered --cache cache >log
}

an_ending_may_be_in_upper_case() {
    cp -r data upper
    (cd upper/mmcifs && for f in *; do mv $f $(echo $f | tr a-z A-Z); done)
    foldmill build upper --cache upper.cache -q >log
    for c in cache upper.cache; do
        foldmill verify --cache $c | grep content >$c.content
    done
    cmp cache.content upper.cache.content
}

# A snapshot is deleted unless it is pinned or served; gc then removes what only it needed.
snapshots_are_deleted() {
    foldmill snapshot create set --cache cache --max-length 49 >log
    foldmill snapshot pin set --cache cache >log
    exits 1 foldmill snapshot delete set --cache cache 2>err
    says 'set is pinned to generation 1; foldmill snapshot unpin' err
    foldmill snapshot unpin set --cache cache
    foldmill serve --cache cache --snapshot set --listen unix:d -q 2>d.log &
    server=$!
    await test -S d
    rc=0
    foldmill snapshot delete set --cache cache 2>err || rc=$?
    finish $server
    test $rc = 1
    says 'snapshot set is in use: foldmill serve' err
    test -e cache/snapshots/set
    foldmill snapshot delete set --cache cache --json | grep -q '"deleted": *true'
    test ! -e cache/snapshots/set
    foldmill gc --cache cache >log
    foldmill verify --cache cache >log
    foldmill snapshot create set --cache cache >log
    exits 1 foldmill snapshot delete none --cache cache 2>err
    says "there is no snapshot 'none'" err
    exits 2 foldmill snapshot delete all --cache cache 2>err
    exits 2 foldmill snapshot delete ../CURRENT --cache cache 2>err
}

# A run would mix its files with the shards of a cache or with the inputs of a build.
a_run_takes_no_folder_of_others() {
    for out in cache data; do
        ls $out >before
        exits 2 foldmill train --cache cache --steps 1 --out $out 2>$out.err
        ls $out | cmp - before
    done
    says \
        'cache: --out: found a cache of foldmill build, expected a new folder or that of a run; choose another folder' \
        cache.err
    says 'data: --out: found a dataset' data.err
    # Folders of these names are no sign of a dataset.
    train_weights
    mkdir -p mine/data mine/pdb mine/uniclust30
    cp -r mine own
    foldmill train --cache cache --config fast.ini --steps 1 --out mine -q >log
    foldmill predict --cache cache --weights weights.safetensors --out own -q >log
    test -e own/summary.csv
}

# Chains to predict would replace those of a dataset, whether it was built in one piece or merged.
featurize_replaces_no_built_cache() {
    n=$(ls data/alignments | head -1)
    cp data/alignments/$n/uniref90_hits.a3m q.a3m
    foldmill build data --catalogue job --cache worker -q >log
    foldmill merge --catalogue job --cache merged --from worker -q >log
    for c in cache merged; do
        cp $c/CURRENT before
        exits 1 foldmill featurize q.a3m --cache $c 2>err
        cmp before $c/CURRENT
        says "$c: found a cache of foldmill build with 4 chains, which would be replaced; expected a new folder" err
    done
    foldmill featurize q.a3m --cache queries -q >log
    cp q.a3m p.a3m
    foldmill featurize p.a3m --cache queries -q >log
    foldmill inspect --cache queries --chain p >log
}

a_number_out_of_its_range_is_named() {
    expect 2 '--checkpoint-minutes: found -1, expected 0 to 1000000' foldmill train --cache cache \
        --checkpoint-minutes -1 --out x
    expect 2 '--recycle-tol: found 1001, expected 0 to 1000' foldmill predict --cache cache --weights w \
        --recycle-tol 1001 --out x
    expect 2 '--device-memory: found -2, expected 0 to 1000000 GiB' foldmill predict --cache cache --weights w \
        --device-memory -2 --out x
    expect 2 '--device-memory: found -2, expected 0 to 1000000 GiB' foldmill eval --cache cache --checkpoint c \
        --device-memory -2 --out x
}

# Ctrl-C ends `tee` too: neither its end nor a line that it does not read ends the command.
a_lost_reader_ends_no_command() {
    train_weights
    mkfifo reader
    foldmill train --cache cache --config fast.ini --steps 1000000 --out piped >reader 2>&1 &
    run=$!
    head -n 3 reader >log
    for _ in $(seq 3000); do
        test "$(cat piped/metrics.jsonl | wc -l)" -ge 11 && break
        sleep 0.02
    done
    kill -TERM $run || true
    exits 143 wait $run
    test -e piped/checkpoint-*.safetensors
    { foldmill build data --cache piped.cache 2>&1 >log; echo $? >code; } | true
    says '^0$' code
    foldmill verify --cache piped.cache >log
    # Its report cannot be written, but its cache is.
    cp $(ls data/alignments/*/uniref90_hits.a3m | head -1) lost.a3m
    { foldmill featurize lost.a3m --cache lost.cache 2>err; echo $? >code; } | true
    says '^[01]$' code
    foldmill verify --cache lost.cache >log
}

# The signal comes before the first sample, mostly while the model is made. On a busy machine it may
# come later; then there is a checkpoint, and the run is made again.
a_run_that_did_nothing_leaves_nothing() {
    for _ in $(seq 9); do
        foldmill train --cache cache --preset tiny --steps 1000000 --out early >log 2>err &
        run=$!
        for _ in $(seq 3000); do
            grep -q '^SigCgt:.*[4-7c-f]...$' /proc/$run/status && break
            sleep 0.01
        done
        kill -TERM $run || true
        exits 143 wait $run
        test -e early || return 0
        ls early/checkpoint-*.safetensors >log
        rm -r early
    done
    exit 1
}

# A line that wraps could not be erased. The last line of `predict` and `eval` stays whole.
progress_fits_the_terminal() {
    command -v script >log || skip "there is no program script to make a terminal"
    train_weights
    for c in 'predict --weights weights.safetensors --out wide' \
        'eval --checkpoint weights.safetensors --out scored'; do
        COLUMNS=30 script -qec "foldmill $c --cache cache" typed >log
        tr '\r' '\n' <typed | sed 's/^.\[K//' | grep -E '^(chain )?[1-3]/4 ' >lines
        test $(wc -l <lines) -ge 3
        awk 'length($0) > 29 { exit 1 }' lines
    done
}

# A distillation whose structures were all rejected is such a dataset.
a_dataset_without_chains_is_said() {
    mkdir -p void/data void/alignments
    expect 1 \
        'foldmill build: the dataset has no chain to build: no structure or no folder of alignments was found for any' \
        foldmill build void --cache void.cache
    test ! -e void.cache
}

# A stream can take hours: the terminal shows its rate and what is left, and a signal does not write
# into that line.
a_stream_shows_its_progress() {
    command -v script >log || skip "there is no program script to make a terminal"
    foldmill serve --cache cache --listen unix:p -q 2>p.log &
    server=$!
    await test -S p
    script -qec 'timeout -s INT 2 foldmill fetch --data unix:p --steps 99999999' typed >log || true
    script -qec 'foldmill fetch --data unix:p --steps 9 -q' quiet >log || true
    finish $server
    tr '\r' '\n' <typed | sed 's/^.\[K//' >lines
    grep -qE '^fetch [0-9]+ of 99999999 samples, [0-9.]+ samples/s, [0-9.]+ MB/s, [0-9:]+ left$' lines
    says '^foldmill fetch: stopped by a signal' lines
    says '^samples   9' quiet
    not grep -q 'fetch 0 of' quiet
}

# A dataset with a cache in it would no longer be taken as a dataset.
a_cache_is_made_in_no_dataset() {
    cp -r data other
    ls other >before
    cp $(ls data/alignments/*/uniref90_hits.a3m | head -1) x.a3m
    foldmill build data --catalogue job2 --cache worker2 -q >log
    for c in 'build data' 'merge --catalogue job2' 'featurize x.a3m'; do
        exits 2 foldmill $c --cache other 2>err
        ls other | cmp - before
        says '--cache: other is a dataset; expected another folder' err
    done
    expect 2 '--cache: found an empty value, expected DIR' foldmill build data --cache ''
}

# Where a worker would write, what it would read, and options that the action does not have.
places_of_a_shared_job_are_checked() {
    foldmill build data --catalogue job3 --cache worker3 -q >log
    ls data >before
    exits 2 foldmill build data --catalogue job3 --cache worker4 --publish data 2>err
    ls data | cmp - before
    says '--publish: data is the dataset itself; expected another folder' err
    exits 1 foldmill merge --catalogue job3 --cache none --from nowhere 2>err
    test ! -e none
    says 'nowhere: --from: there is no such folder' err
    expect 2 '--from is for rebuild; status reads no cache' foldmill catalogue status --catalogue job3 \
        --from worker3
    expect 2 '--all is for status' foldmill catalogue rebuild --catalogue job3 --from worker3 --all
    # A shard is a file of LMDB, as a catalogue is.
    shard=$(ls worker3/shards/*.lmdb)
    sha256sum $shard >sum
    for c in 'build data --cache worker5' 'merge --cache none' 'catalogue rebuild --from worker3' \
        'catalogue status'; do
        exits 1 foldmill $c --catalogue $shard 2>err
        sha256sum --quiet -c sum
        says 'lmdb: is no catalogue of foldmill' err
    done
    test $(ls worker3/shards | wc -l) = 1
}

# The reason is found before any chain is scored.
an_evaluation_needs_a_checkpoint_and_a_folder() {
    train_weights
    foldmill export-weights weights.safetensors --out weights.npz >log
    head -c -8 weights.safetensors >cut.safetensors
    for c in weights.npz cut.safetensors; do
        exits 1 foldmill eval --checkpoint $c --cache cache --out none 2>$c.err
        test ! -e none
        says 'expected a whole checkpoint of foldmill train or foldmill import' $c.err
    done
    says 'cut.safetensors: the file is cut off, it ends before the end of: ' cut.safetensors.err
    expect 1 '/proc/none: cannot make folder' foldmill eval --checkpoint weights.safetensors --cache cache \
        --out /proc/none
    not grep -q '^chain' err
}

# A file has the name of the longest chain, which is predicted last, so its folder cannot be made.
an_error_says_what_is_done() {
    train_weights
    predict='foldmill predict --cache cache -q --weights weights.safetensors'
    $predict --out all >log
    mkdir blocked
    touch blocked/$(sed 1d all/summary.csv | sort -t, -k2,2n | tail -n 1 | cut -d, -f1)
    exits 1 $predict --out blocked 2>err
    says 'ended after [1-3] predictions*; --resume continues' err
    find blocked -type f -empty -delete
    $predict --out blocked --resume >log
    says '4 predictions ([1-3] done earlier)' log
}

# What a command reads, it never replaces, whatever name is given for it.
an_output_replaces_no_input() {
    train_weights
    foldmill export-weights weights.safetensors --out theirs.npz >log
    ln -s weights.safetensors link
    ln theirs.npz twin
    printf '>q\nACDE\n' >q.a3m
    sha256sum weights.safetensors theirs.npz q.a3m >sums
    exits 2 foldmill export-weights weights.safetensors --out ./link 2>err
    says \
        '^foldmill export-weights: ./link: --out: found the file that is read, expected another; choose another name$' \
        err
    exits 2 foldmill import theirs.npz --out twin 2>err
    says 'twin: --out: found the file that is read' err
    exits 2 foldmill parse a3m q.a3m -o $PWD/q.a3m 2>err
    says 'q.a3m: --out: found the file that is read' err
    sha256sum -c sums >log
    foldmill parse a3m - -o q.npz <q.a3m
    # A picture replaces an earlier one only.
    foldmill train --cache cache --config fast.ini --steps 1 --out drawn -q >log 2>&1
    for end in svg png; do
        echo mine >mine.$end
        exits 2 foldmill plot drawn --out mine.$end 2>err
        grep -qx mine mine.$end
        grep -qE "mine.$end: --out: found a file that is no (PNG|SVG of foldmill), expected none" err
    done
    exits 2 foldmill stats --cache cache --svg mine.svg 2>err >log
    grep -qx mine mine.svg
    for n in 1 2; do
        foldmill plot drawn --out own.svg
        foldmill stats --cache cache --svg own.svg >log
    done
    # A report replaces an earlier one only.
    input=$(ls data/mmcifs/* | head -1)
    sha256sum $input >sums || true
    exits 2 foldmill build data --cache reported --report $input -q 2>err >log
    sha256sum -c sums >log
    test ! -e reported
    says "$input: --report: found a file that is no report" err
    echo '{"mine": 1}' >list.json
    exits 2 foldmill build data --cache reported --report list.json -q 2>err >log
    says mine list.json
    test ! -e reported
    for n in 1 2; do
        foldmill build data --cache reported --report r.json -q >log
    done
    # What cannot be replaced is found before the cache is built.
    mkdir folder
    mkfifo fifo
    for report in folder fifo; do
        exits 1 foldmill build data --cache unreported --report $report -q 2>err >log
        test ! -e unreported
        says "$report: not a regular file but a" err
    done
}

# With --replace, a command takes what it has written, and never the checkpoint of a run.
an_output_replaces_only_its_like() {
    train_weights
    ex='foldmill export-weights weights.safetensors --out' im='foldmill import out.npz --out'
    $ex out.npz >log
    $im in.st >log
    cp weights.safetensors run.st
    cp out.npz twin.npz
    echo mine >note.txt
    LC_ALL=C sed '1s/"format":"1"/"format":"9"/' run.st >later.st
    not cmp -s run.st later.st
    sha256sum in.st out.npz run.st later.st note.txt >sums
    for c in "$im in.st" "$ex out.npz" "$im run.st" "$ex note.txt"; do
        expect 1 'the file exists; give another --out, or --replace' $c
    done
    for c in "$im run.st" "$im later.st" "$im note.txt" "$im twin.npz" "$ex run.st" "$ex later.st" "$ex note.txt" \
        "$ex in.st"; do
        expect 2 'found a file that this command did not write, expected none or ' $c --replace
    done
    cmp twin.npz out.npz
    sha256sum -c sums >log
    $im in.st --seed 7 --replace >log
    if grep in.st sums | sha256sum -c >log 2>&1; then false; fi
    $ex out.npz --names openfold --replace >log
    if grep out.npz sums | sha256sum -c >log 2>&1; then false; fi
}

# A name that is mistyped may be that of weights, of an input or of a part of the cache.
features_replace_only_features() {
    train_weights
    name=$(ls data/alignments | head -1)
    a3m=$(ls data/alignments/*/mgnify* | head -1)
    ex="foldmill export --cache cache --chain $name --out"
    pa="foldmill parse a3m $a3m --out"
    other=$(ls data/alignments/*/bfd* | head -1)
    foldmill export-weights weights.safetensors --out plain.npz --replace >log
    $ex made.npz
    sha256sum cache/CURRENT weights.safetensors plain.npz $other made.npz >sums
    for c in "$ex" "$pa"; do
        for f in cache/CURRENT weights.safetensors plain.npz $other; do
            expect 1 'the file exists; give another --out, or --replace' $c $f
            expect 2 'found a file that is not of features, expected one or none' $c $f --replace
        done
    done
    sha256sum -c sums >log
    exits 2 foldmill export-weights weights.safetensors --out made.npz --replace 2>err
    says 'expected none or one of exported weights' err
    sha256sum -c sums >log
    $ex made.npz --format safetensors --replace
    if grep made.npz sums | sha256sum -c >log 2>&1; then false; fi
    sha256sum made.npz >made.sum
    $pa made.npz --replace
    not sha256sum -c made.sum >log 2>&1
}

# Its arrays have the right names and shapes, so only the hash tells.
a_damaged_checkpoint_is_not_imported() {
    train_weights
    cp weights.safetensors bent.safetensors
    printf x | dd of=bent.safetensors bs=1 seek=$(($(stat -c %s bent.safetensors) - 99)) conv=notrunc 2>log
    foldmill import weights.safetensors --out whole >log
    expect 1 'bent.safetensors: the content does not match its hash; the file is damaged' foldmill import \
        bent.safetensors --out none
    test ! -e none
}

an_empty_file_is_said() {
    : >empty
    expect 1 'empty:1:1: the JSON text ends early' foldmill build data --cache new --chain-data empty
    expect 1 'empty: the file is empty; weights are a checkpoint' foldmill import empty --out none
    expect 1 'empty: found no cluster, expected one' foldmill snapshot create x --cache cache --clusters empty
}

components_without_a_build_are_said() {
    printf "data_ZN\n_chem_comp.id ZN\n_chem_comp.type NON-POLYMER\nloop_\n_chem_comp_atom.atom_id
_chem_comp_atom.type_symbol\n_chem_comp_atom.charge\n_chem_comp_atom.pdbx_leaving_atom_flag\nZN ZN 2 N\n" >zinc.cif
    foldmill components zinc.cif --cache parts >log
    for command in inspect verify gc; do
        expect 1 'the cache parts has chemical components and nothing else yet; ' foldmill $command --cache parts
    done
    foldmill build data --cache parts -q >log
    foldmill inspect --cache parts >log
}

what_weights_are_is_said() {
    echo ACDE >text
    for c in 'import text' 'predict q.a3m --weights text'; do
        exits 1 foldmill $c --out none 2>err
        says \
            'text: this is not an .npz archive, a safetensors file or a PyTorch file, .*; weights are a checkpoint of foldmill, an .npz of AlphaFold, or safetensors' \
            err
        test ! -e none
    done
    # The command that converts such a file is not cut off.
    printf '\200\2}q\0.    ' >old.pt
    for c in 'import old.pt' 'predict q.a3m --weights old.pt'; do
        exits 1 foldmill $c --out none 2>err
        grep -q "old.pt: .* 'weights.pt')\"$" err
    done
}

a_folder_of_damaged_checkpoints_is_no_run() {
    train_weights
    mkdir hurt
    head -c 999 weights.safetensors >hurt/checkpoint-000000000001.safetensors
    expect 1 \
        'hurt: the only checkpoint in this folder is damaged; put a whole copy of one into it, or start again with another --out' \
        foldmill train --cache cache --config fast.ini --steps 1 --out hurt --resume
}

# A run removes old checkpoints, and would begin with those that it finds.
a_run_removes_no_checkpoint_of_another() {
    train_weights
    mkdir alone
    cp weights.safetensors alone/checkpoint-000000000002.safetensors
    train='foldmill train --cache cache --config fast.ini --steps 4 -q --out alone --checkpoint-every 1 --keep 1'
    exits 1 $train 2>err
    says 'alone/checkpoint-000000000002.safetensors: the folder has a run already; give --resume or another --out' \
        err
    test "$(ls alone | grep -v lock)" = checkpoint-000000000002.safetensors
    cmp weights.safetensors alone/ch*
}

# A scheduler gives --resume at the first start, too. A mistyped folder would begin a run in
# silence.
a_resume_without_a_run_is_said() {
    train_weights
    for n in 1 2; do
        foldmill train --cache cache --config fast.ini --steps $n --out fresh --resume -q >log 2>$n.err
    done
    says '^resume    fresh has no checkpoint: a new run begins$' 1.err
    not grep -q '^resume' 2.err
}

# The stop is heard while the server is awaited; the wait's own end would be a failure.
a_mute_server_holds_up_no_stop() {
    train_weights
    for c in 'train --config fast.ini --steps 9' 'predict --weights weights.safetensors' \
        'eval --checkpoint weights.safetensors'; do
        rm -f mute heard
        python3 -c \
            'import socket, time; s = socket.socket(socket.AF_UNIX); s.bind("mute"); s.listen(); c = s.accept()[0]; c.recv(1); open("heard", "w"); time.sleep(60)' \
            &
        mute=$!
        await test -S mute
        foldmill $c --data unix:mute --out none >log 2>err &
        pid=$!
        until [ -e heard ] || ! kill -0 $pid; do sleep 0.02; done
        kill -TERM $pid || true
        code=0
        wait $pid || code=$?
        finish $mute
        test $code = 143
        not grep -q 'did not answer' err
    done
}

# A limit on the size of files fails like a full disk.
a_last_checkpoint_without_room_is_said() {
    train_weights
    train='foldmill train --cache cache --config fast.ini --out tight -q --resume'
    code=0
    (ulimit -f 45; $train --steps 2 >log) 2>err || code=$?
    test $code = 1
    says 'foldmill train: tight/checkpoint-.*: cannot write: File too large' err
    says 'train: no step is saved; make room or mend it, then run the command again' err
    $train --steps 2 >log 2>err
    code=0
    (ulimit -f 45; $train --steps 4 >log) 2>err || code=$?
    test $code = 1
    says 'train: what came after step 2 is not saved; make room or mend it, and --resume continues there' err
    $train --steps 4 >log 2>err
    says 'resumed at step 2' log
}

training_without_structures_is_said() {
    printf '>q\nACDE\n' >q.fasta
    foldmill featurize q.fasta --single-sequence --cache bare -q >log
    foldmill train --cache bare --steps 2 --out bare.run >log 2>err
    grep -c ' warn no_structure sample=q why=' err | grep -qx 1
    # Nor can they be scored: an evaluation of no chain at all has failed.
    train_weights
    exits 1 foldmill eval --checkpoint weights.safetensors --cache bare --out bare.eval >log 2>err
    says '^chains    0 scored, 1 failed' log
    says 'q: it has no two known CA atoms' err
    train_weights
    foldmill train --cache cache --config fast.ini --steps 2 --out real.run >log 2>err
    not grep no_structure err
}

# Paths are bytes; what is written about them is text.
paths_need_not_be_utf8() {
    train_weights
    printf '>q\nACDE\n' >q.fasta
    odd=$(printf 'o\377\351')
    cp weights.safetensors $odd.safetensors
    foldmill predict q.fasta --single-sequence --weights $odd.safetensors --out odd --pdb -q >log 2>err
    foldmill eval --checkpoint $odd.safetensors --cache cache --out odd.eval >log 2>err
    mkdir $odd.run
    printf '{"step":1,"loss":2}\n' >$odd.run/metrics.jsonl
    foldmill plot $odd.run --title "$odd" --out odd/p.svg
    foldmill top $odd.run --once --json >odd/top.json
    python3 -c 'import json, os, sys
import xml.etree.ElementTree as tree
read = 0
for at, _, names in list(os.walk(b"odd")) + list(os.walk(b"odd.eval")):
    for name in names:
        name.decode()
        text = open(os.path.join(at, name), encoding="utf-8").read()
        if name.endswith(b".json"): json.loads(text)
        if name.endswith(b".svg"): tree.fromstring(text)
        read += name.endswith((b".json", b".svg", b".html"))
sys.exit(read < 8)'
}

run_tests ranks_are_checked_before_the_server_is_asked \
    steps_that_are_done_are_said \
    a_misspelt_action_is_said_first \
    rules_that_leave_no_chain_are_counted \
    a_list_may_be_a_pipe_by_its_name \
    clusters_of_other_chains_are_refused \
    an_ending_may_be_in_upper_case \
    snapshots_are_deleted \
    a_run_takes_no_folder_of_others \
    featurize_replaces_no_built_cache \
    a_number_out_of_its_range_is_named \
    a_lost_reader_ends_no_command \
    a_run_that_did_nothing_leaves_nothing \
    progress_fits_the_terminal \
    a_dataset_without_chains_is_said \
    a_stream_shows_its_progress \
    a_cache_is_made_in_no_dataset \
    places_of_a_shared_job_are_checked \
    an_evaluation_needs_a_checkpoint_and_a_folder \
    an_error_says_what_is_done \
    an_output_replaces_no_input \
    an_output_replaces_only_its_like \
    features_replace_only_features \
    a_damaged_checkpoint_is_not_imported \
    an_empty_file_is_said \
    components_without_a_build_are_said \
    what_weights_are_is_said \
    a_folder_of_damaged_checkpoints_is_no_run \
    a_run_removes_no_checkpoint_of_another \
    a_resume_without_a_run_is_said \
    a_last_checkpoint_without_room_is_said \
    a_mute_server_holds_up_no_stop \
    training_without_structures_is_said \
    paths_need_not_be_utf8

