"""Tools and their tables: what is read is not lost, and what is left out is said."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from nnet3_descriptors import write_nnet
from nnet3_descriptors.files import SparseMatrix, new_writer
from nnet3_tables import ObjectWriter, read_objects, read_table, write_table
from nnet3_training.egs import read_example
from reference_cases import CHAIN_REFERENCE, ROOT
from small_networks import network, stacked
from tool_runs import run_tool

MODEL = ROOT / "examples/digits/final.raw"
FEATURES = ROOT / "examples/digits/test.feats.ark"
EGS = ROOT / "tests/reference/training/subset.ark"
CHAIN = CHAIN_REFERENCE / "digits"


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


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("tool", "first", "model", "examples"),
    [
        ("nnet3-combine", [], MODEL, EGS),
        ("nnet3-chain-combine", [CHAIN / "den.fst"], CHAIN / "initial.raw", CHAIN / "cegs8.ark"),
    ],
    ids=["nnet3", "chain"],
)
def test_a_network_from_a_pipe(
    tool: str, first: list[Path], model: Path, examples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network to combine is read once, also one that cannot be read twice."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(model.read_bytes()), "latin-1"))

    run_tool(tool, *first, "-", f"ark:{examples}", "out", expected=0)


def test_progress_of_another_network(folder: Path) -> None:
    """Networks with other components, though as many parameters, are not compared."""
    for name, forms in {"a": ["4", "4"], "b": ["8"]}.items():
        affines = [f"affine{n} Affine input-dim=4 output-dim={dim}" for n, dim in enumerate(forms)]
        write_nnet(network(stacked(4, *affines)), folder / name)

    done = run_tool("nnet3-show-progress", "a", "b", expected=0)

    assert "Parameter-dim mismatch, cannot show progress." in done.stderr


@pytest.mark.usefixtures("folder")
def test_a_random_frame_of_none() -> None:
    """An example whose output has no rows is named."""
    Path("none").write_text("a  [ ]\n", encoding="utf-8")
    run_tool("nnet3-get-egs-simple", "input=ark:none", "output=ark:none", "ark:egs", expected=0)

    done = run_tool("nnet3-copy-egs", "--frame=random", "ark:egs", "ark:out", expected=255)

    assert "example 'a' has no rows of 'output'" in done.stderr


@pytest.mark.parametrize("tool", ["nnet3-get-egs", "nnet3-get-egs-dense-targets"])
@pytest.mark.parametrize("role", ["features", "ivectors"])
def test_sparse_features(tool: str, role: str, folder: Path) -> None:
    """Sparse features and i-vectors make the examples that full ones make."""
    splits, columns, ones = np.arange(17), np.arange(16) % 3, np.ones(16, np.float32)
    sparse, writer = SparseMatrix(3, splits, columns, ones), new_writer()
    sparse.write(writer)
    with ObjectWriter("ark:sparse") as table:
        table.write("a", writer.data)
    with write_table("ark:full") as table:
        table.write("a", sparse.dense())
    Path("post").write_text("a" + " [ 1 1 ]" * 16 + "\n", encoding="utf-8")
    option, labels = "--num-targets=3", "ark:full"
    if tool == "nnet3-get-egs":
        option, labels = "--num-pdfs=2", "ark:post"
    for name in ("sparse", "full"):
        features = name if role == "features" else "full"
        run_tool(
            tool, option, "--num-frames=8", f"--online-ivectors=ark:{name}", "--compress=false",
            f"ark:{features}", labels, f"ark:{name}.egs", expected=0,
        )  # fmt: skip

    assert (folder / "sparse.egs").read_bytes() == (folder / "full.egs").read_bytes()


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
