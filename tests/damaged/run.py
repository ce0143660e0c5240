"""Damages many files of all formats, uses what could be read, and counts the results by format.

    PYTHONPATH=tests OPENBLAS_NUM_THREADS=1 python -m damaged.run --count 1000000

A file that is read must be refused by an error of the packages, or be some value that can be used;
each use must work or raise such an error. Everything else is a fault: another exception, a
`MemoryError` within the bound of memory, a warning, more time than the bound, the end of the
process, a program that starts, a file that is written elsewhere. Faults are printed as they are
found, with the number that repeats them: `--first 123 --count 1`. The last line is the report, as
JSON; Ctrl-C ends the run with a report of what is done.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import mmap
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
from nnet3_descriptors.components.declaration import is_component_type
from nnet3_tables import TableWarning

from damaged.formats import FORMATS
from damaged.registered import Try
from damaged.using import WATCH, Report, User

os.environ.setdefault("NNET3_CACHE_DIR", "")  # damaged networks are compiled each time
sys.dont_write_bytecode = True  # of modules that are imported while a file is used

AT_A_TIME = 500
"""Files that one process handles."""
STUCK = 900
"""Seconds after which a process that ignores signals is ended."""
_SHARED = struct.Struct("<qd")
"""What a process tells while it works: the number of its file, and when it began."""
_FORBIDDEN = ("subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.",
              "pickle.find_class", "shutil.", "webbrowser.")  # fmt: skip


def chosen(options: argparse.Namespace, number: int) -> tuple[str, Try, random.Random]:
    """The format of a file, its function, and what draws the damage."""
    rng = random.Random(f"{options.seed}:{number}")
    names = [name for name in FORMATS if options.formats in name]
    (name,) = rng.choices(names, [FORMATS[each][0] for each in names])
    return name, FORMATS[name][1], rng


def handled(
    options: argparse.Namespace, numbers: range, shared: mmap.mmap, folder: Path
) -> dict[str, Any]:
    """Handles some files, and returns counts by format and outcome, and the faults."""
    counts: dict[str, Counter[str]] = {}
    faults: list[str] = []
    for number in numbers:
        name, function, rng = chosen(options, number)
        shared[: _SHARED.size] = _SHARED.pack(number, time.time())
        report = Report()
        is_thorough = rng.random() < options.thorough
        user = User(report, "", rng, options.seconds, is_thorough, options.brief)
        began = time.process_time()
        own = folder / "file"
        own.mkdir()
        could_be_read: bool | None = None

        try:
            could_be_read = function(user, options.seed, number, own)
        except BaseException as error:
            report.faults.append(f"{name}: {user.name}: {type(error).__name__}: {error}"[:2000])
        shutil.rmtree(own)
        found = counts.setdefault(name, Counter())
        found["files"] += 1
        found["used" if could_be_read else "refused"] += 1
        found["uses"] += report.uses
        found["refused uses"] += report.refused
        found["faults"] += bool(report.faults)
        found["ms"] += round(1000 * (time.process_time() - began))
        faults += [f"{number}: {name}: {fault}" for fault in report.faults]
    return {"counts": counts, "faults": faults}


def _guard(folder: Path) -> None:
    """Forbids what reading a file must not do: to start programs, or to write elsewhere."""
    ours = (str(folder), "/dev/null", "/proc/self/fd/")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(_FORBIDDEN) and not event.startswith("shutil.rmtree"):
            raise AssertionError(f"a file causes {event} {arguments!r:.100}")
        if event == "open":
            path, _, flags = arguments
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            is_path = isinstance(path, str | os.PathLike)
            if writes and is_path and not os.fspath(path).startswith(ours):
                raise AssertionError(f"a file causes open {arguments!r:.100}")

    sys.addaudithook(hook)
    sys.addaudithook(WATCH.hook)


def _work(
    options: argparse.Namespace, numbers: range, shared: mmap.mmap, folder: Path, result: Path
) -> None:
    """The work of a process."""
    resource.setrlimit(resource.RLIMIT_AS, (options.memory << 20, options.memory << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("error")
    # What the packages themselves tell of some files: not trained, or left out by the option p.
    warnings.simplefilter("ignore", TableWarning)
    warnings.filterwarnings("ignore", message="the network is not trained")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    _guard(folder)
    done = handled(options, numbers, shared, folder)
    (folder / "result").write_text(json.dumps(done))
    os.rename(folder / "result", result)


@attrs.define
class Worker:
    """A process that handles some files.

    Attributes:
        numbers: The numbers of the files.
        pid: The process.
        shared: What it tells while it works.
        folder: Its own folder.
        result: The file that has its results when it has ended.
    """

    numbers: range
    pid: int
    shared: mmap.mmap
    folder: Path
    result: Path

    @classmethod
    def start(cls, options: argparse.Namespace, numbers: range, place: Path) -> Worker:
        """Starts a process."""
        shared = mmap.mmap(-1, mmap.PAGESIZE)
        shared[: _SHARED.size] = _SHARED.pack(numbers.start, time.time())
        folder, result = place / f"{numbers.start}", place / f"{numbers.start}.json"
        folder.mkdir()
        pid = os.fork()
        if pid == 0:
            try:
                _work(options, numbers, shared, folder, result)
            finally:
                os._exit(1)
        return cls(numbers, pid, shared, folder, result)

    def end_if_stuck(self) -> None:
        """Ends the process if it has been at one file for too long."""
        _, began = _SHARED.unpack_from(self.shared)
        if time.time() - began > STUCK:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def results(self, status: int) -> tuple[dict[str, Any], list[range]]:
        """The results, and the numbers to do again, without the last, if the process died."""
        shutil.rmtree(self.folder)
        if self.result.exists():
            done = json.loads(self.result.read_text())
            self.result.unlink()
            return done, []
        number, began = _SHARED.unpack_from(self.shared)
        fault = f"{number}: the process died with status {status} after {time.time() - began:.1f} s"
        left = [range(self.numbers.start, number), range(number + 1, self.numbers.stop)]
        return {"counts": {}, "faults": [fault]}, list(filter(None, left))


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Handles all files; prints faults and progress on standard error."""
    counts: dict[str, Counter[str]] = {}
    faults: list[str] = []
    last = options.first + options.count
    parts = iter(
        range(first, min(first + AT_A_TIME, last))
        for first in range(options.first, last, AT_A_TIME)
    )
    ended: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: ended.append(number))
    began = told = time.time()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as name:
        workers: dict[int, Worker] = {}
        while True:
            while (
                not ended
                and len(workers) < options.processes
                and (part := next(parts, None)) is not None
            ):
                worker = Worker.start(options, part, Path(name))
                workers[worker.pid] = worker
            if not workers:
                break
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid not in workers:
                for worker in workers.values():
                    worker.end_if_stuck()
                time.sleep(0.05)
                continue
            done, left = workers.pop(pid).results(status)
            parts = itertools.chain(left, parts)
            for kind, found in done["counts"].items():
                counts.setdefault(kind, Counter()).update(found)
            faults += done["faults"]
            for fault in done["faults"]:
                print(fault, file=sys.stderr, flush=True)
            if time.time() - told > 60:
                told = time.time()
                files = sum(each["files"] for each in counts.values())
                print(f"{files} files, {len(faults)} faults, {files / (told - began):.0f} per "
                      "second", file=sys.stderr, flush=True)  # fmt: skip
    return {
        "options": vars(options),
        "seconds": round(time.time() - began),
        "files": sum(each["files"] for each in counts.values()),
        "counts": {kind: dict(counts[kind]) for kind in sorted(counts)},
        "faults": faults,
    }


def _prepare() -> None:
    """Makes what all processes need, once."""
    is_component_type("NoSuchComponent")  # looks for installed packages, which happens only once
    for _, function in FORMATS.values():
        user = User(Report(), "", random.Random(0), 60.0, is_thorough=True)
        with tempfile.TemporaryDirectory() as name:
            function(user, 0, 0, Path(name))


def main() -> None:
    """Prints the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = functools.partial(parser.add_argument, type=int)
    add("--count", default=1000, help="files")
    add("--seed", default=1)
    add("--first", default=0, help="number of the first file")
    add("--processes", default=1)
    add("--memory", default=1024, help="MB of addresses that a process may have")
    add("--seconds", type=float, default=10.0, help="processor time that a use may take")
    add("--thorough", type=float, default=0.02, help="share of networks used in all ways")
    add("--formats", type=str, default="", help="only formats with this in their names")
    parser.add_argument("--brief", action="store_true", help="read and write models, and no more")
    options = parser.parse_args()
    if not any(options.formats in name for name in FORMATS):
        parser.error(
            f"no format has '{options.formats}' in its name; there are {', '.join(FORMATS)}"
        )
    _prepare()
    print(json.dumps(run(options)))


if __name__ == "__main__":
    main()
