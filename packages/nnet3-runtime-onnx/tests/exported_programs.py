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
)
from nnet3_runtime_onnx import OnnxComputer
from small_networks import computation, identity

INPUT, OUTPUT = 0, 1
"""The numbers of the nodes."""


def request(frames: int, left: int = 1, sequences: int = 1) -> ComputationRequest:
    """A request of the networks above."""
    return ComputationRequest(
        inputs=[IoSpecification.from_range("input", -left, frames, sequences)],
        outputs=[IoSpecification.from_range("output", 0, frames, sequences)],
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
