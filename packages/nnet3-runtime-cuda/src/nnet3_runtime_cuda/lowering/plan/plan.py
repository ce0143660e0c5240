"""The plan of a computation: all changes of lowering, as a value, before anything is bound.

A plan names the commands that are replaced or moved, and the work in their place. All other
commands are bound as they are. Positions are those of the commands (c12 is the command at position
12); rows and columns are counted from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs
from nnet3_descriptors.values import shown

from nnet3_runtime_cuda.lowering.areas import Area, Place

Span = tuple[int, int]
"""Rows first <= r < end."""

FEW = 4
"""More commands than this are counted, and only the first and the last are named."""


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
class OutputStep:
    """A Propagate command that leaves its last columns to a product made later.

    Attributes:
        position: Of the command.
        rows: The rows of the product that are its.
        target: Where its last columns belong.
    """

    position: int
    rows: Span
    target: Place

    def others(self, split: int) -> Place:
        """The place of the other columns, of which there are `split`."""
        matrix, area = self.target
        first = area.column - split
        return Place(matrix, attrs.evolve(area, column=first, column_end=area.column))


@attrs.frozen(kw_only=True)
class DeferredOutput:
    """The last columns of the outputs of several Propagate commands, computed at once.

    Each step copies its input to memory of the product. The product is made directly after the last
    of the steps, and written to their targets.

    Attributes:
        component: Number of the component, an affine map.
        split: The first column that is put off.
        steps: In the order of the commands, and of their rows.
    """

    component: int
    split: int
    steps: tuple[OutputStep, ...]

    @property
    def rows(self) -> int:
        """Rows of all steps."""
        return self.steps[-1].rows[1]


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

    def __str__(self) -> str:
        """The taps in words."""
        place = Place(self.matrix, self.area)
        return f"{self.count} taps, {self.distance} rows apart, of {place}"

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


@attrs.frozen(kw_only=True, repr=False)
class Plan:
    """All changes that lowering makes to a computation.

    Attributes:
        components: Names of the components of the network.
        early: Products made before their place.
        late: Products put off.
        outputs: Columns of outputs put off.
        panels: Parameters copied into panels for many commands.
        panel_memory: Elements of each memory for panels; two that share one are not used at the
            same time.
        inputs: Inputs read at the source of their copies.
        left_out: Positions of copies that no command needs any more.
        derivatives: Input derivatives summed up by their command.
    """

    components: tuple[str, ...]
    early: tuple[EarlyProduct, ...] = ()
    late: tuple[LateProduct, ...] = ()
    outputs: tuple[DeferredOutput, ...] = ()
    panels: tuple[PanelledFactor, ...] = ()
    panel_memory: tuple[int, ...] = ()
    inputs: tuple[SplicedInput, ...] = ()
    left_out: tuple[int, ...] = ()
    derivatives: tuple[SplicedDerivative, ...] = ()

    def __repr__(self) -> str:
        fields = (field.name for field in attrs.fields(Plan) if field.name != "components")
        counts = [f"{len(getattr(self, name))} {name}" for name in fields if getattr(self, name)]
        return f"<Plan: {', '.join(counts) or 'every command as it is'}>"

    def __str__(self) -> str:
        """A line for each change, see `format_plan`."""
        return format_plan(self).rstrip("\n")

    def _repr_html_(self) -> str | None:
        """A row for each change, in the order of the commands, for notebooks."""
        return shown("plan_html", self)


# ---- as text ----


def format_plan(plan: Plan) -> str:
    """Returns a plan as text, a line for each change, in the order of the commands.

    A line begins with the command at which something changes (c12 is the command at position 12);
    areas are written as in the text form of computations.
    """
    lines = sorted(_lines(plan))
    return "".join(f"{text}\n" for _, text in lines) or "every command as it is\n"


def _lines(plan: Plan) -> Iterator[tuple[int, str]]:
    """The lines, each with the position of its command."""
    names = plan.components
    for product in plan.early:
        yield product.steps[0].position, _early(product, names)
    for late in plan.late:
        yield late.steps[-1].position, _late(late, names)
    for output in plan.outputs:
        yield output.steps[-1].position, _output(output, names)
    for factor in plan.panels:
        yield factor.positions[0], _panels(factor, plan, names)
    for each in plan.inputs:
        yield each.position, _input(each)
    if plan.left_out:
        yield plan.left_out[0], f"left out: {_commands(plan.left_out)}"
    for derivative in plan.derivatives:
        yield derivative.position, _derivative(derivative)


def _early(product: EarlyProduct, names: tuple[str, ...]) -> str:
    steps = product.steps
    return (
        f"before c{steps[0].position}: {names[product.component]} of {product.source} for columns "
        f"0:{product.columns - 1} of {len(steps)} steps: "
        f"{_spans((step.position, step.rows) for step in steps)}"
    )


def _late(product: LateProduct, names: tuple[str, ...]) -> str:
    steps = product.steps
    return (
        f"after c{steps[-1].position}: derivative of {names[product.component]} from "
        f"{product.kept} for columns 0:{product.columns - 1} of {len(steps)} steps: "
        f"{_spans((step.position, step.rows) for step in steps)}; to "
        f"{steps[0].target} ... {steps[-1].target}; "
        f"left out: {_commands([step.copied for step in steps])}"
    )


def _output(product: DeferredOutput, names: tuple[str, ...]) -> str:
    steps = product.steps
    return (
        f"after c{steps[-1].position}: {names[product.component]} of {product.rows} input rows for "
        f"columns from {product.split} of {len(steps)} steps: "
        f"{_spans((step.position, step.rows) for step in steps)}; to "
        f"{steps[0].target} ... {steps[-1].target}"
    )


def _panels(factor: PanelledFactor, plan: Plan, names: tuple[str, ...]) -> str:
    direction = "backward" if factor.is_backward else "forward"
    skipped = f" without columns 0:{factor.skipped - 1}" if factor.skipped else ""
    return (
        f"before c{factor.positions[0]}: {names[factor.component]}, {direction},{skipped} in "
        f"panels (memory {factor.memory}, {plan.panel_memory[factor.memory]} elements) for "
        f"{_commands(factor.positions)}"
    )


def _input(each: SplicedInput) -> str:
    without = f", without {_commands(each.copies)}" if each.copies else ""
    idle = "; its matrix is idle" if each.is_idle else ""
    return f"c{each.position}: input from {each.taps}{without}{idle}"


def _derivative(each: SplicedDerivative) -> str:
    added = f", added at c{each.added[0]}; left out: {_commands(each.added[1:])}"
    return f"c{each.position}: input derivative summed up in m{each.matrix}, {each.taps}{added}"


def _commands(positions: Iterable[int]) -> str:
    """Positions of commands."""
    names = [f"c{position}" for position in positions]
    if len(names) > FEW:
        return f"{names[0]} ... {names[-1]} ({len(names)} commands)"
    return ", ".join(names)


def _spans(steps: Iterable[tuple[int, Span]]) -> str:
    """Positions of commands and rows of a product."""
    names = [f"c{position} rows {first}:{end - 1}" for position, (first, end) in steps]
    if len(names) > FEW:
        return f"{names[0]} ... {names[-1]}"
    return ", ".join(names)
