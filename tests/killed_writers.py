"""Kills writing tools at random moments, two at work on one target: no file may be half a file.

    python tests/killed_writers.py --kills 1000

Two processes run a tool on the same input and target, in one of the forms that the tool can write:
binary or text, with a script file or without. One of them, or both, are killed (SIGKILL), half of
the kills at any moment, and half soon after a temporary file has appeared. Then each file that has
the name of a target must be, byte for byte, what an uninterrupted run writes, and a script file
must belong to the archive beside it. (A folder has one training run at a time: so one of two ends
with an error at once, if the other is not killed before.)

The processes, and their workers, are forked from one that has run the tool before: so a process
takes a few hundredths of a second, and not the second in which a tool loads its modules.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import random
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import package_tests  # noqa: F401  (the helpers of packages' own tests)
from nnet3_descriptors import read_nnet
from nnet3_descriptors.files import locked
from nnet3_tools.entry_points import command_of
from tool_commands import LINES, command_line, write_inputs
from tool_runs import run_tool

ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}
"""The environment: a process with threads cannot be forked."""

TARGET = Path("written")
"""The folder of the outputs, beside the inputs."""

TEMPORARY = (".nnet3-tmp", ".incomplete")

FORMS = {
    "ark:out": [["ark:out", "ark,t:out"], ["ark,scp:out,out.scp", "ark,t,scp:out,out.scp"]],
    "out": [["out", "--binary=false out"]],
}
"""By the argument that stands for the output of a tool, those that two processes have at a time."""


Counts = Counter[str]
"""What was seen of a tool.

"kills" are processes that were killed before their end, "writing" those of them that left a
temporary file, "whole" rounds after which the target was there, and whole, and "ended" processes
that came to their end beside one that was killed, or after it.
"""

Content = dict[str, bytes]
"""The files of a target by name."""


def variants(tool: str) -> list[list[list[str]]]:
    """Groups of command lines of a tool; those of a group write one target in several forms."""
    _, *words = shlex.split(command_line(tool))
    (first,) = [form for form in FORMS if form in words] or [""]
    groups = FORMS.get(first, [[first]])
    if first == "out" and not takes_binary(tool):
        groups = [["out"]]
    return [
        [
            [in_folder(word) for old in words for word in (text.split() if old == first else [old])]
            for text in group
        ]
        for group in groups
    ]


def takes_binary(tool: str) -> bool:
    """Whether a tool has the option --binary."""
    return any("--binary" in parameter.opts for parameter in command_of(tool).params)


def in_folder(word: str) -> str:
    """An argument with the outputs in their folder."""
    for name in ("out", "den", "norm", "run.FINE", "tuned.FINE"):
        if word == name:
            return f"{TARGET}/{name}"
    words, colon, names = word.partition(":")
    if colon and names.split(",")[0] == "out":
        return f"{words}:{','.join(f'{TARGET}/{name}' for name in names.split(','))}"
    return word


def begin(tool: str, arguments: list[str]) -> int:
    """Forks a process that runs a tool; returns its number."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        sys.argv = [tool, *arguments]
        command_of(tool).run()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        os._exit(status)


def is_running(process: int) -> bool:
    """Whether a process has not ended."""
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def files() -> Iterator[Path]:
    """The files of the target, also those that are not finished, without the lock of a run."""
    for folder, _, names in os.walk(TARGET):  # a folder may go meanwhile
        yield from (Path(folder, name) for name in names if not name.endswith(".lock"))


def is_temporary(path: Path) -> bool:
    """Whether a file, or the folder that it lies in, has the name of an unfinished one."""
    return any(part.endswith(TEMPORARY) for part in path.parts)


def content() -> Content:
    """The files with the names of targets; no table changes meanwhile."""
    found = {}
    with locked(str(TARGET)):
        for path in files():
            if not is_temporary(path):
                with contextlib.suppress(FileNotFoundError):  # a run removes old networks
                    found[str(path)] = path.read_bytes()
    return found


def fault(found: Content, allowed: list[Content]) -> str:
    """What is wrong with the files of a target; "" if each is whole."""
    for name, data in found.items():
        known = [each[name] for each in allowed if name in each]
        if name.endswith(".json"):  # with times, so that no two are the same
            json.loads(data)
        elif name.endswith(".raw") and not known:  # a run removes it once it needs it no more
            read_nnet(io.BytesIO(data))
        elif data not in known:
            return f"{name} has {len(data)} bytes of no uninterrupted run"
    scripts = [name for name in found if name.endswith(".scp")]
    for name in scripts:
        pair = found.get(name.removesuffix(".scp")), found[name]
        if pair not in [(each[name.removesuffix(".scp")], each[name]) for each in allowed
                        if name in each]:  # fmt: skip
            return f"{name} does not belong to the archive beside it"
    return ""


