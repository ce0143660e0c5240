"""Finds affine maps whose input has the rows of one matrix several times, at equal distances.

A layer that sees the frames t - 2, t and t + 2 has an input of three blocks of columns, which are
copies of the same rows, one of them perhaps the original:

    m3(0:2335, 512:1023) = m3(16:2351, 0:511)          the rows 0:2367 of m3(:, 0:511), three taps
    m3(0:2335, 1024:1535) = m3(32:2367, 0:511)    =>   at a distance of 16 rows, is all that the
    m4 = tdnn2.affine.propagate(m3(0:2335, :))         affine map needs; the copies are left out

Backward, the blocks of the input's derivative are added to the derivative of these rows. The affine
map itself may add them up, in the memory of the first block, because the last block becomes free
only later:

    m7 = tdnn2.affine.backprop(m9, ...)                m7 holds the sum, (2368, 512)
    m5(0:2335, :) = m7(:, 0:511)                  =>   m5 = m7
    m5(16:2351, :) += m7(:, 512:1023)
    m5(32:2367, :) += m7(:, 1024:1535)

The rules for an input:

- Its blocks have equal numbers of columns. The last write to a block is one copy of a part of a
  matrix (`MatrixCopy` with factor 1); a block that is not a copy is its own origin.
- All origins are the same columns of the same matrix. Each lies the same number of rows below that
  of the block before, and nothing has changed or freed them since.
- A copy is left out if only such affine maps touch it until its matrix is freed.

And for a derivative:

- Its matrix is zeroed before, and only the commands that add its blocks touch it until it is freed.
- These commands add the blocks in order, to the same columns of the same matrix, each the same
  number of rows below the one before. The first command may also set. Nothing else touches these
  columns in between.

A computation with a loop gets no splices, as its commands do not run in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from nnet3_computation import commands as c

from nnet3_runtime_cuda.lowering.areas import Area, MatrixUses, Use, is_end
from nnet3_runtime_cuda.lowering.recurrences import MOST_STEP_ROWS

FEWEST_ROWS = MOST_STEP_ROWS + 1
"""The least number of rows of an input; one with fewer may be a step of a recurrence."""

GainsByTaps = Callable[[int, int, tuple[int, ...]], bool]
"""See `Capabilities.gains_by_taps`."""

_Copies = tuple[int, ...]


class Taps(NamedTuple):
    """Blocks of rows of a matrix, each as far below the one before.

    Attributes:
        area: All rows of the blocks.
        num_blocks: Number of blocks.
        distance: Of the first rows of two blocks.
    """

    area: Area
    num_blocks: int
    distance: int

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.area.rows - (self.num_blocks - 1) * self.distance

    @property
    def offsets(self) -> tuple[int, ...]:
        """The first row of each block in the area."""
        return tuple(k * self.distance for k in range(self.num_blocks))

    @classmethod
    def of(cls, blocks: Sequence[Area]) -> Taps | None:
        """The taps that are these blocks, in order; None if they are not regular."""
        first, second = blocks[:2]
        distance = second.row - first.row
        if distance <= 0:
            return None
        for number, block in enumerate(blocks):
            shift = number * distance
            if block != first._replace(row=first.row + shift, row_end=first.row_end + shift):
                return None
        return cls(first._replace(row_end=blocks[-1].row_end), len(blocks), distance)


class SplicedDerivative(NamedTuple):
    """A backward command that adds up the blocks of its input derivative itself.

    Attributes:
        matrix: Of the derivative; its first elements hold the sum, (rows of the taps, columns).
        taps: Where the blocks are added.
        added: Positions of the commands that add the blocks. The first one adds the sum instead;
            the others are left out.
    """

    matrix: int
    taps: Taps
    added: tuple[int, ...]


def spliced_inputs(
    uses: MatrixUses, gains: GainsByTaps
) -> tuple[dict[int, Taps], frozenset[int], frozenset[int]]:
    """Finds all affine maps that can read rows at the source of the copies of their input.

    Args:
        uses: The accesses of the commands.
        gains: Whether a component computes with taps.

    Returns:
        The rows that each affine map reads, by the position of its command. The positions of those
        whose input's matrix no command writes to any more, so that its memory may be used for other
        things while the command runs. And the positions of copies that no command needs any more.
    """
    if uses.label is not None:
        return {}, frozenset(), frozenset()
    found = dict(_inputs(uses, gains))
    left_out = frozenset(_needless(uses, {at: copies for at, (_, copies) in found.items()}))
    idle = frozenset(_idle(uses, found.keys(), left_out))
    return {at: taps for at, (taps, _) in found.items()}, idle, left_out


def spliced_derivatives(
    uses: MatrixUses, gains: GainsByTaps
) -> Iterator[tuple[int, SplicedDerivative]]:
    """Finds the input derivatives whose blocks an affine map can add up, with its position.

    Args:
        uses: The accesses of the commands.
        gains: Whether a component computes with taps.
    """
    if uses.label is not None:
        return
    for position, command in enumerate(uses.commands):
        if not isinstance(command, c.Backprop | c.BackpropNoModelUpdate):
            continue
        if command.input_deriv:
            derivative = _derivative(uses, position, uses.areas[command.input_deriv])
            if derivative is not None:
                taps = derivative.taps
                if gains(command.component, taps.rows, taps.offsets):
                    yield position, derivative


# ---- inputs ----


def _inputs(uses: MatrixUses, gains: GainsByTaps) -> Iterator[tuple[int, tuple[Taps, _Copies]]]:
    """Positions of affine maps, the taps of their input, and positions of the copies."""
    for position, command in enumerate(uses.commands):
        if not isinstance(command, c.Propagate | c.Backprop):
            continue
        submatrix = input_of(command)
        found = _input(uses, position, uses.areas[submatrix]) if submatrix else None
        if found is not None and gains(command.component, found[0].rows, found[0].offsets):
            yield position, found


def _input(uses: MatrixUses, position: int, area: Area) -> tuple[Taps, _Copies] | None:
    """The taps of an input, if it is a splice."""
    if area.rows < FEWEST_ROWS:
        return None
    origins, copies = [], []
    for block in _blocks_of(area, _width(uses, area, position)):
        copy = _copy(uses, block, position)
        if copy is None:
            origins.append(block)
            continue
        at, target, copied = copy
        shift = copied.row - target.row
        origin = copied._replace(row=block.row + shift, row_end=block.row_end + shift)
        if uses.is_touched(origin, at, position, changes_only=True):
            return None
        origins.append(origin)
        copies.append(at)
    taps = Taps.of(origins) if len(origins) > 1 else None
    return None if taps is None else (taps, tuple(copies))


def _width(uses: MatrixUses, area: Area, before: int) -> int:
    """Columns of the last copy to a part of an area; all columns if there is none."""
    for use in reversed(uses.between(area.matrix, -1, before)):
        is_copy = isinstance(uses.commands[use.position], c.MatrixCopy)
        if is_copy and use.changes and use.area.overlaps(area):
            return use.area.columns
    return area.columns


def _copy(uses: MatrixUses, block: Area, before: int) -> tuple[int, Area, Area] | None:
    """The copy that was the last to write to a block: position, target, source.

    None if the last to do so was another command, or wrote only a part of it.
    """
    for use in reversed(uses.between(block.matrix, -1, before)):
        if use.changes and use.area.overlaps(block):
            command = uses.commands[use.position]
            is_copy = isinstance(command, c.MatrixCopy) and command.alpha == 1.0
            if not (is_copy and use.area.contains(block)):
                return None
            assert isinstance(command, c.MatrixCopy)
            return use.position, use.area, uses.areas[command.input]
    return None


def _needless(uses: MatrixUses, copies: Mapping[int, _Copies]) -> Iterator[int]:
    """Positions of the copies that are read only by affine maps that do not need them.

    `copies` has these for the position of each affine map.
    """
    for copy in {copy for group in copies.values() for copy in group}:
        command = uses.commands[copy]
        assert isinstance(command, c.MatrixCopy)
        area = uses.areas[command.output]
        for use in uses.between(area.matrix, copy, len(uses.commands)):
            if is_end(uses.commands[use.position]):
                yield copy
                break
            if use.area.overlaps(area) and copy not in copies.get(use.position, ()):
                break


def _idle(uses: MatrixUses, positions: Collection[int], left_out: frozenset[int]) -> Iterator[int]:
    """The affine maps, of some positions, whose input's matrix holds nothing."""
    inputs: dict[int, Area] = {}
    for position in positions:
        command = uses.commands[position]
        assert isinstance(command, c.Propagate | c.Backprop)
        inputs[position] = uses.areas[input_of(command)]
    for position, area in inputs.items():
        found = uses.between(area.matrix, -1, len(uses.commands))
        if all(_is_needless_use(uses, use, inputs, left_out) for use in found):
            yield position


