#!/bin/bash
# Samples that cannot be read, at the server or after they came: each message names the sample and
# its chain, and a sample that comes damaged twice falls under the trainer's policy for bad samples.
. "$(dirname "$0")/expect.sh"

train='foldmill train --seed 3 --config batch.ini -q'

serve() { # CACHE SOCKET
    start_server $2 --cache $1 -q
}

# Passes on what the server of `socket` and its clients say, and damages one sample on its way.
proxy() { # PART [SAMPLE]
    rm -f proxy
    python3 proxy.py $1 ${2:-4} 2>proxy.err &
    await test -S proxy
}

same() { # RUN RUN STEPS
    cmp $1/checkpoint-$3.safetensors $2/checkpoint-$3.safetensors
}

set_up() {
    cat >proxy.py <<'END'
import os, socket, struct, sys, threading
at = {'tensors': None, 'header': 40}[sys.argv[1]]
damaged = int(sys.argv[2])
listening = socket.socket(socket.AF_UNIX)
listening.bind('proxy')
listening.listen()
def receive(a, n):
    data = b''
    while len(data) < n:
        more = a.recv(n - len(data))
        if not more: raise OSError
        data += more
    return data
def forward(a, b, damages):
    try:
        while True:
            head = receive(a, 32)
            body = receive(a, struct.unpack_from('<I', head, 12)[0])
            if damages and head[5] == 6 and struct.unpack_from('<Q', body, 32)[0] == damaged:
                k = at or len(body) // 2
                body = body[:k] + bytes([body[k] ^ 1]) + body[k + 1:]
            b.sendall(head + body)
    except OSError: pass
    for s in a, b:
        try: s.shutdown(socket.SHUT_RDWR)
        except OSError: pass
while True:
    near, _ = listening.accept()
    far = socket.socket(socket.AF_UNIX)
    far.connect('socket')
    for pair in (near, far, 0), (far, near, 1):
        threading.Thread(target=forward, args=pair, daemon=True).start()
END
    foldmill synth --chains 6 --seed 5 --max-length 60 --depth 100 -o data --quiet
    foldmill build data --cache cache --quiet >build.log
    printf \
        '[model]\nn_block = 1\nn_structure_iteration = 1\n[data]\ncrop_size = 32\nmax_msa_clusters = 12\nglobal_batch = 3\n' \
        >batch.ini
}

# The run stops before the sample with a checkpoint, and the command that it names goes on.
damaged_twice_stops_the_run() {
    serve cache socket
    proxy tensors
    exits 1 $train --data unix:proxy --steps 4 --out stop >stop.log 2>&1
    test $(grep -c 'warn reconnected' stop.log) = 1
    says \
        '^foldmill train: sample 4: chain [^ ]*: received damaged twice: .*checksum.*after step 1 of 4 and 1 sample; --resume continues' \
        stop.log
    says 'go on without it: .*--resume --skip-sample 4$' stop.log
    serve cache socket
    proxy tensors
    $train --data unix:proxy --steps 4 --out stop --resume --skip-sample 4 >stop2.log 2>&1
    $train --data unix:socket --steps 4 --out hand --skip-sample 4 >hand.log 2>&1
    same stop hand 000000000004
}

# A run that ends in its first sample leaves no folder, and the command that it names works.
a_run_without_a_sample_leaves_nothing() {
    serve cache socket
    proxy tensors 0
    exits 1 $train --data unix:proxy --steps 2 --out none >none.log 2>&1
    says 'after step 0 of 2' none.log
    test ! -e none
    says 'go on without it: .*--resume --skip-sample 0$' none.log
    mkdir none
    serve cache socket
    proxy tensors 0
    exits 1 $train --data unix:proxy --steps 2 --out none >none.log 2>&1
    test -z "$(ls -A none)"
    serve cache socket
    proxy tensors 0
    $train --data unix:proxy --steps 2 --out none --resume --skip-sample 0 >none.log 2>&1
}

# The index is in the checkpoint, so that a resumed run, which could read the sample, is the same
# run.
damaged_twice_is_skipped_by_policy() {
    train="$train --bad-samples skip"
    serve cache socket
    proxy tensors
    $train --data unix:proxy --steps 4 --out skip >skip.log 2>&1
    $train --data unix:proxy --steps 2 --out part >part.log 2>&1
    $train --data unix:socket --steps 4 --out part --resume >part.log 2>&1
    same skip part 000000000004
    says 'warn sample_skipped sample=4 why="chain [^ ]*: received damaged twice' skip.log
    says '^skipped   1 sample, 1 of them bad' skip.log
}

# Nobody can tell which sample it was: the connection is broken, as often as it is tried.
a_damaged_header_is_a_broken_connection() {
    serve cache socket
    proxy header
    exits 1 $train --data unix:proxy --steps 4 --out head --bad-samples skip >head.log 2>&1
    says 'header does not match its checksum.*after step 1 of 4 and 1 sample; --resume continues' head.log
}

fetch_names_a_damaged_sample() {
    serve cache socket
    proxy tensors
    exits 1 foldmill fetch --data unix:proxy --batch 3 --steps 4 >log 2>err
    says '^foldmill fetch: sample [0-9]*: chain [^ ]*: received damaged: .*checksum' err
    exits 3 foldmill fetch --data unix:proxy --batch 3 --steps 4 --skip >log 2>err
    test $(grep -c 'sample 4 skipped: chain ' err) = 1
}

# Records on disk are damaged: the words of server and client name the sample and the chain.
fetch_names_what_the_server_cannot_read() {
    cp -r cache broken
    python3 -c "import sys; p = sys.argv[1]; b = bytearray(open(p, 'rb').read()); n = len(b)
for i in range(n // 2, n * 3 // 4, 3000): b[i] ^= 255
open(p, 'wb').write(b)" broken/shards/*
    serve broken bad
    exits 1 foldmill fetch --data unix:bad --steps 8 >log 2>bad.stop
    exits 3 foldmill fetch --data unix:bad --steps 8 --skip >log 2>bad.skip
    says '^foldmill fetch: unix:bad: sample [0-9]*: chain [0-9a-z]*_[A-Z]*: ' bad.stop
    says '^foldmill fetch: sample [0-9]* skipped: chain [0-9a-z]*_[A-Z]*: ' bad.skip
    says 'sample_failed .*index=[0-9]* why="chain ' bad.log
}

run_tests damaged_twice_stops_the_run \
    a_run_without_a_sample_leaves_nothing \
    damaged_twice_is_skipped_by_policy \
    a_damaged_header_is_a_broken_connection \
    fetch_names_a_damaged_sample \
    fetch_names_what_the_server_cannot_read

