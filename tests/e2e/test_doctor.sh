#!/bin/bash
# foldmill doctor: what it finds of this machine, of folders and of other hosts, and its exit code.
. "$(dirname "$0")/expect.sh"

a_machine_is_looked_at() {
    # A machine may have a fault of its own, such as no room for locked memory beside InfiniBand.
    rc=0
    foldmill doctor --folder . >text || rc=$?
    bad=0
    if grep -q '^bad' text; then bad=1; fi
    [ $rc = $bad ]
    for what in system processor memory files locked shared clock driver folder; do
        says "^[a-z]* *$what " text
    done
    foldmill doctor --json >json || test $rc = 1
    python3 -c 'import json, sys
found = json.load(open("json"))
assert found["works"] == all(item["state"] in ("ok", "slow") for item in found["findings"])
assert all((item["advice"] is None) == (item["state"] == "ok") for item in found["findings"])'
}

what_will_not_work_is_said() {
    expect 1 'none: No such file or directory' foldmill doctor --folder none
    says 'make it, or name another one' out
    says '^1 thing will not work' out
    expect 1 'cannot connect to unix:nobody' foldmill doctor --against unix:nobody
    expect 1 'expected' foldmill doctor --against tcp://host
    # A driver of nobody: the library is an empty file.
    mkdir -p lib && : >lib/libcuda.so.1
    expect 1 'libcuda.so.1' env LD_LIBRARY_PATH="$PWD/lib" foldmill doctor --gpu
    says '"works": false' <(foldmill doctor --folder none --json)
}

a_server_is_reached() {
    foldmill synth --chains 2 --seed 1 --max-length 40 --depth 4 -o data --quiet
    foldmill build data --cache cache --quiet >log
    foldmill serve --cache cache --listen unix:s -q 2>serve.log &
    await test -S s
    expect 0 'connected in' foldmill doctor --against unix:s --folder cache
    # Nothing was changed or made.
    find cache -newer serve.log -type f >newer
    test ! -s newer
}

run_tests \
    a_machine_is_looked_at \
    what_will_not_work_is_said \
    a_server_is_reached
