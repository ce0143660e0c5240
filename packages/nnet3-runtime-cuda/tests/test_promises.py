"""The properties of component types: contiguity, sums, work in place, values that are read."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from nnet3_computation.commands import Backprop, Propagate
from nnet3_descriptors.components import ComponentProperties as Property
from nnet3_runtime_cuda import DeviceNnet
from nnet3_runtime_cuda.kernels import Backpropagation, Memo, Propagation, StatsStorage
from random_components import TYPES, Drawn

TOLERANCE = 1.0e-10
GAP = 5
"""Columns of other matrices between the rows of a matrix that is not contiguous."""

Results = dict[str, np.ndarray]


@attrs.frozen(kw_only=True)
class Way:
    """A way of giving operands.

    Attributes:
        input_apart, output_apart: Whether other columns lie between the rows, if the type allows
            it.
        forward_in_place, backward_in_place: Whether input and output are the same memory.
        forward_adds, backward_adds: Whether results are added to the output's contents.
        needless: Contents of values that the backward pass of the type does not need.
    """

    input_apart: bool = False
    output_apart: bool = False
    forward_in_place: bool = False
    backward_in_place: bool = False
    forward_adds: bool = False
    backward_adds: bool = False
    needless: float = 1.0


class Runs:
    """A random component and its operands."""

    def __init__(self, kind: str, seed: int) -> None:
        drawn, rng, self._seed = Drawn.of(kind, seed), np.random.default_rng(seed), seed
        self._nnet, computation = drawn.nnet, drawn.computation
        self.properties = self._nnet.component("c").properties
        (forward,) = [c for c in computation.commands if isinstance(c, Propagate)]
        backward = [c for c in computation.commands if isinstance(c, Backprop)]
        numbers = [each.precomputed_indexes for each in (forward, *backward)]
        self._indexes = [computation.precomputed_indexes[number] for number in numbers]
        rows = computation.submatrices[[forward.input, forward.output], 2].tolist()
        self._x = rng.uniform(0.1, 1.0, (rows[0], drawn.case.dim))
        dim = self._nnet.component("c").output_dim
        self._dy = rng.standard_normal((rows[1], dim))
        self._there = [rng.standard_normal(each.shape) for each in (self._x, self._dy)]

    def results(self, way: Way) -> Results:
        """The results, without the contents that they were added to."""
        network = DeviceNnet(
            self._nnet, trainable=True, dtype=np.float64, seed=self._seed, threads=1
        )
        kernel, has, found = network.kernel(0), self.properties, {}
        memo = Memo() if has & Property.USES_MEMO else None
        x_apart = way.input_apart and not has & Property.INPUT_CONTIGUOUS
        y_apart = way.output_apart and not has & Property.OUTPUT_CONTIGUOUS
        x = placed(self._x, apart=x_apart)
        y = x if way.forward_in_place else placed(self._there[1], apart=y_apart)
        tape = network.tape()
        kernel.propagate(
            Propagation(
                tape=tape, x=x, y=y, add=way.forward_adds, indexes=self._indexes[0], memo=memo
            )
        )
        tape.run()
        found["output"] = y - self._there[1] * way.forward_adds
        if way.forward_in_place or way.forward_adds or len(self._indexes) == 1:
            return found
        dy = placed(self._dy, apart=y_apart)
        dx = dy if way.backward_in_place else placed(self._there[0], apart=x_apart)
        needless = [np.full_like(each, way.needless) for each in (x, y)]
        tape = network.tape()
        if has & Property.STORES_STATS:
            kernel.store_stats(StatsStorage(tape=tape, y=y, memo=memo))
        kernel.backprop(
            Backpropagation(
                tape=tape,
                x=x if has & Property.BACKPROP_NEEDS_INPUT else needless[0],
                y=y if has & Property.BACKPROP_NEEDS_OUTPUT else needless[1],
                dy=dy,
                dx=dx,
                add=way.backward_adds,
                indexes=self._indexes[1],
                memo=memo,
                update=True,
            )
        )
        tape.run()
        found["input derivative"] = dx - self._there[0] * way.backward_adds
        found["gradient"] = network.direction
        return found | network.current().state_dict()


def placed(values: np.ndarray, *, apart: bool) -> np.ndarray:
    """A copy, possibly as columns of a wider matrix."""
    rows, columns = values.shape
    memory = np.full((rows, columns + GAP * apart), np.nan)
    copy = memory[:, :columns]
    copy[...] = values
    return copy


WAYS: dict[str, tuple[Way, Property]] = {
    "input apart": (Way(input_apart=True), Property(0)),
    "output apart": (Way(output_apart=True), Property(0)),
    "both apart": (Way(input_apart=True, output_apart=True), Property(0)),
    "forward in place": (Way(forward_in_place=True), Property.PROPAGATE_IN_PLACE),
    "backward in place": (Way(backward_in_place=True), Property.BACKPROP_IN_PLACE),
    "forward adds": (Way(forward_adds=True), Property.PROPAGATE_ADDS),
    "backward adds": (Way(backward_adds=True), Property.BACKPROP_ADDS),
    "needless values": (Way(needless=np.nan), Property(0)),
}
"""Ways of giving operands, with the property that a type must have for each."""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", TYPES)
def test_operands_may_be_as_promised(kind: str, seed: int) -> None:
    """Results are the same for all ways of giving operands that a type's properties allow."""
    runs = Runs(kind, seed)
    expected = runs.results(Way())

    for name, (way, needed) in WAYS.items():
        if needed in runs.properties:
            for what, array in runs.results(way).items():
                np.testing.assert_allclose(
                    array, expected[what], rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"{name}: {what}"
                )
