#!/bin/bash
# A server's pages and `foldmill top` as an operator uses them: the numbers are those of what was
# fetched, and a training run's folder is summed up.
. "$(dirname "$0")/expect.sh"

set_up() {
    foldmill synth --seed 3 --chains 6 --depth 60 --max-length 120 --min-length 60 -o data >/dev/null 2>&1
    foldmill build data --cache cache --quiet >/dev/null 2>err
}

# Asks the server once, and leaves its answer in `out`.
has_sent() { # N
    foldmill top $(cat url) --once --json >out 2>err
    /usr/bin/python3 -c 'import json, sys; sys.exit(json.load(open("out"))["times"]["send"]["n"] < int(sys.argv[1]))' $1
}

the_pages_count_what_was_fetched() {
    start_server s --cache cache --http 127.0.0.1:0
    await_url s.log >url
    foldmill fetch --data unix:s --plan tiny --steps 40 >/dev/null 2>err
    # The client may have all samples before the server has seen the end of the last write.
    await has_sent 40
    /usr/bin/python3 -c '
import json
r = json.load(open("out"))
assert r["counters"]["samples_sent_total"] == 40, r["counters"]
assert r["times"]["prepare"]["n"] >= 40
assert r["times"]["send"]["n"] == 40
assert r["times"]["wait"]["n"] == 40
assert r["snapshots"][0]["chains"] == 6 and not r["stopping"]
c, = r["consumers"]
assert c["peer"].startswith("uid:") and "foldmill fetch" in c["agent"], c
assert c["streams"] == 0 and c["samples"] == 40 and c["failed"] == 0, c
assert c["bytes"] == r["counters"]["sample_bytes_sent_total"]
assert [c[k]["n"] for k in ("prepare", "wait", "send")] == [40, 40, 40], c
names = [s["chain"] for s in r["slowest"]]
assert 1 <= len(names) <= 6 and len(set(names)) == len(names), names
' 2>err
    foldmill top $(cat url)/ --once >out 2>err
    says ' 40 samples in all, 0 refused' out
    says 'nobody is connected' out
    says '  40 .* uid:.*foldmill fetch' out
    stop TERM $server
    exits 1 foldmill top $(cat url) --once >out 2>err
    says 'foldmill top: .*7*.*refused' err
}

a_run_is_summed_up() {
    mkdir run
    for i in 1 2 3 4; do
        printf \
            '{"step":%d,"index":%d,"cycles":1,"sample":"1abc_A","loss":%d.5,"distogram":3.25,"grad_norm":2,"learning_rate":0.001,"step_s":0.25,"data_wait_s":0.001}\n' \
            $i $i $((10 - i))
    done >run/metrics.jsonl
    printf '{"step":5' >>run/metrics.jsonl
    foldmill top run --once >out 2>err
    says 'step 4 ' out
    says 'rate .* 4.000 ' out
    says 'distogram .* 3.2500' out
    foldmill top run --json | /usr/bin/python3 -c \
        'import json, sys; r = json.load(sys.stdin); assert r["step"] == 4 and r["step_s"] == 0.25 and r["last"]["loss"] == 6.5'
    not grep -q 'ends in\|memory\|held out' out
    # this run says nothing of them
    sed -i \
        's/}$/,"left_s":3905,"memory_bytes":3221225472,"device_used_bytes":6442450944,"device_free_bytes":1073741824}/' \
        run/metrics.jsonl
    printf \
        '{"step":2,"n_chain":7,"lddt_ca":0.5,"loss":9.25}\n{"step":4,"n_chain":7,"lddt_ca":0.25,"loss":9.5}\n{"ste' \
        >run/eval.jsonl
    foldmill top run --once >out 2>err
    says 'ends in   1 h 05 min' out
    says '3.00  GiB of the trainer; of the device 6.00 GiB are used, 1.00 free' out
    says '0.2500  lddt_ca of 7 chains after step 4; best 0.5000 after step 2' out
    says 'held out loss  *9.5000' out
    not grep -q 'device_used' out
    # A mean that is not finite is no best score.
    mkdir -p broken
    cp run/metrics.jsonl broken
    printf '{"step":2,"samples":3,"lddt":0.5}
{"step":3,"samples":3,"lddt":0.25}
{"step":4,"samples":3,"lddt":null}
' >broken/eval.jsonl
    foldmill top broken --once >out 2>err
    says 'nan  lddt of 3 samples after step 4; best 0.5000 after step 2' out
    # A run whose lock nobody holds has ended.
    not grep -q 'no process' out
    : >run/lock
    foldmill top run --once >out
    says 's ago, no process trains here$' out
    not grep -q 'ends in' out
    foldmill top run --json | grep -q '"ended": true'
    flock run/lock foldmill top run --once >out
    says 's ago$' out
    says 'ends in' out
    foldmill top run --json | /usr/bin/python3 -c \
        'import json, sys; r = json.load(sys.stdin); assert r["held_out"]["lddt_ca"] == 0.25 and r["last"]["left_s"] == 3905'
    # A picture on a terminal has one line less than the terminal.
    /usr/bin/python3 -c '
import fcntl, os, pty, struct, termios
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 5, 80, 0, 0))
    os.execvp("foldmill", ["foldmill", "top", "run"])
text = b""
while not text.endswith(b"\033[J"): text += os.read(fd, 4096)
os.write(fd, b"\3")
assert text.count(b"\n") == 4 and b"step 4 " in text, text
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
' 2>err
    printf 'no json\n' >>run/metrics.jsonl
    exits 1 foldmill top run --once >out 2>err
    says 'a line is no step of a training run' err
    exits 1 foldmill top nowhere --once >out 2>err
    says 'nowhere: found no metrics.jsonl, expected the folder of a run' err
    exits 2 foldmill top run/metrics.jsonl --once 2>err
    says 'run/metrics.jsonl: found a file, expected the folder of a run' err
    mkdir new
    : >new/metrics.jsonl
    not foldmill top new --once 2>err
    says 'new/metrics.jsonl: the run has no finished step yet' err
    exits 2 foldmill top http://nohost --once >out 2>err
    exits 2 foldmill top unix:socket --once >out 2>err
    says 'an address of streams; expected .*--http' err
}

run_tests the_pages_count_what_was_fetched \
    a_run_is_summed_up

