#!/bin/bash
# The command line as a person meets it: versions, help and its width, suggestions, advice for wrong
# paths, full outputs, JSON objects, standard input, and names of chains.
. "$(dirname "$0")/expect.sh"

# data: 8 chains, of which the build of cache c refuses one; $CHAIN is a chain of c, `refused` holds
# the name of the one that is not.
commands='build merge catalogue verify inspect stats gc snapshot export parse serve fetch synth components prepare'

set_up() {
    foldmill synth --chains 8 --seed 6 --max-length 60 --depth 30 --quiet -o data > /dev/null
    ls data/alignments > names
    head -1 names > refused
    tail -1 names > chain
    echo junk > data/alignments/$(cat refused)/mgnify_hits.a3m
    exits 3 foldmill build data --cache c -q > /dev/null
}

versions_and_help() {
    foldmill --version > a
    foldmill -V > b
    foldmill verify --version > c1
    foldmill train -V > d
    cmp a b
    cmp a c1
    cmp a d
    says '^foldmill [0-9]' a
    foldmill help > a
    foldmill --help > b
    cmp a b
    for command in $commands; do
        foldmill help $command >a
        foldmill $command --help >b
        cmp a b
        says "^usage: foldmill $command" a
    done
    exits 2 foldmill 2> /dev/null
}

# No line of a help text is wider than COLUMNS, or 80.
help_fits_the_terminal() {
    for command in $commands; do
        for columns in 60 80 120; do
            COLUMNS=$columns foldmill help $command >out
            not env LC_ALL=C.UTF-8 grep -E "^.{$((columns + 1)),}\$" out
        done
        env -u COLUMNS foldmill help $command >a
        COLUMNS=80 foldmill help $command | cmp - a
        COLUMNS=wide foldmill help $command | cmp - a
        COLUMNS=120 foldmill help $command >b
        not cmp -s b a
    done
}

suggestions() {
    expect 2 "unknown command 'biuld'; did you mean 'build'?" foldmill biuld
    expect 2 "did you mean 'catalogue'?" foldmill catalog
    expect 2 "did you mean 'inspect'?" foldmill help inspct
    expect 2 "unknown command 'xyzzy'; foldmill --help lists" foldmill xyzzy
    expect 2 "found '--cache' in place of a command; options come after it" foldmill --cache x verify
    expect 2 "unknown option '--cahce'; did you mean '--cache'?" foldmill verify --cahce c
    expect 2 "did you mean '--max-length'?" foldmill snapshot list --maxlength=3
    expect 2 "did you mean 'create'?" foldmill snapshot creat x --cache c
    expect 2 "did you mean 'status'?" foldmill catalogue stats --catalogue c
    expect 2 "did you mean 'mmcif'?" foldmill parse cif x.cif
    expect 2 'the kind comes first: foldmill parse a3m x.a3m' foldmill parse x.a3m a3m
    expect 2 "did you mean '--cache c'?" foldmill inspect c
    expect 2 "did you mean '--data unix:s'?" foldmill fetch unix:s
    expect 2 "did you mean '--cache c'?" foldmill build data c
    expect 2 "did you mean '--dataset NAME=b'?" foldmill build data b --cache c
    expect 2 "--until: found '2020-13-01', expected a date" foldmill snapshot create x --cache c --until 2020-13-01
    expect 2 '--max-resolution: found -4, expected at least 0' foldmill snapshot create x --cache c \
        --max-resolution -4
    expect 2 '--interval: found 0, expected 0.1 to 3600 seconds' foldmill top run --interval 0
    expect 2 "--group: found '2/2'" foldmill fetch --data unix:s --steps 1 --group 2/2
    expect 2 '--listen is given twice: --also-listen takes the second address' foldmill serve --cache c \
        --listen unix:a --listen unix:b
    expect 2 '--alignments is given twice: the files must be in one place' foldmill build data --cache c \
        --alignments a --alignments b
    expect 2 '--cache DIR is required; usage: foldmill verify' foldmill verify
    expect 2 "cannot be a snapshot's name: at most 240 bytes" foldmill snapshot create \
        $(printf '%241s' '' | tr ' ' n) --cache c
    expect 2 "--svg: found 'a.png', expected a file that ends in .svg" foldmill stats --cache c --svg a.png
    expect 2 'expected: snapshot diff A B' foldmill snapshot diff all --cache c
}

