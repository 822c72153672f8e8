# endure.sh: shell functions of test_endure.c, which sources this file in the folder of the test.
# They wait for states (files, lines of them, /proc), never for a time.
# shellcheck shell=dash
train="foldmill train --data unix:socket --seed 3 --config batch.ini"

# Waits until the command succeeds. A test that waits for minutes has failed.
await() { # COMMAND...
    tries=0
    until "$@" 2>/dev/null; do
        tries=$((tries + 1))
        if [ "$tries" -ge 9000 ]; then
            echo "endure.sh: gave up waiting for: $*" >&2
            exit 99
        fi
        sleep 0.02
    done
}

# Starts a server on a socket of the name; $server is its process.
serve() { # SOCKET [CACHE]
    rm -f "$1"
    foldmill serve --cache "${2:-cache}" --listen "unix:$1" -q 2>>serve.log &
    server=$!
    await test -S "$1"
}

# The state of a process as a letter, as in /proc: T stopped; Z also where it is gone.
state_of() { # PROCESS
    sed -n 's/^State:[^A-Z]*\([A-Z]\).*/\1/p' "/proc/$1/status" 2>/dev/null || echo Z
}
is_stopped_or_gone() {
    case $(state_of "$1") in T | Z | '') ;; *) return 1 ;; esac
}

# Becomes a program of whose calls below ROOT those with the numbers AT fail with CODE, as
# tests/testing/fault_shim.c says.
with_faults() { # CODE ROOT AT COMMAND...
    fault_code=$1 fault_root=$2 fault_at=$3
    shift 3
    exec env FM_FAULT_ROOT="$fault_root" FM_FAULT_AT="$fault_at" FM_FAULT_CODE="$fault_code" \
        ASAN_OPTIONS="$ASAN_OPTIONS:verify_asan_link_order=0" LD_PRELOAD="$FM_BIN/../tests/libfm_fault_shim.so" "$@"
}

# Runs a program in the background; it stops itself before call AT (or each of several, as in 5,30)
# of those whose path begins with ROOT, which are counted by tests/testing/fault_shim.c. Returns when
# it has stopped, and fails when it has ended instead. $pid is its process.
stop_at() { # ROOT AT COMMAND...
    stop_root=$1 stop_number=$2
    shift 2
    (with_faults -1 "$stop_root" "$stop_number" "$@") &
    pid=$!
    await_stop
}

await_stop() {
    await is_stopped_or_gone "$pid"
    if [ "$(state_of "$pid")" != T ]; then
        echo "endure.sh: the process ended before call $stop_number of $stop_root" >&2
        return 1
    fi
}

# Sends the signal to the stopped process, and lets it go on.
strike() { # SIGNAL
    kill "-$1" "$pid"
    kill -CONT "$pid" 2>/dev/null # one that was killed is gone
}

# The lines of metrics without the times, and the comparison of two runs that ended after STEPS.
losses() { # RUN
    sed 's/,"step_s".*//' "$1/metrics.jsonl"
}
same() { # RUN RUN STEPS
    same_file=$(printf 'checkpoint-%012d.safetensors' "$3")
    losses "$1" >"$1.l" && losses "$2" >"$2.l" && cmp "$1.l" "$2.l" && cmp "$1/$same_file" "$2/$same_file"
}

# One run lives INSTANTS short lives. Each ends at an event that is drawn by chance: while samples
# arrive, in a checkpoint, or while its server is away. The ways to end take turns.
live() { # INSTANTS
    steps=$((6 * $1))
    train="foldmill train --data unix:live --seed 3 --config batch.ini --steps $steps"
    train="$train --checkpoint-every 2 --wait 600000 --keep 2"
    serve live
    python3 -c "
import random
r = random.Random(7)
for i in range($1):
    kind = ('samples', 'checkpoint', 'away')[i % 3]
    at = r.randint(1, 1500) if kind == 'checkpoint' else r.randint(6, 40)
    how = ['TERM', 'KILL', 'INT', 'USR1', 'HUP'] + ['LOST', 'BACK'] * (kind == 'away')
    print(kind, at, how[(i // 3 + i) % len(how)])" >events
    while read -r kind at how; do
        root=socket:
        if [ "$kind" = checkpoint ]; then root=$PWD/lives/checkpoint-; fi
        # shellcheck disable=SC2086 # a command line
        stop_at "$root" "$at" $train --out lives --resume -q >life.log 2>&1 || return 1
        if [ "$kind" = away ]; then
            kill -KILL "$server"
            wait "$server"
        fi
        end_life "$how" || return 2
        cat life.log >>lives.log
        if ! kill -0 "$server" 2>/dev/null; then serve live; fi
    done <events
    $train --out lives --resume -q >>lives.log 2>&1 || return 3
    $train --out single -q >single.log 2>&1 || return 4
    kill "$server"
    same single lives "$steps" || return 5
    ! grep -q checkpoint_damaged lives.log || return 6
}

# Ends a life that is stopped at its instant, and checks its exit code.
end_life() { # HOW
    expected=137
    case $1 in
    TERM) expected=143 ;;
    INT) expected=130 ;;
    HUP) expected=129 ;;
    esac
    case $1 in
    USR1) # killed after the checkpoint that was asked for, or while the server is away
        strike USR1
        if kill -0 "$server" 2>/dev/null; then await grep -q asked_by=SIGUSR1 life.log; fi
        kill -KILL "$pid"
        ;;
    LOST | BACK)
        kill -CONT "$pid"
        await grep -q 'warn server_lost' life.log
        if [ "$1" = BACK ]; then
            serve live
            await grep -q 'warn reconnected' life.log
        fi
        kill -KILL "$pid"
        ;;
    *) strike "$1" ;;
    esac
    wait "$pid"
    code=$?
    [ "$code" = "$expected" ] || { echo "endure.sh: $kind $at $how: exit code $code" >&2 && return 1; }
}
