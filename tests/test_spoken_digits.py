"""Ten spoken digits are recognised from WAV files, by the code that the page shows."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import nnet3
import numpy as np
import pytest
from nnet3_speech import read_wav
from nnet3_tables import read_table
from reference_cases import ROOT
from tool_runs import run_tool

PAGE = (ROOT / "docs/how-to/from-wav-to-posteriors.md").read_text(encoding="utf-8")
DIGITS = ROOT / "examples/digits"
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def at_rate(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """A recording at another rate, with the part of its spectrum that both rates have."""
    count = round(len(samples) * wanted / rate)
    spectrum = np.fft.rfft(samples)[: count // 2 + 1]
    return np.fft.irfft(spectrum, count) * count / len(samples)


@pytest.mark.parametrize("rate", [16000, 22050, 44100])
def test_ten_of_ten(rate: int) -> None:
    """All ten words are recognised, at the rate of the model and at higher ones."""
    model = nnet3.load(DIGITS)

    found = []
    for word in WORDS:
        recording = read_wav(DIGITS / "wav" / f"{word}.wav")
        samples = at_rate(recording.samples[0], recording.rate, rate)
        found.append(WORDS[model.compute((samples, rate))[:, 1:].sum(axis=0).argmax()])

    assert found == WORDS


def test_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's commands give what its Python gives."""
    for name in ("fbank.conf", "final.raw", "wav"):
        copy = shutil.copytree if (DIGITS / name).is_dir() else shutil.copy
        copy(DIGITS / name, tmp_path / name)
    [commands] = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    script, *tools = commands.splitlines()
    [(text, target)] = re.findall(r'^echo "(.*)" > (.*)$', script)
    monkeypatch.chdir(tmp_path)
    Path(target).write_text(f"{text}\n", encoding="utf-8")

    for line in tools:
        tool, *arguments = shlex.split(line)
        assert run_tool(tool, *arguments).returncode == 0

    [(key, found)] = read_table("ark:log-posteriors.txt")
    expected = nnet3.load(DIGITS).compute(DIGITS / "wav" / "seven.wav")
    assert key == "seven"
    np.testing.assert_allclose(found, expected, atol=1e-3)
