"""The form in which every script of this folder writes what it measured.

A result is one JSON object:

    peer      who was measured
    version   of its package, or "" where there is none
    commit    of its checkout, or "" where there is none; "-dirty" follows where files were changed
    what      what the figures say, in words
    machine   processor, cores, memory, GPU and system
    load      the machine's load average when the script began
    date      day on which the script began, in UTC
    command   how the script was called
    settings  everything that was chosen, by name
    clock     "wall" or "processor"; "wall and processor" where the columns' names say which
    figures   rows by name, each with its columns: {row: {column: number}}

Columns name their unit. rows.py makes tables of such files.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

Result = dict[str, Any]


def commit_of(checkout: str) -> str:
    """Returns the commit of a checkout, or "unknown" for a folder that is none."""
    found = subprocess.run(["git", "-C", checkout, "describe", "--always", "--dirty", "--abbrev=40",
                            "--exclude=*"], check=False, capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def version_of(package: str) -> str:
    """Returns the version of a Python package that is installed."""
    return metadata.version(package)


def machine(gpu: str = "") -> str:
    """Describes this machine; `gpu` is the name of the GPU that was used."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n")
    model = next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")),
                 platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [f"{os.cpu_count()} cores of {model}", f"{memory:.0f} GiB", gpu,
             f"Linux {platform.release()}"]
    return ", ".join(part for part in parts if part)


def begin(peer: str, what: str, clock: str, settings: Mapping[str, Any], version: str = "",
          commit: str = "", gpu: str = "", command: str = "") -> Result:
    """Returns and prints a result without figures. It has the load and the day of this moment."""
    now = datetime.datetime.now(datetime.timezone.utc)
    head = " ".join(part for part in (peer, version, commit) if part)
    print(f"{head}: {what}; {clock} time", flush=True)
    for name, value in settings.items():
        print(f"  {name} = {value}", flush=True)
    return {"peer": peer, "version": version, "commit": commit, "what": what,
            "machine": machine(gpu), "load": round(os.getloadavg()[0], 2),
            "date": now.strftime("%Y-%m-%d"), "command": command or shlex.join(sys.argv),
            "settings": dict(settings), "clock": clock, "figures": {}}


def add(content: Result, row: str, **columns: float) -> None:
    """Adds a row and prints it. An underscore of a column's name stands for a blank."""
    figures = {name.replace("_", " "): float(f"{value:.6g}") for name, value in columns.items()}
    content["figures"][row] = figures
    print(f"{row}: " + ", ".join(f"{name} {value:.4g}" for name, value in figures.items()),
          flush=True)


def write(content: Result, path: str) -> None:
    """Writes a result as JSON; "" writes nothing."""
    if path:
        Path(path).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def parser_of(document: str | None) -> argparse.ArgumentParser:
    """Returns a parser that shows a script's head as its help, and knows --out."""
    parser = argparse.ArgumentParser(description=document,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="", metavar="FILE", help="write the result there, as JSON")
    return parser
