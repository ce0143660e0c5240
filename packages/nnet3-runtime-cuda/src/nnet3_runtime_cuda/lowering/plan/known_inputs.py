"""Finds the part of a recurrent layer's input that is known before the recurrence.

An LSTM's gates are an affine map of its input at a frame and its own output some frames before.
Compiled, every step copies a few rows of the input into a matrix, beside the recurrent part, and
multiplies that by the parameters. The input's part of the products can be computed for many steps
at once, in one product with many rows, and then a step reads only the recurrent parameters:

    m1(:, 0:1023) = m7(8:15, :)                y(8:135, :) = m7(8:135, :) A(:, 0:1023)^T + b
    m1(:, 1024:1279) = m4               =>     ...
    m2 = gates.propagate(m1)                   m2 = m4 A(:, 1024:1279)^T + y(8:15, :)

The rules:

- The first columns of the input, all its rows, are a copy with factor 1. This copy is the last
  command that changed any of them; the rest of the input is not part of it.
- Nothing rewrites the source's matrix between the copy and the step, nor between the steps that
  have a product in common. The source may have been freed by then, but not before the first step.
- The rows of steps that have a product in common follow one another in the source.
- Copy, step and product are all before a loop or all within one round of it.

The copies are left in place, as backward commands may need them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
from nnet3_computation import commands as c

from nnet3_runtime_cuda.lowering.areas import Place
from nnet3_runtime_cuda.lowering.capabilities import Capabilities
from nnet3_runtime_cuda.lowering.plan.plan import EarlyProduct, EarlyStep
from nnet3_runtime_cuda.lowering.plan.trace import Trace

FEWEST_STEPS = 3


@attrs.frozen(kw_only=True)
class _Step:
    """A Propagate command whose first input columns are a copy.

    Attributes:
        position: Of the command.
        component: Number of the component.
        source: The place that they were copied from.
        is_freed: Whether that matrix is freed before the command, so that only an earlier step can
            read it.
    """

    position: int
    component: int
    source: Place
    is_freed: bool


def known_inputs(trace: Trace, can: Capabilities) -> Iterator[EarlyProduct]:
    """Finds all steps whose input is partly known before the recurrence.

    Args:
        trace: The accesses of the commands; only forward commands matter.
        can: The capabilities of the machine.
    """
    series: dict[tuple[int, int], list[_Step]] = {}
    for position in range(trace.computation.forward_end):
        command = trace.commands[position]
        if isinstance(command, c.Propagate) and can.can_split(command.component):
            step = _step(trace, position, command, can.most_step_rows)
            if step is not None:
                series.setdefault((step.component, step.source.matrix), []).append(step)
    for (component, _), steps in series.items():
        for chunk in _chunks(trace, steps, can.rows_at_once(component)):
            if len(chunk) >= FEWEST_STEPS:
                yield _product(chunk)


def _step(trace: Trace, position: int, command: c.Propagate, most_rows: int) -> _Step | None:
    """The step that a command is, if the first columns of its input are known."""
    place = trace.areas.of(command.input)
    if place.area.rows > most_rows:
        return None
    found = _copy_of_first_columns(trace, place, position)
    if found is None:
        return None
    copied_at, source = found
    if trace.is_rewritten(source.matrix, copied_at, position):
        return None
    return _Step(
        position=position,
        component=command.component,
        source=source,
        is_freed=trace.is_freed(source.matrix, position),
    )


def _copy_of_first_columns(trace: Trace, place: Place, before: int) -> tuple[int, Place] | None:
    """The copy in the first columns of a place: its position and its source."""
    matrix, area = place
    later = []
    for use in trace.changes_before(matrix, before):
        if not use.area.overlaps(attrs.evolve(area, column_end=area.column + 1)):
            later.append(use.area)
            continue
        command = trace.commands[use.position]
        if not isinstance(command, c.MatrixCopy) or command.alpha != 1.0:
            return None
        copied, source = use.area, trace.areas.of(command.input)
        is_prefix = copied.column == area.column and copied.column_end < area.column_end
        if not is_prefix or (copied.row, copied.row_end) != (area.row, area.row_end):
            return None
        if any(other.overlaps(copied) for other in later):
            return None
        return (use.position, source) if trace.is_one_round(use.position, before) else None
    return None


def _chunks(trace: Trace, steps: Sequence[_Step], rows_at_once: int) -> Iterator[list[_Step]]:
    """Steps in groups of about `rows_at_once` rows, each consecutive in the source."""
    chunk: list[_Step] = []
    for step in steps:
        rows = sum(s.source.area.rows for s in chunk)
        if chunk and (rows >= rows_at_once or not _continues(trace, chunk, step)):
            yield chunk
            chunk = []
        if chunk or not step.is_freed:
            chunk.append(step)
    yield chunk


def _continues(trace: Trace, chunk: list[_Step], step: _Step) -> bool:
    """Whether a step follows the last of a chunk."""
    (matrix, area), (_, last) = step.source, chunk[-1].source
    is_beside = area.row == last.row_end or area.row_end == last.row
    if not is_beside or (area.column, area.column_end) != (last.column, last.column_end):
        return False
    before = chunk[-1].position
    if not trace.is_one_round(before, step.position):
        return False
    return not trace.is_rewritten(matrix, before - 1, step.position)


def _product(chunk: Sequence[_Step]) -> EarlyProduct:
    matrix, first = chunk[0].source
    row = min(step.source.area.row for step in chunk)
    area = attrs.evolve(first, row=row, row_end=max(step.source.area.row_end for step in chunk))
    steps = tuple(
        EarlyStep(
            position=step.position,
            rows=(step.source.area.row - row, step.source.area.row_end - row),
        )
        for step in chunk
    )
    return EarlyProduct(component=chunk[0].component, source=Place(matrix, area), steps=steps)
