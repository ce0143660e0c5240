"""Finds products that the steps of a recurrence can share, and parameters that they multiply by.

An LSTM's gates are an affine map of its input at a frame and its own output some frames before.
Compiled, every step copies a few rows of the input into a matrix, beside the recurrent part, and
multiplies that by the parameters. The input's part of the products can be computed for many steps
at once, in one product with many rows, and then a step reads only the recurrent parameters:

    m1(:, 0:1023) = m7(8:15, :)                y(8:135, :) = m7(8:135, :) A(:, 0:1023)^T + b
    m1(:, 1024:1279) = m4               =>     ...
    m2 = gates.propagate(m1)                   m2 = m4 A(:, 1024:1279)^T + y(8:15, :)

Backward, every step multiplies the derivative of a few rows of its gates by all parameters. One
part of the product goes on through the recurrence; the other part is only copied for the layer
below. This other part is computed for many steps at once, from the gates' derivatives, which a
matrix holds together for the parameters' gradient:

    m9(0:7, :) = m2(:, 0:4095)                 ...
    m1 = gates.backprop_no_update(m2)    =>    m1(:, 1024:1279) = m2 A(:, 1024:1279)
    m8(48:55, :) = m1(:, 0:1023)               and with the last of some steps m8(0:55, :) =
                                               m9 A(:, 0:1023), the rows in the order of the steps

Fixed parameters lie in panels from the beginning (`panels`). Trained parameters would have to be
copied for each product. But the steps each multiply a few rows by the same parameters, which do not
change during a run. So the first step copies them into panels, forward and backward.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from nnet3_computation import commands as c

from nnet3_runtime_cuda.lowering.areas import Area, MatrixUses

MOST_STEP_ROWS = 48
"""A step with more rows than this has a fast product of its own on a processor."""

ROWS_AT_ONCE = 256
"""The number of rows of products for several steps: enough for them to be fast."""

CHANGING_ROWS_AT_ONCE = 640
"""The same with parameters that may change, which the library copies for each product."""

DEVICE_ROWS_AT_ONCE = 2048
"""The same on a device, where as many tiles as multiprocessors are computed at a time."""

FEWEST_EARLY, FEWEST_LATE = 3, 2
"""The fewest steps of a product before them, and after them."""

FEWEST_IN_PANELS = 16
"""The least number of steps: a copy takes as long as seven steps of eight rows save."""

FEWEST_PARAMETERS = 1 << 16
"""Fewer are read from a cache at each step, however they lie."""


class Step(NamedTuple):
    """A command that leaves its first columns of input, or of input derivative, to a product.

    Attributes:
        position: Of the Propagate or BackpropNoModelUpdate command.
        component: Number of the component, an affine map.
        area: The rows to multiply: the source of the copied columns of the input; or the
            derivative of the output, or a copy of it.
        columns: How many columns of the input, or of its derivative, the product takes over.
        since: Backward, the position from which on the area has the derivative.
        is_freed: Forward, whether the area is freed before the command, so that only an earlier
            step can read it.
        copied: Backward, the position of the MatrixCopy of these columns, which is left out.
        target: Backward, where it copies them to.
    """

    position: int
    component: int
    area: Area
    columns: int
    since: int = 0
    is_freed: bool = False
    copied: int = -1
    target: Area | None = None


class StepProduct(NamedTuple):
    """The product for several steps at once.

    Forward, it is made directly before the first of the steps; each then multiplies only the other
    columns of its input. Backward, it is made directly after the last step, and written to their
    targets.

    Attributes:
        area: The rows of all steps.
        steps: In the order of the commands.
    """

    area: Area
    steps: tuple[Step, ...]

    def rows(self, step: Step) -> slice:
        """The rows of the product that are a step's."""
        first = self.area.row
        return slice(step.area.row - first, step.area.row_end - first)

    @classmethod
    def by_position(cls, products: Iterable[StepProduct]) -> dict[int, tuple[StepProduct, Step]]:
        """By the position of each step its product, and the step."""
        return {step.position: (each, step) for each in products for step in each.steps}


def _products(
    steps: Iterable[Step], rows_at_once: int, fewest: int, continues: Callable[[list[Step]], bool]
) -> Iterator[StepProduct]:
    """Products of about `rows_at_once` rows; continues: whether steps can have one in common."""
    chunks: list[list[Step]] = [[]]
    for step in steps:
        chunk = chunks[-1]
        rows = sum(each.area.rows for each in chunk)
        if chunk and (rows >= rows_at_once or not continues([*chunk, step])):
            chunks.append([])
        if chunks[-1] or not step.is_freed:
            chunks[-1].append(step)
    for chunk in chunks:
        if len(chunk) >= fewest:
            areas = [step.area for step in chunk]
            row, row_end = min(each.row for each in areas), max(each.row_end for each in areas)
            yield StepProduct(areas[0]._replace(row=row, row_end=row_end), (*chunk,))


# ---- products before the steps ----


