#!/usr/bin/python3
"""sandbox.py UNIT FOLDER PROGRAM [ARGUMENTS]: runs a program under the restrictions of a unit file.

It does what systemd would do, as far as bubblewrap and libseccomp can: a read-only root, a /tmp and
a /dev of its own, another user without capabilities, and the unit's own SystemCallFilter=,
RestrictAddressFamilies= and MemoryDenyWriteExecute=. FOLDER is seen as /tmp/run, read-only.
$FM_BIN is seen as /tmp/bin. Exit code 77: this machine lacks something.
"""
import ctypes
import errno
import os
import shutil
import socket
import subprocess
import sys

SKIPPED = 77
NOBODY = 65534
PR_CAPBSET_DROP = 24
PROT_WRITE, PROT_EXEC = 2, 4


def settings_of(path):
    """The keys of a unit file, each with the list of its values."""
    found = {}
    for line in open(path, encoding="utf-8"):
        line = line.strip()
        if "=" in line and line[0] not in "#;[":
            key, value = line.split("=", 1)
            found.setdefault(key, []).append(value)
    return found


def expand(name):
    """The system calls of a set such as @system-service."""
    if not name.startswith("@"):
        return {name}
    text = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager", name],
                          check=True, capture_output=True, text=True).stdout
    calls = set()
    for line in text.splitlines()[1:]:
        word = line.strip()
        if word and word[0] != "#":
            calls |= expand(word)
    return calls


def allowed_calls(filters):
    allowed = set()
    for value in filters:
        names = set().union(*(expand(name) for name in value.lstrip("~").split()))
        allowed = allowed - names if value.startswith("~") else allowed | names
    return allowed | expand("@default")


def load_filter(settings):
    import seccomp
    calls = seccomp.SyscallFilter(seccomp.ERRNO(errno.EPERM))
    allowed = allowed_calls(settings["SystemCallFilter"])
    no_write_and_exec = settings.get("MemoryDenyWriteExecute") == ["yes"]
    special = {"socket"} | ({"mmap", "mprotect", "pkey_mprotect"} if no_write_and_exec else set())
    for name in sorted(allowed - special):
        try:
            calls.add_rule(seccomp.ALLOW, name)
        except (RuntimeError, ValueError):
            pass  # a call of another architecture
    for family in settings["RestrictAddressFamilies"][-1].split():
        calls.add_rule(seccomp.ALLOW, "socket",
                       seccomp.Arg(0, seccomp.EQ, int(getattr(socket, family))))
    if no_write_and_exec:
        both = PROT_WRITE | PROT_EXEC
        for some in (0, PROT_WRITE, PROT_EXEC):
            calls.add_rule(seccomp.ALLOW, "mmap", seccomp.Arg(2, seccomp.MASKED_EQ, both, some))
        for name in ("mprotect", "pkey_mprotect"):
            calls.add_rule(seccomp.ALLOW, name,
                           seccomp.Arg(2, seccomp.MASKED_EQ, PROT_EXEC, 0))
    calls.load()


def run_inside(unit, command):
    """The second half: what is left to do inside the new mounts."""
    settings = settings_of(unit)
    libc = ctypes.CDLL(None)
    for capability in range(64):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    for variable in ("LISTEN_PID", "WATCHDOG_PID"):
        if variable in os.environ:
            os.environ[variable] = str(os.getpid())
    os.chdir("/")
    load_filter(settings)
    os.execv(command[0], command)


def main():
    if sys.argv[1] == "--inside":
        return run_inside(sys.argv[2], sys.argv[3:])
    unit, folder, command = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:]
    try:
        import seccomp  # noqa: F401
        missing = [tool for tool in ("bwrap", "systemd-analyze") if not shutil.which(tool)]
    except ImportError:
        missing = ["python3-seccomp"]
    if not missing and os.geteuid() != 0:
        missing = ["root's rights"]
    mounts = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--perms", "1777",
              "--tmpfs", "/tmp",
              "--tmpfs", "/root", "--tmpfs", "/home", "--dir", "/tmp/bin", "--dir", "/tmp/run",
              "--ro-bind", os.environ["FM_BIN"], "/tmp/bin", "--ro-bind", folder, "/tmp/run",
              "--ro-bind", unit, "/tmp/unit", "--ro-bind", os.path.abspath(__file__), "/tmp/sandbox",
              "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL", "--cap-add", "CAP_SETUID",
              "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"]
    if not missing and subprocess.run(["bwrap", *mounts, "/bin/true"], check=False,
                                      stderr=subprocess.DEVNULL).returncode:
        missing = ["mount namespaces"]
    if missing:
        print("skipped: there is no", missing[0], file=sys.stderr)
        return SKIPPED
    os.execvp("bwrap", ["bwrap", *mounts, sys.executable, "/tmp/sandbox", "--inside", "/tmp/unit",
                        *command])


sys.exit(main())
