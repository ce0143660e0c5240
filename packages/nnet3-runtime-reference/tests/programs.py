"""Small computations of a few commands, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from nnet3_computation import (
    AcceptInput,
    Command,
    NnetComputation,
    NoOperationMarker,
    ProvideOutput,
    command_table,
)
from nnet3_descriptors import Nnet, parse_config
from nnet3_runtime_reference import ReferenceComputer

INPUT, OUTPUT = 0, 1
"""The numbers of the nodes."""


def identity(dim: int) -> Nnet:
    """A network whose output is its input, with `dim` columns."""
    return parse_config(f"input-node name=input dim={dim}\noutput-node name=output input=input")


def computation(
    matrices: Sequence[tuple[int, int]],
    commands: Sequence[Command],
    *,
    parts: Sequence[tuple[int, int, int, int, int]] = (),
    **lists: Any,
) -> NnetComputation:
    """A computation.

    Args:
        matrices: Rows and columns of matrix 1, 2, ...; submatrix 1, 2, ... is the whole matrix.
        commands: The commands.
        parts: Further submatrices: matrix, row_offset, num_rows, col_offset, num_cols.
        **lists: Further fields.
    """
    wholes = [(number, 0, rows, 0, cols) for number, (rows, cols) in enumerate(matrices, 1)]
    return NnetComputation(
        matrices=[(0, 0), *matrices],
        submatrices=[(0, 0, 0, 0, 0), *wholes, *parts],
        command_table=command_table(commands),
        **lists,
    )


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