# A limit on the size of files simulates a full disk. What the build says is in `err`.
fill_disk() {
    (ulimit -f 0; trap '' XFSZ; exec foldmill build grown --cache room -q 2>&1) | cat >err
}

a_full_disk_is_told_with_and_without_a_cache() {
    foldmill synth --chains 1 -q -o grown >/dev/null
    fill_disk
    says 'File too large (is the disk full?); make room on the disk' err
    foldmill build grown --cache room -q >/dev/null
    foldmill synth --chains 2 -q --force -o grown >/dev/null
    fill_disk
    says 'disk full?); the cache is whole as it is: make room on the disk' err
}

advice_for_paths() {
    mkdir empty half half/shards
    echo > file
    cp -r c lost
    echo 7 > lost/CURRENT
    for reader in verify inspect stats gc 'snapshot list' 'export --chain x_A -o x.npz' 'serve --listen unix:socket'; do
        expect 1 'there is no folder nowhere; ' foldmill $reader --cache nowhere
        expect 1 'empty is not a foldmill cache (it has no file CURRENT); ' foldmill $reader --cache empty
        expect 1 'file is a file, and a foldmill cache is a folder' foldmill $reader --cache file
        expect 1 'data is a dataset, not a foldmill cache; ' foldmill $reader --cache data
        expect 1 'the cache half is not finished' foldmill $reader --cache half
        expect 1 'lost/generations/00000007.manifest: there is no such file, and CURRENT names' foldmill $reader \
            --cache lost
    done
    expect 2 'c is a foldmill cache, not a dataset' foldmill build c --cache made
    expect 2 'c is a foldmill cache, not a dataset' foldmill build --dataset a=data --dataset b=c --cache made
    expect 2 'file is a file, and a dataset is a folder' foldmill build file --cache made
    expect 2 '--cache: file is a file, and a foldmill cache is a folder' foldmill build data --cache file
    expect 2 '--cache: ./data is the dataset itself' foldmill build data --cache ./data
    test ! -e made
    test ! -e data/CURRENT
}

advice_for_addresses() {
    fetch='foldmill fetch --steps 1 --data'
    expect 2 'did you mean tcp://localhost:7420?' $fetch localhost:7420
    expect 2 'did you mean unix:/run/s.sock?' $fetch /run/s.sock
    expect 2 'did you mean tcp://localhost:7420?' $fetch tcp://localhost
    expect 2 'did you mean tcp://localhost:7420?' $fetch http://localhost:7420
    expect 1 'is foldmill serve running there?' $fetch unix:none
    expect 1 'is foldmill serve running there?' $fetch tcp://127.0.0.1:1
    expect 2 "address 'somewhere', expected unix:PATH" foldmill serve --cache nowhere --listen somewhere
    expect 1 'the folder of the socket must exist' foldmill serve --cache c --listen unix:none/socket
    expect 1 'names exists and is not a socket' foldmill serve --cache c --listen unix:names
    # A port that another server has.
    foldmill serve --cache c --listen tcp://127.0.0.1:0 2> log &
    server=$!
    await grep -q ' listening ' log
    code=0
    foldmill serve --cache c --listen $(grep -o 'tcp://[0-9.:]*' log) 2> err || code=$?
    finish $server
    test $code = 1
    says 'another program listens there; port 0 takes any free port' err
}

full_outputs_fail() {
    for arguments in --help --version 'help build' 'verify --cache c' 'verify --cache c --json' 'inspect --cache c' \
        "inspect --cache c --chain $(cat chain)" 'stats --cache c' 'gc --cache c --dry-run' 'snapshot list --cache c' \
        'snapshot show all --cache c' 'build data --dry-run' \
        "parse a3m data/alignments/$(cat chain)/uniref90_hits.a3m" 'synth --chains 1 --force -o few'; do
        exits 1 foldmill $arguments >/dev/full 2>err
        test $(wc -l <err) = 1
        says 'cannot write the results to standard output' err
    done
    # Also where some inputs were refused; and a closed output is no failure of what prints nothing.
    exits 1 foldmill build data --cache c -q > /dev/full 2> err
    foldmill export --cache c --chain $(cat chain) -o x.npz >&-
}

