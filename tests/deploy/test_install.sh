#!/bin/bash
# cmake --install BUILD into a folder: programs that run there, manual pages that mandoc reads, units that name the
# installed program, and completion that bash loads. test_install.sh BUILD
set -eu
build=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() {
    echo "failed: $*" >&2
    exit 1
}
DESTDIR=$folder cmake --install "$build" --prefix /opt/foldmill >"$folder/log" 2>&1 || {
    cat "$folder/log" >&2
    fail "cmake --install"
}
root=$folder/opt/foldmill
PATH=$root/bin:$PATH
[ "$(command -v foldmill)" = "$root/bin/foldmill" ] || fail "no program"

# The program finds foldmill-train beside it, and both have one version.
foldmill --version --verbose >"$folder/version"
for line in '^foldmill [0-9]' '^commit: ' '^compiler: ' '^libraries: zstd' '^without: ' '^foldmill-train [0-9]' '^GPUs: '; do
    grep -q "$line" "$folder/version" || fail "--version --verbose without $line"
done

# A page for the program and one for each command, without a warning where mandoc can tell.
foldmill --help=words >"$folder/words"
pages=$(find "$root/share/man/man1" -name '*.1' | wc -l)
[ "$pages" = $(($(wc -l <"$folder/words") + 1)) ] || fail "$pages pages of $(wc -l <"$folder/words") commands"
grep -q 'DATASET' "$root/share/man/man1/foldmill-build.1" || fail "foldmill-build.1 is empty"
if command -v mandoc >/dev/null; then
    mandoc -T lint -W warning "$root"/share/man/man1/*.1 >"$folder/lint" || {
        cat "$folder/lint" >&2
        fail "mandoc"
    }
fi

unit=$root/lib/systemd/system/foldmill-serve.service
grep -q '^ExecStart=/opt/foldmill/bin/foldmill serve' "$unit" || fail "the unit names another program"
[ -e "$root/lib/sysusers.d/foldmill.conf" ] || fail "no groups for systemd-sysusers"

# Completion: commands, options of a command, and files after an option that takes one.
cat >"$folder/complete.sh" <<'EOF'
. "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
compopt() { printf 'compopt %s\n' "$*"; }
_foldmill
printf '%s\n' "${COMPREPLY[@]}"
EOF
complete() { bash "$folder/complete.sh" "$root/share/bash-completion/completions/foldmill" "$@"; }
[ "$(complete foldmill ver)" = verify ] || fail "completion of a command"
complete foldmill build --cac | grep -qx -- --cache || fail "completion of an option"
complete foldmill build --cache '' | grep -q 'compopt -o dirnames' || fail "completion of a folder"
echo "install: $pages pages, programs, units and completion are in place"
