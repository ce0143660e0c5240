"""A computation as a program: calls bound to memory, in segments between inputs and outputs."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import attrs
import numpy as np

from nnet3_runtime_cuda.arrays.checks import on_host
from nnet3_runtime_cuda.operations import Array, Call


@attrs.frozen(kw_only=True)
class Port:
    """A matrix that the user gives or takes.

    Attributes:
        node: Name of the node.
        view: The matrix in the arena.
    """

    node: str
    view: Array


@attrs.frozen(kw_only=True)
class Segment:
    """A stretch of a program: takes inputs, runs calls, gives outputs.

    Attributes:
        inputs: The matrices that the user must give before the segment runs.
        calls: The calls to run.
        outputs: The matrices that the user can take after the segment has run.
    """

    inputs: tuple[Port, ...]
    calls: tuple[Call, ...]
    outputs: tuple[Port, ...]


class Transfer:
    """Copies values in and out of a program on the processor; devices have their own."""

    def taken(self, value: Any) -> Any:
        """The caller's value as an array with shape and dtype, of NumPy or on the device.

        Raises:
            RunError: The value is not an array, or lies on another device than the program.
        """
        return on_host(value)

    def put(self, array: Any, view: Array) -> None:
        """Sets a matrix of the program to a result of `taken`."""
        np.copyto(view, array)

    def get(self, view: Array, *, on_device: bool) -> Any:
        """A copy of a matrix of the program.

        Args:
            view: The matrix.
            on_device: Whether the copy stays on the device, if the program is on one.
        """
        return np.array(view)


@attrs.frozen(kw_only=True)
class Program:
    """A computation that is ready to run.

    Attributes:
        forward: The forward segments: one, unless the computation is looped.
        backward: The backward segment, if there is one.
        loop_to: For a looped computation, the segment that follows the last one; else None.
        replaced: Numbers of the components whose gradient overwrites the gradient's array, and is
            not added.
        memory_bytes: Size of the arena, the scratch memory, and memory that outlasts commands.
        transfer: Moves values in and out.
    """

    forward: tuple[Segment, ...]
    backward: Segment | None
    loop_to: int | None
    replaced: frozenset[int]
    memory_bytes: int
    transfer: Transfer = attrs.field(factory=Transfer)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments: the forward ones, then the backward one, if there is one."""
        return self.forward if self.backward is None else (*self.forward, self.backward)

    @property
    def calls(self) -> list[Call]:
        """The calls of all segments, in order."""
        return [call for segment in self.segments for call in segment.calls]

    @property
    def num_calls(self) -> int:
        """Number of recorded calls of all segments."""
        return sum(len(call) if isinstance(call, Sized) else 1 for call in self.calls)
