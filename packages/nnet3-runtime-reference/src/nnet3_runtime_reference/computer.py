"""ReferenceComputer: runs a computation as its commands are defined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from nnet3_computation import (
    AcceptInput,
    Command,
    ComputationError,
    GotoLabel,
    NnetComputation,
    ProvideOutput,
)
from nnet3_descriptors import Nnet
from nnet3_descriptors.components import UpdatableComponent
from nnet3_descriptors.values import array_of
from numpy.typing import ArrayLike, DTypeLike

from nnet3_runtime_reference.commands import execute
from nnet3_runtime_reference.draws import Array, Draws, RunError
from nnet3_runtime_reference.formulas import formula_of
from nnet3_runtime_reference.state import State


class _Segment(NamedTuple):
    """The commands up to a NoOperationMarker, or the commands after the last marker.

    Attributes:
        first: The position of the first command.
        commands: The commands.
        accepted: For each node the shape, (rows, columns), of the matrix that it is given.
        is_silent: Whether it takes and gives nothing; it then belongs to the segment before.
    """

    first: int
    commands: Sequence[Command]
    accepted: Mapping[str, tuple[int, int]]
    is_silent: bool

    @classmethod
    def of(cls, nnet: Nnet, computation: NnetComputation, first: int, end: int) -> _Segment:
        """Returns the segment of the commands from `first` to before `end`."""
        commands = list(computation.commands[first:end])
        sizes = computation.submatrices[:, [2, 4]].tolist()
        accepted: dict[str, tuple[int, int]] = {
            nnet.nodes[command.node].name: tuple(sizes[command.matrix])
            for command in commands
            if isinstance(command, AcceptInput)
        }
        provides = any(isinstance(command, ProvideOutput) for command in commands)
        return cls(
            first=first,
            commands=commands,
            accepted=accepted,
            is_silent=not accepted and not provides,
        )


class ReferenceComputer:
    """A computation that is run command by command, each as it is defined.

    Every matrix is an array of its own; undefined elements are NaN. One thread at a time may run
    it.
    """

    def __init__(
        self,
        nnet: Nnet,
        computation: NnetComputation,
        dtype: DTypeLike = np.float64,
        *,
        draws: Draws | None = None,
    ) -> None:
        """Takes a network and one of its computations.

        Args:
            nnet: The network.
            computation: The computation to run.
            dtype: The precision of all arithmetic: float64 or float32.
            draws: Source of random masks, and of decisions on statistics and self-repair;
                `Draws(seed=0)` if None.

        Raises:
            ComputationError: the network lacks a node or component of the computation.
            UnsupportedComponentError: a component type has no formula here.
            RunError: the dtype is neither of these.
        """
        precision = _precision(dtype)
        computation.check_network(nnet)
        for component in nnet.components:
            formula_of(component)
        self._state = State(nnet, computation, precision, draws or Draws())
        ends = [end + 1 for end in computation.segment_ends] or [len(computation.commands)]
        starts = [0, *ends[:-1]]
        self._forward = [
            _Segment.of(nnet, computation, start, end)
            for start, end in zip(starts, ends, strict=True)
        ]
        self._rest = _Segment.of(nnet, computation, ends[-1], len(computation.commands))
        self._loops_to = self._loop_start()
        self._next = 0
        self._can_run_backward = False
        self._interrupted: int | None = None  # the segment that a pass did not finish

    def __repr__(self) -> str:
        """The computation and the network."""
        return f"<ReferenceComputer of {self._state.computation!r} on {self._state.nnet!r}>"

    def _loop_start(self) -> int | None:
        """Returns the segment that the loop goes back to; None if there is no loop."""
        last = self._rest.commands[-1] if self._rest.commands else None
        if not isinstance(last, GotoLabel):
            return None
        return next(n for n, segment in enumerate(self._forward) if segment.first == last.label)

    # ---- running ----

    def forward(self, inputs: Mapping[str, ArrayLike]) -> dict[str, Array]:
        """Runs the forward pass; of a computation in several segments or a loop, the next segment.

        After the last segment of a computation without a loop it begins with the first again.

        Args:
            inputs: For each input node (rows, dim), rows in the order of the request.

        Returns:
            For each output node (rows, dim), rows in the order of the request, of the dtype of the
            computer.

        Raises:
            RunError: an input is missing, unknown, masked, of another shape, or not finite in the
                dtype of the computer; or an earlier segment was interrupted.
            ComputationError: a command cannot be run; the message names it.
        """
        if self._interrupted is not None:
            if self._interrupted > 0 or self._loops_to is not None:
                raise RunError(
                    "a segment was interrupted, so the state for the next segment is lost: "
                    "reset() begins with the first segment"
                )
            self.reset()
        is_done = self._next == len(self._forward)
        segment = self._forward[(self._loops_to or 0) if is_done else self._next]
        given = _checked(segment, inputs, "input", self._state.dtype)
        if is_done:
            if self._loops_to is None:
                self.reset()
            else:
                self._next = self._loops_to
        self._can_run_backward, self._interrupted = False, self._next
        outputs = self._run_next(given)
        while self._next < len(self._forward) and self._forward[self._next].is_silent:
            self._run_next({})
        self._can_run_backward, self._interrupted = self._next == len(self._forward), None
        return outputs

    def backward(self, output_derivatives: Mapping[str, ArrayLike]) -> dict[str, Array]:
        """Runs the backward pass that belongs to the last forward pass.

        Args:
            output_derivatives: For each output node with has_deriv, the derivative of the objective
                with respect to it: (rows, dim), rows in the order of the request.

        Returns:
            For each input node with has_deriv, the derivative of the objective with respect to it.

        Raises:
            RunError: there is no backward pass, or no forward pass ran before it, or a derivative
                is missing, unknown, masked, of another shape, or not finite.
            ComputationError: a command cannot be run; the message names it.
        """
        if self._rest.is_silent:
            raise RunError("the computation was compiled without a backward pass")
        if not self._can_run_backward:
            raise RunError("backward() needs a forward() before it, one for each")
        given = _checked(self._rest, output_derivatives, "output derivative", self._state.dtype)
        self._can_run_backward = False
        self._state.forget_gradients()
        return self._run(self._rest, given)

    def reset(self) -> None:
        """Starts a computation in several segments, or a loop, anew from its first segment."""
        self._state.forget_matrices()
        self._next = 0
        self._can_run_backward, self._interrupted = False, None

    @property
    def gradient(self) -> Nnet:
        """The gradient of the objective, from the last backward pass, as a network.

        Its parameters are the plain gradient (no learning rate, no natural gradient).

        Raises:
            RunError: the request did not ask for it.
        """
        state = self._state
        if not state.computation.need_model_derivative:
            raise RunError("the request did not ask for the derivative of the model")
        gradients = {
            name: component.with_parameters(
                {key: array.astype(np.float32) for key, array in gradient.items()}
            ).replace(is_gradient=True)
            for name, component, gradient in zip(
                state.nnet.component_names, state.nnet.components, state.gradients, strict=True
            )
            if isinstance(component, UpdatableComponent)
        }
        return state.nnet.with_components(gradients)

    @property
    def nnet(self) -> Nnet:
        """The network with the statistics that the runs so far have stored."""
        state = self._state
        return state.nnet.with_components(
            dict(zip(state.nnet.component_names, state.components, strict=True))
        )

    def _run_next(self, given: Mapping[str, Array]) -> dict[str, Array]:
        """Runs the next forward segment; at the end of a loop, also the way back to its label."""
        outputs = self._run(self._forward[self._next], given)
        self._next += 1
        if self._next == len(self._forward) and self._loops_to is not None:
            self._run(self._rest, {})
        return outputs

    def _run(self, segment: _Segment, given: Mapping[str, Array]) -> dict[str, Array]:
        """Runs the commands of a segment, and returns what they provide."""
        self._state.exchange(given)
        with np.errstate(all="ignore"):  # the result of undefined values is undefined, too
            for position, command in enumerate(segment.commands, segment.first):
                try:
                    execute(command, self._state)
                except ComputationError as error:
                    name = type(command).__name__
                    raise ComputationError(f"c{position}: {name}: {error}") from error
        return self._state.provided


def _precision(dtype: DTypeLike) -> np.dtype[Any]:
    """Returns the dtype that is meant; raises a RunError unless it is float32 or float64."""
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError):
        raise RunError(f"the dtype must be float32 or float64 (got {dtype!r})") from None
    if found not in (np.float32, np.float64):
        raise RunError(f"the dtype must be float32 or float64 (got {found})")
    return found


def _checked(
    segment: _Segment, given: Mapping[str, ArrayLike], what: str, dtype: np.dtype[Any]
) -> dict[str, Array]:
    """Returns the inputs of a segment as arrays, finite in a precision.

    Raises:
        RunError: see `ReferenceComputer.forward`.
    """
    mapping: object = given
    if not isinstance(mapping, Mapping):
        found = type(mapping).__name__
        raise RunError(f"expected a mapping from nodes to arrays as {what}, found {found}")
    for name in given:
        if name not in segment.accepted:
            known = ", ".join(f"'{node}'" for node in segment.accepted) or "none"
            raise RunError(f"there is no {what} '{name}' in this computation; it has {known}")
    arrays: dict[str, Any] = {}
    for name, shape in segment.accepted.items():
        if name not in given:
            raise RunError(f"{what} '{name}' is missing; expected an array of shape {shape}")
        arrays[name] = array = array_of(given[name], f"{what} '{name}'", RunError)
        if array.dtype.kind not in "fiu":
            raise RunError(f"{what} '{name}': expected real numbers, found {array.dtype}")
        if array.shape != shape:
            raise RunError(f"{what} '{name}': expected the shape {shape}, found {array.shape}")
        with np.errstate(all="ignore"):
            bad = np.argwhere(~np.isfinite(array.astype(dtype, copy=False)))
        if len(bad):
            row, column = bad[0].tolist()
            raise RunError(
                f"{what} '{name}': expected finite numbers of {dtype}, found {array[row, column]} "
                f"in row {row}, column {column}"
            )
    return arrays
