"""The state that commands change: matrices, components with statistics, memos, gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from nnet3_computation import NnetComputation
from nnet3_descriptors import Component, Nnet

from nnet3_runtime_reference.draws import Array, Draws
from nnet3_runtime_reference.matrices import Matrices


class State:
    """The state of a computation between two commands.

    Attributes:
        nnet: The network.
        computation: The computation.
        dtype: The precision of all arithmetic.
        draws: Source of masks and decisions.
        components: The components, with the statistics that were stored so far.
        statistics: For each component by number, the same statistics by the names of fields, not
            rounded to the single precision of its arrays.
        gradients: For each component by number, the plain gradient of each of its parameters.
        matrices: The matrices.
        memos: The memos that Propagate commands have made, by number.
        given: The matrices for AcceptInput commands, by node.
        provided: The matrices of ProvideOutput commands, by node.
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
        self.statistics: list[dict[str, Any]] = [{} for _ in nnet.components]
        self.forget_matrices()
        self.forget_gradients()
        self.exchange({})

    def forget_matrices(self) -> None:
        """Drops the matrices and memos of a run; statistics and gradients stay."""
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
        """Begins a segment, with its inputs and no outputs yet."""
        self.given = dict(given)
        self.provided: dict[str, Array] = {}
