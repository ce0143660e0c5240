"""Finds affine maps whose input has the rows of one matrix several times, at equal distances.

A layer that sees the frames t - 2, t and t + 2 has an input of three blocks of columns, which are
copies of the same rows, one of them perhaps the original:

    m3(0:2335, 512:1023) = m3(16:2351, 0:511)          the rows 0:2367 of m3(:, 0:511), three taps
    m3(0:2335, 1024:1535) = m3(32:2367, 0:511)    =>   at a distance of 16 rows, is all that the
    m4 = tdnn2.affine.propagate(m3(0:2335, :))         affine map needs; the copies are left out

Backward, the blocks of the input's derivative are added to that of these rows. They may be added up
by the affine map itself, in the memory of the first, for the last becomes free only later:

    m7 = tdnn2.affine.backprop(m9, ...)                m7 holds the sum, (2368, 512)
    m5(0:2335, :) = m7(:, 0:511)                  =>   m5 = m7
    m5(16:2351, :) += m7(:, 512:1023)
    m5(32:2367, :) += m7(:, 1024:1535)

The rules for an input:

- Its blocks have as many columns each. What was last written to a block is one copy of a part of
  a matrix (`matrix_copy` with factor 1); what is no copy is its own origin.
- All origins are the same columns of the same matrix, each by the same number of rows below that
  of the block before, and nothing has changed or freed them since.
- A copy is left out if nothing but such affine maps touches it until its matrix is freed.

And for a derivative:

- Its matrix is zeroed before, and nothing but the commands that add its blocks touches it until it
  is freed.
- They add the blocks in order, to the same columns of the same matrix, each by the same number of
  rows below the one before (the first may also set), and nothing else touches these in between.

A computation with a loop is left alone, as its commands do not run in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs
from nnet3_compiler import commands as c
from nnet3_compiler.computation import NnetComputation

from .gathered_splices import GatheredRows, plan_gathered
from .pending_zeros import Area
from .taps import FEWEST_ROWS, GainsByTaps, Taps, blocks_of, input_of
from .uses import Place, Uses, is_end


@attrs.frozen(kw_only=True)
class SplicedDerivative:
    """The derivative of an input that is a splice.

    Attributes:
        matrix: Its matrix, whose first elements hold the sum, (rows of the taps, columns).
        taps: Where its blocks are added; if to rows of many matrices, where the sum is.
        added: Positions of the commands that add them to one matrix.
    """

    matrix: int
    taps: Taps
    added: tuple[int, ...]


@attrs.frozen(kw_only=True)
class SplicePlan:
    """What is computed with taps.

    Attributes:
        inputs: For the positions of Propagate and Backprop commands, what their input is made of.
        needless: Positions of copies that are left out.
        idle: For the positions of commands, matrices that hold nothing while these run, as all that
            would be written to them is left out.
        derivatives: For the positions of Backprop commands, their input derivatives.
        added: The same for the commands that add these up.
        gathered: For the positions of commands that copy rows of many matrices to an input, all
            rows that it is made of.
        scattered: The same for commands that add a derivative to such rows.
    """

    inputs: dict[int, Taps] = attrs.field(factory=dict)
    needless: frozenset[int] = frozenset()
    idle: dict[int, int] = attrs.field(factory=dict)
    derivatives: dict[int, SplicedDerivative] = attrs.field(factory=dict)
    added: dict[int, SplicedDerivative] = attrs.field(factory=dict)
    gathered: dict[int, GatheredRows] = attrs.field(factory=dict)
    scattered: dict[int, GatheredRows] = attrs.field(factory=dict)


def plan_splices(
    computation: NnetComputation, gains: GainsByTaps, uses: Uses | None = None
) -> SplicePlan:
    """Finds all affine maps that are to compute with taps.

    Args:
        computation: The computation.
        gains: Whether a component does so.
        uses: Those of the computation, if they are known.
    """
    uses = Uses(computation) if uses is None else uses
    if any(isinstance(command, c.GotoLabel) for command in uses.commands):
        return SplicePlan()
    trace = _Trace(computation, uses, gains)
    found = dict(trace.inputs())
    inputs = {position: taps for position, (taps, _) in found.items()}
    needless = frozenset(trace.needless({at: copies for at, (_, copies) in found.items()}))
    idle = dict(trace.idle(inputs.keys(), needless))
    gathered, scattered = plan_gathered(computation, gains, uses)
    inputs |= {at: rows.taps for rows in gathered for at in rows.maps}
    derivatives = dict(trace.derivatives())
    for rows in scattered:
        derivative = SplicedDerivative(matrix=rows.taps.matrix, taps=rows.taps, added=())
        derivatives |= dict.fromkeys(rows.maps, derivative)
    derivatives = {
        position: derivative
        for position, derivative in derivatives.items()
        if position not in inputs or inputs[position].offsets == derivative.taps.offsets
    }
    return SplicePlan(
        inputs=inputs,
        needless=needless,
        idle=idle,
        derivatives=derivatives,
        added={at: derivative for derivative in derivatives.values() for at in derivative.added},
        gathered={at: rows for rows in gathered for at in rows.moves},
        scattered={
            at: rows for rows in scattered if rows.maps[0] in derivatives for at in rows.moves
        },
    )


class _Trace:
    """Follows the copies into inputs, and those out of their derivatives."""

    def __init__(self, computation: NnetComputation, uses: Uses, gains: GainsByTaps) -> None:
        self._computation, self._uses = computation, uses
        self._commands = uses.commands
        self._gains = gains

    # ---- inputs ----

    def inputs(self) -> Iterator[tuple[int, tuple[Taps, tuple[int, ...]]]]:
        """Positions of affine maps, the taps of their input, and positions of the copies."""
        for position, command in enumerate(self._commands):
            if not isinstance(command, c.Propagate | c.Backprop):
                continue
            submatrix = input_of(command)
            found = self._input(position, self._uses.place(submatrix)) if submatrix else None
            if found is not None and self._gains(command.component, found[0]):
                yield position, found

    def _input(self, position: int, place: Place) -> tuple[Taps, tuple[int, ...]] | None:
        """What an input is made of, if it is a splice."""
        matrix, area = place
        if area.row_end - area.row < FEWEST_ROWS:
            return None
        origins, copies = [], []
        for block in blocks_of(area, self._width(matrix, area, position)):
            copy = self._copy(matrix, block, position)
            if copy is None:
                origins.append((matrix, block))
                continue
            at, target, (source, copied) = copy
            if (target.column, target.column_end) != (block.column, block.column_end):
                return None
            shift = copied.row - target.row
            row, row_end = block.row + shift, block.row_end + shift
            origin = source, attrs.evolve(copied, row=row, row_end=row_end)
            if self._uses.is_touched(origin, at, position, changes_only=True):
                return None
            origins.append(origin)
            copies.append(at)
        taps = Taps.of(origins) if len(origins) > 1 else None
        return None if taps is None else (taps, tuple(copies))

    def _width(self, matrix: int, area: Area, before: int) -> int:
        """Columns of the last copy to a part of an area; all columns if there is none."""
        for use in reversed(self._uses.between(matrix, -1, before)):
            is_copy = isinstance(self._commands[use.position], c.MatrixCopy)
            if is_copy and use.changes and use.area.overlaps(area):
                return use.area.column_end - use.area.column
        return area.column_end - area.column

    def _copy(self, matrix: int, block: Area, before: int) -> tuple[int, Area, Place] | None:
        """The copy that was the last to write to a block: position, target, source.

        None if the last to do so was another command, or wrote only a part of it.
        """
        for use in reversed(self._uses.between(matrix, -1, before)):
            if use.changes and use.area.overlaps(block):
                command = self._commands[use.position]
                is_copy = isinstance(command, c.MatrixCopy) and command.alpha == 1.0
                if not (is_copy and use.area.contains(block)):
                    return None
                assert isinstance(command, c.MatrixCopy)
                return use.position, use.area, self._uses.place(command.input)
        return None

    def needless(self, copies: dict[int, tuple[int, ...]]) -> Iterator[int]:
        """Positions of the copies that only the affine maps at certain positions read.

        Args:
            copies: By the position of each affine map, those that it can do without.
        """
        for copy in {copy for group in copies.values() for copy in group}:
            command = self._commands[copy]
            assert isinstance(command, c.MatrixCopy)
            matrix, area = self._uses.place(command.output)
            for use in self._uses.between(matrix, copy, len(self._commands)):
                if is_end(self._commands[use.position]):
                    yield copy
                    break
                if use.area.overlaps(area) and copy not in copies.get(use.position, ()):
                    break

    def idle(self, positions: Iterable[int], needless: frozenset[int]) -> Iterator[tuple[int, int]]:
        """Of the affine maps at some positions, those whose input's matrix holds nothing at all."""
        positions = set(positions)
        unused = positions | needless
        for position in positions:
            command = self._commands[position]
            assert isinstance(command, c.Propagate | c.Backprop)
            matrix, _ = self._uses.place(input_of(command))
            uses = self._uses.between(matrix, -1, len(self._commands))
            if all(use.position in unused or is_end(self._commands[use.position]) for use in uses):
                yield position, matrix

    # ---- derivatives ----

    def derivatives(self) -> Iterator[tuple[int, SplicedDerivative]]:
        """Positions of affine maps, and the derivatives that they may add up."""
        for position, command in enumerate(self._commands):
            if not isinstance(command, c.Backprop | c.BackpropNoModelUpdate):
                continue
            if command.input_deriv:
                derivative = self._derivative(position, self._uses.place(command.input_deriv))
                if derivative is not None and self._gains(command.component, derivative.taps):
                    yield position, derivative

    def _derivative(self, position: int, place: Place) -> SplicedDerivative | None:
        """How an input derivative is added up, if it is that of a splice."""
        matrix, area = place
        if area.row_end - area.row < FEWEST_ROWS or not self._uses.is_zeroed(matrix, position):
            return None
        rows, columns = self._computation.matrices[matrix].tolist()
        if area != Area(0, rows, 0, columns):
            return None
        added: list[int] = []
        sources, targets = [], []
        for use in self._uses.between(matrix, position, len(self._commands)):
            command = self._commands[use.position]
            if isinstance(command, c.DeallocMatrix):
                break
            if not isinstance(command, c.MatrixCopy | c.MatrixAdd):
                return None
            replaces = isinstance(command, c.MatrixCopy) and bool(added)
            if replaces or use.changes or command.alpha != 1.0:
                return None
            added.append(use.position)
            sources.append(use.area)
            targets.append(self._uses.place(command.output))
        width = sources[0].column_end - sources[0].column if sources else columns
        taps = Taps.of(targets) if len(sources) > 1 else None
        if taps is None or sources != blocks_of(area, width) or taps.distance > taps.rows:
            return None
        others = self._uses.between(taps.matrix, added[0], added[-1])
        if any(use.area.overlaps(taps.area) for use in others if use.position not in added):
            return None
        return SplicedDerivative(matrix=matrix, taps=taps, added=tuple(added))
