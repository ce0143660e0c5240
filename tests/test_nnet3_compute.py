"""The tool nnet3-compute: on real speech, and on damaged input."""

import contextlib
import functools
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import nnet3
import numpy as np
import pytest
from kaldi_tables import (
    assert_same_archive,
    read_archive,
    read_vectors,
    write_archive,
    write_arrays,
)
from nnet3_tables import TableError, read_table
from reference_cases import DIGITS_EXAMPLE, DIGITS_REFERENCE, TOOLS_REFERENCE, kaldi_commands
from tool_runs import run_tool

TOOL = Path(sys.executable).with_name("nnet3-compute")
MODEL = DIGITS_EXAMPLE / "final.raw"
FEATURES = DIGITS_EXAMPLE / "test.feats.ark"
IVECTOR_MODEL = TOOLS_REFERENCE / "tdnn-ivector.raw"


def compute_apart(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs the tool in a separate process; it must never show a traceback."""
    done = subprocess.run(
        [TOOL, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120
    )
    assert "Traceback" not in done.stderr
    return done


compute = functools.partial(run_tool, "nnet3-compute", expected=0)


@pytest.fixture(scope="module")
def features() -> dict[str, np.ndarray]:
    """The first three utterances of the digits example."""
    return dict(list(read_archive(FEATURES).items())[:3])


def test_digits_as_the_readme_says(tmp_path: Path) -> None:
    """The README's command writes a text archive with Kaldi's log-posteriors within 1e-4.

    Standard error reports utterances, frames, frames per second and the time of compiling.
    """
    done = compute_apart(MODEL, f"ark:{FEATURES}", f"ark,t:{tmp_path / 'posteriors.txt'}")

    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert_same_archive(
        read_archive(tmp_path / "posteriors.txt"),
        read_archive(DIGITS_REFERENCE / "test.output.ark"),
    )
    assert "40 utterances, 5,049 frames" in done.stderr
    assert "frames per second" in done.stderr
    assert "compil" in done.stderr
    assert "\r" not in done.stderr  # a progress bar is for terminals


COMMANDS = {
    name: line.split()[1:]
    for name, line in kaldi_commands(TOOLS_REFERENCE).items()
    if line.startswith("nnet3-compute ")
}
"""The command lines that gave Kaldi's outputs, by name of the output."""


@pytest.mark.parametrize("name", COMMANDS)
def test_same_output_as_kaldi(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kaldi's own command line, with its options, gives Kaldi's output within 1e-4.

    Untrained networks give numbers as large as 1e7; for those, 1e-6 of the largest.
    """
    monkeypatch.chdir(TOOLS_REFERENCE)
    *arguments, wspecifier = COMMANDS[name]

    compute(*arguments, f"ark:{tmp_path / 'output.ark'}")

    actual = read_archive(tmp_path / "output.ark")
    expected = read_archive(TOOLS_REFERENCE / wspecifier.removeprefix("ark:"))
    assert list(expected) == list(actual)
    for key, matrix in expected.items():
        np.testing.assert_allclose(
            actual[key], matrix, rtol=0, atol=max(1e-4, 1e-6 * np.abs(matrix).max())
        )


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        pytest.param(np.zeros((50, 40)), "40", id="dimension"),
        pytest.param(np.full((50, 23), np.nan), "nan", id="not a number"),
        pytest.param(
            np.where(np.arange(23) == 7, np.inf, np.zeros((50, 23))), "inf", id="infinite"
        ),
        pytest.param(np.full((50, 23), 1e38), "node 'output' overflowed", id="overflow"),
        pytest.param(np.zeros((0, 0)), "0", id="no frames"),
    ],
)
def test_one_bad_utterance(
    fault: np.ndarray, found: str, features: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """A damaged utterance is named, counted and left out; the others are written as usual.

    The tool succeeds, as Kaldi's does, if the utterance has no frames.
    """
    first, *others = features
    rspecifier = write_archive(
        tmp_path / "features.ark",
        {first: features[first], "faulty": fault, **{key: features[key] for key in others}},
    )

    status = 255 if len(fault) else 0
    done = compute(MODEL, rspecifier, f"ark:{tmp_path / 'output.ark'}", expected=status)

    [line] = [line for line in done.stderr.splitlines() if "faulty" in line]
    assert found in line.lower()
    assert "1 failed" in done.stderr
    expected = read_archive(DIGITS_REFERENCE / "test.output.ark")
    assert_same_archive(
        read_archive(tmp_path / "output.ark"), {key: expected[key] for key in features}
    )


def test_missing_ivector(tmp_path: Path) -> None:
    """An utterance without its i-vector is named and counted; the others are written."""
    features = read_archive(TOOLS_REFERENCE / "feats5.ark")
    first, *others = features
    ivectors = tmp_path / "ivectors.ark"
    known = read_vectors(TOOLS_REFERENCE / "ivectors3.ark")
    write_arrays(f"ark:{ivectors}", {key: known[key] for key in others})

    done = compute(
        f"--ivectors=ark:{ivectors}",
        "--frames-per-chunk=20",
        IVECTOR_MODEL,
        f"ark:{TOOLS_REFERENCE / 'feats5.ark'}",
        f"ark:{tmp_path / 'output.ark'}",
    )

    assert first in done.stderr
    assert others == list(read_archive(tmp_path / "output.ark"))


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files as Linux does")
@pytest.mark.parametrize("tool", ["nnet3-compute", "nnet3-compute-batch"])
def test_a_disk_that_fills_up(tool: str, tmp_path: Path) -> None:
    """A failed write names the file, and leaves no file of that name."""
    arguments = [MODEL, f"ark:{FEATURES}", f"ark:{tmp_path / 'output.ark'}"]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 40; exec "$@"', "sh", TOOL.with_name(tool), *arguments],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # a .pyc would be cut off, too
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 255
    assert f"{tmp_path / 'output.ark'}" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "output.ark").exists()


@pytest.mark.skipif(os.name != "posix", reason="kills a process")
@pytest.mark.parametrize("tool", ["nnet3-compute", "nnet3-compute-batch"])
def test_killed_in_the_middle(tool: str, tmp_path: Path) -> None:
    """A kill leaves no archive of the name, but one with whole utterances, in order."""
    output = tmp_path / "output.ark"
    # The first utterances over and over; a few megabytes are written before the kill.
    endless = f"ark:while cat {shlex.quote(str(FEATURES))}; do :; done |"
    process = subprocess.Popen(
        [TOOL.with_name(tool), MODEL, endless, f"ark:{output}"], stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 100
        while not sum(part.stat().st_size for part in tmp_path.iterdir()) > 200_000:
            assert process.poll() is None
            assert time.monotonic() < deadline, "nothing is written while the table goes on"
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()

    (part,) = tmp_path.iterdir()
    assert part.match("output.ark.*.incomplete")
    keys = list(read_archive(FEATURES))
    found = []
    with contextlib.suppress(TableError):  # the kill can cut off the last entry
        found += (key for key, _ in read_table(f"ark:{part}"))
    assert found == [keys[number % len(keys)] for number in range(len(found))]


@pytest.mark.parametrize(
    ("tool", "options"),
    [
        ("nnet3-compute", ["--jobs=1"]),
        ("nnet3-compute", []),
        ("nnet3-compute-batch", []),
        ("nnet3-compute-looped", []),
    ],
)
def test_other_outputs(
    tool: str, options: list[str], tmp_path: Path, features: dict[str, np.ndarray]
) -> None:
    """Values of another node are written, as they are or as log-probabilities."""
    write_archive(tmp_path / "features.ark", features)
    model = nnet3.load(MODEL)
    arguments = MODEL, f"ark:{tmp_path / 'features.ark'}", f"ark:{tmp_path / 'output.ark'}"
    options = [*options, "--output=tdnn1.affine", "--scores=log-softmax"]
    run_tool(tool, *options, *arguments, expected=0)

    chosen = {"output": "tdnn1.affine", "scores": "log-softmax"}
    expected = {key: model.compute(frames, **chosen) for key, frames in features.items()}
    assert_same_archive(read_archive(tmp_path / "output.ark"), expected)
