#!/bin/bash
# bare_system.sh SUITE DEB: makes a root file system of Debian with nothing but its essential packages, installs a package
# of foldmill in it, and runs the demo's commands there as an ordinary user without a network. It needs root and
# debootstrap, and takes minutes, so no test calls it.
set -eu
[ $# = 2 ] || { echo "usage: tests/deploy/bare_system.sh SUITE DEB" >&2; exit 2; }
suite=$1
deb=$2
root=$(mktemp -d)
chmod 755 "$root"
trap 'rm -rf --one-file-system "$root"' EXIT
debootstrap --variant=minbase "$suite" "$root" >"$root.log" 2>&1 || { tail -n 5 "$root.log" >&2; exit 1; }
cp "$deb" "$root/tmp/foldmill.deb"
cp /etc/resolv.conf "$root/etc/resolv.conf"
chroot "$root" sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends /tmp/foldmill.deb' \
    >"$root.log" 2>&1 || { tail -n 5 "$root.log" >&2; exit 1; }
chroot "$root" useradd --create-home visitor
# Neither network nor the machine's files: what the package and its Depends do not bring is not there.
unshare --net chroot --userspec visitor:visitor "$root" sh -eu <<'EOF'
cd /home/visitor
export HOME=/home/visitor
foldmill --version --verbose
foldmill synth --chains 6 --max-length 60 -o data -q
foldmill build data --cache cache -q
foldmill verify --cache cache
foldmill train --cache cache --preset tiny --steps 20 --out run -q
foldmill predict --help >/dev/null
getent group foldmill foldmill-keys
EOF
echo "$suite: $(basename "$deb") installs and runs"
