"""The work of an utterance, as tasks or as runs of the network; runs that are computed together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np
from nnet3_descriptors import Nnet3Error
from nnet3_descriptors.indexes import N
from nnet3_runtime_cuda import DeviceMemoryError

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
        take: Called with the rows of the output node 'output'.
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
    try:
        outputs = _forward(pool, runs[0].request, given)
    except DeviceMemoryError as error:
        if size == 1:
            return {**errors, 0: error}
        for number in inputs:
            alone = compute_together(pool, [runs[number]], 1)
            errors.update(dict.fromkeys([number] if alone else [], alone.get(0, error)))
        return errors
    except Nnet3Error as error:
        return {**errors, **dict.fromkeys(inputs, error)}
    rows = len(outputs) // size
    for place, number in enumerate(inputs):
        runs[number].take(outputs[place * rows : (place + 1) * rows])
    return errors


def _forward(
    pool: ComputerPool, request: ComputationRequest, given: Sequence[Mapping[str, FloatArray]]
) -> FloatArray:
    if len(given) == 1:
        return pool.forward(request, given[0], is_alone=True)["output"]
    stacked = {name: np.concatenate([each[name] for each in given]) for name in given[0]}
    batch = of_sequences(request, len(given))
    return pool.forward(batch, stacked, is_alone=True)["output"]


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
