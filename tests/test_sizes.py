"""Whatever number stands in a text, file or argument: it works, or is refused, within bounds.

SIZE_CASES in the environment says how many of the cases are tried, SIZE_SEED which. All are tried
by `python -m damaged.sizes`, with `tests:benchmarks` as PYTHONPATH. That allows two seconds; here
a slow machine with other work has five times as many, which what hangs or grows does not meet.
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
    """Each ends well in a process of its own with ten seconds and 300 MB."""
    faults = [fault_of(case, SECONDS) for case in sample(CASES, SEED)]

    assert [fault for fault in faults if fault] == []


@pytest.mark.parametrize("harm", ["time", "memory", "error"])
def test_what_is_a_fault(harm: str) -> None:
    """Too much time or memory, or an error of another family, is noticed."""

    def forever() -> None:
        while True:
            pass

    harms = {"time": forever, "memory": lambda: bytes(1 << 30), "error": lambda: 1 // 0}

    fault = fault_of(Case("a case", harms[harm]), seconds=1)

    assert fault is not None
    assert {"time": "killed", "memory": "MemoryError", "error": "ZeroDivision"}[harm] in fault
