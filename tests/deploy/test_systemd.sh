#!/bin/sh
# The unit files of deploy/systemd as systemd itself reads them: they are well formed, and the
# service is exposed to little. 77: there is no systemd-analyze.
set -eu
if ! command -v systemd-analyze >/dev/null; then
    echo "skipped: there is no systemd-analyze"
    exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp deploy/systemd/*.service deploy/systemd/*.socket "$folder"
# The program of this build need not be installed.
sed -i "s|^ExecStart=/usr/local/bin/foldmill |ExecStart=$(command -v true) |" "$folder/foldmill-serve.service"

fail() {
    echo "failed: $*" >&2
    cat "$folder/out" >&2
    exit 1
}
systemd-analyze verify "$folder"/*.service "$folder"/*.socket >"$folder/out" 2>&1 || fail "verify"
# An unknown key is only a warning.
[ ! -s "$folder/out" ] || fail "verify warns"
# Out of 100, where 0 is a service that can do nothing; the rest is the network and two groups.
systemd-analyze security --offline=true --threshold=16 --no-pager "$folder/foldmill-serve.service" \
    >"$folder/out" 2>&1 || fail "security"

# The check is one that can fail.
sed -i '/^CapabilityBoundingSet=/d; /^SystemCallFilter=/d' "$folder/foldmill-serve.service"
if systemd-analyze security --offline=true --threshold=16 --no-pager \
    "$folder/foldmill-serve.service" >"$folder/out" 2>&1; then
    fail "a service with all capabilities passes"
fi

# Every group of the service is made by the file for systemd-sysusers.
sed -n 's/^SupplementaryGroups=//p' deploy/systemd/foldmill-serve.service | tr ' ' '\n' >"$folder/groups"
[ -s "$folder/groups" ] || fail "the service has no groups"
while read -r group; do
    grep -q "^g $group " deploy/systemd/foldmill.sysusers.conf || fail "nobody makes group $group"
done <"$folder/groups"
echo "systemd: the unit files are fine"
