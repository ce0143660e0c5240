"""Index rules of components that need no input."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.components.declaration.closed_form import AtOffsets, ClosedForm
from nnet3_descriptors.indexes.arrays import IndexArray


class NoInputRules:
    """The index rules, to be put before Component among the bases of a class.

    Such a component node has an input nevertheless, but uses none of its rows.
    """

    __slots__ = ()

    def input_dependencies(
        self, output_indexes: IndexArray
    ) -> tuple[NDArray[np.int64], IndexArray]:
        """Returns no index for any row."""
        return np.zeros(len(output_indexes) + 1, dtype=np.int64), output_indexes[:0]

    def closed_form(self) -> ClosedForm:
        """Returns that no row reads anything."""
        return (AtOffsets(()),)
