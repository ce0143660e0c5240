"""Any number in a text, file or argument either works or is refused, within limits.

In the environment, SIZE_CASES is the number of cases to try, and SIZE_SEED chooses them. `python -m
damaged.sizes`, with `tests:benchmarks` as PYTHONPATH, tries all cases, with two seconds each. Here
each case has five times as long, for slow machines with other work; hanging or growing cases still
fail.
"""

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from damaged.sizes import Case, fault_of, sample

CASES = int(os.environ.get("SIZE_CASES", "100"))
SEED = int(os.environ.get("SIZE_SEED", "1"))
SECONDS = 10


def test_sizes_out_of_all_proportion() -> None:
    """Each case works or is refused, in a separate process with ten seconds and 300 MB."""
    faults = [fault_of(case, SECONDS) for case in sample(CASES, SEED)]

    assert [fault for fault in faults if fault] == []


@pytest.mark.parametrize("harm", ["time", "memory", "error"])
def test_what_is_a_fault(harm: str) -> None:
    """Too much time or memory, and errors of other classes, are noticed."""

    def forever() -> None:
        while True:
            pass

    harms = {"time": forever, "memory": lambda: bytes(1 << 30), "error": lambda: 1 // 0}

    fault = fault_of(Case("a case", harms[harm]), seconds=1)

    assert fault is not None
    assert {"time": "killed", "memory": "MemoryError", "error": "ZeroDivision"}[harm] in fault
