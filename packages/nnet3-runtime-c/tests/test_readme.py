"""The README's example runs."""

import doctest
from pathlib import Path

import pytest
from nnet3_descriptors import component_types, write_nnet
from nnet3_descriptors.components import component_class
from nnet3_runtime_c.calls import CONVERSIONS
from test_conversion import RECURRENT, network

PATH = Path(__file__).resolve().parents[1] / "README.md"
README = PATH.read_text("utf-8")


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All examples run in order, in one session."""
    monkeypatch.chdir(tmp_path)
    write_nnet(network(RECURRENT), "final.raw")

    results = doctest.testfile(str(PATH), module_relative=False)

    assert results.attempted == 7
    assert results.failed == 0
    assert {path.name for path in tmp_path.iterdir()} == {"final.raw", "digits.c", "digits.h"}


def test_all_types() -> None:
    """Each component type has a conversion."""
    types = {component_class(name) for name in component_types()}

    assert types == set(CONVERSIONS)
    assert f"all {len(types)} types" in README
