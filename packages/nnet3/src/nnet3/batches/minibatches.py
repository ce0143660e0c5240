"""The work of an utterance, as tasks or as runs of the network, and runs that share a minibatch.

The minibatches depend only on the order of the utterances and on the options, so the outputs are
the same for every number of threads.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Generic, TypeVar

import attrs
import numpy as np
from nnet3_descriptors import Nnet3Error
from nnet3_descriptors.indexes import N
from nnet3_runtime_cuda import DeviceMemoryError, RunError

from nnet3.chunks import integer

if TYPE_CHECKING:
    from nnet3_computation import ComputationRequest, IoSpecification
    from nnet3_runtime_cuda.arrays import FloatArray
    from nnet3_runtime_cuda.cpu import Task

    from nnet3.computer_pool import ComputerPool


@attrs.frozen(kw_only=True, eq=False)
class Run:
    """A run of the network over one sequence; runs with equal requests may be computed together.

    Attributes:
        request: The rows, of one sequence.
        inputs: Makes the rows of each input node when they are needed.
        take: Called with the rows of the output node 'output', of which it copies what it keeps.
        is_edge: Whether it is the first or last chunk of an utterance, with a context of its own.
        num_chunks: Number of chunks of the utterance that it computes.
    """

    request: ComputationRequest
    inputs: Callable[[], Mapping[str, FloatArray]]
    take: Callable[[FloatArray], object]
    is_edge: bool = False
    num_chunks: int = 1

    @property
    def kind(self) -> tuple[ComputationRequest, bool, int]:
        """What runs of the same minibatch must have in common: request, is_edge, num_chunks."""
        return self.request, self.is_edge, self.num_chunks


@attrs.frozen(kw_only=True)
class Work:
    """The tasks that compute something for an utterance.

    Attributes:
        tasks: Call each once: in any order, on any threads, several at a time.
        finish: Call this when all tasks are done; returns the result.
        runs: The same work as runs of the network, if it can share computations with other
            utterances: do either the tasks or the runs.
    """

    tasks: Sequence[Task]
    finish: Callable[[], FloatArray]
    runs: Sequence[Run] = ()


def compute_alone(pool: ComputerPool, run: Run, *, is_alone: bool) -> None:
    """Computes a run, and hands its outputs on.

    Args:
        pool: The computers of the network.
        run: The run.
        is_alone: Whether all work stays on the calling thread, beside other threads.
    """
    pool.forward(
        run.request, run.inputs(), lambda outputs: run.take(outputs["output"]), is_alone=is_alone
    )


def compute_together(pool: ComputerPool, runs: Sequence[Run], size: int) -> dict[int, Nnet3Error]:
    """Computes runs with equal requests, and hands their outputs on.

    Args:
        pool: The computers of the network.
        runs: At least one.
        size: Number of sequences to compute; the last run is repeated to fill it.

    Returns:
        The errors, by the number of the run.
    """
    errors: dict[int, Nnet3Error] = {}
    inputs: dict[int, Mapping[str, FloatArray]] = {}
    for number, run in enumerate(runs):
        try:
            inputs[number] = run.inputs()
        except Nnet3Error as error:
            errors[number] = error
    if not inputs:
        return errors
    given = list(inputs.values())
    # Another number of sequences would need another program.
    given += [given[-1]] * (size - len(given))

    def take(outputs: Mapping[str, FloatArray]) -> None:
        rows = len(outputs["output"]) // size
        for place, number in enumerate(inputs):
            runs[number].take(outputs["output"][place * rows : (place + 1) * rows])

    try:
        _forward(pool, runs[0].request, given, take)
    except DeviceMemoryError as error:
        if size == 1:
            return {**errors, 0: error}
        for number in inputs:
            alone = compute_together(pool, [runs[number]], 1)
            errors.update(dict.fromkeys([number] if alone else [], alone.get(0, error)))
        return errors
    except Nnet3Error as error:
        return {**errors, **dict.fromkeys(inputs, error)}
    return errors


def _forward(
    pool: ComputerPool,
    request: ComputationRequest,
    given: Sequence[Mapping[str, FloatArray]],
    take: Callable[[Mapping[str, FloatArray]], None],
) -> None:
    if len(given) == 1:
        pool.forward(request, given[0], take, is_alone=True)
        return
    stacked = {name: np.concatenate([each[name] for each in given]) for name in given[0]}
    pool.forward(of_sequences(request, len(given)), stacked, take, is_alone=True)


@functools.lru_cache(16)  # as `larger_chunks.request_of`; of long utterances they are large
def of_sequences(request: ComputationRequest, count: int) -> ComputationRequest:
    """A request of one sequence repeated for `count` sequences; the rows of each are contiguous."""

    def repeated(io: IoSpecification) -> IoSpecification:
        indexes = np.tile(io.indexes, (count, 1))
        indexes[:, N] = np.repeat(np.arange(count), len(io.indexes))
        return attrs.evolve(io, indexes=indexes)

    return attrs.evolve(
        request,
        inputs=tuple(map(repeated, request.inputs)),
        outputs=tuple(map(repeated, request.outputs)),
    )


# ---- runs that share a minibatch ----

_MEBIBYTE = 1 << 20

SMALL_MINIBATCH = _MEBIBYTE
"""Bytes of matrices up to which a minibatch is computed whole, whatever its number of chunks.

