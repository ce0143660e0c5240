"""The examples of READMEs run and print the output shown, some with files of the repository."""

from __future__ import annotations

import doctest
import re
import shutil
from typing import Any

import numpy as np
import pytest
from nnet3_descriptors import vectorize
from nnet3_training import read_fst
from reference_cases import CHAIN_REFERENCE, DIGITS_EXAMPLE, ROOT

pytestmark = pytest.mark.usefixtures("in_empty_folder")
PACKAGES = ("descriptors", "graph", "compiler", "optimizer", "speech", "tables")
TRAINING = ROOT / "packages" / "nnet3-training" / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", TRAINING.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("package", PACKAGES)
def test_examples_with_the_digits(package: str) -> None:
    """All examples run in order, in one session, in a folder with the example model."""
    shutil.copy(DIGITS_EXAMPLE / "final.raw", "final.raw")

    readme = ROOT / "packages" / f"nnet3-{package}" / "README.md"
    results = doctest.testfile(str(readme), module_relative=False)

    assert results.attempted >= 10
    assert results.failed == 0


def test_chain_training() -> None:
    """The README trains and evaluates a network with the files of a chain system."""
    digits = CHAIN_REFERENCE / "digits"
    for source, name in (
        ("initial.raw", "0.raw"),
        ("den.fst", "den.fst"),
        ("cegs8.ark", "cegs.ark"),
        ("cegs8.ark", "valid.cegs"),
    ):
        shutil.copy(digits / source, name)

    names: dict[str, Any] = {}
    exec(BLOCKS[2], names)  # noqa: S102  the package's own README

    assert names["trainer"].objectives["output"].weight == 80
    assert not np.array_equal(vectorize(names["trainer"].nnet), vectorize(names["nnet"]))


def test_chain_graphs() -> None:
    """The README makes a denominator and a supervision from a tree, a model and an alignment."""
    for name in ("tree", "0.trans_mdl"):
        shutil.copy(CHAIN_REFERENCE / "digits" / name, name)

    names: dict[str, Any] = {}
    exec(BLOCKS[3], names)  # noqa: S102  the package's own README

    assert len(BLOCKS) == 4
    assert read_fst("den.fst").equals(names["den_fst"])
    assert names["supervision"].frames_per_sequence == 44
