#!/bin/bash
# The Debian package of a build: lintian finds nothing, the programs in it run, and its service has what it needs.
# test_deb.sh BUILD
set -eu
build=$1
for tool in dpkg-buildpackage dh; do
    command -v "$tool" >/dev/null || { echo "skipped: no $tool"; exit 77; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() {
    echo "failed: $*" >&2
    exit 1
}
deb=$("$(dirname "$0")/../../deploy/pack_deb.sh" "$build" foldmill "$folder/out")
[ -s "$deb" ] || fail "no package"
if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error,warning "$deb" >"$folder/lintian" 2>&1 || {
        cat "$folder/lintian" >&2
        fail "lintian"
    }
else
    echo "lintian is not installed: it did not look at the package"
fi

dpkg-deb -x "$deb" "$folder/root"
dpkg-deb -e "$deb" "$folder/control"
"$folder/root/usr/bin/foldmill" --version --verbose >"$folder/version"
grep -q '^foldmill-train [0-9]' "$folder/version" || fail "the programs do not find each other"
for library in libc6 libzstd1 liblmdb0 libuv1 libpq5; do
    dpkg-deb -f "$deb" Depends | grep -q "$library" || fail "Depends without $library"
done
unit=$folder/root/lib/systemd/system/foldmill-serve.service
grep -q '^ExecStart=/usr/bin/foldmill serve' "$unit" || fail "the unit names another program"
[ -e "$folder/root/etc/foldmill/serve.env" ] || fail "the unit's file of settings is missing"
grep -qx /etc/foldmill/serve.env "$folder/control/conffiles" || fail "serve.env is no file of the administrator's"
grep -q 'systemd-sysusers.* foldmill.conf' "$folder/control/postinst" || fail "no groups are made"
! grep -q "$folder\|$PWD" "$folder/root/usr/bin/foldmill" || fail "the program has a path of this machine"
echo "deb: $(stat -c %s "$deb") bytes"