def clear() -> None:
    """Makes an empty folder of the target."""
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir()


def whole_runs(tool: str, lines: list[list[str]]) -> tuple[list[Content], float, bool]:
    """What each form of a tool writes, the seconds of the longest, and whether it starts again.

    A training run that finds its own end there does nothing, and so there is nothing to kill.
    """
    allowed, longest = [], 0.0
    for line in lines:
        clear()
        run_tool(tool, *line)  # loads what the tool needs
        assert threading.active_count() == 1
        clear()
        begun = time.monotonic()
        status = os.waitstatus_to_exitcode(os.waitpid(begin(tool, line), 0)[1])
        longest = max(longest, time.monotonic() - begun)
        assert status == 0, (tool, line, status)
        allowed.append(content())
    begun = time.monotonic()
    os.waitpid(begin(tool, lines[-1]), 0)
    return allowed, longest, time.monotonic() - begun > longest / 2


def kill(rng: random.Random, processes: list[int], longest: float) -> int:
    """Kills the first of some processes at a random moment; returns it."""
    if rng.random() < 0.5:
        time.sleep(rng.uniform(0.0, 1.5 * longest))
    else:
        before = set(files())
        while is_running(processes[0]) and not set(files()) - before:
            time.sleep(longest / 300)
        time.sleep(rng.expovariate(1 / (0.02 * longest)))
    os.kill(processes[0], signal.SIGKILL)
    return processes.pop(0)


def judge(tool: str, kills: int, rng: random.Random) -> tuple[Counts, str]:
    """Kills a tool so often; returns what was seen, and the first fault or ""."""
    counts, groups = Counts(), variants(tool)
    for number, lines in enumerate(groups, 1):
        if wrong := judge_forms(tool, lines, kills * number // len(groups), rng, counts):
            return counts, wrong
    return counts, ""


def judge_forms(
    tool: str, lines: list[list[str]], kills: int, rng: random.Random, counts: Counts
) -> str:
    """Kills a tool with some command lines until there were so many kills.

    Returns:
        The first fault; "" if there is none.
    """
    allowed, longest, again = whole_runs(tool, lines)
    clear()
    if not any(allowed):
        return ""
    while counts["kills"] < kills:
        running = [begin(tool, rng.choice(lines)) for _ in range(2)]
        rng.shuffle(running)
        for _ in range(rng.choice((1, 1, 2))):
            killed = kill(rng, running, longest)
            status = os.waitstatus_to_exitcode(os.waitpid(killed, 0)[1])
            counts["kills"] += status == -signal.SIGKILL
            counts["ended"] += status == 0
            counts["writing"] += status == -signal.SIGKILL and any(map(is_temporary, files()))
            if wrong := fault(content(), allowed):
                return wrong
        for process in running:
            counts["ended"] += os.waitpid(process, 0)[1] == 0
        found = content()
        if wrong := fault(found, allowed):
            return wrong
        counts["whole"] += bool(found)
        ended = any(each.keys() <= found.keys() for each in allowed)
        if rng.random() < 0.1 or (ended and not again):
            clear()
        else:  # what a kill leaves of a table stays until its owner removes it
            for path in filter(is_temporary, files()):
                if path.suffix == ".incomplete":
                    path.unlink()
    for line in lines:
        os.waitpid(begin(tool, line), 0)
    left = [str(path) for path in files() if path.suffix == ".nnet3-tmp"]
    return f"{left} stays after a whole run" if left else ""


def main() -> None:
    """Kills all writing tools, prints a line for each, and ends with 1 after a fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10, help="how often each tool is killed")
    parser.add_argument("--tools", default=",".join(LINES), help="names with commas between")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    arguments = parser.parse_args()
    if not ONE_THREAD.items() <= os.environ.items():  # NumPy has been loaded without it
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE_THREAD})
    forked = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda _: forked  # type: ignore[assignment, misc]
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_inputs(Path())
        for tool in arguments.tools.split(","):
            begun = time.monotonic()
            counts, wrong = judge(tool, arguments.kills, random.Random(arguments.seed))
            faults += bool(wrong)
            print(
                f"{tool}: {counts['kills']} kills, {counts['writing']} of them with a temporary "
                f"file there; {counts['ended']} processes ended, {counts['whole']} targets were "
                f"whole; "
                f"{wrong or 'no fault'} ({time.monotonic() - begun:.0f} s)",
                flush=True,
            )
        os.chdir("/")
    print(f"{faults} faults")
    sys.exit(min(faults, 1))


if __name__ == "__main__":
    main()
