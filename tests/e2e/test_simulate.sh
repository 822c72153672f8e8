#!/bin/bash
# `foldmill simulate` as a user runs it: from a list, from a running server, and with mistakes.
. "$(dirname "$0")/expect.sh"

set_up() {
    printf '20 890\n200 100\n2000 10\n' >list
}

# The fewest servers: one fewer stalls more than is allowed.
servers_are_planned() {
    foldmill simulate --times list --ranks 64 --step-ms 100 --workers 4 --order bounded:32 --steps 300 \
        --json >out 2>err
    n=$(sed -n 's/.*"servers": \([0-9]*\).*/\1/p' out)
    test $n -ge 10
    foldmill simulate --times - --ranks 64 --step-ms 100 --workers 4 --order bounded:32 --steps 300 \
        --servers $((n - 1)) --json <list >out 2>err
    sed -n 's/.*"stall_percent": \([0-9.]*\).*/\1/p' out | awk '{exit !($1 > 1)}'
    foldmill simulate --times list --ranks 8 --step-ms 100 --servers 1 --workers 10 >out
    says '^times     mean 57.8 ms' out
    awk '$1 == "loader" {l = $8} $1 == "free" {f = $8} END {exit !(l > 50 && f < 1)}' out
    foldmill simulate --times list --ranks 8 --step-ms 10 --workers 1 --order strict --steps 50 --max-stall 0 >out
    says 'strict .*no number of servers' out
    exits 2 foldmill simulate --times list --step-ms 10 --order strict,fast >out 2>err
    says "found 'fast', expected strict, .*, free or loader" err
}

a_servers_own_times_are_taken() {
    foldmill synth --seed 3 --chains 4 --depth 60 --max-length 80 --min-length 60 -o data >/dev/null 2>err
    foldmill build data --cache cache --quiet >/dev/null 2>err
    start_server s --cache cache --http 127.0.0.1:0
    await_url s.log >url
    expect 1 'found no preparation times' foldmill simulate --times $(cat url) --step-ms 10
    foldmill fetch --data unix:s --steps 200 >/dev/null
    # The address of a page of the server does as well.
    for page in '' / /metrics; do
        foldmill simulate --times $(cat url)$page --step-ms 10000 --servers 1 --ranks 2 --steps 20 --order strict \
            --json >out 2>err
    done
    says '"stall_percent": 0.000' out
    stop TERM $server
}

# The command exits with the code, and its error matches the basic regular expression.
fails() { # CODE PATTERN ARGUMENTS...
    exits "$1" foldmill simulate "${@:3}" >out 2>err
    says "$2" err
}

mistakes_are_named() {
    fails 2 '--step-ms' --times list
    fails 1 'none' --times none --step-ms 5
    fails 2 'address .http://., expected http://HOST:PORT' --times http:// --step-ms 5
    fails 2 'address .http://host., expected http://HOST:PORT' --times http://host --step-ms 5
    fails 2 'address .https://host:1., expected http://HOST:PORT' --times https://host:1 --step-ms 5
    fails 2 '--step-ms: found 0, expected more than 0' --times list --step-ms 0
    fails 2 '--sample-mb: found -1, expected at least 0' --times list --step-ms 5 --sample-mb -1
    fails 2 '--network-gbit: found 0, expected more' --times list --step-ms 5 --network-gbit 0
    fails 2 '--max-stall: found' --times list --step-ms 5 --max-stall nan
    fails 2 'servers: found 3, expected 1 to 2' --times list --step-ms 5 --servers 3 --ranks 2
    fails 2 'often' --times list --step-ms 5 --order often
    fails 2 '--order: found an empty value, expected LIST' --times list --step-ms 5 --order ''
    fails 2 '--order: found .., expected strict' --times list --step-ms 5 --order strict,
    fails 2 'samples of a step: found 90000, expected 1 to 65536' --times list --step-ms 5 --ranks 3000 \
        --per-rank 30
    fails 2 '9999' --times list --step-ms 5 --order bounded:9999
}

run_tests servers_are_planned \
    a_servers_own_times_are_taken \
    mistakes_are_named

