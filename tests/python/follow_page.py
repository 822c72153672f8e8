"""Follows a page of docs/ as a reader does: runs its code blocks in order and compares the outputs.

usage: follow_page.py PAGE FOLDMILL PACKAGE_DIR

The page begins in an empty folder that has the package's wheel, with FOLDMILL on the PATH. Blocks
of `sh` run in one shell, and blocks of `python` in one interpreter, that of env/, which the page
makes. A block without a language is the output of the block before it, where `...` matches any
text. A block of code without an output must print nothing. A Python block after the comment
<!-- needs torch --> is skipped with a message where that module is missing. The exit status is 77
where something else is missing.
"""

import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

END = "-- end of block --"
DRIVER = f"""
import json, sys
names = {{"__name__": "__main__"}}
for line in sys.stdin:
    exec(compile(json.loads(line), "<page>", "exec"), names)
    print({END!r}, flush=True)
"""
BLOCK = re.compile(r"(?:<!-- needs (\w+) -->\n\n?)?^```(\w*)\n(.*?)^```$", re.M | re.S)


class Interpreter:
    """A process that runs blocks and says after each that it ended."""

    def __init__(self, command, wrap, **options):
        self.errors = tempfile.TemporaryFile("w+")
        self.wrap = wrap
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, start_new_session=True,
                                        **options)

    def run(self, block):
        self.process.stdin.write(self.wrap(block))
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.rstrip("\n") == END:
                return "".join(lines)
            lines.append(line)
        self.errors.seek(0)
        raise AssertionError(f"the block failed:\n{block}\n{''.join(lines)}{self.errors.read()}")

    def stop(self):
        """Ends the process with all that it started, such as a server in the background."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.communicate()
        self.errors.close()


def is_as_written(written, printed):
    form = ".*".join(re.escape(part) for part in written.split("..."))
    return re.fullmatch(form, printed, re.S) is not None


def read_blocks(page):
    """Yields (module that it needs, language, text, output) of each block of code."""
    found = [match.groups() for match in BLOCK.finditer(page.read_text(encoding="utf-8"))]
    for number, (needs, language, text) in enumerate(found):
        follows = found[number + 1] if number + 1 < len(found) else (None, "none", "")
        if language:
            yield needs, language, text, follows[2] if follows[1] == "" else ""


def follow(page, folder, environment):
    shell = Interpreter(["bash", "-e"], lambda block: f"{block}\necho '{END}'\n", cwd=folder,
                        env=environment)
    python, absent, different = None, set(), []
    try:
        for needs, language, text, written in read_blocks(page):
            if language == "python" and python is None:
                python = Interpreter([f"{folder}/env/bin/python", "-W", "ignore", "-c", DRIVER],
                                     lambda block: json.dumps(block) + "\n", cwd=folder,
                                     env=environment)
            check = f"import importlib.util\nprint(importlib.util.find_spec({needs!r}) is None)"
            if needs and (needs in absent or python.run(check) == "True\n"):
                absent.add(needs)
                continue
            if language not in ("sh", "python"):
                raise AssertionError(f"{page}: no way to run a block of {language!r}")
            printed = (shell if language == "sh" else python).run(text)
            if not is_as_written(written, printed):
                different.append(f"the block\n\n{text}\nprints\n\n{printed}\n"
                                 f"and the page has\n\n{written}")
    finally:
        shell.stop()
        if python:
            python.stop()
    if different:
        raise AssertionError(f"{page}: " + "\n".join(different))
    for name in sorted(absent):
        print(f"skipped: the blocks that need {name}, which is not installed")


def main():
    page, foldmill, package = (pathlib.Path(path).absolute() for path in sys.argv[1:4])
    missing = [name for name in ("numpy", "wheel", "ensurepip")
               if not importlib.util.find_spec(name)]
    if not list(package.glob("foldmill/_core*.so")):
        missing.append(f"the extension module in {package}")
    if missing:
        print(f"skipped: {', '.join(missing)} missing")
        return 77
    pack = pathlib.Path(__file__).parents[2] / "deploy/pack_wheel.sh"
    path = os.pathsep.join([str(foldmill.parent), str(pathlib.Path(sys.executable).parent),
                            os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PIP_NO_INDEX": "1", "PYTHONUNBUFFERED": "1",
                   "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([pack, package, folder], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        follow(page, folder, environment)
    return 0


if __name__ == "__main__":
    sys.exit(main())
