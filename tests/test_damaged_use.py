"""Damaged files of all formats are refused, or can be used; nothing but Nnet3Error is raised.

In the environment, DAMAGED_FILES is the number of files, DAMAGED_SEED the seed. `python -m
damaged.run` does the same for as many files as you like, and repeats those that failed.
"""

import json
import os
import sys
from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("resource")
from damaged.damages import DAMAGES, damaged_file
from damaged.formats import FORMATS
from damaged.good_files import good_files
from damaged.run import chosen
from other_processes import printed_by_python

FILES = int(os.environ.get("DAMAGED_FILES", "1500"))
SEED = int(os.environ.get("DAMAGED_SEED", "1"))

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bounds memory in Linux's way")


def report_of(*arguments: str) -> dict[str, Any]:
    """The report of a Python process."""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    report: dict[str, Any] = json.loads(printed_by_python(*arguments, env=environment))
    return report


@pytest.mark.any_versions
def test_use_of_what_is_damaged() -> None:
    """Each use works or raises a Nnet3Error, in a process of 1 GB, in ten seconds of its time.

    Messages are short and have no control characters.
    """
    report = report_of("-m", "damaged.run", f"--count={FILES}", f"--seed={SEED}")

    assert report["faults"] == []
    assert report["files"] == FILES
    assert report["counts"].keys() == FORMATS.keys()
    used = sum(counts.get("used", 0) for counts in report["counts"].values())
    assert used > 0.1 * FILES
    assert sum(counts["uses"] for counts in report["counts"].values()) > 3 * used


@pytest.mark.any_versions
@pytest.mark.parametrize(("what", "share"), [("model files", 1), ("examples", 3)])
def test_damaged_files_are_refused_or_read(what: str, share: int) -> None:
    """Reading opens nothing else and takes a second and 64 MB; a message says at which byte."""
    count = FILES // share
    report = report_of("-m", "damaged.run", f"--count={count}", "--brief", f"--formats={what}")

    assert report["faults"] == []
    assert 0.05 < report["counts"][what]["used"] / count < 0.5


@pytest.mark.parametrize("group", ["models", "examples"])
def test_every_damage_is_done(group: str) -> None:
    """A few hundred files have all kinds of damage, and all good files have elements."""
    files = [damaged_file(1, number, group) for number in range(600)]
    names = Counter(file.name.rsplit(", ", 1)[1] for file in files)
    good = good_files(group)

    assert set(names) == {damage.__name__ for damage in DAMAGES}
    assert {file.binary for file in good} == {True, False}
    assert all(len(file.elements) > 8 for file in good)
    assert sum(file.data in {each.data for each in good} for file in files) < 0.15 * len(files)


def test_files_are_repeatable() -> None:
    """A number means the same file, whatever was done before."""
    options = Namespace(seed=SEED, formats="")
    drawn = [chosen(options, number) for number in (5, 6, 5)]

    assert drawn[0][0] == drawn[2][0]
    assert drawn[0][2].random() == drawn[2][2].random() != drawn[1][2].random()


FAULTS = {
    "os.abort()": "the process died with status ",
    "np.empty(1 << 40, np.uint8)": "MemoryError",
    "raise RecursionError": "RecursionError",
    "warnings.warn('a')": "UserWarning: a",
    "while True: pass": "TooLongError: took too long",
    "subprocess.run('true')": "AssertionError: a file causes subprocess",
    "open('/tmp/elsewhere', 'w')": "AssertionError: a file causes open",
    "raise Nnet3Error('\\x1b[31m' * 10_000)": None,
    "return True": None,
}
"""What a use may do, and how it is reported; None if it is no fault."""
READERS = {
    "{}['key']": "KeyError: 'key'",
    "open('/dev/null').close()": "open ('/dev/null'",
    "compile('1', 'a', 'eval')": "compile (",
    "np.ones(100 << 20, np.uint8)": "MemoryError",
    "while True: pass": "TooLongError: took too long",
    "raise ModelFileError('a', path='f')": "AssertionError: the offset is None",
    "raise ModelFileError('a', path='f', offset=9)": "AssertionError: the offset is 9",
    "raise ModelFileError('a', path='f', offset=8)": None,
}
"""What a reader of eight bytes may do, and how it is reported."""


def test_faults_are_found() -> None:
    """Each kind of fault is reported, with the number that repeats it; the run goes on."""
    both = [*FAULTS, *READERS]
    uses = "".join(f"def one():\n    {each}\nUSES.append(one)\n" for each in both)
    program = f"""
import os, subprocess, warnings
import numpy as np
from nnet3_descriptors import ModelFileError, Nnet3Error
from damaged import formats, run
def use(user, seed, number, folder):
    if number < {len(FAULTS)}:
        user.attempt("try", USES[number])
    else:
        user.read(8, USES[number])
    return True
USES = []
{uses}
run._prepare = list
formats.FORMATS.clear()
formats.FORMATS["a format"] = 1, use
run.main()
"""
    report = report_of("-c", program, f"--count={len(both)}", "--seconds=0.5")

    assert report["files"] == len(both) - 1  # the one whose process died is not among the counts
    found = [*FAULTS.values(), *READERS.values()]
    expected = [(n, fault) for n, fault in enumerate(found) if fault is not None]
    for fault, (number, message) in zip(report["faults"], expected, strict=True):
        assert fault.startswith(f"{number}: ")
        assert message in fault