def known_inputs(
    uses: MatrixUses,
    can_split: Callable[[int], bool],
    rows_at_once: Callable[[int], int],
    most_rows: int,
) -> Iterator[StepProduct]:
    """Finds all steps whose input is partly known before the recurrence.

    The rules:

    - The first columns of the input, all its rows, are a copy with factor 1. This copy is the last
      command that changed any of them; the rest of the input is not part of it.
    - Nothing rewrites the source's matrix between the copy and the step, nor between the steps that
      have a product in common. The source may have been freed by then, but not before the first
      step.
    - The rows of steps that have a product in common follow one another in the source.
    - Copy, step and product are all before a loop or all within one round of it.

    The copies are left in place, as backward commands may need them.

    Args:
        uses: The accesses of the commands; only forward commands matter.
        can_split: Whether the component of a number is an affine map, which can be computed for
            some columns of its input at a time.
        rows_at_once: The approximate number of rows to compute at a time, by component.
        most_rows: The most rows of a step that gains.
    """
    series: dict[tuple[int, int], list[Step]] = defaultdict(list)
    for position in range(uses.computation.forward_end):
        command = uses.commands[position]
        if isinstance(command, c.Propagate) and can_split(command.component):
            step = _known(uses, position, command, most_rows)
            if step is not None:
                series[step.component, step.area.matrix].append(step)

    def continues(chunk: list[Step]) -> bool:
        """Whether the last step follows the one before."""
        *_, before, step = chunk
        area, last = step.area, before.area
        is_beside = area.row == last.row_end or area.row_end == last.row
        if not is_beside or (area.column, area.column_end) != (last.column, last.column_end):
            return False
        if not uses.is_one_round(before.position, step.position):
            return False
        return not uses.is_rewritten(area.matrix, before.position - 1, step.position)

    for (component, _), steps in series.items():
        yield from _products(steps, rows_at_once(component), FEWEST_EARLY, continues)


def _known(uses: MatrixUses, position: int, command: c.Propagate, most_rows: int) -> Step | None:
    """The step that a command is, if the first columns of its input are known."""
    area = uses.areas[command.input]
    found = _copy_of_first_columns(uses, area, position) if area.rows <= most_rows else None
    if found is None:
        return None
    copied_at, source = found
    if uses.is_rewritten(source.matrix, copied_at, position):
        return None
    is_freed = uses.is_freed(source.matrix, position)
    return Step(position, command.component, source, source.columns, is_freed=is_freed)


def _copy_of_first_columns(uses: MatrixUses, area: Area, before: int) -> tuple[int, Area] | None:
    """The copy in the first columns of an area: its position and its source."""
    later = []
    for use in uses.changes_before(area.matrix, before):
        if not use.area.overlaps(area._replace(column_end=area.column + 1)):
            later.append(use.area)
            continue
        command = uses.commands[use.position]
        if not isinstance(command, c.MatrixCopy) or command.alpha != 1.0:
            return None
        copied, source = use.area, uses.areas[command.input]
        is_prefix = copied.column == area.column and copied.column_end < area.column_end
        if not is_prefix or (copied.row, copied.row_end) != (area.row, area.row_end):
            return None
        if any(other.overlaps(copied) for other in later):
            return None
        return (use.position, source) if uses.is_one_round(use.position, before) else None
    return None


# ---- products after the steps ----


def deferred_derivatives(
    uses: MatrixUses, can_split: Callable[[int], bool], rows_at_once: int, most_rows: int
) -> Iterator[StepProduct]:
    """Finds all steps whose derivative can in part be put off.

    The rules:

    - The input derivative is a whole matrix that is zeroed before. The only use of its first
      columns until it is freed is one copy of all its rows with factor 1; the copy is left out. All
      other uses are of other columns (the step of the first output may have none).
    - The derivative of the output, or a copy of it that is kept, does not change from the step
      until the product is made. The kept rows follow one another in the order of the steps.
    - Nothing touches the target between the copy and the product, whichever comes first.

    Args:
        uses: The accesses of the commands; only backward commands matter.
        can_split: See `known_inputs`.
        rows_at_once: The approximate number of rows to compute at a time.
        most_rows: The most rows of a step that gains.
    """
    series: dict[tuple[int, int, int, int], list[Step]] = defaultdict(list)
    kept: dict[Area, tuple[int, Area]] = {}
    for position in range(uses.computation.forward_end + 1, len(uses.commands)):
        command = uses.commands[position]
        if isinstance(command, c.MatrixCopy) and command.alpha == 1.0:
            kept[uses.areas[command.input]] = position, uses.areas[command.output]
        if not (isinstance(command, c.BackpropNoModelUpdate) and command.input_deriv):
            continue
        rows = uses.areas[command.input_deriv].rows
        if rows <= most_rows and can_split(command.component):
            step = _deferred(uses, position, command, kept)
            if step is not None and step.target is not None:
                kind = step.component, step.target.matrix, step.area.matrix, step.columns
                series[kind].append(step)

    def touched(area: Area | None, after: int, before: int, *, changes_only: bool) -> bool:
        return area is not None and uses.is_touched(area, after, before, changes_only=changes_only)

    def continues(chunk: list[Step]) -> bool:
        """Whether all steps of a chunk can wait until the last one."""
        *others, step = chunk
        last, area = others[-1].area, step.area
        if (last.row_end, last.column) != (area.row, area.column):
            return False
        if touched(step.target, step.position, step.copied, changes_only=False):
            return False
        return not any(
            touched(old.target, old.copied, step.position, changes_only=False)
            or touched(old.target, step.position, old.copied, changes_only=False)
            or touched(old.area, old.since, step.position, changes_only=True)
            for old in others
        )

    for steps in series.values():
        yield from _products(steps, rows_at_once, FEWEST_LATE, continues)


