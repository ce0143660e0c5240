"""Tools and their tables: what is read is not lost, and what is left out is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from nnet3_tables import read_objects, read_table
from nnet3_training.egs import read_example
from reference_cases import ROOT
from tool_runs import run_tool

MODEL = ROOT / "examples/digits/final.raw"
FEATURES = ROOT / "examples/digits/test.feats.ark"
EGS = ROOT / "tests/reference/training/subset.ark"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with features and examples; five whole utterances, and a part of one."""
    features = FEATURES.read_bytes()
    entries = read_objects(f"ark:{FEATURES}", lambda reader: reader.matrix().shape)
    ends = [entry.end for entry in entries]
    (tmp_path / "x").write_bytes(features[: ends[1]])
    (tmp_path / "x.incomplete").write_bytes(features[: ends[0]])
    (tmp_path / "cut").write_bytes(features[: ends[5] - 100])
    (tmp_path / "egs.incomplete").write_bytes(EGS.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_part_as_input(folder: Path) -> None:
    """A tool reads what an interruption of it left, and loses none of it."""
    before = (folder / "egs.incomplete").read_bytes()
    run_tool("nnet3-copy-egs", "ark:egs.incomplete", "ark:egs", expected=0)
    assert (folder / "egs.incomplete").read_bytes() == (folder / "egs").read_bytes() == before

    before = (folder / "x.incomplete").read_bytes()
    run_tool("nnet3-compute", MODEL, "ark:x.incomplete", "ark:x", expected=0)
    assert (folder / "x.incomplete").read_bytes() == before
    assert len(list(read_table("ark:x"))) == 1


@pytest.mark.parametrize(("table", "status"), [("ark:cat egs |", 0), ("scp:cat egs.scp |", 255)])
def test_examples_are_written_over_while_they_are_read(
    table: str, status: int, folder: Path
) -> None:
    """What a command reads may be written; what a script names may not. Tables are whole."""
    run_tool("nnet3-copy-egs", "ark:egs.incomplete", "ark,scp:egs,egs.scp", expected=0)
    whole = (folder / "egs").read_bytes()

    done = run_tool("nnet3-copy-egs", table, "ark,scp:egs,egs.scp")

    assert done.returncode == status
    assert (folder / "egs").read_bytes() == whole
    assert len(list(read_objects("scp:egs.scp", read_example))) > 10


@pytest.mark.parametrize(
    ("features", "status", "level"), [("ark:cut", 255, ""), ("ark,p:cut", 0, "WARNING (")]
)
def test_features_that_break_off(features: str, status: int, level: str, folder: Path) -> None:
    """As in Kaldi: with the option p a warning, and the status of what could be computed."""
    done = run_tool("nnet3-compute", MODEL, features, "ark:out")

    assert done.returncode == status
    (line,) = [line for line in done.stderr.splitlines() if "breaks off" in line]
    assert line.startswith(f"{level}nnet3-compute")
    assert line.endswith("left out because of the option p") == (status == 0)
    assert len(list(read_table("ark:out"))) == 5
