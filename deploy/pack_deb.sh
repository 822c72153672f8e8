#!/bin/sh
# pack_deb.sh BUILD PACKAGE OUT: packs a build folder into a Debian package called foldmill or foldmill-cuda, and prints
# its path. The same commit and programs give the same bytes. `./run deb` calls it.
set -eu
[ $# = 3 ] || { echo "usage: deploy/pack_deb.sh BUILD PACKAGE OUT" >&2; exit 2; }
FM_BUILD=$(cd "$1" && pwd)
FM_PACKAGE=$2
mkdir -p "$3"
out=$(cd "$3" && pwd)
cd "$(dirname "$0")/.."

version=$(sed -n 's/^project(foldmill VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
# Files of the package get the commit's time. A tree without git has the time of its list of changes.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
export FM_BUILD FM_PACKAGE SOURCE_DATE_EPOCH
maintainer=$(sed -n 's/^Maintainer: //p' deploy/debian/control)
tree=$out/tree
rm -rf "$tree"
mkdir -p "$tree"
cp -R deploy/debian "$tree/debian"
cp deploy/systemd/serve.env "$tree/debian/"
{
    printf 'foldmill (%s-1) unstable; urgency=medium\n\n' "$version"
    printf '  * changelog.gz beside this file names what has changed.\n\n'
    printf ' -- %s  %s\n' "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")"
} >"$tree/debian/changelog"
profiles=
[ "$FM_PACKAGE" = foldmill ] || profiles=pkg.foldmill.cuda
if ! (cd "$tree" && DEB_BUILD_PROFILES=$profiles DEB_BUILD_OPTIONS=noautodbgsym dpkg-buildpackage -b -us -uc -d) >"$out/build.log" 2>&1; then
    tail -n 20 "$out/build.log" >&2
    exit 1
fi
rm -rf "$tree"
echo "$out/${FM_PACKAGE}_${version}-1_$(dpkg --print-architecture).deb"
