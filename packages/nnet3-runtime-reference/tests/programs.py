"""Small computations of a few commands, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from nnet3_computation import (
    AcceptInput,
    Command,
    NoOperationMarker,
    ProvideOutput,
)
from nnet3_runtime_reference import ReferenceComputer
from small_networks import computation, identity

INPUT, OUTPUT = 0, 1
"""The numbers of the nodes."""


def run(
    given: np.ndarray,
    matrices: Sequence[tuple[int, int]],
    commands: Sequence[Command],
    **more: Any,
) -> np.ndarray:
    """The output of commands: matrix 1 is the input, and the last matrix is the output."""
    program = [
        AcceptInput(matrix=1, node=INPUT),
        *commands,
        ProvideOutput(matrix=1 + len(matrices), node=OUTPUT),
        NoOperationMarker(),
    ]
    made = computation([given.shape, *matrices], program, **more)
    return ReferenceComputer(identity(given.shape[1]), made).forward({"input": given})["output"]