# A program that was started without standard descriptors gives none of them to a file of its own,
# and results that cannot be written are still an error.
closed_descriptors() {
    code=0
    foldmill build data --cache closed -q <&- >&- 2>&- || code=$?
    test $code = 3 || test $code = 1
    foldmill verify --cache closed > /dev/null
    exits 1 foldmill verify --cache c >&- 2> err
    says 'cannot write the results to standard output' err
    exits 1 foldmill verify --cache none > out 2>&-
    test ! -s out
    exits 1 foldmill parse msa - <&- > out 2> err
    test ! -s out
    test -s err
}

# Memory limits fit the machine, or the command says that they do not.
memory_fits() {
    foldmill build data --cache fit 2> err > /dev/null || true
    not grep -q 'may need' err
    foldmill build data --cache fit --jobs 512 --worker-memory 16777216 --dry-run > /dev/null || true
    foldmill build data --cache fit --jobs 4 --worker-memory 16777216 2> err > /dev/null || true
    says '4 workers may need 16777216 MiB each' err
    # A small file that unpacks to more than a worker may use is refused, not unpacked whole.
    cp -r data bomb
    head -c 300000000 /dev/zero | gzip -1 > bomb/alignments/$(cat chain)/bomb.a3m.gz
    foldmill build bomb --cache bombed --jobs 2 --worker-memory 1024 --json > out || true
    python3 -c \
        "import json; o = json.load(open('out')); assert o['peak_resident_bytes'] < 400e6, o['peak_resident_bytes']; assert any('larger than the 268435456 bytes allowed' in r['reason'] for r in o['refusals']), o['refusals']"
}

# The command prints one object, alone on stdout, of which CHECK holds and whose members its help names. The command may
# fail, as one that refuses inputs does.
prints_object() { # CHECK COMMAND ARGUMENTS...
    foldmill "${@:2}" --json >out 2>err || true
    python3 -c "import json; o = json.load(open('out')); assert $1, o; print(*o, sep='\n')" >keys ||
        { cat out err >&9; return 1; }
    foldmill "$2" --help >help
    for key in $(cat keys); do
        says "\<$key\>" help
    done
}

