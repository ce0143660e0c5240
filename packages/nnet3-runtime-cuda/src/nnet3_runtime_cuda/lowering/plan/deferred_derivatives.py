"""Finds derivatives of a recurrent layer's input that can be put off and computed together.

The counterpart of `known_inputs`. Backward, every step of an LSTM multiplies the derivative of a
few rows of its gates by all parameters. One part of the product goes on through the recurrence; the
other part is only copied for the layer below. This other part is computed for many steps at once,
from the gates' derivatives, which a matrix holds together for the parameters' gradient:

    m9(0:7, :) = m2(:, 0:4095)                 ...
    m1 = gates.backprop_no_update(m2)    =>    m1(:, 1024:1279) = m2 A(:, 1024:1279)
    m8(48:55, :) = m1(:, 0:1023)               and with the last of some steps m8(0:55, :) =
                                               m9 A(:, 0:1023), the rows in the order of the steps

The rules:

- The input derivative is a whole matrix that is zeroed before. The only use of its first columns
  until it is freed is one copy of all its rows with factor 1; the copy is left out. All other uses
  are of other columns (the step of the first output may have none).
- The derivative of the output, or a copy of it that is kept, does not change from the step until
  the product is made. The kept rows follow one another in the order of the steps.
- Nothing touches the target between the copy and the product, whichever comes first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import attrs
from nnet3_computation import commands as c

from nnet3_runtime_cuda.lowering.areas import Place
from nnet3_runtime_cuda.lowering.capabilities import Capabilities
from nnet3_runtime_cuda.lowering.plan.plan import LateProduct, LateStep
from nnet3_runtime_cuda.lowering.plan.trace import Trace

FEWEST_STEPS = 2


@attrs.frozen(kw_only=True)
class _Step:
    """A BackpropNoModelUpdate command whose first columns of input derivative are only copied.

    Attributes:
        position: Of the command.
        copied: Position of the MatrixCopy command.
        component: Number of the component.
        target: The place that the columns are copied to.
        kept: The place of the derivative of the output, or of a copy of it.
        kept_at: The position from which on it has the derivative.
    """

    position: int
    copied: int
    component: int
    target: Place
    kept: Place
    kept_at: int


def deferred_derivatives(trace: Trace, can: Capabilities) -> Iterator[LateProduct]:
    """Finds all steps whose derivative can in part be put off.

    Args:
        trace: The accesses of the commands; only backward commands matter.
        can: The capabilities of the machine.
    """
    series: dict[tuple[int, int, int, int], list[_Step]] = defaultdict(list)
    for step in _steps(trace, can):
        kind = (step.component, step.target.matrix, step.kept.matrix, step.target.area.columns)
        series[kind].append(step)
    for steps in series.values():
        for chunk in _chunks(trace, steps, can.late_rows_at_once):
            if len(chunk) >= FEWEST_STEPS:
                yield _product(chunk)


def _steps(trace: Trace, can: Capabilities) -> Iterator[_Step]:
    """The steps whose derivative can in part be put off, in the order of the commands."""
    kept: dict[Place, tuple[int, Place]] = {}
    for position in range(trace.computation.forward_end + 1, len(trace.commands)):
        command = trace.commands[position]
        if isinstance(command, c.MatrixCopy) and command.alpha == 1.0:
            kept[trace.areas.of(command.input)] = position, trace.areas.of(command.output)
        if (
            isinstance(command, c.BackpropNoModelUpdate)
            and command.input_deriv
            and can.can_split(command.component)
        ):
            step = _step(trace, position, command, kept, can.most_step_rows)
            if step is not None:
                yield step


def _step(
    trace: Trace,
    position: int,
    command: c.BackpropNoModelUpdate,
    kept: dict[Place, tuple[int, Place]],
    most_rows: int,
) -> _Step | None:
    matrix, area = trace.areas.of(command.input_deriv)
    if area != trace.areas.whole(matrix) or area.rows > most_rows:
        return None
    if not trace.is_zeroed(matrix, position):
        return None
    copy = _only_copy(trace, position, matrix)
    if copy is None:
        return None
    copied, target = copy
    derivative = trace.areas.of(command.output_deriv)
    kept_at, place = kept.get(derivative, (position, derivative))
    if trace.is_touched(derivative, kept_at, position, changes_only=True):
        kept_at, place = position, derivative
    return _Step(
        position=position,
        copied=copied,
        component=command.component,
        target=target,
        kept=place,
        kept_at=kept_at,
    )


def _only_copy(trace: Trace, position: int, matrix: int) -> tuple[int, Place] | None:
    """The copy of the first columns of a matrix that is the only use of them."""
    copy: tuple[int, Place] | None = None
    whole = trace.areas.whole(matrix)
    split, rest = whole.column_end, []
    for use in trace.between(matrix, position, len(trace.commands)):
        command, area = trace.commands[use.position], use.area
        if isinstance(command, c.DeallocMatrix):
            break
        if area.column > 0:
            rest.append(area)
            continue
        if copy is not None or not isinstance(command, c.MatrixCopy):
            return None
        if command.alpha != 1.0 or area.rows != whole.rows:
            return None
        split, copy = area.column_end, (use.position, trace.areas.of(command.output))
    is_apart = split < whole.column_end and all(area.column >= split for area in rest)
    return copy if is_apart else None


def _chunks(trace: Trace, steps: Iterable[_Step], rows_at_once: int) -> Iterator[list[_Step]]:
    """Consecutive steps that can be computed together, about `rows_at_once` rows at a time."""
    chunk: list[_Step] = []
    for step in steps:
        rows = sum(s.kept.area.rows for s in chunk)
        if chunk and (rows >= rows_at_once or not _continues(trace, chunk, step)):
            yield chunk
            chunk = []
        chunk.append(step)
    yield chunk


def _continues(trace: Trace, chunk: list[_Step], step: _Step) -> bool:
    """Whether all steps of a chunk can wait until a further step, which may be the last one."""
    last, area = chunk[-1].kept.area, step.kept.area
    if (last.row_end, last.column) != (area.row, area.column):
        return False
    if trace.is_touched(step.target, step.position, step.copied, changes_only=False):
        return False
    return not any(
        trace.is_touched(old.target, old.copied, step.position, changes_only=False)
        or trace.is_touched(old.target, step.position, old.copied, changes_only=False)
        or trace.is_touched(old.kept, old.kept_at, step.position, changes_only=True)
        for old in chunk
    )


def _product(chunk: list[_Step]) -> LateProduct:
    matrix, first = chunk[0].kept
    steps = tuple(
        LateStep(
            position=step.position,
            copied=step.copied,
            rows=(step.kept.area.row - first.row, step.kept.area.row_end - first.row),
            target=step.target,
        )
        for step in chunk
    )
    kept = Place(matrix, attrs.evolve(first, row_end=chunk[-1].kept.area.row_end))
    return LateProduct(component=chunk[0].component, kept=kept, steps=steps)
