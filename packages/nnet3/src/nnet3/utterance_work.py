"""The work of an utterance: tasks and runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import attrs
from nnet3_computation import ComputationRequest
from nnet3_runtime_cuda.arrays import FloatArray
from nnet3_runtime_cuda.cpu import Task


class RunKind(NamedTuple):
    """The common properties of runs of the same minibatch; see `Run`."""

    request: ComputationRequest
    is_edge: bool = False
    num_chunks: int = 1


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
    def kind(self) -> RunKind:
        """The properties that runs of the same minibatch must have in common."""
        return RunKind(self.request, self.is_edge, self.num_chunks)


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
