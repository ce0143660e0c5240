"""The packages can be imported, and models used, on Windows and on macOS.

A process removes the modules, signals and functions that such a system does not have.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from other_processes import printed_by_python
from reference_cases import ROOT

BEGINNING = """
import importlib, multiprocessing, pkgutil, signal, os, subprocess, sys, threading
import attrs, cattrs, click, jinja2, numpy, safetensors.numpy, scipy.sparse, tqdm
import threadpoolctl, types
import asyncio, concurrent.futures.process, ctypes, logging.handlers, mmap, tempfile, unittest

def remove(module, *names):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

system = sys.argv.pop(1)
threadpoolctl.sys = types.SimpleNamespace(**vars(sys))  # it asks the system for its libraries
sys.platform = system
remove(mmap, "MAP_NORESERVE", "MAP_POPULATE", "MAP_STACK")
remove(
    os, "copy_file_range", "eventfd", "getrandom", "memfd_create", "pipe2", "posix_fadvise",
    "posix_fallocate", "pwritev2", "sched_getaffinity", "sched_setaffinity", "splice",
)
"""
"""Simulates macOS, after other libraries have been imported."""

ON_WINDOWS = """
MODULES = "fcntl", "grp", "pwd", "resource", "syslog", "termios", "tty"
for name in MODULES:
    sys.modules[name] = None
for name in dir(signal):
    is_signal = name.startswith("SIG") and name not in (
        "SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM", "SIG_DFL", "SIG_IGN"
    )
    if is_signal or name in ("alarm", "pthread_kill", "pthread_sigmask", "setitimer", "sigwait"):
        remove(signal, name)
remove(signal, "pthread_getcpuclockid", "sigpending", "sigwaitinfo", "siginterrupt")
remove(mmap, *(name for name in dir(mmap) if name.startswith(("MADV_", "MAP_", "PROT_"))))
remove(
    os, "chown", "fchown", "fork", "forkpty", "getgid", "getloadavg", "getpgid", "getpgrp",
    "getuid", "geteuid", "killpg", "lockf", "mkfifo", "mknod", "nice", "O_CLOEXEC", "O_DIRECTORY",
    "O_NONBLOCK", "O_SYNC", "openpty", "posix_spawn", "posix_spawnp", "pread", "pwrite", "readv",
    "register_at_fork", "sched_yield", "sendfile", "set_blocking", "setpgid", "setsid", "statvfs",
    "sync", "sysconf", "tcgetpgrp", "ttyname", "uname", "wait", "wait3", "wait4", "writev",
)
"""
"""Goes on to simulate Windows."""

PACKAGES = sorted(path.name for path in ROOT.glob("packages/*/src/nnet3_*"))

IMPORTS = """
for package in map(importlib.import_module, sys.argv[1:]):
    names = [each.name for each in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
    for name in names:
        if not name.endswith("__main__"):
            importlib.import_module(name)
    print(package.__name__, len(names))
"""

USE = """
from pathlib import Path
import numpy as np
from nnet3_descriptors import read_nnet, write_nnet
from nnet3 import load
from nnet3_tables import read_table, write_table
from nnet3_training import Trainer
from nnet3_tools import entry_points

model, features, folder = sys.argv[1:]
os.chdir(folder)
write_nnet(read_nnet(model), "copy.raw")
write_nnet(read_nnet("copy.raw"), "copy.raw")
with write_table("ark,t:one.ark") as table:
    key, frames = next(iter(read_table(f"ark:{features}")))
    table.write(key, frames)
assert load("copy.raw", threads=2).compute(frames).shape == (len(frames), 11)
Trainer(read_nnet("copy.raw")).save("trainer")
for tool, arguments in (
    ("nnet3-info", ["--tree", "copy.raw"]),
    ("nnet3-compute", ["copy.raw", "ark:one.ark", "ark:out.ark"]),
):
    sys.argv = [tool, *arguments]
    try:
        entry_points.command_of(tool).run()
    except SystemExit as end:
        assert end.code == 0, (tool, end.code)
assert sorted(path.name for path in Path().iterdir()) == [
    "copy.raw", "one.ark", "out.ark", "trainer"
]
"""


SYSTEMS = {"win32": BEGINNING + ON_WINDOWS, "darwin": BEGINNING}


def run(system: str, program: str, *arguments: str) -> str:
    """Runs a program on the simulated system, and returns its output."""
    return printed_by_python("-c", SYSTEMS[system] + program, system, *arguments)


def test_imports() -> None:
    """Every module of every package can be imported on Windows, which lacks the most."""
    imported = [line.split()[0] for line in run("win32", IMPORTS, *PACKAGES).splitlines()]

    assert imported == PACKAGES


@pytest.mark.parametrize("system", SYSTEMS)
def test_use(system: str, tmp_path: Path) -> None:
    """A model is read, written, run and trained; tools read and write archives."""
    digits = ROOT / "examples" / "digits"

    run(system, USE, str(digits / "final.raw"), str(digits / "test.feats.ark"), str(tmp_path))