def _is_needless_use(
    uses: MatrixUses, use: Use, inputs: Mapping[int, Area], left_out: frozenset[int]
) -> bool:
    """Whether the plan does without a use: a copy that is left out, or an input read elsewhere.

    The values that such a copy reads, and those that such an affine map writes, do count.
    """
    if use.changes:
        return use.position in left_out or is_end(uses.commands[use.position])
    return inputs.get(use.position) == use.area


# ---- derivatives ----


def _derivative(uses: MatrixUses, position: int, area: Area) -> SplicedDerivative | None:
    """The blocks of an input derivative and the commands that add them, if it is of a splice."""
    if area.rows < FEWEST_ROWS or not uses.is_zeroed(area.matrix, position):
        return None
    added: list[int] = []
    sources, targets = [], []
    for use in uses.between(area.matrix, position, len(uses.commands)):
        command = uses.commands[use.position]
        if isinstance(command, c.DeallocMatrix):
            break
        if not isinstance(command, c.MatrixCopy | c.MatrixAdd):
            return None
        replaces = isinstance(command, c.MatrixCopy) and bool(added)
        if replaces or command.alpha != 1.0:
            return None
        added.append(use.position)
        sources.append(use.area)
        targets.append(uses.areas[command.output])
    width = sources[0].columns if sources else area.columns
    taps = Taps.of(targets) if len(sources) > 1 else None
    if taps is None or sources != _blocks_of(area, width) or taps.distance > taps.rows:
        return None
    others = uses.between(taps.area.matrix, added[0], added[-1])
    if any(use.area.overlaps(taps.area) for use in others if use.position not in added):
        return None
    return SplicedDerivative(area.matrix, taps, tuple(added))


def input_of(command: c.Propagate | c.Backprop | c.BackpropNoModelUpdate) -> int:
    """The submatrix that a command multiplies by parameters, or by a derivative."""
    return command.input if isinstance(command, c.Propagate) else command.input_value


def _blocks_of(area: Area, width: int) -> list[Area]:
    """The blocks of `width` columns of an area; none if they do not fill it."""
    columns = range(area.column, area.column_end, width)
    if area.columns % width:
        return []
    return [area._replace(column=column, column_end=column + width) for column in columns]
