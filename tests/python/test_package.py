"""The Python package against the real programs: a dataset is synthesised, built and served.

usage: see served.py.
"""

import abc
import inspect
import json
import os
import pathlib
import pickle
import re
import signal
import socket
import sys
import tempfile
import threading
import types
import unittest
import unittest.mock

from served import BATCH, PLAN, STEPS, Case, Server, main, run

import numpy
import foldmill


def component(name, kind, atoms, bonds=""):
    rows = "".join(" ".join(map(str, atom)) + "\n" for atom in atoms)
    text = (f"data_{name}\n_chem_comp.id {name}\n_chem_comp.type '{kind}'\nloop_\n"
            "_chem_comp_atom.atom_id\n_chem_comp_atom.type_symbol\n_chem_comp_atom.charge\n"
            f"_chem_comp_atom.pdbx_leaving_atom_flag\n{rows}")
    return text + (f"loop_\n_chem_comp_bond.atom_id_1\n_chem_comp_bond.atom_id_2\n"
                   f"_chem_comp_bond.value_order\n{bonds}" if bonds else "")


def entry(n):
    """An mmCIF entry of n glycines and a zinc ion."""
    columns = ("group_PDB id type_symbol label_atom_id label_alt_id label_comp_id label_asym_id "
               "label_entity_id label_seq_id auth_asym_id auth_seq_id Cartn_x Cartn_y Cartn_z "
               "occupancy B_iso_or_equiv").split()
    atoms = [f"ATOM {4 * i + k} {name[0]} {name} . GLY A 1 {i + 1} A {i + 1} "
             f"{3.8 * i + 1.3 * k:.2f} {1.2 * (k == 3):.2f} 0 1 20"
             for i in range(n) for k, name in enumerate(("N", "CA", "C", "O"))]
    atoms.append(f"HETATM {4 * n} ZN ZN . ZN B 2 . A 101 8 2 2 1 30")
    return ("data_T\n_exptl.method 'X-RAY DIFFRACTION'\n_refine.ls_d_res_high 1.50\n"
            "_pdbx_audit_revision_history.revision_date 2011-07-13\n_entity_poly.entity_id 1\n"
            "_entity_poly.type 'polypeptide(L)'\nloop_\n_entity_poly_seq.entity_id\n"
            "_entity_poly_seq.num\n_entity_poly_seq.mon_id\n"
            + "".join(f"1 {i + 1} GLY\n" for i in range(n)) + "loop_\n"
            + "".join(f"_atom_site.{column}\n" for column in columns) + "\n".join(atoms) + "\n")


