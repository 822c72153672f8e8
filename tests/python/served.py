"""What the tests of the Python package share: a dataset that the real programs synthesise, build
and serve, and streams of it.

usage of a test: TEST.py FOLDMILL PACKAGE_DIR [TEST...]; exit status 77 where NumPy or the package's
extension module is missing.
"""

import hashlib
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

FOLDMILL, PACKAGE = sys.argv[1:3]
sys.path.insert(0, PACKAGE)
if not list(pathlib.Path(PACKAGE).glob("foldmill/_core*.so")):
    print(f"skipped: {PACKAGE} has no extension module; `./run build python` makes it")
    sys.exit(77)
try:
    import numpy  # noqa: F401
except ImportError:
    print("skipped: NumPy is not installed")
    sys.exit(77)

import foldmill  # noqa: E402

PLAN, STEPS, BATCH = "tiny", 12, 4


def run(*arguments, check=True):
    return subprocess.run([FOLDMILL, *map(str, arguments)], check=check, capture_output=True,
                          text=True, timeout=120)


class Server:
    """A `foldmill serve` process that dies with the test."""

    def __init__(self, folder, cache, *options):
        os.makedirs(folder, exist_ok=True)
        self.url = f"unix:{folder}/socket"
        self.log = open(f"{folder}/serve.log", "w+")
        self.process = subprocess.Popen(
            [FOLDMILL, "serve", "--cache", cache, "--listen", self.url, *options],
            stdout=self.log, stderr=self.log)
        for _ in range(1200):
            if os.path.exists(f"{folder}/socket") and "listening" in self.text():
                return
            time.sleep(0.05)
        raise AssertionError(f"the server did not start: {self.text()}")

    def text(self):
        return pathlib.Path(self.log.name).read_text()

    def stop(self, how=signal.SIGTERM):
        if self.process.returncode is not None:
            return
        self.process.send_signal(how)
        self.process.wait(60)
        self.log.close()


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = cls.folder.name
        cls.cache = f"{cls.root}/cache"
        run("synth", "--out", f"{cls.root}/data", "--chains", 6, "--depth", 300, "-q")
        run("build", f"{cls.root}/data", "--cache", cls.cache, "-q")
        cls.server = Server(f"{cls.root}/a", cls.cache)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.folder.cleanup()

    def stream(self, **changes):
        arguments = {"plan": PLAN, "seed": 7, "steps": STEPS, "batch": BATCH, **changes}
        return foldmill.Stream(arguments.pop("url", self.server.url), **arguments)

    def digest(self, hashes):
        rows = b"".join(struct.pack("<QQ", *row) for row in sorted(hashes.items()))
        return hashlib.sha256(rows).hexdigest()

    def fetched(self):
        report = json.loads(run("fetch", "--data", self.server.url, "--plan", PLAN, "--seed", 7,
                                "--steps", STEPS, "--batch", BATCH, "--digest", "--json").stdout)
        return report["digest"]


def main():
    """Runs the tests of the program, or those that the command line names."""
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
