"""Puts faults of the past back one by one, and runs the tests that found them or were written then.

usage: reintroduced.py [--list] [--jobs N] [WORD ...]   (WORD chooses by names and files)

Each fault of reintroduced.txt is a replacement in one file of a package. The package with it comes
first on the path of a process that runs the fault's tests, which must fail there, after they have
passed without it. The exit status is 1 if a fault was not caught.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".txt")
FAILED = 1
"""Pytest's exit status where tests ran and some failed."""
NO_END = -1
"""The status of tests that did not end in time."""
PATIENCE = 1800
"""Seconds that tests may take."""


@attrs.frozen
class Fault:
    """A fault of the past.

    Attributes:
        name: What was wrong, in a sentence.
        file: The file that had it, from the root of the repository.
        mended: The lines of today, which occur once in the file.
        wrong: The lines that they replace.
        tests: The tests that fail with the fault, as pytest names them.
    """

    name: str
    file: str
    mended: str
    wrong: str
    tests: tuple[str, ...]

    @property
    def is_mended_once(self) -> bool:
        """Whether the mended lines occur exactly once, as whole lines."""
        return self._text.count(f"\n{self.mended}") == 1

    @property
    def wrong_text(self) -> str:
        """The file with the fault."""
        return self._text.replace(f"\n{self.mended}", f"\n{self.wrong}")[1:]

    @property
    def _text(self) -> str:
        """The file, with an empty line in front; "" if it is not there."""
        file = ROOT / self.file
        return "\n" + file.read_text(encoding="utf-8") if file.exists() else ""

    def write(self, folder: Path) -> None:
        """Copies the package with the fault into a folder."""
        sources = ROOT.joinpath(*Path(self.file).parts[:3])
        module = Path(self.file).parts[3]
        shutil.copytree(sources / module, folder / module)
        target = folder / (ROOT / self.file).relative_to(sources)
        target.write_text(self.wrong_text, encoding="utf-8")


def read_faults(text: str) -> Iterator[Fault]:
    """The faults of a table.

    A paragraph is a fault: `# name`, the file, the mended lines behind `- `, the wrong ones behind
    `+ ` (as in a patch that brings the fault), and tests behind `> `.
    """
    for paragraph in text.strip().split("\n\n"):
        lines: dict[str, list[str]] = {"#": [], "-": [], "+": [], ">": []}
        name, file, *rest = paragraph.splitlines()
        for line in rest:
            lines[line[0]].append(line[2:])
        mended, wrong = ("".join(f"{line}\n" for line in lines[mark]) for mark in "-+")
        yield Fault(name[2:], file, mended, wrong, tuple(lines[">"]))


def run_tests(tests: tuple[str, ...], first_on_path: Path | None, scratch: Path) -> tuple[int, str]:
    """Pytest's exit status and last lines for some tests, with a folder first on the path."""
    env = os.environ | {"HYPOTHESIS_STORAGE_DIRECTORY": str(scratch / "examples")}
    if first_on_path is not None:
        env |= {"PYTHONPATH": str(first_on_path)}
    options = "-q", "-x", "-p", "no:cacheprovider", f"--basetemp={scratch / 'tmp'}"
    command = [sys.executable, "-m", "pytest", *options, *tests]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return NO_END, ""
    return done.returncode, "\n".join(done.stdout.splitlines()[-15:])


def judge(fault: Fault) -> str:
    """'caught', or why not."""
    if not fault.is_mended_once:
        return "NOT caught: the mended lines are not there once"
    with tempfile.TemporaryDirectory() as folder:
        fault.write(Path(folder, "sources"))
        status, _ = run_tests(fault.tests, Path(folder, "sources"), Path(folder))
    return "caught" if status == FAILED else f"NOT caught: pytest's exit status is {status}"


def main() -> int:
    """Judges the faults that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", metavar="WORD", help="of names or files of faults")
    parser.add_argument("--list", action="store_true", help="print the faults, and run nothing")
    parser.add_argument("--jobs", type=int, default=2, help="how many to judge at a time")
    options = parser.parse_args()
    faults = [
        fault
        for fault in read_faults(TABLE.read_text(encoding="utf-8"))
        if all(word in f"{fault.name} {fault.file}" for word in options.words)
    ]
    if options.list:
        for fault in faults:
            print(f"{fault.name}\n    {fault.file}")
        return 0
    tests = dict.fromkeys(test for fault in faults for test in fault.tests)
    with tempfile.TemporaryDirectory() as folder:
        status, lines = run_tests(tuple(tests), None, Path(folder))
    if status:
        print(f"the tests fail without any fault:\n{lines}")
        return 1
    caught = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for fault, verdict in zip(faults, pool.map(judge, faults), strict=True):
            print(f"{verdict}: {fault.name}", flush=True)
            caught += verdict == "caught"
    print(f"{caught} of {len(faults)} faults caught")
    return 0 if caught == len(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