class Complexes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        root = pathlib.Path(cls.folder.name)
        (root / "data" / "mmcifs").mkdir(parents=True)
        for name, n in (("1abc", 6), ("2abc", 9)):
            (root / "data" / "mmcifs" / f"{name}.cif").write_text(entry(n))
        glycine = [("N", "N", 0, "N"), ("CA", "C", 0, "N"), ("C", "C", 0, "N"), ("O", "O", 0, "N"),
                   ("OXT", "O", 0, "Y")]
        (root / "known.cif").write_text(
            component("GLY", "PEPTIDE LINKING", glycine,
                      "N CA SING\nCA C SING\nC O DOUB\nC OXT SING\n")
            + component("ZN", "NON-POLYMER", [("ZN", "ZN", 2, "N")]))
        run("build", root / "data", "--complexes", "--components", root / "known.cif", "--cache",
            root / "cache", "-q")
        cls.server = Server(f"{root}/a", f"{root}/cache")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.folder.cleanup()

    def test_expanded_samples_are_the_whole_form(self):
        sample = next(iter(foldmill.Stream(self.server.url, plan="af3-tiny", steps=4, raw=True)))
        compact, whole = sample.tensors(), sample.expand()
        self.assertIn(sample.name, ("1abc", "2abc"))
        n, n_atom = sample.n_res, len(compact["ref_pos"])
        for key, array in whole.items():
            self.assertIn(array.dtype, (numpy.float32, numpy.int64), key)
            self.assertTrue(numpy.isfinite(array).all(), key)
        numpy.testing.assert_array_equal(whole["restype"].argmax(1), compact["restype"])
        numpy.testing.assert_array_equal(whole["ref_pos"], compact["ref_pos"])
        numpy.testing.assert_array_equal(whole["ref_element"].argmax(1), compact["ref_element"])
        self.assertEqual(whole["token_bonds"].shape, (n, n))
        self.assertEqual(whole["ref_atom_name_chars"].shape, (n_atom, 4, 64))
        self.assertEqual(whole["template_distogram"].shape, (2, n, n, 39))
        first = whole["msa_first_row"]
        self.assertEqual(len(first), sample.n_cycle + 1)
        for cycle, msa in enumerate(compact["msa"]):
            numpy.testing.assert_array_equal(whole["msa"][first[cycle]:first[cycle + 1]], msa)
        self.assertEqual(whole["atom_order_left_out"].tolist(), [0])
        sample = None  # the arrays keep what they need
        self.assertTrue(numpy.isfinite(whole["coordinate"]).all())

    def test_streams_of_complexes_resume(self):
        stream = foldmill.Stream(self.server.url, plan="af3-tiny", steps=6)
        samples = iter(stream)
        items = [next(samples) for _ in range(3)]
        state = stream.state_dict()
        again = foldmill.Stream(self.server.url, plan="af3-tiny", steps=6)
        again.load_state_dict(state)
        self.assertEqual([int(item["index"]) for item in items]
                         + [int(item["index"]) for item in again], list(range(6)))

    def test_the_other_kind_is_refused(self):
        with self.assertRaisesRegex(foldmill.Error, "the plan tiny samples chains"):
            next(iter(foldmill.Stream(self.server.url, plan="tiny", steps=1)))