def _deferred(
    uses: MatrixUses,
    position: int,
    command: c.BackpropNoModelUpdate,
    kept: Mapping[Area, tuple[int, Area]],
) -> Step | None:
    """The step that a command is, if the first columns of its input derivative are only copied."""
    area = uses.areas[command.input_deriv]
    if area != uses.wholes[area.matrix] or not uses.is_zeroed(area.matrix, position):
        return None
    copy = _only_copy(uses, position, area)
    if copy is None:
        return None
    copied, target = copy
    derivative = uses.areas[command.output_deriv]
    since, area = kept.get(derivative, (position, derivative))
    if uses.is_touched(derivative, since, position, changes_only=True):
        since, area = position, derivative
    return Step(
        position, command.component, area, target.columns, since=since, copied=copied, target=target
    )


def _only_copy(uses: MatrixUses, position: int, whole: Area) -> tuple[int, Area] | None:
    """The copy of the first columns of a whole matrix that is the only use of them."""
    copy: tuple[int, Area] | None = None
    split, rest = whole.column_end, []
    for use in uses.between(whole.matrix, position, len(uses.commands)):
        command, area = uses.commands[use.position], use.area
        if isinstance(command, c.DeallocMatrix):
            break
        if area.column > 0:
            rest.append(area)
            continue
        if copy is not None or not isinstance(command, c.MatrixCopy):
            return None
        if command.alpha != 1.0 or area.rows != whole.rows:
            return None
        split, copy = area.column_end, (use.position, uses.areas[command.output])
    is_apart = split < whole.column_end and all(area.column >= split for area in rest)
    return copy if is_apart else None


# ---- parameters in panels ----


class Factor(NamedTuple):
    """The part of the parameters A of an affine map that a step multiplies by.

    Attributes:
        component: Number of the component.
        is_backward: Whether dy A is computed, else x A^T.
        skipped: The first columns of A that are left out.
    """

    component: int
    is_backward: bool
    skipped: int


def step_panels(
    uses: MatrixUses,
    gains: Callable[[int, int], bool],
    skipped: Mapping[int, int],
    size: Callable[[Factor], int],
) -> tuple[dict[int, Factor], dict[Factor, int], tuple[int, ...]]:
    """Finds the factors that are copied into panels, before the first command that needs them.

    The rules:

    - At least FEWEST_IN_PANELS commands multiply by the same columns of the same parameters.
    - Panels that share memory are not used at the same time: the last use of one comes before the
      first of the other.
    - A computation with a loop gets no panels: the next round would need them again, so they could
      not share memory.

    Args:
        uses: The accesses of the commands.
        gains: Whether a component's products of some rows are faster with parameters in panels.
        skipped: By position, the first columns of A that products of several steps take over.
        size: The number of elements of a factor.

    Returns:
        The factor of each command by position, the number of the memory for each factor, and how
        many elements each memory has.
    """
    positions: dict[Factor, list[int]] = defaultdict(list)
    for position, command in enumerate(() if uses.label is not None else uses.commands):
        if isinstance(command, c.Propagate):
            submatrix, is_backward = command.output, False
        elif isinstance(command, c.BackpropNoModelUpdate):
            submatrix, is_backward = command.output_deriv, True
        else:
            continue
        if gains(command.component, uses.areas[submatrix].rows):
            factor = Factor(command.component, is_backward, skipped.get(position, 0))
            positions[factor].append(position)
    numbers, sizes = placed(positions, size)
    return {at: factor for factor in numbers for at in positions[factor]}, numbers, sizes


def placed(
    positions: Mapping[Factor, Sequence[int]], size: Callable[[Factor], int]
) -> tuple[dict[Factor, int], tuple[int, ...]]:
    """Gives memory to the panels of factors, the largest first; see `step_panels`.

    Args:
        positions: Of the commands that multiply by each, in order.
        size: The number of elements of a factor.
    """
    numbers: dict[Factor, int] = {}
    memories: list[tuple[int, list[tuple[int, int]]]] = []  # size, and first and last uses
    for factor in sorted(positions, key=size, reverse=True):
        first, last = positions[factor][0], positions[factor][-1]
        if len(positions[factor]) < FEWEST_IN_PANELS or size(factor) < FEWEST_PARAMETERS:
            continue
        free = (
            number
            for number, (_, taken) in enumerate(memories)
            if all(last < begin or end < first for begin, end in taken)
        )
        numbers[factor] = next(free, len(memories))
        if numbers[factor] == len(memories):
            memories.append((size(factor), []))
        memories[numbers[factor]][1].append((first, last))
    return numbers, tuple(elements for elements, _ in memories)
