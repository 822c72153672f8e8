# expect.sh: the library of the end-to-end tests, which each of them reads first.
#
# A test is a function. run_tests runs each one in a folder that the file's tests share, with the programs on PATH, and
# ends it at its first command that fails; that command is printed with its line. What a test leaves running is killed.
# The function set_up, where a file has one, prepares the folder, and tear_down checks how what it began ends, once for
# the file. With `each_test=alone` every test has a prepared folder of its own.
# shellcheck shell=bash
export PATH="$FM_BIN:$PATH"
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) # tests/ of the source tree
export tests
exec 9>&2 # for what tests say while their outputs are redirected

# Prints why a check failed, and where the test called it.
complain() { # WORDS
    printf '%s:%s: %s\n' "$0" "${BASH_LINENO[1]}" "$1" >&9
    return 1
}

# The command ends with CODE.
exits() { # CODE COMMAND...
    local code=$1 found=0
    shift
    "$@" || found=$?
    [ "$found" = "$code" ] || complain "exit code $found, expected $code, of: $*"
}

# The command ends with CODE and prints TEXT. Its output is in the files `out` and `err` afterwards.
expect() { # CODE TEXT COMMAND...
    local code=$1 text=$2 found=0
    shift 2
    "$@" >out 2>err || found=$?
    if [ "$found" = "$code" ] && grep -qF -- "$text" err out; then return 0; fi
    sed 's/^/    /' err out >&9
    complain "exit code $found and the lines above, expected $code and '$text', of: $*"
}

# A line of one of the files matches the basic regular expression.
says() { # PATTERN FILE...
    grep -q -- "$@" && return 0
    sed 's/^/    /' "${@:2}" >&9
    complain "the lines above, expected '$1' in ${*:2}"
}

# The command fails. After a plain `!`, a command that succeeds would not end a test.
not() { # COMMAND...
    ! "$@"
}

# Repeats the command until it succeeds. A test that waits for two minutes has failed.
await() { # COMMAND...
    local tries=0
    until "$@" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 6000 ] || complain "waited in vain for: $*" || return 1
        sleep 0.02
    done
}

# Starts `foldmill serve ARGUMENTS` on a Unix socket, logging to SOCKET.log, and waits until it listens; $server is its
# process.
start_server() { # SOCKET ARGUMENTS...
    rm -f "$1"
    foldmill serve "${@:2}" --listen "unix:$1" >"$1.log" 2>&1 &
    # shellcheck disable=SC2034 # for the test
    server=$!
    await test -S "$1"
}

# Prints the URL of a server's pages, which its log has behind the address that start_server waits for.
await_url() { # LOG
    await grep -q ' http url=' "$1"
    sed -n 's/.* http url=//p' "$1"
}

# Ends a process that this shell started, whatever its code.
finish() { # PROCESS
    kill "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

# Sends the signal to a process that this shell started, and checks the code with which it ends.
stop() { # SIGNAL PROCESS [CODE]
    kill "-$1" "$2"
    exits "${3:-0}" wait "$2"
}

# Ends the test as one that cannot run here.
skip() { # WHY
    echo "skipped: $1" >&9
    exit 77
}

# Runs a test in a process group of its own, which is killed behind it. Returns the test's exit code.
run_alone() { # TEST
    local group code
    set -m
    (
        set -eE
        trap 'echo "$0:$LINENO: failed with $?: $BASH_COMMAND" >"$folder.failed"' ERR
        "$1"
    ) </dev/null &
    group=$!
    set +m
    wait $group
    code=$?
    kill -KILL -- -$group 2>/dev/null
    case $code in 0 | 77) ;; *) cat "$folder.failed" >&9 ;; esac
    return $code
}

make_folder() {
    folder=$(mktemp -d "${TMPDIR:-/tmp}/foldmill-test-XXXXXX")
    cd "$folder" || exit 1
    if declare -F set_up >/dev/null; then
        set -e
        set_up
        set +e
    fi
}

drop_folder() {
    kill -KILL $(jobs -p) 2>/dev/null
    cd / && rm -rf "$folder" "$folder.failed"
}

# Runs the tests, or those whose names match $FM_TEST_ONLY, in order. The program ends with 1 where one failed. No call
# here may be part of a condition: commands that fail would not end what it calls.
run_tests() { # TEST...
    local name code failed=0
    trap drop_folder EXIT
    if [ "${each_test:-}" != alone ]; then make_folder; fi
    for name in "$@"; do
        # shellcheck disable=SC2254 # a pattern
        case $name in ${FM_TEST_ONLY:-*}) ;; *) continue ;; esac
        if [ "${each_test:-}" = alone ]; then make_folder; fi
        run_alone "$name"
        code=$?
        case $code in
        0) echo "[       OK ] $name" ;;
        77) echo "[  SKIPPED ] $name" ;;
        *) failed=1 && echo "[  FAILED  ] $name" ;;
        esac
        if [ "${each_test:-}" = alone ]; then drop_folder; fi
    done
    if declare -F tear_down >/dev/null; then tear_down || failed=1; fi
    exit $failed
}
