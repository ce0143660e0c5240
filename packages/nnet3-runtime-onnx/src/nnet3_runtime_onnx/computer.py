"""OnnxComputer: runs a computation in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from nnet3_computation import NnetComputation
from nnet3_descriptors import Nnet
from nnet3_descriptors.values import array_of
from numpy.typing import ArrayLike, NDArray

from nnet3_runtime_onnx.commands import NEXT_STATE, STATE
from nnet3_runtime_onnx.errors import RunError
from nnet3_runtime_onnx.export import export, parts_of

Array = NDArray[np.float32]

ERRORS_ONLY = 3
"""The level of messages of ONNX Runtime."""


class _Session(NamedTuple):
    """A segment, ready to run.

    Attributes:
        session: The session of ONNX Runtime.
        shapes: (rows, columns) of the inputs, by node.
        state: The names of its inputs that are state.
        outputs: The names of all its outputs.
    """

    session: Any
    shapes: Mapping[str, tuple[int, ...]]
    state: tuple[str, ...]
    outputs: tuple[str, ...]


class OnnxComputer:
    """The forward pass of a computation in ONNX Runtime, on the processor.

    Each segment is a model; it keeps the state of a loop between calls. One thread at a time may
    run it.
    """

    def __init__(
        self,
        nnet: Nnet,
        computation: NnetComputation,
        *,
        options: onnxruntime.SessionOptions | None = None,
    ) -> None:
        """Makes the models and loads them.

        Args:
            nnet: The network, in test mode where it has components that draw random numbers.
            computation: The computation to run, without its backward pass.
            options: Of ONNX Runtime, such as the number of threads.

        Raises:
            ExportError: standard operators cannot express it.
            ComputationError: the network lacks a node or component of the computation.
        """
        parts = parts_of(nnet, computation)
        models = (export(nnet, computation, part, None, {}) for part in parts)
        self._sessions = [_session(session_of(model, options)) for model in models]
        self._loop_start = computation.forward_segments[1]
        self.reset()

    def __repr__(self) -> str:
        """The number of models."""
        return f"<OnnxComputer: {len(self._sessions)} models>"

    def reset(self) -> None:
        """Starts a computation in several segments, or a loop, anew from its first segment."""
        self._next = 0
        self._state: dict[str, Array] = {}

    def forward(self, inputs: Mapping[str, ArrayLike]) -> dict[str, Array]:
        """Runs the forward pass; of a computation in several segments or a loop, the next segment.

        After the last segment of a computation without a loop it begins with the first again.

        Args:
            inputs: For each input node (rows, dim), rows in the order of the request.

        Returns:
            For each output node (rows, dim) float32, rows in the order of the request.

        Raises:
            RunError: an input is missing, unknown, masked, or of another shape, or has a number
                that is not finite in single precision.
        """
        if self._next == len(self._sessions):
            if self._loop_start is None:
                self.reset()
            else:
                self._next = self._loop_start
        segment = self._sessions[self._next]
        outputs = self._run(segment, _checked(segment, inputs))
        while self._next < len(self._sessions) and _is_silent(self._sessions[self._next]):
            self._run(self._sessions[self._next], {})
        return outputs

    def _run(self, segment: _Session, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Runs the next segment, and keeps its state."""
        state = {name: self._state[name] for name in segment.state}
        values = segment.session.run(list(segment.outputs), {**inputs, **state})
        found = dict(zip(segment.outputs, values, strict=True))
        self._state = {
            name.replace(NEXT_STATE, STATE, 1): found.pop(name)
            for name in segment.outputs
            if name.startswith(f"{NEXT_STATE}.")
        }
        self._next += 1
        return found


def session_of(
    model: onnx.ModelProto, options: onnxruntime.SessionOptions | None = None
) -> onnxruntime.InferenceSession:
    """Returns a model, ready to run on the processor; without options, it reports errors only."""
    if options is None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = ERRORS_ONLY
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _session(session: onnxruntime.InferenceSession) -> _Session:
    shapes = {each.name: tuple(each.shape) for each in session.get_inputs()}
    state = tuple(name for name in shapes if name.startswith(f"{STATE}."))
    return _Session(
        session=session,
        shapes={name: shape for name, shape in shapes.items() if name not in state},
        state=state,
        outputs=tuple(each.name for each in session.get_outputs()),
    )


def _is_silent(segment: _Session) -> bool:
    """Whether a segment takes and gives nothing, and so belongs to the one before."""
    is_state = (name.startswith(f"{NEXT_STATE}.") for name in segment.outputs)
    return not segment.shapes and all(is_state)


def _checked(segment: _Session, given: Mapping[str, ArrayLike]) -> dict[str, Array]:
    """Returns the inputs of a segment as arrays.

    Raises:
        RunError: see `OnnxComputer.forward`.
    """
    mapping: object = given
    if not isinstance(mapping, Mapping):
        found = type(mapping).__name__
        raise RunError(f"expected a mapping from nodes to arrays as input, found {found}")
    for name in given:
        if name not in segment.shapes:
            known = ", ".join(f"'{node}'" for node in segment.shapes) or "none"
            raise RunError(f"there is no input '{name}' in this computation; it has {known}")
    arrays = {}
    for name, shape in segment.shapes.items():
        if name not in given:
            raise RunError(f"input '{name}' is missing; expected an array of shape {shape}")
        array = array_of(given[name], f"input '{name}'", RunError)
        if array.dtype.kind not in "fiu":
            raise RunError(f"input '{name}': expected real numbers, found {array.dtype}")
        if array.shape != shape:
            raise RunError(f"input '{name}': expected the shape {shape}, found {array.shape}")
        with np.errstate(all="ignore"):
            arrays[name] = np.ascontiguousarray(array, dtype=np.float32)
        bad = np.argwhere(~np.isfinite(arrays[name]))
        if len(bad):
            row, column = bad[0].tolist()
            raise RunError(
                f"input '{name}': expected finite numbers of single precision, found "
                f"{array[row, column]} in row {row}, column {column}"
            )
    return arrays
