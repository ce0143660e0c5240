"""The plan of a computation: all changes of lowering, as a value, before anything is bound.

A plan names the commands that are replaced or moved, and the work in their place. All other
commands are bound as they are. Positions are those of the commands (c12 is the command at position
12); rows and columns are counted from 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from nnet3_runtime_cuda.lowering.areas import Area, Place

Span = tuple[int, int]
"""Rows first <= r < end."""


@attrs.frozen(kw_only=True)
class EarlyStep:
    """A Propagate command that takes a part of its result from a product made before.

    Attributes:
        position: Of the command.
        rows: The rows of the product that are its.
    """

    position: int
    rows: Span


@attrs.frozen(kw_only=True)
class EarlyProduct:
    """The product of the first input columns of several Propagate commands, computed at once.

    Those columns are copies of rows of another matrix. The product is made directly before the
    first of the steps; each then multiplies only the other columns of its input.

    Attributes:
        component: Number of the component, an affine map.
        source: The rows and columns to multiply, at the source of the copies.
        steps: In the order of the commands.
    """

    component: int
    source: Place
    steps: tuple[EarlyStep, ...]

    @property
    def columns(self) -> int:
        """The number of input columns in the product."""
        return self.source.area.columns


@attrs.frozen(kw_only=True)
class LateStep:
    """A BackpropNoModelUpdate command that leaves its first columns to a product made later.

    Attributes:
        position: Of the command.
        copied: Position of the MatrixCopy of these columns, which is left out.
        rows: The rows of the product that are its.
        target: Where the columns are copied to.
    """

    position: int
    copied: int
    rows: Span
    target: Place


@attrs.frozen(kw_only=True)
class LateProduct:
    """The first columns of the input derivatives of several commands, computed at once.

    The product is made directly after the last of the steps, and written to their targets.

    Attributes:
        component: Number of the component, an affine map.
        kept: The place of the output derivatives of all steps at that time.
        steps: In the order of the commands.
    """

    component: int
    kept: Place
    steps: tuple[LateStep, ...]

    @property
    def columns(self) -> int:
        """The number of columns that are put off."""
        return self.steps[0].target.area.columns


@attrs.frozen(kw_only=True)
class PanelledFactor:
    """Parameters A of an affine map that steps multiply by, copied into panels once.

    The copy is made directly before the first of the commands; the parameters do not change during
    a run.

    Attributes:
        component: Number of the component.
        is_backward: Whether dy A is computed, else x A^T.
        skipped: The first columns of A that are left out.
        positions: Of the commands.
        memory: Number of the memory in `Plan.panel_memory` that the panels take.
    """

    component: int
    is_backward: bool
    skipped: int
    positions: tuple[int, ...]
    memory: int


@attrs.frozen(kw_only=True)
class Taps:
    """Blocks of rows of a matrix, each as far below the one before.

    Attributes:
        matrix: Number of the matrix.
        area: All rows of the blocks.
        count: Number of blocks.
        distance: Of the first rows of two blocks.
    """

    matrix: int
    area: Area
    count: int
    distance: int

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.area.rows - (self.count - 1) * self.distance

    @property
    def offsets(self) -> tuple[int, ...]:
        """The first row of each block in the area."""
        return tuple(number * self.distance for number in range(self.count))

    @classmethod
    def of(cls, blocks: Sequence[Place]) -> Taps | None:
        """The taps that are these blocks, in order; None if they are not regular."""
        (matrix, first), (_, second) = blocks[:2]
        distance = second.row - first.row
        if distance <= 0:
            return None
        for number, block in enumerate(blocks):
            shift = number * distance
            expected = attrs.evolve(first, row=first.row + shift, row_end=first.row_end + shift)
            if block != (matrix, expected):
                return None
        area = attrs.evolve(first, row_end=blocks[-1].area.row_end)
        return cls(matrix=matrix, area=area, count=len(blocks), distance=distance)


@attrs.frozen(kw_only=True)
class SplicedInput:
    """A Propagate or Backprop command that reads rows at the source of the copies of its input.

    Attributes:
        position: Of the command.
        taps: The rows.
        copies: Positions of the copies into its input that it does without.
        is_idle: Whether no command writes to the input's matrix any more, so that its memory may be
            used for other things while the command runs.
    """

    position: int
    taps: Taps
    copies: tuple[int, ...]
    is_idle: bool


@attrs.frozen(kw_only=True)
class SplicedDerivative:
    """A backward command that adds up the blocks of its input derivative itself.

    Attributes:
        position: Of the command.
        matrix: Of the derivative; its first elements hold the sum, (rows of the taps, columns).
        taps: Where the blocks are added.
        added: Positions of the commands that add the blocks. The first one adds the sum instead;
            the others are left out.
    """

    position: int
    matrix: int
    taps: Taps
    added: tuple[int, ...]


@attrs.frozen(kw_only=True)
class Plan:
    """All changes that lowering makes to a computation.

    Attributes:
        early: Products made before their place.
        late: Products put off.
        panels: Parameters copied into panels for many commands.
        panel_memory: Elements of each memory for panels; two that share one are not used at the
            same time.
        inputs: Inputs read at the source of their copies.
        left_out: Positions of copies that no command needs any more.
        derivatives: Input derivatives summed up by their command.
    """

    early: tuple[EarlyProduct, ...] = ()
    late: tuple[LateProduct, ...] = ()
    panels: tuple[PanelledFactor, ...] = ()
    panel_memory: tuple[int, ...] = ()
    inputs: tuple[SplicedInput, ...] = ()
    left_out: tuple[int, ...] = ()
    derivatives: tuple[SplicedDerivative, ...] = ()
