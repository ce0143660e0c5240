"""Small networks, and computations of a few commands, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from nnet3_computation import (
    AcceptInput,
    Command,
    ComputationRequest,
    IoSpecification,
    NnetComputation,
    NoOperationMarker,
    ProvideOutput,
    command_table,
)
from nnet3_descriptors import Nnet, parse_config
from nnet3_runtime_onnx import OnnxComputer

INPUT, OUTPUT = 0, 1
"""The numbers of the nodes."""

SPLICED = """
input-node name=input dim=4
component name=affine type=NaturalGradientAffineComponent input-dim=8 output-dim=3
component-node name=affine component=affine input=Append(Offset(input, -1), input)
component name=softmax type=LogSoftmaxComponent dim=3
component-node name=softmax component=softmax input=affine
output-node name=output input=softmax
"""

RECURRENT = """
input-node name=input dim=4
component name=affine type=AffineComponent input-dim=7 output-dim=3
component-node name=affine component=affine input=Append(input, IfDefined(Offset(tanh, -1)))
component name=tanh type=TanhComponent dim=3
component-node name=tanh component=tanh input=affine
output-node name=output input=tanh
"""


def network(config: str) -> Nnet:
    """A network with random parameters, always the same."""
    return parse_config(config, rng=np.random.default_rng(0))


def request(frames: int, left: int = 1, sequences: int = 1) -> ComputationRequest:
    """A request of the networks above."""
    return ComputationRequest(
        inputs=[IoSpecification.from_range("input", -left, frames, sequences)],
        outputs=[IoSpecification.from_range("output", 0, frames, sequences)],
    )


def identity(dim: int) -> Nnet:
    """A network whose output is its input, with `dim` columns."""
    return network(f"input-node name=input dim={dim}\noutput-node name=output input=input")


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


def program_of(
    given: np.ndarray,
    matrices: Sequence[tuple[int, int]],
    commands: Sequence[Command],
    **more: Any,
) -> NnetComputation:
    """A computation whose input is matrix 1 and whose output is the last matrix."""
    program = [
        AcceptInput(matrix=1, node=INPUT),
        *commands,
        ProvideOutput(matrix=1 + len(matrices), node=OUTPUT),
        NoOperationMarker(),
    ]
    return computation([given.shape, *matrices], program, **more)


def run(
    given: np.ndarray,
    matrices: Sequence[tuple[int, int]],
    commands: Sequence[Command],
    **more: Any,
) -> np.ndarray:
    """The output of ONNX Runtime for these commands."""
    made = program_of(given, matrices, commands, **more)
    return OnnxComputer(identity(given.shape[1]), made).forward({"input": given})["output"]


def session_of(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A model, ready to run."""
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=providers)