class Streams(Case):
    def test_rows_of_the_alignment_are_chosen(self):
        rows = {"msa_clusters": 5, "extra_msa": 9}
        stream = self.stream(raw=True, **rows)
        sample = next(iter(stream))
        features = sample.expand()
        self.assertEqual(features["msa_feat"].shape[0], 5)
        self.assertEqual(features["extra_msa"].shape[0], 9)
        facts = stream.facts()
        self.assertEqual((facts["max_msa_clusters"], facts["max_extra_msa"]), (5, 9))
        saved = f"{self.root}/rows"
        run("fetch", "--data", self.server.url, "--plan", PLAN, "--seed", 7, "--steps", 1,
            "--batch", BATCH, "--msa-clusters", 5, "--extra-msa", 9, "--save", saved)
        with numpy.load(f"{saved}/{0:012}.npz") as arrays:
            numpy.testing.assert_array_equal(arrays["msa.0"], sample.tensors()["msa"][0])
        with self.assertRaisesRegex(ValueError, "msa_clusters 5, this one has msa_clusters 0"):
            self.stream().load_state_dict(stream.state_dict())
        old = self.stream().state_dict()
        del old["run"]["msa_clusters"], old["run"]["extra_msa"]  # of an older version
        self.stream().load_state_dict(old)
        for name in rows:
            with self.assertRaisesRegex(ValueError, f"{name}: found -1, expected 0 to"):
                self.stream(**{name: -1})

    def start(self, name, *options):
        server = Server(f"{self.root}/{name}", self.cache, *options)
        self.addCleanup(server.stop)
        return server

    def test_same_bytes_as_the_c_client(self):
        run("certs", "--out", f"{self.root}/certs", "--host", "localhost")
        certificates = ["--tls-cert", f"{self.root}/certs/server.crt",
                        "--tls-key", f"{self.root}/certs/server.key", "--open-to-all"]
        one = self.start("f", "--jobs", "1")
        eight = self.start("g", "--jobs", "8", "--also-listen", "tls://127.0.0.1:0", *certificates)
        port = re.search(r"tls://127.0.0.1:(\d+)", eight.text()).group(1)
        tls = f"tls://localhost:{port}"
        expected = self.fetched()
        for url in (one.url, eight.url, tls, f"{one.url},{tls},{self.server.url}"):
            for order in ("strict", "bounded:8", "free"):
                stream = self.stream(url=url, raw=True, order=order,
                                     tls_ca=f"{self.root}/certs/ca.crt")
                hashes = {sample.index: sample.hash() for sample in stream}
                self.assertEqual(len(hashes), STEPS * BATCH)
                self.assertEqual(self.digest(hashes), expected, (url, order))

    def test_expanded_features_have_the_keys_of_openfold(self):
        features = next(iter(self.stream()))
        self.assertEqual(len(features), 51)  # 50 and our index
        n_cycle = features["aatype"].shape[-1]
        self.assertEqual(features["msa_feat"].shape[2:], (49, n_cycle))
        self.assertEqual(features["aatype"].dtype, numpy.int64)
        self.assertEqual(features["template_torsion_angles_sin_cos"].shape[2:], (7, 2, n_cycle))
        for key, array in features.items():
            self.assertIn(array.dtype, (numpy.float32, numpy.int64), key)
            self.assertTrue(numpy.isfinite(array).all(), key)

    def test_expanding_agrees_with_the_compact_tensors(self):
        sample = next(iter(self.stream(raw=True)))
        compact, features = sample.tensors(), sample.expand()
        n = sample.n_res
        numpy.testing.assert_array_equal(features["aatype"][:n, 0], compact["aatype"])
        numpy.testing.assert_array_equal(features["aatype"][n:], 0)
        for cycle, msa in enumerate(compact["true_msa"]):
            rows = msa.shape[0]
            numpy.testing.assert_array_equal(features["true_msa"][:rows, :n, cycle], msa)
        mask = compact["all_atom_mask"][:, None] >> numpy.arange(37, dtype=numpy.uint64) & 1
        numpy.testing.assert_array_equal(features["all_atom_mask"][:n, :, 0], mask)

    def test_whole_steps_have_a_leading_axis(self):
        steps = list(self.stream(stack=True))
        self.assertEqual(len(steps), STEPS)
        for number, step in enumerate(steps):
            expected = numpy.arange(number * BATCH, (number + 1) * BATCH)
            numpy.testing.assert_array_equal(step["index"], expected)
            self.assertEqual(step["msa_feat"].shape[0], BATCH)

    def test_an_interrupted_step_is_given_whole(self):
        stream = self.stream(stack=True)
        expand, given, calls = stream._expand, [], []

        def interrupted(sample):
            calls.append(sample.index)
            if len(calls) == BATCH + 2:
                raise KeyboardInterrupt
            return expand(sample)

        stream._expand = interrupted
        with self.assertRaises(KeyboardInterrupt):
            for step in stream:
                given.append(step["index"].tolist())
        del stream._expand
        again = self.stream(stack=True)
        again.load_state_dict(stream.state_dict())
        expected = numpy.arange(STEPS * BATCH).reshape(STEPS, BATCH).tolist()
        for rest in (again, stream):
            self.assertEqual(given + [step["index"].tolist() for step in rest], expected)

    def test_an_interrupt_at_any_call_loses_and_repeats_nothing(self):
        for stack, stride in ((False, 1), (True, 37)):
            n, is_interrupted = 0, True
            while is_interrupted:
                n += stride
                stream, given = self.stream(stack=stack, raw=not stack, steps=2, batch=2), []
                is_interrupted = self.take_until_call(n, stream, given)
                rest = self.stream(stack=stack, raw=not stack, steps=2, batch=2)
                rest.load_state_dict(stream.state_dict())
                for after in (rest, stream):
                    indices = [numpy.atleast_1d(item["index"] if stack else item.index)
                               for item in [*given, *after]]
                    self.assertEqual(numpy.concatenate(indices).tolist(), list(range(4)), n)
            self.assertGreater(n, 40)

    @staticmethod
    def take_until_call(n, stream, given):
        """Appends items to `given` until the n-th call of the stream's module is interrupted.

        Returns False where the stream ends before.
        """
        left = n

        def count(frame, event, argument):
            nonlocal left
            if event != "return" and frame.f_code.co_filename == sys.modules["foldmill.stream"].__file__:
                left -= 1
                if left == 0:
                    sys.setprofile(None)
                    raise KeyboardInterrupt

        items = iter(stream)
        item = None
        sys.setprofile(count)
        try:
            for item in items:
                given.append(item)
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
        return False

    def test_what_was_skipped_is_noted_once(self):
        stream = self.stream(raw=True)
        one, two = (foldmill.Skipped(index, "corrupt", "made up") for index in (1, 2))
        for skipped in ([one], [], [one], [one, two], [one, two], [two]):
            stream._note_skipped(skipped)
        self.assertEqual(stream.skipped, [one, one, two])

    def test_a_step_has_the_samples_of_its_number(self):
        stream = self.stream(stack=True)
        arrival, left_out = stream._arrival, {1, BATCH, *range(2 * BATCH, 3 * BATCH)}

        def skipping(item, sizes):
            index, value = arrival(item, sizes)
            if index in left_out:
                return index, foldmill.Skipped(index, "corrupt", "made up")
            return index, value

        stream._arrival = skipping
        steps = [step["index"].tolist() for step in stream]
        wanted = [[index for index in range(first, first + BATCH) if index not in left_out]
                  for first in range(0, STEPS * BATCH, BATCH)]
        self.assertEqual(steps, [step for step in wanted if step])
        self.assertEqual([skipped.index for skipped in stream.skipped], sorted(left_out))

    def test_ranks_divide_the_samples(self):
        hashes = {}
        for rank in range(2):
            for sample in self.stream(raw=True, rank=rank, world=2):
                self.assertEqual(sample.slot % 2, rank)
                self.assertNotIn(sample.index, hashes)
                hashes[sample.index] = sample.hash()
        self.assertEqual(self.digest(hashes), self.fetched())

    def test_a_launcher_says_the_rank(self):
        torchrun = {"RANK": "1", "WORLD_SIZE": "2"}
        slurm = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4"}
        for variables, given, wanted in (
                ({}, {}, (0, 1)), (torchrun, {}, (1, 2)), (slurm, {}, (3, 4)),
                ({**slurm, **torchrun}, {}, (1, 2)), (torchrun, {"rank": 1, "world": 2}, (1, 2)),
                (torchrun, {"world": 2}, (1, 2)), (torchrun, {"rank": 1}, (1, 2)),
                (slurm, {"rank": 1, "world": 2}, (1, 2)), (torchrun, {"world": 1}, (0, 1)),
                ({}, {"rank": 2, "world": 3}, (2, 3))):
            with unittest.mock.patch.dict(os.environ, variables):
                stream = self.stream(raw=True, **given)
                self.assertEqual(tuple(stream.state_dict()["group"]), wanted, (variables, given))
        with unittest.mock.patch.dict(os.environ, torchrun):
            self.assertEqual({sample.slot % 2 for sample in self.stream(raw=True)}, {1})
        for variables, given, message in (
                (torchrun, {"rank": 0, "world": 2}, "rank: found 0, but torchrun has started this "
                                                    "process as rank 1 of 2"),
                (torchrun, {"rank": 0, "world": 3}, "world: found 3, but torchrun has started 2 "
                                                    "processes, which 3 does not divide"),
                ({}, {"world": 2}, "rank: not given, expected 0 to 1 with world=2"),
                ({"RANK": "x", "WORLD_SIZE": "2"}, {}, "the variable RANK is 'x', expected 0 to 1"),
                ({"RANK": "2", "WORLD_SIZE": "2"}, {}, "the variable RANK is '2', expected 0 to 1")):
            with unittest.mock.patch.dict(os.environ, variables):
                with self.assertRaises(ValueError) as caught:
                    self.stream(**given)
                self.assertEqual(str(caught.exception), message)

    def test_a_state_continues_at_every_sample(self):
        whole = [sample.index for sample in self.stream(raw=True)]
        for order in ("strict", "bounded:8"):
            for n in (0, 1, 5, BATCH, STEPS * BATCH - 1, STEPS * BATCH):
                first, seen = self.stream(raw=True, order=order), []
                for sample in first:
                    if len(seen) == n:
                        break
                    seen.append(sample.index)
                    state = json.loads(json.dumps(first.state_dict()))
                if n == 0:
                    state = self.stream(raw=True, order=order).state_dict()
                second = self.stream(raw=True, order=order)
                second.load_state_dict(state)
                rest = [sample.index for sample in second]
                self.assertEqual(sorted(seen + rest), whole, (order, n))

    def test_a_state_of_another_run_is_refused(self):
        state = self.stream().state_dict()
        with self.assertRaisesRegex(ValueError, "seed 7"):
            self.stream(seed=8).load_state_dict(state)
        stream = self.stream(rank=1, world=2, batch=4, raw=True)
        given, hint = [], "rank 1 of 2, this one has rank 0 of 1; .* first_step={} goes on"
        for sample in stream:
            given.append(sample.index)
            with self.assertRaisesRegex(ValueError, hint.format(len(given) // 2)):
                self.stream(batch=4).load_state_dict(stream.state_dict())
        self.assertEqual(len(given), 2 * STEPS)
        del state["run"]["crop"]
        with self.assertRaisesRegex(ValueError, "not a state of a Stream: it lacks 'crop'"):
            self.stream().load_state_dict(state)
        with self.assertRaisesRegex(TypeError, "state: found None, expected what state_dict"):
            self.stream().load_state_dict(None)

    def test_samples_of_others_are_not_recorded(self):
        stream = self.stream(rank=1, world=2, batch=4)
        before = stream.state_dict()
        for wrong, kind in ((-1, ValueError), (2, ValueError), ("1", TypeError), (1.5, TypeError)):
            with self.assertRaisesRegex(kind, "deliver: "):
                stream.deliver([1, 3], wrong)
        self.assertEqual(stream.state_dict()["watermark"], before["watermark"])
        self.assertEqual(stream.state_dict()["delivered"], before["delivered"])

    def test_samples_that_are_kept_stop_the_stream_with_a_reason(self):
        kept = []
        with self.assertRaisesRegex(RuntimeError, "all 3 received samples are still in use"):
            for sample in self.stream(raw=True, ahead=3):
                kept.append(sample)
        self.assertEqual(len(kept), 3)

    def test_arrays_outlive_stream_and_sample(self):
        stream = self.stream(raw=True)
        arrays = next(iter(stream)).tensors()
        before = arrays["all_atom_positions"].copy()
        stream.close()
        del stream
        numpy.testing.assert_array_equal(arrays["all_atom_positions"], before)

    def test_an_interrupt_ends_the_wait_for_a_mute_server(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as mute:
            mute.bind(f"{folder}/socket")
            mute.listen()

            def interrupt():
                with mute.accept()[0] as client:
                    client.recv(1)  # the stream waits for the answer now
                    os.kill(os.getpid(), signal.SIGINT)
                    while client.recv(1 << 16):
                        pass

            # A daemon, so that it does not keep the process where the stream does not connect.
            thread = threading.Thread(target=interrupt, daemon=True)
            thread.start()
            with self.assertRaises(KeyboardInterrupt) as caught:
                next(iter(self.stream(url=f"unix:{folder}/socket")))
            thread.join()
            self.assertIsNone(caught.exception.__context__)  # the wait did not end by itself

    def test_a_server_that_does_not_answer_is_logged_once(self):
        with self.assertLogs("foldmill", "WARNING") as logged, self.assertRaises(foldmill.Error):
            next(iter(self.stream(url="unix:/nowhere/socket", retry_s=0.3)))
        self.assertEqual(len(logged.output), 1)

    def test_arguments_that_no_stream_can_have_are_named(self):
        wrong = {"url": "", "plan": None, "order": "bounded", "on_error": "ignore",
                 "tensors": "jax", "seed": -1, "steps": 2**41, "rank": 4, "world": 0, "batch": -1,
                 "crop": 2**32, "ahead": 1, "retry_s": -1, "timeout_s": float("nan"),
                 "max_template_date": "2020"}
        for name, value in wrong.items():
            with self.assertRaisesRegex(ValueError, f"^{name}: found .*, expected "):
                self.stream(**{"rank": 0, "world": 4, name: value})
        with self.assertRaisesRegex(ValueError, "order: found None"):
            self.stream(order=None)
        with self.assertRaisesRegex(TypeError, "steps: found 1.5, expected an integer"):
            self.stream(steps=1.5)
        with self.assertRaisesRegex(TypeError, "snapshot: found 3, expected a name or None"):
            self.stream(snapshot=3)
        for changes in ({"stack": True, "raw": True}, {"stack": True, "order": "free"},
                        {"raw": True, "tensors": "torch"}, {"pin": True}):
            with self.assertRaises(ValueError):
                self.stream(**changes)
        self.assertEqual(self.stream(seed=numpy.int64(7)).state_dict(), self.stream().state_dict())

    def test_errors_have_a_kind_and_a_sentence(self):
        for changes, kind, words in (
                ({"plan": "none"}, "not found", "no plan is called 'none'"),
                ({"snapshot": "none"}, "not found", "none"),
                ({"url": "socket"}, "usage", "socket"),
                ({"url": "unix:/nowhere/socket", "retry_s": 0}, "io", "/nowhere/socket"),
                ({"rank": 0, "world": 8, "batch": 4}, "usage", "4")):
            with self.assertRaises(foldmill.Error) as caught:
                next(iter(self.stream(**changes)))
            self.assertEqual(caught.exception.kind, kind, caught.exception)
            self.assertIn(words, str(caught.exception))
            copy = pickle.loads(pickle.dumps(caught.exception))
            self.assertEqual((copy.kind, str(copy)), (kind, str(caught.exception)))

    def test_a_plan_of_whole_chains_is_one_pass(self):
        chains = foldmill.Cache(self.cache).snapshot().chains
        for rank in range(2):
            stream = self.stream(plan="eval", steps=0, batch=4, rank=rank, world=2, raw=True)
            self.assertEqual([sample.name for sample in stream], chains[rank::2])
            self.assertEqual(list(stream), [])
        stream = self.stream(plan="eval", steps=0, batch=4, crop=48, stack=True)
        sizes = [step["aatype"].shape for step in stream]
        self.assertEqual([size[0] for size in sizes], [4, 2])

    def test_streams_of_one_process_do_not_disturb_each_other(self):
        alone = [sample.hash() for sample in self.stream(raw=True)]
        pairs = zip(self.stream(raw=True), self.stream(raw=True), strict=True)
        self.assertEqual([(one.hash(), two.hash()) for one, two in pairs],
                         [(value, value) for value in alone])

    def test_counters_stay_after_the_end(self):
        stream = self.stream(raw=True)
        self.assertEqual(stream.stats(), {})
        self.assertEqual(sum(1 for _ in stream), stream.stats()["samples"])

    def test_a_pickled_stream_keeps_its_place(self):
        first, seen = self.stream(raw=True), []
        for sample in first:
            seen.append(sample.index)
            if len(seen) == 5:
                with self.assertRaisesRegex(TypeError, "cannot be pickled"):
                    pickle.dumps(sample)
                break
        second = pickle.loads(pickle.dumps(first))
        for stream in (first, second):
            rest = [sample.index for sample in stream]
            self.assertEqual(seen + rest, list(range(STEPS * BATCH)))

    def test_a_stream_is_a_dataset_of_any_pytorch(self):
        class Plain:  # as PyTorch 1.13 has it
            pass

        class Abstract(abc.ABC):
            pass

        for base in (Plain, Abstract):
            data = types.SimpleNamespace(IterableDataset=base, get_worker_info=lambda: None)
            torch_like = types.SimpleNamespace(utils=types.SimpleNamespace(data=data))
            with unittest.mock.patch.dict(sys.modules, torch=torch_like):
                stream = self.stream(raw=True)
                for one in (stream, pickle.loads(pickle.dumps(stream))):
                    self.assertIsInstance(one, base)
                    self.assertIsInstance(one, foldmill.Stream)
                    self.assertEqual(sum(1 for _ in one), STEPS * BATCH)
            with unittest.mock.patch.dict(sys.modules, torch=None):
                self.assertIs(type(pickle.loads(pickle.dumps(stream))), foldmill.Stream)

    def test_a_forked_process_opens_its_own_connection(self):
        stream = self.stream(raw=True)
        samples = iter(stream)
        seen = [next(samples).index for _ in range(3)]
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                try:
                    next(samples)
                except RuntimeError as error:
                    lines = [str(error)]
                lines += [str(sample.index) for sample in stream]
                os.write(write, "\n".join(lines).encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as file:
            lines = file.read().split("\n")
        os.waitpid(child, 0)
        self.assertIn(f"opened by process {os.getpid()}", lines[0])
        self.assertEqual([int(line) for line in lines[1:]], list(range(3, STEPS * BATCH)))
        self.assertEqual(seen + [sample.index for sample in samples], list(range(STEPS * BATCH)))

    def test_a_window_of_many_ranks_can_resume(self):
        # Of 2,048 ranks, rank 5 was given the samples of steps 1 to 31 before that of step 0.
        changes = {"world": 2048, "rank": 5, "batch": 2048, "steps": 33, "order": "bounded:32",
                   "raw": True}
        first = self.stream(**changes)
        first.deliver([5 + 2048 * step for step in range(1, 32)])
        second = self.stream(**changes)
        second.load_state_dict(first.state_dict())
        self.assertEqual(sorted(sample.step for sample in second), [0, 32])
        first.deliver(5 + 2048 * 32)
        with self.assertRaisesRegex(ValueError, "sample 65541 was given out and sample 5 was not"):
            next(iter(first))

    def test_a_lost_server_is_named_when_none_is_left(self):
        server = self.start("e")
        with self.assertRaises(foldmill.Error) as caught:
            for number, _ in enumerate(self.stream(url=server.url, ahead=2, retry_s=0.2)):
                if number == 3:
                    server.stop(signal.SIGKILL)
        self.assertIn(caught.exception.kind, ("closed", "io"))
        self.assertIn("/e/socket", str(caught.exception))

    def test_closing_ends_a_thread_that_waits(self):
        core = foldmill._core.open_stream(
            url=self.server.url, plan=PLAN, snapshot=None, seed=7, first_step=0, steps=1, group=0,
            groups=1, batch=1, crop=0, cycles=0, msa_clusters=0, extra_msa=0,
            max_template_date=0, order="strict", skip=False, delivered=None, ahead=2, resume_ms=0,
            event_ms=0, agent="test", tls_cert=None,
            tls_key=None, tls_ca=None, token_file=None, insecure=False)
        raised = []

        def wait():
            try:
                while True:
                    core.next()
            except (ValueError, foldmill.Error) as error:
                raised.append(error)

        threads = [threading.Thread(target=wait, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        core.close()
        for thread in threads:
            thread.join(30)
            self.assertFalse(thread.is_alive())
        self.assertEqual(len(raised), 2)

    def test_a_killed_server_loses_and_repeats_nothing(self):
        other, third = self.start("b"), self.start("h")
        hashes = {}
        stream = self.stream(url=f"{other.url},{third.url},{self.server.url}", raw=True, ahead=2)
        for sample in stream:
            self.assertNotIn(sample.index, hashes)
            hashes[sample.index] = sample.hash()
            if len(hashes) == 5:
                other.stop(signal.SIGKILL)
        self.assertEqual(self.digest(hashes), self.fetched())

    def test_servers_that_all_restart_lose_and_repeat_nothing(self):
        servers = [self.start(name) for name in "cdi"]
        hashes = {}
        stream = self.stream(url=",".join(server.url for server in servers), raw=True, ahead=2,
                             order="bounded:4")
        for sample in stream:
            self.assertNotIn(sample.index, hashes)
            hashes[sample.index] = sample.hash()
            if len(hashes) == 9:
                for server, how in zip(servers, (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL)):
                    server.stop(how)
                for name in "cdi":
                    self.start(name)
        self.assertEqual(self.digest(hashes), self.fetched())


class Caches(Case):
    def test_chains_equal_those_of_export(self):
        cache = foldmill.Cache(self.cache)
        self.assertEqual(len(cache), 6)
        self.assertEqual(list(cache), sorted(cache))
        for name in cache:
            file = f"{self.root}/{name.replace(':', '_')}.npz"
            run("export", "--cache", self.cache, "--chain", name, "--stage", "nonensembled",
                "-o", file)
            with numpy.load(file) as expected:
                features = cache[name]
                self.assertEqual(sorted(features), sorted(expected.files))
                for key in expected.files:
                    self.assertEqual(features[key].dtype, expected[key].dtype)
                    self.assertEqual(features[key].tobytes(), expected[key].tobytes(), key)

    def test_a_chain_that_does_not_exist(self):
        cache = foldmill.Cache(self.cache)
        self.assertNotIn("none_A", cache)
        for name in ("none_A", 0):
            with self.assertRaises(KeyError):
                cache[name]
        with self.assertRaisesRegex(foldmill.Error, "nowhere"):
            foldmill.Cache(f"{self.root}/nowhere")

    def test_a_pickled_cache_opens_its_generation_again(self):
        cache = foldmill.Cache(self.cache, max_templates=1)
        again = pickle.loads(pickle.dumps(cache))
        self.assertEqual((again.generation, list(again)), (cache.generation, list(cache)))
        for name in cache:
            self.assertLessEqual(len(again[name]["template_aatype"]), 1)
        with self.assertRaisesRegex(ValueError, "max_template_date: found '2020-2-30', expected"):
            foldmill.Cache(self.cache, max_template_date="2020-2-30")

    def test_a_snapshot(self):
        snapshot = foldmill.Cache(self.cache).snapshot("all")
        self.assertEqual(len(snapshot.chains), 6)
        self.assertTrue(all(256 <= weight <= 512 for weight in snapshot.weights))
        report = run("fetch", "--data", self.server.url, "--plan", PLAN, "--steps", 1, "--json")
        self.assertEqual(json.loads(report.stdout)["snapshot_hash"], snapshot.hash)

    def test_a_snapshot_is_a_mapping_of_its_chains(self):
        cache = foldmill.Cache(self.cache)
        chosen = sorted(cache)[1:4]
        pathlib.Path(f"{self.root}/chosen").write_text("".join(f"{name}\n" for name in chosen))
        run("snapshot", "create", "three", "--cache", self.cache, "--chains", f"{self.root}/chosen")
        snapshot = foldmill.open_snapshot(self.cache, "three")
        self.assertEqual([list(snapshot), len(snapshot)], [chosen, 3])
        for name, features in snapshot.items():
            self.assertEqual(features["msa"].tobytes(), cache[name]["msa"].tobytes())
        self.assertNotIn(sorted(cache)[0], snapshot)
        with self.assertRaises(KeyError):
            snapshot[sorted(cache)[0]]
        with self.assertRaisesRegex(foldmill.Error, "none"):
            foldmill.open_snapshot(self.cache, "none")


class Documentation(unittest.TestCase):
    """The reference page names all that is public, and all that is public has a docstring."""

    def members(self):
        for name in foldmill.__all__:
            value = getattr(foldmill, name)
            if not name.startswith("__"):
                yield name, value
            for member, inner in vars(value).items() if isinstance(value, type) else ():
                if member.startswith("_") and member != "__init__":
                    continue
                yield f"{name}.{member}", inner

    def test_everything_public_has_a_docstring(self):
        for name, value in self.members():
            if callable(value) or isinstance(value, property):
                is_generated = name == "Skipped.__init__" or name == "Snapshot.__init__"
                self.assertTrue(is_generated or inspect.getdoc(value), name)
        source = pathlib.Path(foldmill.__file__).parent
        for cls in (foldmill.Sample, foldmill.Skipped, foldmill.Snapshot):
            file = pathlib.Path(inspect.getsourcefile(cls)).read_text()
            for field in cls.__annotations__:
                self.assertRegex(file, rf"    {field}: [^\n]*#: ", cls)
        self.assertTrue((source / "py.typed").exists())

    def test_the_reference_names_everything_public(self):
        page = (pathlib.Path(__file__).parents[2] / "docs/reference/python.md").read_text()
        quoted = re.findall(r"`([^`]+)`", page.replace("```", "`"))
        words = set(re.findall(r"\w+", " ".join(quoted)))
        names = {name.split(".")[-1] for name, _ in self.members()} - {"__init__"}
        for cls in (foldmill.Sample, foldmill.Skipped, foldmill.Snapshot):
            names |= set(cls.__annotations__)
        names |= set(inspect.signature(foldmill.Stream).parameters)
        names |= set(inspect.signature(foldmill.Cache).parameters)
        self.assertEqual(names - words, set())


if __name__ == "__main__":
    main()