To compute one takes a millisecond, to bind another program three to five.
"""

MOST_FRAMES_AHEAD = 1_500
"""The most frames of other utterances that a chunk waits for, to share a minibatch.

Waiting for 10,000 or 50,000 frames fills more minibatches and saves no time: most chunks are full
ones, which fill a minibatch soon (docs/runtime-measurements.md). Outputs that wait take memory.
"""


@attrs.frozen(kw_only=True)
class BatchOptions:
    """The options for sharing minibatches between utterances.

    Attributes:
        minibatch_size: Number of chunks that are computed together.
        edge_minibatch_size: The same for first and last chunks with their own context; None for
            `minibatch_size`.
        partial_minibatch_factor: Chunks that cannot fill a minibatch are computed in minibatches of
            minibatch_size times this factor to the power of 0, 1, 2, ... With 0, and where its
            matrices take at most 1 MiB, they are computed in a full minibatch, padded with unused
            sequences.
        ensure_exact_final_context: Whether outputs are those of each utterance alone. If not, the
            chunks are those of Kaldi's nnet3-compute-batch, all of one length: the last one begins
            earlier, and a short utterance is padded. That changes outputs of recurrent networks and
            of networks that look far ahead, and the online i-vectors of these chunks.
        memory: Mebibytes. A quarter is for the features and outputs of waiting utterances, the rest
            for computers: an eighth of the whole for the minibatch of each thread, the remainder
            for idle computers, which wait for another minibatch of their shape. A chunk or
            utterance that needs more than an eighth is computed alone. The network, its parameters
            in the layout of products, and compiled computations are not counted.

    Raises:
        RunError: a value is out of range.
    """

    minibatch_size: int = integer(8, 1)
    edge_minibatch_size: int | None = integer(None, 1)
    partial_minibatch_factor: float = 0.5
    ensure_exact_final_context: bool = True
    memory: int = integer(512, 1)

    def __attrs_post_init__(self) -> None:
        """Checks the factor."""
        factor: object = self.partial_minibatch_factor
        if not isinstance(factor, Real) or not 0.0 <= float(factor) < 1.0:
            raise RunError(
                f"'partial_minibatch_factor' must be at least 0 and less than 1 (got {factor!r})"
            )

    @property
    def waiting_bytes(self) -> int:
        """The share of features and outputs of utterances that were read and not yet taken.

        The oldest of them and the newest one are not counted, since they must be in memory.
        """
        return int(self.memory) * _MEBIBYTE // 4

    @property
    def computer_bytes(self) -> int:
        """The share of the matrices and scratch of all computers, running and idle.

        Running computers may take more, if a single chunk does or there are more than six threads;
        then no idle one is kept.
        """
        return int(self.memory) * _MEBIBYTE - self.waiting_bytes

    @property
    def minibatch_bytes(self) -> int:
        """The share of the matrices of the minibatch that a thread computes.

        It does not depend on the number of threads, so outputs do not either.
        """
        return int(self.memory) * _MEBIBYTE // 8

    def frames_waiting(self, bytes_per_frame: int) -> int:
        """The most frames read and not yet written, besides the oldest utterance.

        Args:
            bytes_per_frame: Bytes of the features and outputs of a frame.
        """
        return self.waiting_bytes // max(1, bytes_per_frame)

    def frames_ahead(self, bytes_per_frame: int) -> int:
        """The most frames to read while an utterance waits to fill a minibatch.

        Args:
            bytes_per_frame: Bytes of the features and outputs of a frame.
        """
        # As many again wait for a thread, or to be written.
        return min(self.frames_waiting(bytes_per_frame) // 2, MOST_FRAMES_AHEAD)

    def sizes(
        self, bytes_per_sequence: int, *, is_edge: bool = False, num_chunks: int = 1
    ) -> list[int]:
        """The sizes of minibatches in runs, the largest first.

        Args:
            bytes_per_sequence: Bytes of the matrices of a run of one sequence.
            is_edge: Whether the minibatches are of first or last chunks with their own context.
            num_chunks: Chunks of a run.
        """
        most = self.minibatch_size
        if is_edge and self.edge_minibatch_size is not None:
            most = self.edge_minibatch_size
        within = self.minibatch_bytes // max(1, bytes_per_sequence)
        most = max(1, min(most // num_chunks, within))
        sizes = [most]
        factor = self.partial_minibatch_factor if most * bytes_per_sequence > SMALL_MINIBATCH else 0
        while factor and sizes[-1] > 1:
            smaller = int(most * factor ** len(sizes))
            sizes.append(max(1, min(sizes[-1] - 1, smaller)))
        return sizes


_Owner = TypeVar("_Owner")


Members = Sequence[tuple[_Owner, int, Run]]
"""Runs with equal requests, with their utterance and their number in it."""

Minibatch = tuple[Members[_Owner], int]
"""These, and the number of sequences to compute, at least that of the runs."""


class MinibatchFormer(Generic[_Owner]):
    """Groups equal runs into minibatches, in their order of arrival."""

    def __init__(self, sizes: Callable[[Run], list[int]], frames_ahead: int) -> None:
        """Begins with nothing.

        Args:
            sizes: Returns the sizes of minibatches, the largest first, for runs like the one given.
            frames_ahead: Number of frames after which an utterance waits no longer.
        """
        self._sizes = sizes
        self._frames_ahead = frames_ahead
        self._groups: dict[tuple[object, ...], list[tuple[_Owner, int, Run]]] = {}
        # The utterances with runs that wait, their frames, and the frames up to the end of each.
        self._waiting: deque[tuple[_Owner, int, int]] = deque()
        self._num_frames = 0

    def add(
        self, owner: _Owner, num_frames: int, runs: Sequence[Run]
    ) -> Iterator[Minibatch[_Owner]]:
        """Takes the runs of an utterance, and returns the minibatches that are complete.

        Raises:
            NotComputableError, CompilationError: `sizes` raised it; the runs of this utterance are
            dropped.
        """
        sizes = {run.kind: self._sizes(run) for run in runs}
        self._num_frames += num_frames
        self._waiting.append((owner, num_frames, self._num_frames))
        for number, run in enumerate(runs):
            group = self._groups.setdefault(run.kind, [])
            group.append((owner, number, run))
            if len(group) == sizes[run.kind][0]:
                yield self._groups.pop(run.kind), len(group)
        while self._waiting:
            first, own_frames, end = self._waiting[0]
            if max(own_frames, self._num_frames - end) <= self._frames_ahead:
                break  # neither is it long nor has it waited for as many frames as it may
            self._waiting.popleft()
            yield from self._flush(first)

    def flush(self) -> Iterator[Minibatch[_Owner]]:
        """Returns minibatches of all waiting runs."""
        self._waiting.clear()
        for kind in list(self._groups):
            yield from self._parts(kind)

    def _flush(self, owner: _Owner) -> Iterator[Minibatch[_Owner]]:
        """Returns minibatches of all groups with runs of an utterance."""
        for kind, group in list(self._groups.items()):
            if any(each is owner for each, _, _ in group):
                yield from self._parts(kind)

    def _parts(self, kind: tuple[object, ...]) -> Iterator[Minibatch[_Owner]]:
        """Returns the smaller minibatches of a group that will not be complete."""
        members = self._groups.pop(kind)
        _, _, run = members[0]
        for size in (sizes := self._sizes(run)):
            while len(members) >= size:
                yield members[:size], size
                members = members[size:]
        if members:
            yield members, sizes[-1]
