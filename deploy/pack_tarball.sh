#!/bin/sh
# pack_tarball.sh BUILD OUT: packs what `cmake --install` puts in place into an archive that may be unpacked anywhere, and
# prints its path. The same commit and programs give the same bytes. `./run tarball` calls it with the static build.
set -eu
[ $# = 2 ] || { echo "usage: deploy/pack_tarball.sh BUILD OUT" >&2; exit 2; }
build=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
cd "$(dirname "$0")/.."

version=$(sed -n 's/^project(foldmill VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=foldmill-$version-linux-$(uname -m)
time=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
tree=$out/$name
rm -rf "$tree"
cmake --install "$build" --strip --prefix "$tree" >"$out/install.log"
# The folder is of one user: what only an administrator can use stays out.
rm -r "${tree:?}/lib"
install -m 755 deploy/demo "$tree/share/foldmill-demo"
cat >"$tree/demo" <<'EOF'
#!/bin/sh
# Builds a synthetic cache, serves it and trains on the stream, in ./foldmill-demo. --help names the options.
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/share/foldmill-demo" "$here/bin" "$PWD/foldmill-demo" "$PWD" "$@"
EOF
chmod 755 "$tree/demo"
tar -C "$out" --sort=name --mtime="@$time" --owner=0 --group=0 --numeric-owner --format=gnu -c "$name" |
    xz -T2 -6 >"$out/$name.tar.xz"
rm -r "$tree"
echo "$out/$name.tar.xz"
