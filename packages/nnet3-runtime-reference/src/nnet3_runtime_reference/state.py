"""What commands read and change: matrices, components with their statistics, memos, gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from nnet3_compiler import NnetComputation
from nnet3_descriptors import Component, Nnet

from nnet3_runtime_reference.draws import Array, Draws
from nnet3_runtime_reference.matrices import Matrices


class State:
    """The state of a computation between two commands.

    Attributes:
        nnet: The network as it was given.
        computation: The computation.
        dtype: In which all is computed.
        draws: Source of masks and decisions.
        components: The components, with the statistics that were stored so far.
        gradients: For each component by number, the plain gradient of each of its parameters.
        matrices: The matrices.
        memos: What Propagate commands hand to later ones, by the number of the memo.
        given: What AcceptInput commands take, by node.
        provided: What ProvideOutput commands gave, by node.
    """

    def __init__(
        self, nnet: Nnet, computation: NnetComputation, dtype: np.dtype[Any], draws: Draws
    ) -> None:
        """Begins with nothing computed."""
        self.nnet = nnet
        self.computation = computation
        self.dtype = dtype
        self.draws = draws
        self.components: list[Component] = list(nnet.components)
        self.forget_matrices()
        self.forget_gradients()
        self.exchange({})

    def forget_matrices(self) -> None:
        """Drops what a run has computed; statistics and gradients stay."""
        self.matrices = Matrices(self.computation, self.dtype)
        self.memos: dict[int, Any] = {}

    def forget_gradients(self) -> None:
        """Sets all gradients to zero."""
        self.gradients: list[dict[str, Array]] = [
            {
                name: np.zeros(array.shape, dtype=self.dtype)
                for name, array in component.parameter_arrays().items()
            }
            for component in self.nnet.components
        ]

    def exchange(self, given: Mapping[str, Array]) -> None:
        """Begins a segment: what it is given, and nothing provided yet."""
        self.given = dict(given)
        self.provided: dict[str, Array] = {}
