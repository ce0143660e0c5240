"""Damaged model files give the package's error, quickly, in little memory, and change nothing."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import damaged
import pytest
from damaged.damages import DAMAGES, damaged_file
from damaged.good_files import good_files

TESTS = Path(damaged.__file__).parents[1]
FILES = int(os.environ.get("DAMAGED_FILES", "2000"))
"""Number of files to read; a session of nox reads 20,000."""

pytestmark = [
    pytest.mark.any_versions,
    pytest.mark.skipif(sys.platform != "linux", reason="measures memory in Linux's way"),
]


def report_of(*command: str) -> dict[str, Any]:
    """Returns the report of a process."""
    result = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def test_damaged_files_are_refused_or_read() -> None:
    """Damaged files have no other effect; a failure names the seed and number of the file."""
    report = report_of("-m", "damaged.reading", "1", f"0:{FILES}")

    assert report["faults"] == []
    assert report["files"] == FILES
    assert 0.05 < report["accepted"] / FILES < 0.5
    assert report["seconds"] < 1.0
    assert report["growth"] < 64 << 20


FAULTY_READER = """
import json
import attrs
import numpy as np
from damaged import reading

reading.SECONDS = 0.05
good_files, read = reading.good_files(), reading.read
calls = 0

def faulty_read(data, **arguments):
    global calls
    calls += 1
    if calls > len(good_files):
        {}
    return read(data, **arguments)

reading.read = faulty_read
print(json.dumps(attrs.asdict(reading.read_damaged(1, range(1)))))
"""


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("{}['key']", "KeyError: 'key'"),
        ("open('/dev/null').close()", "open ('/dev/null'"),
        ("eval('1')", "compile (b'1'"),
        ("np.ones(100 << 20, np.uint8)", "memory grew by"),
        ("np.empty(1 << 40, np.uint8)", "MemoryError"),
        ("sum(range(10_000_000))", "took 0."),
    ],
)
def test_faults_are_found(statement: str, fault: str) -> None:
    """A reader that breaks these rules is reported."""
    faults = report_of("-c", FAULTY_READER.format(statement))["faults"]

    assert any(fault in found for found in faults), faults


def test_every_damage_is_done() -> None:
    """A few hundred files have all kinds of damage, file types and forms."""
    files = [damaged_file(1, number) for number in range(600)]
    names = Counter(file.name.rsplit(", ", 1)[1] for file in files)
    good = {file.data for file in good_files()}

    assert set(names) == {damage.__name__ for damage in DAMAGES}
    assert sum(file.data in good for file in files) < 0.1 * len(files)
