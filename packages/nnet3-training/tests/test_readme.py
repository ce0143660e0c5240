"""The Python code of the README runs as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nnet3_training
import numpy as np
import pytest
from nnet3_descriptors import read_nnet, vectorize
from small_networks import SPLICED

README = (Path(__file__).parents[1] / "README.md").read_text()

BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README trains a network on the user's own data, writes it and reads it."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    batches = [
        ([rng.normal(size=(11, 4)) for _ in range(3)], [rng.integers(3, size=10) for _ in range(3)])
        for _ in range(2)
    ]

    names: dict[str, Any] = {"config": SPLICED, "batches": batches, "num_classes": 3}
    exec(BLOCKS[0], names)  # noqa: S102  the package's own README

    assert (names["left"], names["right"]) == (1, 0)
    assert read_nnet("trained.raw") == names["trainer"].nnet
    assert not np.array_equal(vectorize(names["trainer"].nnet), vectorize(names["nnet"]))


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README makes an archive of examples from utterances."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    names: dict[str, Any] = {
        "features_by_key": {"u": rng.normal(size=(81, 4)).astype(np.float32)},
        "labels_of": {"u": [[(0, 0.5), (2, 0.5)]] * 81},
        "num_classes": 3,
        "left": 1,
        "right": 0,
    }
    exec(BLOCKS[1], names)  # noqa: S102  the package's own README

    written = nnet3_training.read_examples("egs.ark")
    assert [len(example.outputs[0].indexes) for example in written] in ([50, 30], [30, 50])
