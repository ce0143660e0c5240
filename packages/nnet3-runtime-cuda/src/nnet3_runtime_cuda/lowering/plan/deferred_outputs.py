"""Finds columns of outputs that a recurrence does not wait for, to compute them together.

The counterpart of `known_inputs` at the other end of a recurrent layer. A projected LSTM multiplies
its cells' outputs by two matrices side by side. One half of the result goes back into the
recurrence; the layer above reads the other half, after all steps. So the parameters of the other
half are read once for many steps, not at each step:

    m2 = rp.propagate(m1)                      m2(:, 0:255) = m1 A(0:255, :)^T + b;  k(0, :) = m1
    m3(:, 1024:1279) = m2(:, 0:255)            ...
    ...                                  =>    m4(:, 0:255) = m3 A(0:255, :)^T + b;  k(1, :) = m3
    m4 = rp.propagate(m3)                      ...
    m5 = rows of m2, m4, ...                   and with the last of some steps m2, m4, ...
                                               (:, 256:511) = k A(256:511, :)^T + b

The rules:

- Before the following step, commands touch only the first columns, which the step computes itself.
- The other columns are computed with the last of the steps. Before that no command touches them, no
  early product reads them, and no segment or round of a loop ends.
- The inputs are copied to memory of the product (k), so they may change.
- The steps have no other change.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise

import attrs
from nnet3_computation import commands as c
from nnet3_descriptors import Nnet

from nnet3_runtime_cuda.lowering.areas import Place
from nnet3_runtime_cuda.lowering.plan.capabilities import Capabilities
from nnet3_runtime_cuda.lowering.plan.plan import DeferredOutput, EarlyProduct, OutputStep
from nnet3_runtime_cuda.lowering.plan.trace import Trace, is_end

ROWS_AT_ONCE = 64
"""The number of rows of a product: enough for it to be fast, and few to keep."""

MOST_ROWS = 4
"""With more rows than this, a step's arithmetic takes longer than to read its parameters."""

FEWEST_STEPS = 3

FEWEST_PARAMETERS = 1 << 16
"""To read fewer at each step takes no longer than to keep its input."""

_BARRIERS = c.NoOperationLabel | c.GotoLabel | c.NoOperationMarker


def deferred_outputs(
    trace: Trace,
    nnet: Nnet,
    can: Capabilities,
    early: Sequence[EarlyProduct],
    changed: AbstractSet[int],
) -> Iterator[DeferredOutput]:
    """Finds all steps whose output can in part be put off.

    Args:
        trace: The accesses of the commands; only forward commands matter.
        nnet: The network.
        can: The capabilities of the machine.
        early: The products made before, which read their sources before the commands do.
        changed: Positions of commands that have another change.
    """
    reads = [(product.steps[0].position, product.source) for product in early]
    finder = _Finder(trace, reads)
    series: dict[int, list[int]] = defaultdict(list)
    for position, command in enumerate(trace.commands[: trace.computation.forward_end]):
        if (
            isinstance(command, c.Propagate)
            and can.can_split(command.component)
            and can.gains_by_deferring(command.component)
            and trace.areas.of(command.output).area.rows <= MOST_ROWS
            and position not in changed
        ):
            series[command.component].append(position)
    for component, positions in series.items():
        input_dim = nnet.components[component].input_dim
        yield from finder.products(component, input_dim, positions)


class _Finder:
    """Follows the columns of outputs from their steps on.

    Attributes:
        trace: The accesses of the commands.
        reads: The places that early products read, with the position that they read them at.
    """

    def __init__(self, trace: Trace, reads: Sequence[tuple[int, Place]]) -> None:
        self.trace = trace
        self.reads = reads
        end = trace.computation.forward_end
        self._barriers = [
            position
            for position, command in enumerate(trace.commands[:end])
            if isinstance(command, _BARRIERS)
        ]
        self._barriers.append(end)

    def products(
        self, component: int, input_dim: int, positions: Sequence[int]
    ) -> Iterator[DeferredOutput]:
        """The products of one component, whose steps are at these positions."""
        splits = {before: self._touched(before, after) for before, after in pairwise(positions)}
        done = 0
        for number, position in enumerate(positions):
            split = splits.get(position, 0)
            size = (self._output(position).area.columns - split) * input_dim
            if number < done or not split or size < FEWEST_PARAMETERS:
                continue
            steps = self._steps(split, positions[number:])
            if len(steps) >= FEWEST_STEPS:
                done = number + len(steps)
                yield DeferredOutput(component=component, split=split, steps=steps)

    def _output(self, position: int) -> Place:
        command = self.trace.commands[position]
        assert isinstance(command, c.Propagate)
        return self.trace.areas.of(command.output)

    def _touched(self, position: int, following: int) -> int:
        """How many of the first columns of an output are touched before another command."""
        matrix, area = self._output(position)
        ends = (
            min(use.area.column_end, area.column_end)
            for use in self.trace.between(matrix, position, following)
            if use.area.overlaps(area) and not is_end(self.trace.commands[use.position])
        )
        return max(ends, default=area.column) - area.column

    def _steps(self, split: int, positions: Sequence[int]) -> tuple[OutputStep, ...]:
        """The first of some steps and the following ones that can join it."""
        steps: list[OutputStep] = []
        row, due = 0, len(self.trace.commands)
        for position in positions:
            if position >= due or row >= ROWS_AT_ONCE:
                break
            matrix, area = self._output(position)
            later = Place(matrix, attrs.evolve(area, column=area.column + split))
            due = min(due, self._due(position, later))
            span = row, row + area.rows
            steps.append(OutputStep(position=position, rows=span, target=later))
            row += area.rows
        return tuple(steps)

    def _due(self, position: int, place: Place) -> int:
        """The first position at which columns must be there, which a step puts off."""
        barrier = self._barriers[bisect.bisect_right(self._barriers, position)]
        reads = (
            at
            for at, source in self.reads
            if at > position and source.matrix == place.matrix and source.area.overlaps(place.area)
        )
        uses = (
            use.position
            for use in self.trace.between(place.matrix, position, barrier)
            if use.area.overlaps(place.area)
        )
        return min(barrier, next(uses, barrier), *reads)
