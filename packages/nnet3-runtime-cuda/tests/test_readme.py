"""The Python code of the README runs as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from computations import request
from nnet3_descriptors import parse_config
from small_networks import SPLICED

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def run(beginning: str, names: dict[str, Any]) -> None:
    """Runs the block that begins with a line; its variables are added to `names`."""
    [block] = [block for block in BLOCKS if block.startswith(beginning)]
    exec(block, names)  # noqa: S102  the package's own README


def test_computations() -> None:
    """The README runs a computation forward and backward."""
    nnet = parse_config(SPLICED, rng=np.random.default_rng(0))
    wanted = request(range(-1, 5), range(5), sequences=2)
    names: dict[str, Any] = {
        "nnet": nnet,
        "request": wanted,
        "array": np.ones((12, 4)),
        "derivative": np.ones((10, 3)),
    }

    run("from nnet3 import CachingCompiler", names)
    assert names["outputs"].pop("output").shape == (10, 3)
    assert names["derivatives"]["input"].shape == (12, 4)
