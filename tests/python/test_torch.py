"""The Python package with PyTorch: DataLoaders, and OpenFold's data module.

usage: see served.py; exit status 77 also where PyTorch is missing. The tests of OpenFold's data
module need pytorch_lightning, too; the one that runs OpenFold's training script needs a checkout of
OpenFold at $FM_OPENFOLD.
"""

import hashlib
import json
import os
import pathlib
import pickle
import subprocess
import sys
import types
import unittest

from served import BATCH, FOLDMILL, PACKAGE, PLAN, STEPS, Case, main

import foldmill

try:
    import torch
except ImportError:
    print("skipped: PyTorch is not installed")
    sys.exit(77)

try:
    import pytorch_lightning
except ImportError:
    pytorch_lightning = None


class Chains:
    """A map-style dataset of PyTorch."""

    def __init__(self, snapshot):
        self.snapshot = snapshot

    def __len__(self):
        return len(self.snapshot)

    def __getitem__(self, number):
        return self.snapshot[self.snapshot.chains[number]]


class DataLoaders(Case):
    def loader(self, stream, workers):
        return torch.utils.data.DataLoader(stream, batch_size=None, num_workers=workers)

    def test_workers_deliver_the_same_samples_in_the_same_order(self):
        expected = [features["msa_feat"].tobytes() for features in self.stream()]
        for workers in (0, 2, 3, 4):
            loader = self.loader(self.stream(tensors="torch"), workers)
            got = [features["msa_feat"].numpy().tobytes() for features in loader]
            self.assertEqual(got, expected, workers)

    def test_a_state_continues_under_workers(self):
        for workers in (0, 4):
            first, seen = self.stream(tensors="torch"), []
            for features in self.loader(first, workers):
                seen.append(int(features["index"]))
                first.deliver(features["index"])
                if len(seen) == 7:
                    break
            second = self.stream(tensors="torch")
            second.load_state_dict(json.loads(json.dumps(first.state_dict())))
            rest = [int(features["index"]) for features in self.loader(second, workers)]
            self.assertEqual(seen + rest, list(range(STEPS * BATCH)), workers)

    def test_a_second_loop_does_not_repeat_samples(self):
        for context, workers in (("fork", 2), ("fork", 0), ("spawn", 0)):
            stream = pickle.loads(pickle.dumps(self.stream(tensors="torch")))
            loader = torch.utils.data.DataLoader(stream, batch_size=None, num_workers=2,
                                                 multiprocessing_context=context)
            first = [int(features["index"]) for features in loader]
            with self.assertRaisesRegex(RuntimeError, "would give the same samples again"):
                next(iter(self.loader(stream, workers)))
            stream.deliver(first[:5])
            rest = [int(features["index"]) for features in self.loader(stream, workers)]
            self.assertEqual(rest, first[5:], (context, workers))
        stream.load_state_dict(stream.state_dict())
        self.assertEqual([features["index"] for features in stream], [])

    def test_samples_are_not_sent_between_processes(self):
        with self.assertRaisesRegex(ValueError, "raw=True gives Samples"):
            next(iter(self.loader(self.stream(raw=True), 2)))

    def test_workers_that_persist_are_refused(self):
        loader = torch.utils.data.DataLoader(self.stream(tensors="torch"), batch_size=None,
                                             num_workers=2, persistent_workers=True)
        self.assertEqual(sum(1 for _ in loader), STEPS * BATCH)
        with self.assertRaisesRegex(RuntimeError, "use persistent_workers=False"):
            next(iter(loader))

    def test_chains_of_a_cache_under_workers_that_are_spawned(self):
        snapshot = foldmill.open_snapshot(self.cache)
        loader = torch.utils.data.DataLoader(Chains(snapshot), batch_size=None, num_workers=1,
                                             multiprocessing_context="spawn")
        self.assertEqual([len(features["aatype"]) for features in loader],
                         [len(features["aatype"]) for features in snapshot.values()])

    def in_a_new_process(self, state, workers):
        """Loads a state in a process of its own; returns index and features' hash of the rest."""
        script = (
            "import hashlib, json, sys, torch, foldmill\n"
            "url, plan, steps, batch, workers, state = sys.argv[1:]\n"
            "stream = foldmill.Stream(url, plan=plan, seed=7, steps=int(steps), batch=int(batch),\n"
            "                         tensors='torch')\n"
            "stream.load_state_dict(json.loads(state))\n"
            "loader = torch.utils.data.DataLoader(stream, batch_size=None,\n"
            "                                     num_workers=int(workers))\n"
            "print(json.dumps([[int(f['index']), hashlib.md5(f['msa_feat'].numpy()).hexdigest()]\n"
            "                  for f in loader]))\n")
        path = os.pathsep.join([PACKAGE, os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-c", script, self.server.url, PLAN, str(STEPS), str(BATCH),
             str(workers), json.dumps(state)], env={**os.environ, "PYTHONPATH": path},
            capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return json.loads(done.stdout)

    def test_a_state_continues_in_a_new_process(self):
        whole = [[int(features["index"]), hashlib.md5(features["msa_feat"]).hexdigest()]
                 for features in self.stream()]
        for workers, n in ((0, 1), (0, 30), (4, BATCH), (4, 30)):
            first = self.stream(tensors="torch")
            for number, features in enumerate(self.loader(first, workers), 1):
                first.deliver(features["index"])
                if number == n:
                    break
            rest = self.in_a_new_process(first.state_dict(), workers)
            self.assertEqual(rest, whole[n:], (workers, n))


@unittest.skipIf(pytorch_lightning is None, "pytorch_lightning is not installed")
class OpenFold(Case):
    def module(self, rank=0, world=1, **changes):
        from foldmill.openfold import OpenFoldDataModule

        def group(**members):
            return types.SimpleNamespace(**members)

        config = group(data_module=group(data_loaders=group(batch_size=2)),
                       train=group(crop_size=48), common=group(max_recycling_iters=1))
        arguments = {"train_data_dir": self.server.url, "train_alignment_dir": PLAN,
                     "template_mmcif_dir": "-", "max_template_date": "any", "batch_seed": 7,
                     "train_epoch_len": 8, "kalign_binary_path": "ignored", **changes}
        module = OpenFoldDataModule(config, **arguments)
        module.trainer = group(global_rank=rank, world_size=world)
        return module

    def test_batches_are_those_of_the_stream(self):
        for world in (1, 2):
            for rank in range(world):
                module = self.module(rank, world)
                stream = self.stream(batch=2 * world, rank=rank, world=world, crop=48, cycles=2,
                                     max_template_date="any", stack=True, steps=0)
                expected = iter(stream)
                for _ in range(2):
                    epoch = module.train_dataloader()
                    self.assertEqual(len(epoch), 4 // world)
                    for batch in epoch:
                        step = next(expected)
                        self.assertEqual(set(step) - set(batch), {"index"})
                        self.assertEqual(batch["msa_feat"].numpy().tobytes(),
                                         step["msa_feat"].tobytes())

    def test_a_checkpoint_of_the_first_rank_serves_all(self):
        first = self.module(0, 2)
        self.assertEqual(first.state_dict(), {})
        for batch in first.train_dataloader():
            state = json.loads(json.dumps(first.state_dict()))
            break
        whole, second = self.module(1, 2), self.module(1, 2)
        second.load_state_dict(state)
        batches = [batch["aatype"] for batch in whole.train_dataloader()]
        resumed = next(iter(second.train_dataloader()))
        self.assertTrue(torch.equal(resumed["aatype"], batches[1]))

    def test_an_epoch_without_a_batch_is_refused(self):
        with self.assertRaisesRegex(ValueError, "train_epoch_len: found 3, expected at least"):
            self.module(0, 2, train_epoch_len=3).train_dataloader()

    def test_validation_has_every_chain_once_and_whole(self):
        lengths = []
        for rank in range(2):
            module = self.module(rank, 2, val_data_dir=self.server.url, val_alignment_dir="all")
            batches = list(module.val_dataloader())
            lengths += [batch["aatype"].shape[1] for batch in batches]
        chains = foldmill.Cache(self.cache).values()
        self.assertEqual(sorted(lengths), sorted(len(chain["aatype"]) for chain in chains))
        self.assertEqual(self.module().val_dataloader(), [])

    @unittest.skipUnless(os.environ.get("FM_OPENFOLD"), "FM_OPENFOLD names no checkout of OpenFold")
    def test_its_training_script_runs_with_one_changed_line(self):
        example = pathlib.Path(__file__).parents[2] / "server/python/examples/openfold_step.py"
        path = os.pathsep.join([PACKAGE, os.environ.get("PYTHONPATH", "")])
        done = subprocess.run([sys.executable, example, FOLDMILL, os.environ["FM_OPENFOLD"], "1"],
                              env={**os.environ, "PYTHONPATH": path}, capture_output=True,
                              text=True, timeout=280)
        if done.returncode == 77:
            self.skipTest(done.stdout.strip())
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        self.assertRegex(done.stdout, "1 steps, the stream is at sample 1, [1-9]")


if __name__ == "__main__":
    main()
