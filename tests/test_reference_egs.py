"""Our tools, run with Kaldi's command lines for examples, write Kaldi's archives."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import nnet3_tables
import numpy as np
import pytest
from nnet3_descriptors.files import read_entries
from nnet3_training import TrainingExample, read_examples, write_examples
from nnet3_training.egs import CRandom, read_example
from reference_cases import DIGITS_REFERENCE, REFERENCE, kaldi_commands
from tool_commands import said_by

TRAINING = REFERENCE / "training"
COMMANDS = kaldi_commands(TRAINING)

TOLERANCE = "--targets-length-tolerance=1000 "
"""An option of the command get.input3."""


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The current folder has the inputs of the command lines."""
    folder = tmp_path / "training"
    folder.mkdir()
    shutil.copytree(DIGITS_REFERENCE, tmp_path / "digits")
    for name in ("subset.ark", "feats8.ark", "post8.txt"):
        shutil.copy(TRAINING / name, folder)
    monkeypatch.chdir(folder)


def said(text: str) -> list[str]:
    """The messages of a log without prefix and format."""
    lines = [line.partition(") ")[2].strip() for line in text.splitlines() if "LOG" in line]
    return [line for line in lines if line and "[format:" not in line]


@pytest.mark.parametrize("name", ["copy.shift", "copy.frame2", "subset", "merge"])
def test_archives(name: str) -> None:
    """An archive equals Kaldi's byte for byte, and the log has Kaldi's figures."""
    log = said_by(COMMANDS[name])

    assert Path(f"{name}.ark").read_bytes() == (TRAINING / f"{name}.ark").read_bytes()
    assert said(log) == said((TRAINING / f"{name}.log").read_text())


def orders_of_gaps(kaldi: Iterable[TrainingExample]) -> Iterator[list[int]]:
    """For each utterance, the order in which Kaldi put the gaps between its chunks.

    The lengths of gaps differ by one frame at most; the longer gaps have the first numbers. An
    utterance whose chunks overlap has no gaps.
    """
    lengths = {key: len(values) for key, values in nnet3_tables.read_table("ark:feats8.ark")}
    utterances: dict[str, list[tuple[int, int]]] = {}
    for example in kaldi:
        key, _, start = example.key.rpartition("-")
        rows = len(example.outputs[0].indexes)
        utterances.setdefault(key, []).append((int(start), rows))
    for key, chunks in utterances.items():
        ends = [0, *(start + rows for start, rows in chunks)]
        starts = [*(start for start, _ in chunks), lengths[key]]
        gaps = np.subtract(starts, ends)
        if gaps.sum() < 0:
            continue
        assert np.ptp(gaps) <= 1
        order = np.empty(len(gaps), dtype=np.int64)
        order[np.argsort(-gaps, kind="stable")] = np.arange(len(gaps))
        yield order.tolist()


@pytest.mark.parametrize("name", ["get", "get.several", "get.sub3", "dense"])
def test_chunks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Utterances are cut into Kaldi's chunks, and archives equal Kaldi's byte for byte.

    Kaldi orders the gaps between chunks by numbers that differ from run to run; the test reads the
    order from Kaldi's archive. Everything else follows from the seed.
    """
    kaldi = list(read_examples(TRAINING / f"{name}.ark"))
    orders = orders_of_gaps(kaldi)
    monkeypatch.setattr(CRandom, "permutation", lambda self, count: next(orders))

    log = said_by(COMMANDS[name])

    assert next(orders, None) is None
    assert Path(f"{name}.ark").read_bytes() == (TRAINING / f"{name}.ark").read_bytes()
    assert said(log) == said((TRAINING / f"{name}.log").read_text())


def test_posteriors_of_input_frames() -> None:
    """With subsampling, posteriors of input frames are taken at the times of the output.

    For all output frames of a chunk but the first, Kaldi reads weights beyond the end of a list. So
    the test compares only the classes of these frames, where there are any.
    """
    said_by(COMMANDS["get.input3"])

    kaldi, ours = (
        {each.key: each for each in read_examples(path / "get.input3.ark")}
        for path in (TRAINING, Path())
    )
    assert len(kaldi) == len(ours)
    compared = 0
    for key in kaldi.keys() & ours.keys():
        one, other = (each[key].outputs[0].supervision for each in (kaldi, ours))
        assert one.shape == other.shape == (8, 11)
        np.testing.assert_array_equal(kaldi[key].inputs[0].values, ours[key].inputs[0].values)
        np.testing.assert_array_equal(one.values[0], other.values[0])
        for row in np.unique(one.rows):
            assert one.classes[one.rows == row] == other.classes[other.rows == row]
            compared += 1
    assert compared > 100


def test_posteriors_of_input_frames_are_too_long() -> None:
    """With subsampling, posteriors need about a row for each output frame; Kaldi has 2 as limit."""
    log = said_by(COMMANDS["get.input3"].replace(TOLERANCE, ""), status=1)

    assert "no example was made" in log
    lines = [line for line in log.splitlines() if "WARNING" in line]
    lengths = {key: len(values) for key, values in nnet3_tables.read_table("ark:feats8.ark")}
    assert lines == [
        "WARNING (nnet3-get-egs) Supervision does not have expected length for utterance "
        f"{key}: expected length = {-(-length // 3)}, {length} / --frame-subsampling-factor=3, "
        f"got {length}"
        for key, length in lengths.items()
    ] + ["WARNING (nnet3-get-egs) 8 utterances had errors and could not be processed."]


@pytest.mark.parametrize("name", ["subset", "merge", "get", "get.several", "dense"])
def test_unchanged_examples(name: str, tmp_path: Path) -> None:
    """Kaldi's examples are read and written as the same bytes: full, compressed and sparse."""
    write_examples(read_examples(TRAINING / f"{name}.ark"), tmp_path / "egs")

    assert (tmp_path / "egs").read_bytes() == (TRAINING / f"{name}.ark").read_bytes()


def test_text(tmp_path: Path) -> None:
    """Examples in text have the same indexes and classes, and numbers of seven digits."""
    examples = list(read_examples(TRAINING / "get.ark"))[:20]
    write_examples(examples, tmp_path / "egs", binary=False)

    with open(tmp_path / "egs", "rb") as stream:
        found = [entry.value for entry in read_entries(stream, "egs", read_example)]

    for one, other in zip(found, examples, strict=True):
        np.testing.assert_array_equal(one.inputs[0].indexes, other.inputs[0].indexes)
        np.testing.assert_allclose(one.inputs[0].values, other.inputs[0].values, rtol=1e-6)
        mine, yours = one.outputs[0].supervision, other.outputs[0].supervision
        np.testing.assert_array_equal(mine.classes, yours.classes)
        np.testing.assert_array_equal(mine.splits, yours.splits)
        np.testing.assert_allclose(mine.weights, yours.weights, rtol=1e-6)
