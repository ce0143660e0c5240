"""The network of a model: its structure stays in memory, its parameters can be read again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from nnet3_descriptors import Nnet, set_test_mode
from nnet3_descriptors.forking import GATE
from nnet3_descriptors.values import frozen

from nnet3.chunk_work import OUTPUT
from nnet3.stand_in_statistics import with_stand_in_statistics

LARGE = 1 << 12
"""The fewest elements of parameters that a structure does without."""


class Prepared(NamedTuple):
    """A network in test mode.

    Attributes:
        whole: All of it.
        chosen: With one output, named 'output'.
        untrained: The batch-norm components without statistics; they have arbitrary ones.
    """

    whole: Nnet
    chosen: Nnet
    untrained: tuple[str, ...]

    @classmethod
    def of(cls, nnet: Nnet, output: str) -> Prepared:
        """Prepares a network.

        Args:
            nnet: The network.
            output: The node whose values are the outputs.

        Raises:
            RunError: there is no such node.
        """
        nnet, untrained = with_stand_in_statistics(nnet)
        whole = set_test_mode(nnet)
        if output == OUTPUT:
            return cls(whole, whole, untrained)
        with GATE.importing():
            from nnet3.output_scores import with_output
        return cls(whole, with_output(whole, output), untrained)


class Networks:
    """The networks of a model, in memory or to be read again."""

    def __init__(self, nnet: Nnet, output: str) -> None:
        """Prepares a network; see `Prepared.of`."""
        self._output = output
        self._lock = threading.Lock()
        self._read: Callable[[], Nnet] | None = None
        self._prepared: Prepared | None = Prepared.of(nnet, output)

    def get(self) -> Prepared:
        """The networks with their parameters; if they have to be read, they stay in memory."""
        with self._lock:
            if self._prepared is None:
                assert self._read is not None
                self._prepared = Prepared.of(self._read(), self._output)
            return self._prepared

    def forget(self, read: Callable[[], Nnet]) -> None:
        """Frees the parameters until somebody asks for them.

        Args:
            read: Reads the network that this was made with.
        """
        with self._lock:
            self._prepared, self._read = None, read


def structure_of(nnet: Nnet) -> Nnet:
    """The network without the values of its large parameters, which are 0 and take no memory."""
    counts = [array.size for each in nnet.components for array in each.parameter_arrays().values()]
    # The system gives memory to pages that are written, and nobody writes these.
    zeros = frozen(np.zeros(max(counts, default=0), np.float32))
    replaced = {}
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        large = {
            each: zeros[: array.size].reshape(array.shape)
            for each, array in component.parameter_arrays().items()
            if array.size >= LARGE
        }
        if large:
            replaced[name] = component.with_parameters(large)
    return nnet.with_components(replaced)
