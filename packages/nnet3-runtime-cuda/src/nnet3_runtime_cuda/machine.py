"""A machine, the programs that it runs, and the state that it can go back to.

A program is a computation as calls bound to memory, in segments between inputs and outputs.
`Machine` is the protocol of a machine for lowering, computers and networks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.arrays import on_host
from nnet3_runtime_cuda.operations import Array, Call, Tape
from nnet3_runtime_cuda.operations.gradients import EstimateState, FisherEstimate
from nnet3_runtime_cuda.operations.scratch import Workspace

if TYPE_CHECKING:
    from nnet3_computation import NnetComputation


class Segment(NamedTuple):
    """A stretch of a program: takes inputs, runs calls, gives outputs.

    Attributes:
        inputs: By node, the matrices in the arena that the user must give before the segment runs.
        calls: The calls to run.
        outputs: By node, the matrices that the user can take after the segment has run.
    """

    inputs: Mapping[str, Array]
    calls: tuple[Call, ...]
    outputs: Mapping[str, Array]


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

    def get(self, view: Array, *, on_device: bool, copies: bool = True) -> Any:
        """A matrix of the program.

        Args:
            view: The matrix.
            on_device: Whether the copy stays on the device, if the program is on one.
            copies: Whether a copy is needed even if the program is on the processor.
        """
        return np.array(view) if copies else view


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


class Threads(Protocol):
    """Threads of the processor that share work."""

    @property
    def threads(self) -> int:
        """The number of threads that compute at a time, with the asking one."""

    def side_by_side(self, tasks: Sequence[Callable[[], object]]) -> None:
        """Calls tasks that do not depend on one another, each on one thread."""


class Machine(Protocol):
    """Makes tapes and arrays, and binds recorded operations.

    On a device arrays are shadows (see `ShadowMemory`): `pull` and `push` move their contents.

    Attributes:
        is_device: Whether it is not the processor.
        workers: The threads of the processor that its programs share, if there are any.
    """

    is_device: ClassVar[bool]
    workers: Threads | None

    def tape(
        self,
        dtype: npt.DTypeLike = np.float32,
        *,
        is_alone: bool = False,
        workspace: Workspace | None = None,
    ) -> Tape:
        """A tape with separate scratch memory.

        Args:
            dtype: Of the values.
            is_alone: Whether the recorded operations run on one thread, beside other programs.
            workspace: Memory that the program shares with others, on the processor.
        """

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An array of zeros."""

    def bind(self, program: Program, tape: Tape, computation: NnetComputation) -> Program:
        """A lowered program, ready to run.

        Raises:
            DeviceMemoryError: there is not enough memory; the message names a minibatch that would
                fit.
        """
        return program

    def finish(self, tape: Tape) -> Callable[[], object]:
        """A call that runs the recorded operations of a tape of this machine."""

    def freeze_estimates(self, on: bool) -> None:
        """Sets whether the estimates of Fisher matrices stay fixed.

        An estimate that no minibatch has changed yet still begins with the next minibatch.
        """

    def keep_estimates(self) -> Callable[[], object]:
        """Keeps the estimates, and the places in streams of random numbers of a device.

        Returns:
            A call that sets them back.
        """

    def estimate_state(self, estimate: FisherEstimate) -> EstimateState:
        """The state of an estimate of a Fisher matrix between two minibatches."""

    def resume_estimate(self, estimate: FisherEstimate, state: EstimateState) -> None:
        """Sets the state of an estimate that no program uses yet."""

    def pull(self, arrays: Iterable[Array]) -> None:
        """Copies the contents of memory into the whole contiguous arrays that stand for it."""

    def push(self, arrays: Iterable[Array]) -> None:
        """Copies contiguous arrays into the memory that they stand for."""


Restore = Callable[[], object]
"""Goes back to the state that was kept; a second call does no harm."""


def keep_attributes(objects: Iterable[object]) -> Restore:
    """Keeps the attributes of objects, for those that are set anew instead of being changed."""
    kept = [(vars(each), vars(each).copy()) for each in objects]

    def restore() -> None:
        for attributes, before in kept:
            attributes.update(before)

    return restore


def all_of(calls: Iterable[Call]) -> Call:
    """One call that makes several, in order."""
    calls = tuple(calls)

    def run() -> None:
        for call in calls:
            call()

    return run


class KeptArrays:
    """Copies of arrays of a machine."""

    def __init__(self) -> None:
        """Begins without arrays."""
        self._count = 0
        self._copies: list[tuple[Restore, Restore]] = []

    def keep(self, machine: Machine, arrays: Sequence[Array]) -> Restore:
        """Keeps the contents of arrays, in place of the contents that were kept before.

        Args:
            machine: The machine of the arrays. It may own this object, which does not refer to it:
                memory is freed without garbage collection.
            arrays: Those of the call before, and perhaps further ones behind them.
        """
        new = arrays[self._count :]
        if new:
            there, back = (machine.tape(is_alone=True) for _ in range(2))
            for array in new:
                copy = machine.zeros(array.shape, array.dtype)
                there.copy(array, copy)
                back.copy(copy, array)
            self._copies.append((machine.finish(there), machine.finish(back)))
            self._count = len(arrays)
        for copy_there, _ in self._copies:
            copy_there()
        return self._restore

    def _restore(self) -> None:
        for _, copy_back in self._copies:
            copy_back()