json_objects() {
    prints_object "o['refused'] == 1 and o['outcome'] == 'some'" build data --cache c -q
    prints_object "len(o['chains']) == 8 and o['files'] > 8" build data --cache c --dry-run
    prints_object "o['job']['done'] == 7" build data --cache w -q --catalogue cat
    prints_object "o['refused'] == 1 and len(o['items']) == 1" catalogue status --catalogue cat
    prints_object "o['chains'] == 7 and len(o['refusals']) == 1" merge --catalogue cat --cache m
    prints_object "o['done'] == 7" catalogue rebuild --catalogue cat2 --from w
    prints_object "o['chains'] == 7 and len(o['content']) == 64" verify --cache c
    prints_object "o['parts']['msa']['chains'] == 7 and o['refusals'][0]['reason']" inspect --cache c
    prints_object "len(o['sequence']) == o['residues']" inspect --cache c --chain $(cat chain)
    prints_object "sum(x['chains'] for x in o['lengths']['counts']) == 7" stats --cache c
    prints_object "o['dry_run'] and o['generations_kept'] == 1" gc --cache c --dry-run
    prints_object "o['chains'] == 7" snapshot create some --cache c --min-length 1
    prints_object "o['pinned'] == 1" snapshot pin some --cache c
    prints_object "[x['chains'] for x in o['snapshots']] == [7, 7]" snapshot list --cache c
    prints_object "len(o['lines']) == 7" snapshot show some --cache c
    prints_object "o['same'] == 7" snapshot diff all some --cache c
    prints_object "o['rows'] >= 1" parse a3m data/alignments/$(cat chain)/uniref90_hits.a3m
    prints_object "o['gaps'] < 1" parse msa data/alignments/$(cat chain)/uniref90_hits.a3m
    prints_object "type(o['hits']) == list" parse hhr data/alignments/$(cat chain)/pdb70_hits.hhr
    prints_object "o['chains'][0]['sequence']" parse mmcif $(ls data/mmcifs/* | head -1)
    prints_object "o['chains'] == 1" synth --chains 1 --quiet -o one
    expect 2 'which -o replaces' foldmill parse a3m x --json -o x.npz
}

json_of_a_stream() {
    foldmill serve --cache c --listen unix:s 2> log &
    server=$!
    code=0
    foldmill fetch --data unix:s --wait 30000 --steps 3 --batch 2 --digest --json > out || code=$?
    finish $server
    test $code = 0
    python3 -c \
        "import json; o = json.load(open('out')); assert o['samples'] == 6 and o['end'] == 'delivered' and len(o['digest']) == 64"
}

standard_input() {
    a3m=data/alignments/$(cat chain)/uniref90_hits.a3m
    foldmill parse msa - < $a3m > a
    foldmill parse msa $a3m > b
    gzip -c $a3m | foldmill parse msa - > g
    cmp a g
    sed 1d a > a1
    sed 1d b | cmp - a1
    says '^stdin: A3M' a
    printf '# STOCKHOLM 1.0\nq AC\n//\n' | foldmill parse msa - | grep -q '^stdin: Stockholm'
    code=0
    printf '>q\nAC\n>r\nA\n' | foldmill parse a3m - 2> err || code=$?
    test $code = 1
    says '^foldmill parse: stdin:4:1: ' err
    sed 1d names | head -3 | foldmill snapshot create few --cache c --chains - | grep -q '^chains    3,'
    tr '\n' ' ' < names | foldmill snapshot create by --cache c --clusters - > /dev/null
    expect 2 "only one of --chains, --exclude and --clusters can be '-'" foldmill snapshot create x --cache c \
        --chains - --exclude - < names
}

names_of_chains() {
    # Ids are found in either case; the chain's letters are not.
    upper=$(sed 's/_.*//' chain | tr a-z A-Z)_$(sed 's/.*_//' chain)
    foldmill inspect --cache c --chain $upper > a
    foldmill inspect --cache c --chain $(cat chain) | cmp - a
    foldmill export --cache c --chain $upper -o x.npz --replace
    echo $upper > upper
    foldmill snapshot create up --cache c --chains upper | grep -q '^chains    1,'
    foldmill snapshot create down --cache c --exclude upper | grep -q '^chains    6,'
    exits 1 foldmill inspect --cache c --chain $(tr A-Z a-z < chain) 2> err
    says "the cache has no chain '.*'; it has .*$(cat chain)" err
    expect 1 '; its 7 chains have names such as ' foldmill inspect --cache c --chain nobody
    # A refused chain is answered with its reason.
    for command in inspect 'export -o x.npz --replace'; do
        exits 1 foldmill $command --cache c --chain $(cat refused) 2>err
        says 'the build of the cache refused chain .*mgnify_hits.a3m:1' err
    done
    echo nobody_A > unknown
    cat refused chain unknown > list
    foldmill snapshot create l --cache c --chains list > out
    says '^chains    1,' out
    says '^refused   1 chain of the list' out
    says 'mgnify_hits.a3m:1' out
    says '^unknown   1 chain of the list' out
    exits 1 foldmill snapshot create l --cache c --chains refused 2> err
    says 'no chain is left: the build refused 1 chain .*mgnify' err
    # The dataset of a chain can be omitted.
    foldmill build --dataset pdb=data --cache p -q > /dev/null || true
    foldmill inspect --cache p --chain $(cat chain) > out
    says "^chain       pdb:$(cat chain)" out
}

# On a terminal, the progress line is never wider than it.
progress_fits_the_terminal() {
    command -v script >log || skip "there is no program script to make a terminal"
    COLUMNS=50 script -qec 'foldmill build data --cache t' log >/dev/null || true
    tr '\r' '\n' < log | grep 'ETA' | sed 's/^.\[K//' > lines
    awk 'length($0) > 50 { bad = 1 } END { exit bad }' lines
    foldmill verify --cache t > /dev/null
}

run_tests versions_and_help \
    help_fits_the_terminal \
    suggestions \
    a_full_disk_is_told_with_and_without_a_cache \
    advice_for_paths \
    advice_for_addresses \
    full_outputs_fail \
    closed_descriptors \
    memory_fits \
    json_objects \
    json_of_a_stream \
    standard_input \
    names_of_chains \
    progress_fits_the_terminal

