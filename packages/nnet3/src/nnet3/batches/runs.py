"""Runs of the network over one sequence each, computed several at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence

import attrs
import numpy as np
from nnet3_computation import ComputationRequest, IoSpecification, NnetComputation
from nnet3_computation.memory import peak_bytes
from nnet3_descriptors import Nnet3Error
from nnet3_descriptors.indexes import N
from nnet3_runtime_cuda import DeviceMemoryError
from nnet3_runtime_cuda.arrays import FloatArray

from nnet3.computer_pool import ComputerPool
from nnet3.utterance_work import Run


class Minibatches:
    """Computes runs with equal requests together; any number of threads may use it at once."""

    def __init__(
        self, pool: ComputerPool, compile: Callable[[ComputationRequest], NnetComputation]
    ) -> None:
        """Begins with the computers of a model.

        Args:
            pool: Computes a request.
            compile: Makes the computation for a request.
        """
        self._pool = pool
        self._compile = compile
        self._lock = threading.Lock()
        self._bytes: dict[ComputationRequest, int] = {}

    def within(self, most_bytes: int) -> contextlib.AbstractContextManager[None]:
        """Limits the memory of computers within the block; see `ComputerPool.within`."""
        return self._pool.within(most_bytes)

    def bytes_of(self, request: ComputationRequest) -> int:
        """The memory for the matrices of one sequence of a request.

        Raises:
            NotComputableError, CompilationError: the network gives no output for these frames.
        """
        known = self._bytes.get(request)
        if known is None:
            known = peak_bytes(self._compile(request))
            with self._lock:
                self._bytes[request] = known
        return known

    def compute(self, runs: Sequence[Run], size: int) -> dict[int, Nnet3Error]:
        """Computes runs with equal requests, and hands their outputs on.

        Args:
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
            outputs = self._forward(runs[0].request, given)
        except DeviceMemoryError as error:
            if size == 1:
                return {**errors, 0: error}
            for number in inputs:
                alone = self.compute([runs[number]], 1)
                errors.update(dict.fromkeys([number] if alone else [], alone.get(0, error)))
            return errors
        except Nnet3Error as error:
            return {**errors, **dict.fromkeys(inputs, error)}
        rows = len(outputs) // size
        for place, number in enumerate(inputs):
            runs[number].take(outputs[place * rows : (place + 1) * rows])
        return errors

    def _forward(
        self, request: ComputationRequest, given: Sequence[Mapping[str, FloatArray]]
    ) -> FloatArray:
        if len(given) == 1:
            return self._pool.forward(request, given[0], is_alone=True)["output"]
        stacked = {name: np.concatenate([each[name] for each in given]) for name in given[0]}
        batch = of_sequences(request, len(given))
        return self._pool.forward(batch, stacked, is_alone=True)["output"]


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
