#!/usr/bin/env python3
"""Runs the baselines that are possible on this machine, each beside foldmill's own benchmark.

    all.py --build DIR --out DIR [--python FILE] [--checkout PEER=DIR]... [--only NAME]...

For every baseline that cannot run here it says in whole sentences what is missing. The scripts run
with the Python that --python names, and foldmill's benchmarks are those of DIR/release and DIR/cuda
(`./run bench baselines` builds them). Each side writes OUT/NAME.json; rows.py makes tables of them.
Exit status 1 if something that was possible failed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import result
import rows

HERE = Path(__file__).resolve().parent
NUMBER = re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?")


@dataclass(frozen=True)
class Benchmark:
    """A benchmark of foldmill, and the peers that measure the same."""

    name: str
    what: str
    clock: str
    command: tuple[str, ...]  # below the folder of builds
    at_once: bool = False  # both sides sleep, and run together so that the same load disturbs them
    has_same_rows: bool = False


@dataclass(frozen=True)
class Baseline:
    """A script of this folder."""

    script: str
    peer: str
    benchmark: Benchmark
    packages: tuple[str, ...]  # modules that its Python must have
    checkout: str = ""  # the name of the checkout that it needs
    file: str = ""  # of that checkout, by which it is known
    on_gpu: bool = False
    settings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "-".join([self.script, *(word.lstrip("-") for word in self.settings)])


WAITS = Benchmark("waits", "exposed wait of a step for data", "wall",
                  ("release/bench/bench_stream", "--only", "waits"), at_once=True)
CHAIN = Benchmark("chain", "features of a chain, from files to arrays", "wall and processor",
                  ("release/bench/bench_chain", "--compat"), has_same_rows=True)
GPU = ("--device", "cuda", "--dtype", "bf16", "--preset")
STEP = Benchmark("step", "a training step, by cycles", "wall",
                 ("cuda/bench/bench_step", *GPU, "af2-initial"), has_same_rows=True)
AF3_STEP = Benchmark("af3_step", "a training step, by cycles", "wall",
                     ("cuda/bench/bench_step", *GPU, "af3-initial"), has_same_rows=True)
PREDICTION = Benchmark("predict", "a prediction, by residues", "wall",
                       ("cuda/bench/bench_predict", *GPU, "af2-finetuning-ptm", "--clusters",
                        "508", "--lengths", "256,384,768,1024"), has_same_rows=True)
OF_PACKAGES = ("torch", "numpy", "scipy", "ml_collections", "tree")
BASELINES = (
    Baseline("dataloader", "PyTorch's DataLoader", WAITS, ("torch",)),
    Baseline("streaming_loader", "MosaicML's streaming", WAITS, ("torch", "streaming")),
    Baseline("openfold_features", "OpenFold's data pipeline", CHAIN,
             ("torch", "Bio", "pandas", "scipy", "tree", "ml_collections"),
             "openfold", "openfold/data/data_pipeline.py"),
    Baseline("openfold_train", "OpenFold's training step, as shipped,", STEP, OF_PACKAGES,
             "openfold", "openfold/model/model.py", on_gpu=True),
    Baseline("openfold_train", "OpenFold's training step, compiled,", STEP, OF_PACKAGES,
             "openfold", "openfold/model/model.py", on_gpu=True,
             settings=("--compile", "evoformer", "--fused")),
    Baseline("openfold_predict", "OpenFold's prediction", PREDICTION, OF_PACKAGES, "openfold",
             "openfold/model/model.py", on_gpu=True),
    Baseline("protenix_train", "Protenix's training step", AF3_STEP,
             ("torch", "numpy", "rdkit", "biotite", "optree", "wandb"), "protenix",
             "runner/train.py", on_gpu=True),
)


# -- what is possible


def has_module(python: str, module: str) -> bool:
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True,
                          check=False).returncode == 0


def has_gpu(python: str) -> bool:
    """Says whether PyTorch can use a GPU, and its memory."""
    code = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0


def missing(baseline: Baseline, options: argparse.Namespace) -> list[str]:
    """Returns a sentence for each thing that a baseline lacks here."""
    found = []
    for module in baseline.packages:
        if not has_module(options.python, module):
            found.append(f"The Python {options.python} has no module {module} (--python names "
                         "another).")
    if baseline.checkout:
        folder = options.checkouts.get(baseline.checkout, "")
        if not folder:
            found.append(f"No checkout of {baseline.checkout} was named "
                         f"(--checkout {baseline.checkout}=DIR).")
        elif not (Path(folder) / baseline.file).exists():
            found.append(f"The folder {folder} has no {baseline.file}, which a checkout of "
                         f"{baseline.checkout} has.")
    if baseline.script == "protenix_train":
        if "PROTENIX_ROOT_DIR" not in os.environ:
            found.append("PROTENIX_ROOT_DIR does not name the folder of Protenix's data.")
        if not options.protenix_settings:
            found.append("No settings of its trainer were given (--protenix-settings).")
    if baseline.on_gpu and not has_gpu(options.python):
        found.append(f"The Python {options.python} finds no GPU.")
    program = options.build / baseline.benchmark.command[0]
    if not program.exists():
        found.append(f"foldmill's own benchmark {program} has not been built.")
    return found


# -- foldmill's side


def read_table(text: str) -> dict[str, dict[str, float]]:
    """Reads the rows of printed tables, whose columns are two blanks or more apart.

    A line without numbers is the head of the rows below it. A row may end with words.
    """
    figures: dict[str, dict[str, float]] = {}
    head: list[str] = []
    for text_line in text.split("\n"):
        cells = re.split(r"  +", text_line.strip())
        values = [float(cell) for cell in itertools.takewhile(NUMBER.fullmatch, cells[1:])]
        if len(cells) > 2 and not values:
            head = cells
        elif len(values) > 1 and len(values) == len(head) - 1:
            figures[cells[0]] = dict(zip(head[1:], values))
    return figures


def start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    print(f"baselines: {shlex.join(command)}", flush=True)
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=HERE.parents[1])


def write_ours(benchmark: Benchmark, command: list[str], log: Path, path: Path) -> None:
    """Writes the printed table of a benchmark in the form of the other results."""
    text = log.read_text(encoding="utf-8")
    first = text.split("\n", 1)[0]
    ours = result.begin("foldmill", benchmark.what, benchmark.clock, {"first line": first},
                        commit=result.commit_of(str(HERE)), command=shlex.join(command))
    ours["figures"] = read_table(text)
    if not ours["figures"]:
        raise SystemExit(f"all.py: {log}: no table was found")
    result.write(ours, str(path))


# -- runs


def run_script(baseline: Baseline, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    command = [options.python, str(HERE / f"{baseline.script}.py"), *baseline.settings]
    if baseline.checkout:
        command += ["--checkout", options.checkouts[baseline.checkout]]
    out = options.out / f"{baseline.name}.json"
    out.unlink(missing_ok=True)
    command += ["--out", str(out)]
    if baseline.script == "protenix_train":
        command += ["--", *shlex.split(options.protenix_settings)]
    return start(command, options.out / f"{baseline.name}.log")


def run_group(benchmark: Benchmark, baselines: list[Baseline], options: argparse.Namespace) -> int:
    """Runs a benchmark of foldmill and the peers' scripts; returns how many failed."""
    command = [str(options.build / benchmark.command[0]), *benchmark.command[1:]]
    log = options.out / f"foldmill-{benchmark.name}.log"
    path = options.out / f"foldmill-{benchmark.name}.json"
    process = start(command, log)
    if not benchmark.at_once:
        process.wait()
    failed, done = 0, []
    processes = []
    for baseline in baselines:
        processes.append(run_script(baseline, options))
        if not benchmark.at_once:
            processes[-1].wait()
    for baseline, script in zip(baselines, processes):
        if script.wait() == 0:
            done.append(options.out / f"{baseline.name}.json")
        else:
            failed += 1
            print(f"baselines: {baseline.name} failed (see {options.out / baseline.name}.log)")
    if process.wait() != 0:
        print(f"baselines: {benchmark.command[0]} failed (see {log})")
        return failed + 1
    write_ours(benchmark, command, log, path)
    show(benchmark, path, done)
    return failed


