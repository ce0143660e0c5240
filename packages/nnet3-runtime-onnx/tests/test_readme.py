"""The README's examples run."""

import doctest
from pathlib import Path

import pytest
from nnet3_descriptors import component_types, write_nnet
from nnet3_runtime_onnx.graph import OPSET
from small_networks import SPLICED, network

PATH = Path(__file__).resolve().parents[1] / "README.md"
README = PATH.read_text()


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All examples run in order, in one session."""
    monkeypatch.chdir(tmp_path)
    write_nnet(network(SPLICED), "final.raw")

    results = doctest.testfile(str(PATH), module_relative=False)

    assert results.attempted > 10
    assert results.failed == 0


def test_numbers() -> None:
    """The README states the number of component types, and the operators used."""
    assert f"all {len(component_types())} types" in README
    assert f"opset {OPSET}" in README
