"""Damaged archives of examples give one error, quickly, in little memory, without effects."""

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
FILES = int(os.environ.get("DAMAGED_EXAMPLES", "1500"))
"""Number of files to read; `python -m damaged.reading 1 0:20000 examples` reads 20,000."""

pytestmark = [
    pytest.mark.any_versions,
    pytest.mark.skipif(sys.platform != "linux", reason="measures memory in Linux's way"),
]


def test_damaged_examples_are_refused_or_read() -> None:
    """Damaged files have no other effect; a failure names the seed and number of the file."""
    result = subprocess.run(
        [sys.executable, "-m", "damaged.reading", "1", f"0:{FILES}", "examples"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    report: dict[str, Any] = json.loads(result.stdout)

    assert report["faults"] == []
    assert report["files"] == FILES
    assert 0.05 < report["accepted"] / FILES < 0.5
    assert report["seconds"] < 1.0
    assert report["growth"] < 64 << 20


def test_every_damage_is_done() -> None:
    """A few hundred files have all kinds of damage and all forms of examples."""
    files = [damaged_file(1, number, "examples") for number in range(600)]
    names = Counter(file.name.rsplit(", ", 1)[1] for file in files)
    good = good_files("examples")

    assert set(names) == {damage.__name__ for damage in DAMAGES}
    assert {good.kind for good in good} == {"examples", "chain examples"}
    assert {file.binary for file in good} == {True, False}
    assert all(len(file.elements) > 8 for file in good)
    assert sum(file.data in {each.data for each in good} for file in files) < 0.15 * len(files)
