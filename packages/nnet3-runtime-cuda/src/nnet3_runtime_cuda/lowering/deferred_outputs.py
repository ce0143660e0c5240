"""Finds columns of an affine map's output that a recurrence does not wait for.

The counterpart of `known_inputs` at the other end of a recurrent layer. A projected LSTM multiplies
its cells' outputs m by two matrices side by side; one half of the result, r, goes back into the
recurrence, the other, p, is read by the layer above, after all steps. The parameters of p need not
be read at every step, then, but once for many rows:

    m2(:, 0:511) = rp.propagate(m1)            m2(:, 0:255) = m1 A(0:255, :)^T + b;  m9(0, :) = m1
    m3(:, 1024:1279) = m2(:, 0:255)            ...
    ...                                  =>    m4(:, 0:255) = m3 A(0:255, :)^T + b;  m9(1, :) = m3
    m4(:, 0:511) = rp.propagate(m3)            ...
    m5(:, :) = rows of m2, m4, ...             y = m9 A(256:511, :)^T + b, which is m2, m4, ...
                                               (:, 256:511), before the first command that reads it

The rules:

- What is computed at once is all columns, from the first to the last, that commands before the
  next step touch. The others are put off until before the first command that touches those of any
  step, or that begins, repeats or ends a stretch of commands.
- What is freed before it is read is not computed.
- The inputs of the steps are kept: where they are, or where a copy of them is, if these rows follow
  one another and nothing changes them meanwhile (so in training); else in memory of our own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import attrs
from nnet3_compiler import commands as c
from nnet3_compiler.computation import NnetComputation

from .pending_zeros import Area
from .uses import Place, Uses, is_end

ROWS_AT_ONCE = 256
"""So many rows are computed at a time: enough for the product to be fast."""

MOST_ROWS = 48
"""A step with more rows than this is left as it is: its own product is fast."""

FEWEST_STEPS = 3

FEWEST_PARAMETERS = 1 << 16
"""To read fewer at each step takes no longer than to keep its input."""

BARRIERS = (c.NoOperationLabel, c.GotoLabel, c.NoOperationMarker)
"""Nothing is put off beyond these."""


@attrs.frozen(kw_only=True)
class DeferredOutput:
    """A Propagate command of which some columns are put off.

    Attributes:
        position: Of the command.
        input: What it multiplies by parameters.
        output: What it sets.
        due: Position of the first command that the columns must be there for.
        is_unread: Whether that command frees them, so that they need not be computed at all.
    """

    position: int
    input: Place
    output: Place
    due: int
    is_unread: bool

    @property
    def num_rows(self) -> int:
        """Rows of input and output."""
        return self.input[1].row_end - self.input[1].row


@attrs.frozen(kw_only=True)
class DeferredOutputs:
    """Steps whose columns are computed in one product.

    Attributes:
        component: Number of the component.
        steps: In the order of the rows of their inputs, where these are kept.
        now: The columns that are computed by each step.
        later: The columns that are put off, one or two stretches; none if nothing reads them.
        due: Position of the command before which they are computed.
        kept: Where the inputs of all steps are then, if they are kept anyhow.
    """

    component: int
    steps: tuple[DeferredOutput, ...]
    now: slice
    later: tuple[slice, ...]
    due: int
    kept: Place | None

    @property
    def num_rows(self) -> int:
        """Of all steps."""
        return sum(step.num_rows for step in self.steps)

    def rows_at(self, position: int) -> slice:
        """The rows, of those of all steps, that belong to the command at a position."""
        number = [step.position for step in self.steps].index(position)
        start = sum(step.num_rows for step in self.steps[:number])
        return slice(start, start + self.steps[number].num_rows)

    def targets(self, columns: slice) -> list[Place]:
        """Where these columns of each step belong."""
        return [(step.output[0], columns_of(step.output[1], columns)) for step in self.steps]


def plan_deferred_outputs(
    computation: NnetComputation, can_split: Callable[[int], bool], uses: Uses | None = None
) -> dict[int, DeferredOutputs]:
    """Finds all steps of whose output some columns can be put off.

    Args:
        computation: The computation; only its forward commands are looked at.
        can_split: Whether the component of a number is an affine map, which can be computed for
            some columns of its output at a time.
        uses: Those of the computation, if they are known.

    Returns:
        For the position of each such Propagate, the steps that it is computed with.
    """
    trace = _Trace(computation, Uses(computation) if uses is None else uses)
    return {step.position: steps for steps in trace.deferred(can_split) for step in steps.steps}


class _Trace:
    """Looks at what becomes of the outputs of steps."""

    def __init__(self, computation: NnetComputation, uses: Uses) -> None:
        self._uses = uses
        self._commands = uses.commands[: computation.forward_end]
        self._barriers = [at for at, x in enumerate(self._commands) if isinstance(x, BARRIERS)]
        self._barriers.append(len(self._commands))

    def deferred(self, can_split: Callable[[int], bool]) -> Iterator[DeferredOutputs]:
        """The steps that are computed together, component by component."""
        series: dict[int, list[int]] = defaultdict(list)
        for position, command in enumerate(self._commands):
            if isinstance(command, c.Propagate) and can_split(command.component):
                series[command.component].append(position)
        for component, positions in series.items():
            begin = 0
            while begin < len(positions):
                steps = self._steps(component, positions[begin:])
                if steps is not None:
                    yield steps
                begin += 1 if steps is None else len(steps.steps)

    def _steps(self, component: int, positions: Sequence[int]) -> DeferredOutputs | None:
        """The first of some commands and those that follow, if they gain by being put off."""
        now = self._touched_before(positions)
        if now is None:
            return None
        first = self._step(positions[0], now)
        if first.is_unread:
            return DeferredOutputs(
                component=component,
                steps=(first,),
                now=now,
                later=(),
                due=first.due,
                kept=None,
            )
        steps, due, rows = [first], first.due, first.num_rows
        for position in positions[1:]:
            step = self._step(position, now)
            is_other = step.is_unread or step.num_rows > MOST_ROWS
            if position >= due or rows >= ROWS_AT_ONCE or is_other:
                due = min(due, position)
                break
            steps.append(step)
            due, rows = min(due, step.due), rows + step.num_rows
        if len(steps) < FEWEST_STEPS:
            return None
        kept = self._kept(steps, due)
        if kept is not None:
            steps.sort(key=lambda step: kept[step.position][1].row)
        return DeferredOutputs(
            component=component,
            steps=tuple(steps),
            now=now,
            later=_others(now, steps[0].output[1]),
            due=due,
            kept=None if kept is None else _joined([kept[step.position] for step in steps]),
        )

    def _touched_before(self, positions: Sequence[int]) -> slice | None:
        """The columns of an output that commands before the next step touch.

        None if that is none or all of them, or if nothing is gained by the others.
        """
        if len(positions) < FEWEST_STEPS:
            return None
        (matrix, area), (_, source) = self._operands(positions[0])
        touched = [
            use.area
            for use in self._uses.between(matrix, positions[0], positions[1])
            if use.area.overlaps(area) and not is_end(self._commands[use.position])
        ]
        if not touched or source.row_end - source.row > MOST_ROWS:
            return None
        begin = max(min(other.column for other in touched), area.column)
        end = min(max(other.column_end for other in touched), area.column_end)
        put_off = area.column_end - area.column - (end - begin)
        if put_off * (source.column_end - source.column) < FEWEST_PARAMETERS:
            return None
        return slice(begin - area.column, end - area.column)

    def _operands(self, position: int) -> tuple[Place, Place]:
        """The output and the input of a command."""
        command = self._commands[position]
        assert isinstance(command, c.Propagate)
        return self._uses.place(command.output), self._uses.place(command.input)

    def _step(self, position: int, now: slice) -> DeferredOutput:
        output, source = self._operands(position)
        due = next(at for at in self._barriers if at > position)
        matrix, area = output
        for columns in _others(now, area):
            later = columns_of(area, columns)
            for use in self._uses.between(matrix, position, due):
                if use.area.overlaps(later):
                    due = use.position
                    break
        return DeferredOutput(
            position=position,
            input=source,
            output=output,
            due=due,
            is_unread=due < len(self._commands) and is_end(self._commands[due]),
        )

    # ---- where the inputs are ----

    def _kept(self, steps: Sequence[DeferredOutput], due: int) -> dict[int, Place] | None:
        """For the position of each step where its input is kept; None if that is not one place."""
        copies: dict[Place, list[tuple[int, Place]]] = defaultdict(list)
        for position in range(steps[0].position, due):
            command = self._commands[position]
            if isinstance(command, c.MatrixCopy) and command.alpha == 1.0:
                place = self._uses.place(command.output)
                copies[self._uses.place(command.input)].append((position, place))
        kept: dict[int, Place] = {}
        for step in steps:
            found = self._kept_input(step, copies.get(step.input, ()), due)
            if found is None:
                return None
            kept[step.position] = found
        return kept if _joined(sorted(kept.values(), key=lambda at: at[1].row)) else None

    def _kept_input(
        self, step: DeferredOutput, copies: Sequence[tuple[int, Place]], due: int
    ) -> Place | None:
        """Where the input of a step is until its output is due."""
        begin = step.position
        if not self._uses.is_touched(step.input, begin, due, changes_only=True):
            return step.input
        for at, copy in copies:
            if self._uses.is_touched(step.input, begin, at, changes_only=True):
                return None
            if at > begin and not self._uses.is_touched(copy, at, due, changes_only=True):
                return copy
        return None


def _others(now: slice, area: Area) -> tuple[slice, ...]:
    """The columns of an area that are not computed now."""
    parts = slice(0, now.start), slice(now.stop, area.column_end - area.column)
    return tuple(part for part in parts if part.start < part.stop)


def columns_of(area: Area, columns: slice) -> Area:
    """Some of the columns of an area."""
    return attrs.evolve(
        area, column=area.column + columns.start, column_end=area.column + columns.stop
    )


def _joined(places: Sequence[Place]) -> Place | None:
    """Places whose rows follow one another as one; None if they do not."""
    matrix, first = places[0]
    row = first.row
    for other, area in places:
        expected = attrs.evolve(first, row=row, row_end=row + area.row_end - area.row)
        if (other, area) != (matrix, expected):
            return None
        row = area.row_end
    return matrix, attrs.evolve(first, row_end=row)
