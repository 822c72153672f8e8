#!/bin/sh
# test_baselines.sh: results of baselines become rows of tables, what a machine lacks is said in sentences, and the
# printed table of a benchmark becomes a result.
set -u
here=$(cd "$(dirname "$0")/../../deploy/baselines" && pwd)
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
fail() { echo "$*"; exit 1; }

PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 python3 - "$folder" <<'EOF' || fail "results are not what they should be"
import sys
import all
import result
from pathlib import Path
folder = Path(sys.argv[1])
theirs = result.begin("Peer", "work", "wall", {"threads": 1}, version="1.2", command="peer.py")
result.add(theirs, "a", wall_ms=30, rows=2)
result.add(theirs, "b, none", wall_ms=0.00001)
result.write(theirs, str(folder / "peer.json"))
(folder / "log").write_text("times of this\nname      rows  wall ms\na            2    0.500\n"
                            "b, none      3    1e-06  whole\nskipped   for want of data\n")
assert all.read_table((folder / "log").read_text()) == {
    "a": {"rows": 2, "wall ms": 0.5}, "b, none": {"rows": 3, "wall ms": 1e-6}}
ours = all.Benchmark("own", "work", "wall", ())
all.write_ours(ours, ["bench", "--x"], folder / "log", folder / "own.json")
EOF

expect() { # TEXT LINE...: the text has these lines
    text=$1
    shift
    for line in "$@"; do
        printf '%s\n' "$text" | grep -qxF -e "$line" || fail "no line '$line' in:" "$text"
    done
}
expect "$("$here/rows.py" "$folder/own.json" "$folder/peer.json")" '|  | rows | wall ms |' '|---|---|---|' \
    '| foldmill, a | 2 | 0.5 |' '| Peer, a | 2 | 30 |' '| Peer, b, none |  | 0 |'
expect "$("$here/rows.py" --beside "$folder/own.json" "$folder/peer.json")" \
    '|  | foldmill, rows | Peer, rows | times | foldmill, wall ms | Peer, wall ms | times |' \
    '| a | 2 | 2 | 1 | 0.5 | 30 | 60 |'
"$here/rows.py" --beside "$folder/own.json" 2>/dev/null && fail "one result was put beside nothing"

mkdir "$folder/build"
listed=$(python3 "$here/all.py" --build "$folder/build" --out "$folder/out" --python /bin/false \
    --checkout openfold="$folder" --list) || fail "the list failed"
for part in "openfold_train-compile-evoformer-fused: OpenFold's training step, compiled, cannot run here." \
    "The Python /bin/false finds no GPU." "No checkout of protenix was named (--checkout protenix=DIR)." \
    "openfold_features: OpenFold's data pipeline cannot run here." \
    "The Python /bin/false has no module torch (--python names another)." \
    "The folder $folder has no openfold/data/data_pipeline.py, which a checkout of openfold has." \
    "foldmill's own benchmark $folder/build/release/bench/bench_chain has not been built."; do
    printf '%s\n' "$listed" | grep -qF "$part" || fail "'$part' is missing in:" "$listed"
done
printf '%s\n' "$listed" | grep -q "^dataloader: .* can run here" && fail "a Python without PyTorch was taken"
python3 "$here/all.py" --build "$folder/build" --out "$folder/out" --checkout openfold --list 2>/dev/null &&
    fail "a checkout without a folder was taken"
exit 0
