#!/usr/bin/env python3
"""Times OpenFold's data pipeline on eight chains: from files to all features, on one core.

It reads the chains that tests/bench/bench_chain.c reads, from $FM_REFERENCE_DATA: the structure
file, three alignments, a template search and the structures of its hits. Caches of parsed files are
emptied before each round, so nothing is kept. Compare with `bench_chain --compat`, which gives the
same arrays. The checkout is used as it is; packages that this path never calls may be missing.

Needs a checkout of OpenFold, kalign, and PyTorch, NumPy, SciPy, pandas, ml_collections, dm-tree and
biopython of PyPI; no GPU. Run with OpenFold ce0029e, Biopython 1.80 and NumPy 2.1.3 on 2 cores.
"""

from __future__ import annotations

import argparse
import logging
import os
import resource
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import result

sys.path.append(str(Path(__file__).resolve().parents[2] / "server/python/examples"))
import stand_ins  # noqa: E402

CHAINS = ("1psm_A", "2crb_A", "2q2k_A", "3u8v_A", "3zee_A", "4i6p_A", "4zey_A", "5kc1_A")


def processor_s() -> float:
    """Processor time of this process and of the programs that it ran."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def timed(make: Callable[[], Any], rounds: int) -> tuple[float, float, Any]:
    """Returns medians of processor and wall time in ms, and a value."""
    processor, wall = [], []
    for _ in range(rounds + 1):  # the first warms up
        used, begin = processor_s(), time.monotonic()
        value = make()
        wall.append((time.monotonic() - begin) * 1e3)
        processor.append((processor_s() - used) * 1e3)
    return statistics.median(processor[1:]), statistics.median(wall[1:]), value


class Pipeline:
    """OpenFold's pipeline over the reference data, with and without templates."""

    def __init__(self, inputs: Path, kalign: str) -> None:
        from openfold.data import data_pipeline, mmcif_parsing, templates

        self.inputs, self.parse = inputs, mmcif_parsing.parse
        self.caches = (mmcif_parsing.parse, templates._read_file)
        featurizer = templates.HhsearchHitFeaturizer(
            mmcif_dir=str(inputs / "mmcifs"), max_template_date="2100-01-01", max_hits=4,
            kalign_binary_path=kalign)
        self.with_templates = data_pipeline.DataPipeline(template_featurizer=featurizer)
        self.without = data_pipeline.DataPipeline(template_featurizer=None)
        # Without templates the search is not read, as in bench_chain.
        self.without._parse_template_hit_files = lambda *arguments, **keywords: {}

    def features(self, chain: str, with_templates: bool) -> Any:
        """Makes all features of a chain, with nothing kept from before."""
        for cache in self.caches:
            cache.cache_clear()
        name, author = chain.split("_")
        parsed = self.parse(file_id=name, mmcif_string=(self.inputs / "mmcifs" / f"{name}.cif")
                            .read_text(encoding="utf-8"))
        pipeline = self.with_templates if with_templates else self.without
        return pipeline.process_mmcif(mmcif=parsed.mmcif_object, chain_id=author,
                                      alignment_dir=str(self.inputs / "align" / chain))


def measure(pipeline: Pipeline, chain: str, rounds: int) -> dict[str, float]:
    """Returns the columns of a chain, with the names that bench_chain prints."""
    with_cpu, with_wall, made = timed(lambda: pipeline.features(chain, True), rounds)
    cpu, wall, _ = timed(lambda: pipeline.features(chain, False), rounds)
    return {"rows": len(made["msa"]), "templates": len(made["template_sequence"]),
            "processor_ms": with_cpu, "wall_ms": with_wall, "processor_ms,_none": cpu,
            "wall_ms,_none": wall}


def main() -> None:
    parser = result.parser_of(__doc__)
    parser.add_argument("--checkout", required=True, metavar="DIR", help="OpenFold's source")
    parser.add_argument("--rounds", type=int, default=5, metavar="N",
                        help="rounds of each figure, of which the median is taken (5)")
    options = parser.parse_args()
    data, kalign = os.environ.get("FM_REFERENCE_DATA"), shutil.which("kalign")
    if not data or not kalign:
        sys.exit("openfold_features.py: needs FM_REFERENCE_DATA and kalign")
    sys.path.insert(0, options.checkout)
    absent = stand_ins.install()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    measured = result.begin(
        "OpenFold", "features of a chain, from files to arrays", "wall and processor",
        {"biopython": result.version_of("biopython"), "numpy": result.version_of("numpy"),
         "threads": 1, "rounds": options.rounds, "templates": "at most 4", "kalign": kalign,
         "never called and absent": ", ".join(absent)},
        commit=result.commit_of(options.checkout))
    pipeline = Pipeline(Path(data) / "golden/inputs", kalign)
    rows = [measure(pipeline, chain, options.rounds) for chain in CHAINS]
    for chain, row in zip(CHAINS, rows):
        result.add(measured, chain, **row)
    result.add(measured, "mean", **{name: statistics.fmean(row[name] for row in rows)
                                    for name in rows[0]})
    result.write(measured, options.out)


if __name__ == "__main__":
    main()
