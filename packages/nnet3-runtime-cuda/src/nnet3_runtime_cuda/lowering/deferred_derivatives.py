"""Finds derivatives of a recurrent layer's input that can be put off until many are there.

The counterpart of `known_inputs`. Backward, every step of an LSTM multiplies the derivative of a
few rows of its gates by all parameters; one part of the product goes on through the recurrence, the
other is only copied to where the layer below will find it. The latter is computed for many steps at
once, from the gates' derivatives as they are kept, together, for the parameters' gradient:

    m9(0:7, :) = m2(:, 0:4095)                 ...
    m1 = gates.backprop_no_update(m2)    =>    m1(:, 1024:1279) = m2 A(:, 1024:1279)
    m8(48:55, :) = m1(:, 0:1023)               and with the last of some steps m8(0:55, :) =
                                               m9 A(:, 0:1023), the rows in the order of the steps

In the step whose output was the first, nothing may need what would go on through the recurrence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import attrs
from nnet3_compiler import commands as c
from nnet3_compiler.computation import NnetComputation

from .pending_zeros import Area
from .uses import Place, Uses

ROWS_AT_ONCE = 256
"""The derivatives of so many rows are computed at a time: enough for the product to be fast."""

MOST_ROWS = 48
"""A step with more rows than this is left as it is: its own product is fast."""

FEWEST_STEPS = 2


@attrs.frozen(kw_only=True)
class DeferredStep:
    """A BackpropNoModelUpdate command whose first columns of input derivative are only copied.

    Attributes:
        position: Of the command.
        copied: Position of the MatrixCopy command.
        component: Number of the component.
        target: Where the columns are copied to.
        kept: Where the derivative of the output is, or where a copy of it is kept.
        kept_at: Position from which on it is there.
    """

    position: int
    copied: int
    component: int
    target: Place
    kept: Place
    kept_at: int

    @property
    def columns(self) -> int:
        """How many columns of the input derivative are put off."""
        return self.target[1].column_end - self.target[1].column


@attrs.frozen(kw_only=True)
class DeferredSteps:
    """Steps whose derivatives are computed in one product, with the last of them.

    Attributes:
        steps: In the order of the commands; the rows that are kept follow one another.
    """

    steps: tuple[DeferredStep, ...]

    @property
    def kept(self) -> Place:
        """Where the derivatives of the outputs of all steps are kept."""
        matrix, first = self.steps[0].kept
        return matrix, attrs.evolve(first, row_end=self.steps[-1].kept[1].row_end)

    def rows_of(self, step: DeferredStep) -> slice:
        """The rows, of those that are kept, that belong to a step."""
        start = self.steps[0].kept[1].row
        return slice(step.kept[1].row - start, step.kept[1].row_end - start)


def plan_deferred_derivatives(
    computation: NnetComputation, can_split: Callable[[int], bool], uses: Uses | None = None
) -> list[DeferredSteps]:
    """Finds all steps whose derivative can in part be put off.

    Args:
        computation: The computation; only its backward commands are looked at.
        can_split: Whether the component of a number is an affine map, whose input derivative can be
            computed for some columns at a time.
        uses: Those of the computation, if they are known.
    """
    trace = _Trace(computation, uses)
    series: dict[tuple[int, int, int, int], list[DeferredStep]] = defaultdict(list)
    for step in trace.steps(can_split):
        kind = (step.component, step.target[0], step.kept[0], step.columns)
        series[kind].append(step)
    return [chunk for steps in series.values() for chunk in trace.chunks(steps)]


class _Trace:
    """Knows what the backward commands do to which part of which matrix."""

    def __init__(self, computation: NnetComputation, uses: Uses | None) -> None:
        self._computation = computation
        self._begin = computation.forward_end + 1
        self._uses = Uses(computation, self._begin) if uses is None else uses

    def steps(self, can_split: Callable[[int], bool]) -> Iterator[DeferredStep]:
        """The steps whose derivative can in part be put off, in the order of the commands."""
        kept: dict[Place, tuple[int, Place]] = {}
        for position, command in enumerate(self._uses.commands[self._begin :], self._begin):
            if isinstance(command, c.MatrixCopy) and command.alpha == 1.0:
                kept[self._uses.place(command.input)] = position, self._uses.place(command.output)
            if (
                isinstance(command, c.BackpropNoModelUpdate)
                and command.input_deriv
                and can_split(command.component)
            ):
                step = self._step(position, command, kept)
                if step is not None:
                    yield step

    def _step(
        self, position: int, command: c.BackpropNoModelUpdate, kept: dict[Place, tuple[int, Place]]
    ) -> DeferredStep | None:
        matrix, area = self._uses.place(command.input_deriv)
        rows, columns = self._computation.matrices[matrix].tolist()
        copy = self._only_copy(position, matrix)
        if area != Area(0, rows, 0, columns) or rows > MOST_ROWS or copy is None:
            return None
        copied, target = copy
        derivative = self._uses.place(command.output_deriv)
        kept_at, place = kept.get(derivative, (position, derivative))
        if self._uses.is_touched(derivative, kept_at, position, changes_only=True):
            kept_at, place = position, derivative
        return DeferredStep(
            position=position,
            copied=copied,
            component=command.component,
            target=target,
            kept=place,
            kept_at=kept_at,
        )

    def _only_copy(self, position: int, matrix: int) -> tuple[int, Place] | None:
        """The copy of the first columns of a matrix that is the only use of them."""
        copy: tuple[int, Place] | None = None
        uses = self._uses.between(matrix, position, len(self._uses.commands))
        rows, columns = self._computation.matrices[matrix].tolist()
        split, rest = columns, []
        for use in uses:
            command, area = self._uses.commands[use.position], use.area
            if isinstance(command, c.DeallocMatrix):
                break
            if area.column > 0:
                rest.append(area)
                continue
            if use.changes or copy is not None or not isinstance(command, c.MatrixCopy):
                return None
            if command.alpha != 1.0 or (area.row, area.row_end) != (0, rows):
                return None
            split, copy = area.column_end, (use.position, self._uses.place(command.output))
        is_apart = split < columns and all(area.column >= split for area in rest)
        return copy if is_apart else None

    def chunks(self, steps: Iterable[DeferredStep]) -> Iterator[DeferredSteps]:
        """Consecutive steps that can be computed together, about ROWS_AT_ONCE rows at a time."""
        chunk: list[DeferredStep] = []
        for step in steps:
            rows = sum(s.kept[1].row_end - s.kept[1].row for s in chunk)
            if chunk and (rows >= ROWS_AT_ONCE or not self._continues(chunk, step)):
                yield from _joined(chunk)
                chunk = []
            chunk.append(step)
        yield from _joined(chunk)

    def _continues(self, chunk: list[DeferredStep], step: DeferredStep) -> bool:
        """Whether all of a chunk can wait until a further step, which may be the last."""
        last, area = chunk[-1].kept[1], step.kept[1]
        if (last.row_end, last.column) != (area.row, area.column):
            return False
        if self._uses.is_touched(step.target, step.position, step.copied, changes_only=False):
            return False
        return not any(
            self._uses.is_touched(old.target, old.copied, step.position, changes_only=False)
            or self._uses.is_touched(old.kept, old.kept_at, step.position, changes_only=True)
            for old in chunk
        )


def _joined(chunk: list[DeferredStep]) -> Iterator[DeferredSteps]:
    if len(chunk) >= FEWEST_STEPS:
        yield DeferredSteps(steps=tuple(chunk))
