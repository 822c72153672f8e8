#!/usr/bin/env python3
"""Times OpenFold's prediction of made-up chains: the model alone, with features in memory.

Model and features are OpenFold's own, from a checkout that is used as it is; weights are random.
OpenFold predicts in fp32 by default; --dtype bf16 is autocast over fp32 weights. The chunk size is
its default, which it tunes in the first run of a length. Compare with `bench_predict --device cuda
--dtype bf16 --preset af2-finetuning-ptm --clusters 508` at the same lengths, and say how many rows
each side has. ColabFold runs AlphaFold's JAX model, which needs published weights; no script here
measures it.

Needs a checkout of OpenFold whose attention kernel is built, a GPU, and PyTorch, NumPy, SciPy,
ml_collections and dm-tree of PyPI. This script has not been run; chain and features are those of
openfold_train.py, which has.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from typing import Any

import torch

import openfold_common as common
import result


def parse() -> argparse.Namespace:
    parser = result.parser_of(__doc__)
    parser.add_argument("--checkout", required=True, metavar="DIR", help="OpenFold's source")
    parser.add_argument("--preset", default="model_1_ptm", choices=("model_1_ptm", "model_2_ptm"))
    parser.add_argument("--dtype", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 384, 768, 1024],
                        metavar="N")
    parser.add_argument("--cycles", type=int, default=4, metavar="N")
    parser.add_argument("--rows", type=int, default=6000, metavar="N", help="of the alignment")
    parser.add_argument("--chunk", type=int, default=4, metavar="N",
                        help="chunk size (4, OpenFold's default); 0 computes without chunks")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true",
                        help="one block of each stack and few rows, to try the script")
    return parser.parse_args()


def configure(options: argparse.Namespace) -> Any:
    """Returns OpenFold's configuration of the preset with the options."""
    from openfold.config import model_config

    config = model_config(options.preset, train=False)
    config.data.common.max_recycling_iters = options.cycles - 1
    config.globals.chunk_size = options.chunk or None
    if options.tiny:
        common.shrink(config)
    return config


def main() -> None:
    options = parse()
    absent = common.import_openfold(options.checkout, options.device)
    from openfold.model.model import AlphaFold

    torch.set_float32_matmul_precision("high")
    torch.manual_seed(1)
    config = configure(options)
    predict = config.data.predict
    model = AlphaFold(config).to(options.device).eval()
    content = result.begin(
        "OpenFold", "a prediction, by residues", "wall",
        {"preset": options.preset, "dtype": options.dtype, "cycles": options.cycles,
         "clusters": predict.max_msa_clusters, "extra rows": predict.max_extra_msa,
         "templates": predict.max_templates, "chunk": options.chunk, "rounds": options.rounds,
         "TF32": True, "tiny": options.tiny, **common.versions(absent)},
        commit=result.commit_of(options.checkout), gpu=common.gpu_name(options.device))
    for length in options.lengths:
        chain = common.make_chain(length, options.rows, predict.max_templates)
        batch = common.make_batch(config, chain, "predict", options.device)

        def run() -> None:
            autocast: Any = nullcontext()
            if options.dtype == "bf16":
                autocast = torch.autocast(options.device, torch.bfloat16)
            with torch.no_grad(), autocast:
                model(dict(batch))

        (seconds, least, most), peak = common.time_rounds(run, 1, options.rounds, options.device,
                                                          1.0)
        result.add(content, str(length), s=seconds, least_s=least, most_s=most, GiB=peak)
    result.write(content, options.out)


if __name__ == "__main__":
    main()
