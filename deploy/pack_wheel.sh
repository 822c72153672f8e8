#!/bin/sh
# pack_wheel.sh PACKAGE_DIR OUT_DIR: packs the built Python package (PACKAGE_DIR/foldmill) into a
# wheel for this machine, and prints its path. `./run wheel` makes a portable one from it.
set -eu
[ $# = 2 ] || { echo "usage: deploy/pack_wheel.sh PACKAGE_DIR OUT_DIR" >&2; exit 2; }
package=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
cd "$(dirname "$0")/.."

version=$(sed -n 's/^project(foldmill VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
tree=$out/tree
info=$tree/foldmill-$version.dist-info
rm -rf "$tree"
mkdir -p "$info"
cp -R "$package/foldmill" "$tree/"
find "$tree" -name __pycache__ -prune -exec rm -rf {} +
cp LICENSE "$info/"
sed "s/@VERSION@/$version/" server/python/METADATA.in >"$info/METADATA"
tag=cp311-abi3-linux_$(uname -m)
printf 'Wheel-Version: 1.0\nGenerator: foldmill\nRoot-Is-Purelib: false\nTag: %s\n' "$tag" >"$info/WHEEL"
/usr/bin/python3 -m wheel pack --dest-dir "$out" "$tree" >&2
rm -rf "$tree"
echo "$out/foldmill-$version-$tag.whl"
