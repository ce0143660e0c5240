"""The examples do what their README says."""

import re
import subprocess
import sys
from pathlib import Path

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


def test_train_digits(tmp_path: Path) -> None:
    """Each epoch raises the objective, and the trained network is right more often."""
    done = subprocess.run(
        [sys.executable, DIGITS_EXAMPLE / "train.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    epochs = [float(value) for value in re.findall(r"epoch \d: (\S+) per frame", done.stdout)]
    untrained, trained = map(float, re.findall(r"trained: (\S+) %", done.stdout))
    assert epochs == sorted(epochs)
    # Rounding decides: with other matrix libraries or initial values it was 85.5 to 90.5.
    assert untrained < 75 < 80 < trained
    assert (tmp_path / "trained.raw").exists()
