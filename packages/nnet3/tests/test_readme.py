"""The Python code of the README runs as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nnet3
import numpy as np
import pytest
from nnet3 import Model
from nnet3_descriptors import parse_config, write_nnet
from small_networks import SPLICED, WITH_IVECTOR

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def run(beginning: str, names: dict[str, Any]) -> None:
    """Runs the block that begins with a line; its variables are added to `names`."""
    [block] = [block for block in BLOCKS if block.startswith(beginning)]
    exec(block, names)  # noqa: S102  the package's own README


def test_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README loads a model and computes, except for inputs that this network lacks."""
    monkeypatch.chdir(tmp_path)
    write_nnet(parse_config(WITH_IVECTOR, rng=np.random.default_rng(0)), "final.raw")
    [block] = [block for block in BLOCKS if block.startswith("import nnet3\n")]
    without, withs = block.splitlines()[-2:]
    assert without.startswith("outputs = model.compute(features)")

    names: dict[str, Any] = {"features": np.zeros((7, 4)), "ivector": np.ones(2)}
    exec(block.replace(without, ""), names)  # noqa: S102  the package's own README

    assert "ivector" in withs
    assert names["outputs"].shape == (7, 3)


def test_several_utterances() -> None:
    """The README computes a batch, a list, and a stream."""
    model = Model(parse_config(SPLICED, rng=np.random.default_rng(0)))
    frames = np.ones((7, model.input_dim))
    names: dict[str, Any] = {
        "model": model,
        "batch": np.stack([frames, frames]),
        "first": frames,
        "second": frames[:3],
        "frames": frames,
        "utterances": [("a", frames)],
    }

    run("batch_outputs = ", names)
    assert names["batch_outputs"].shape[:2] == (2, 7)
    assert (len(names["first_outputs"]), len(names["second_outputs"])) == (7, 3)

    run("stream = model.stream(", names)
    assert len(names["outputs"]) == 7


def test_other_outputs() -> None:
    """The README computes a node inside the network, and log-probabilities."""
    names: dict[str, Any] = {
        "model": Model(parse_config(SPLICED.replace("affine", "bottleneck"))),
        "features": np.ones((7, 4)),
    }

    run("bottleneck = ", names)

    assert names["bottleneck"].shape == (7, 3)
    np.testing.assert_allclose(np.exp(names["log_posteriors"]).sum(axis=1), 1.0, rtol=1e-5)


def test_a_computation_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README compiles a computation and runs it."""
    monkeypatch.chdir(tmp_path)
    nnet = parse_config(SPLICED, rng=np.random.default_rng(0))
    write_nnet(nnet, "final.raw")
    frames = np.random.default_rng(1).normal(size=(90, 4)).astype(np.float32)
    names: dict[str, Any] = {"nnet3": nnet3, "frames": frames}

    run("nnet = nnet3.read_nnet(", names)

    expected = Model(nnet).compute(frames)[20:70]
    np.testing.assert_allclose(names["outputs"], expected, rtol=1e-5, atol=1e-6)
