"""The examples do what their README says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from reference_cases import DIGITS_EXAMPLE


def test_recognise_digits() -> None:
    """The digits example recognises all 40 utterances, and prints a line for each."""
    done = subprocess.run(
        [sys.executable, DIGITS_EXAMPLE / "recognise.py"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    *utterances, score = done.stdout.splitlines()
    assert len(utterances) == 40
    assert score == "40 of 40 right"


@pytest.mark.parametrize("jobs", [1, 4])
def test_train_digits(jobs: int, tmp_path: Path) -> None:
    """Trained from scratch, with one job or four, the network recognises nearly all utterances.

    Which ones depends on rounding, as other matrix libraries have it; here it is all 40.
    """
    done = subprocess.run(
        [sys.executable, DIGITS_EXAMPLE / "train.py", f"--jobs={jobs}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    *iterations, score = done.stdout.splitlines()
    objectives = [float(line.split()[2]) for line in iterations]
    assert objectives[-1] > objectives[len(objectives) // 2] > objectives[0]
    right, total = map(int, re.findall(r"\d+", score))
    assert right >= 38
    assert total == 40
    assert (tmp_path / "run" / "final.raw").exists()
