"""Damaged files of all formats are refused, or can be used; nothing but Nnet3Error is raised.

In the environment, DAMAGED_FILES is the number of files, DAMAGED_SEED the seed. `python -m
damaged.run` does the same for as many files as you like, and repeats those that failed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("resource")
from damaged.formats import FORMATS
from damaged.run import Options, chosen

FILES = int(os.environ.get("DAMAGED_FILES", "1500"))
SEED = int(os.environ.get("DAMAGED_SEED", "1"))

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bounds memory in Linux's way")


def report_of(*arguments: str) -> dict[str, Any]:
    """The report of a Python process."""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    report: dict[str, Any] = json.loads(done.stdout)
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


def test_files_are_repeatable() -> None:
    """A number means the same file, whatever was done before."""
    options = Options(
        seed=SEED, first=0, count=1, processes=1, memory=1024, seconds=10.0, thorough=0.0,
        formats="",
    )  # fmt: skip
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


def test_faults_are_found() -> None:
    """Each kind of fault is reported, with the number that repeats it; the run goes on."""
    uses = "".join(f"def one():\n    {each}\nUSES.append(one)\n" for each in FAULTS)
    program = f"""
import os, subprocess, warnings
import numpy as np
from nnet3_descriptors import Nnet3Error
from damaged import formats, run
def use(user, seed, number, folder):
    user.attempt("try", USES[number])
    return True
USES = []
{uses}
run._prepare = list
formats.FORMATS.clear()
formats.FORMATS["a format"] = 1, use
run.main()
"""
    report = report_of("-c", program, f"--count={len(FAULTS)}", "--seconds=0.5")

    assert report["files"] == len(FAULTS) - 1  # the one whose process died is not among the counts
    expected = [(n, fault) for n, fault in enumerate(FAULTS.values()) if fault is not None]
    for fault, (number, message) in zip(report["faults"], expected, strict=True):
        assert fault.startswith(f"{number}: ")
        assert message in fault