def show(benchmark: Benchmark, ours: Path, done: list[Path]) -> None:
    """Prints the tables of a benchmark and its peers."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in (ours, *done)]
    print()
    if benchmark.has_same_rows:
        for other in results[1:]:
            print("\n".join(rows.beside(results[0], other)), end="\n\n")
    else:
        print("\n".join(rows.stacked(results)), end="\n\n")
    print("\n".join(map(rows.source, results)), end="\n\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run bench baselines", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--python", default=shutil.which("python3") or sys.executable,
                        metavar="FILE", help="the Python that has the peers' packages")
    parser.add_argument("--checkout", action="append", default=[], metavar="PEER=DIR",
                        help="a checkout of openfold or protenix")
    parser.add_argument("--protenix-settings", default="", metavar="WORDS",
                        help="of its runner/train.py, as in its train_demo.sh")
    parser.add_argument("--only", action="append", choices=sorted({b.script for b in BASELINES}),
                        help="this baseline alone; may be repeated")
    parser.add_argument("--list", action="store_true", help="only say what is possible here")
    options = parser.parse_args()
    for word in options.checkout:
        if "=" not in word:
            parser.error(f"--checkout takes PEER=DIR, found '{word}'")
    options.checkouts = dict(word.split("=", 1) for word in options.checkout)
    options.out.mkdir(parents=True, exist_ok=True)
    possible: dict[Benchmark, list[Baseline]] = {}
    for baseline in BASELINES:
        if options.only and baseline.script not in options.only:
            continue
        lacks = missing(baseline, options)
        verdict = "cannot run here. " + " ".join(lacks) if lacks else "can run here."
        print(f"{baseline.name}: {baseline.peer} {verdict}")
        if not lacks:
            possible.setdefault(baseline.benchmark, []).append(baseline)
    if options.list:
        return
    failed = sum(run_group(benchmark, group, options) for benchmark, group in possible.items())
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
