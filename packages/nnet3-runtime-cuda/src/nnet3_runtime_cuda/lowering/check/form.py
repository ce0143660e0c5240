"""Checks that the parts of a plan name existing things, and that their sizes fit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import attrs
from nnet3_computation import NnetComputation
from nnet3_computation import commands as c
from nnet3_computation.commands import Command
from nnet3_descriptors import Nnet

from nnet3_runtime_cuda.errors import PlanError
from nnet3_runtime_cuda.lowering.areas import Area, Place
from nnet3_runtime_cuda.lowering.check.columns import spliced_operand
from nnet3_runtime_cuda.lowering.plan.plan import (
    DeferredOutput,
    EarlyProduct,
    LateProduct,
    PanelledFactor,
    Plan,
    Span,
    SplicedDerivative,
    SplicedInput,
    Taps,
)

AFFINE_MAPS = ("FixedAffineComponent", "AffineComponent", "NaturalGradientAffineComponent")
"""Component types that are y = x A^T + b, with all of x and A."""

_Affine = c.Propagate | c.Backprop | c.BackpropNoModelUpdate
_A = TypeVar("_A", bound=Command)
_B = TypeVar("_B", bound=Command)


def check_form(nnet: Nnet, computation: NnetComputation, plan: Plan) -> None:
    """Checks everything about a plan that does not need to follow the commands.

    Raises:
        PlanError: A part names a missing thing, does not fit, or contradicts another part.
    """
    form = _Form(nnet, computation)
    if plan.components != nnet.component_names:
        raise PlanError("the plan is of a network with other components")
    for early in plan.early:
        form.early(early)
    for late in plan.late:
        form.late(late)
    for output in plan.outputs:
        form.output(output)
    for each in plan.inputs:
        form.spliced_input(each)
    for derivative in plan.derivatives:
        form.spliced_derivative(derivative)
    without = {copy for each in plan.inputs for copy in each.copies}
    for position in plan.left_out:
        form.command(position, c.MatrixCopy)
        if position not in without:
            raise PlanError(f"c{position} is left out, but no input does without it")
    _check_twice(plan)
    _check_agreement(plan)
    skipped = {step.position: product.columns for product in plan.early for step in product.steps}
    skipped |= {step.position: product.columns for product in plan.late for step in product.steps}
    for factor in plan.panels:
        form.panels(factor, plan.panel_memory, skipped)


def _check_twice(plan: Plan) -> None:
    """No command is changed twice in the same way."""
    inputs = [each.position for each in plan.inputs]
    sums = [each.position for each in plan.derivatives]
    for what, positions in (
        ("two products made before", [s.position for each in plan.early for s in each.steps]),
        ("two products put off", [s.position for each in plan.late for s in each.steps]),
        ("two outputs put off", [s.position for each in plan.outputs for s in each.steps]),
        ("two factors in panels", [at for each in plan.panels for at in each.positions]),
        ("two inputs", inputs),
        ("two sums", sums),
        ("two changes of what it adds", [at for each in plan.derivatives for at in each.added]),
    ):
        seen: set[int] = set()
        for position in positions:
            if position in seen:
                raise PlanError(f"c{position} has {what}")
            seen.add(position)


def _check_agreement(plan: Plan) -> None:
    """A command has the same taps for its input and for the derivative of it.

    One that puts off a part of its output has no other change.
    """
    inputs = {each.position: each.taps for each in plan.inputs}
    others = {*inputs, *(step.position for each in plan.early for step in each.steps)}
    others.update(at for each in plan.panels for at in each.positions)
    for position in (step.position for each in plan.outputs for step in each.steps):
        if position in others:
            raise PlanError(f"c{position} puts a part of its output off, and has another change")
    sums = {each.position: each.taps for each in plan.derivatives}
    for position, taps in sums.items():
        other = inputs.get(position, taps)
        if (other.offsets, other.rows) != (taps.offsets, taps.rows):
            raise PlanError(
                f"c{position}: the input has {other}, its derivative {taps}: the offsets differ"
            )


class _Form:
    """The facts that the parts of a plan are compared with."""

    def __init__(self, nnet: Nnet, computation: NnetComputation) -> None:
        self._nnet = nnet
        self._computation = computation
        self._commands = list(computation.commands)
        self._matrices = computation.matrices.tolist()
        self._submatrices = computation.submatrices.tolist()

    def command(self, position: int, one: type[_A], other: type[_B] | None = None) -> _A | _B:
        """The command at a position, which must be of this class, or of one of these two."""
        types = (one,) if other is None else (one, other)
        names = " or ".join(each.__name__ for each in types)
        if not 0 <= position < len(self._commands):
            raise PlanError(f"c{position} is to be {names}, but there is no such command")
        command = self._commands[position]
        if not isinstance(command, types):
            raise PlanError(f"c{position} is to be {names}, but is {type(command).__name__}")
        return command

    def commands(
        self, positions: Sequence[int], one: type[_A], other: type[_B] | None = None
    ) -> list[_A | _B]:
        """The commands at positions that ascend."""
        if not positions or any(last >= following for last, following in pairwise(positions)):
            raise PlanError(f"positions must ascend, and be some (got {list(positions)})")
        return [self.command(position, one, other) for position in positions]

    def place(self, submatrix: int) -> Place:
        """The place that a submatrix covers."""
        matrix, row, rows, column, columns = self._submatrices[submatrix]
        return Place(matrix, Area(row, row + rows, column, column + columns))

    def _check_place(self, position: int, place: Place) -> None:
        matrix, area = place
        if not 0 < matrix < len(self._matrices):
            raise PlanError(f"c{position}: there is no matrix m{matrix}")
        rows, columns = self._matrices[matrix]
        is_within = 0 <= area.row < area.row_end <= rows
        if not (is_within and 0 <= area.column < area.column_end <= columns):
            raise PlanError(f"c{position}: {place} is no area of a {rows} x {columns} matrix")

    def _dims(self, position: int, component: int, of_command: int) -> tuple[int, int]:
        """Input and output dimension of an affine map, which must be the one of a command."""
        if component != of_command:
            raise PlanError(
                f"c{position} runs component {of_command}, the plan says component {component}"
            )
        found = self._nnet.components[component]
        if found.type not in AFFINE_MAPS:
            raise PlanError(f"c{position}: {self._nnet.component_names[component]} is {found.type}")
        return found.input_dim, found.output_dim

    # ---- products ----

    def early(self, product: EarlyProduct) -> None:
        """Checks a product made before."""
        positions = [step.position for step in product.steps]
        for step, command in zip(product.steps, self.commands(positions, c.Propagate), strict=True):
            at = step.position
            dim, _ = self._dims(at, product.component, command.component)
            self._check_place(at, product.source)
            _check_columns(at, product.columns, dim)
            rows = self.place(command.input).area.rows if command.input else 0
            _check_span(at, step.rows, rows, product.source)

    def late(self, product: LateProduct) -> None:
        """Checks a product put off."""
        positions = [step.position for step in product.steps]
        for step, command in zip(
            product.steps, self.commands(positions, c.BackpropNoModelUpdate), strict=True
        ):
            at = step.position
            dim, output_dim = self._dims(at, product.component, command.component)
            self._check_place(at, product.kept)
            self._check_place(at, step.target)
            _check_columns(at, step.target.area.columns, dim)
            if step.target.area.columns != product.columns:
                raise PlanError(f"c{at}: {step.target} has not {product.columns} columns")
            if product.kept.area.columns != output_dim:
                raise PlanError(f"c{at}: {product.kept} has not {output_dim} columns")
            if not command.input_deriv:
                raise PlanError(f"c{at} computes no input derivative")
            rows = self.place(command.output_deriv).area.rows
            _check_span(at, step.rows, rows, product.kept)
            _check_span(at, (0, rows), rows, step.target)
            copied = self.command(step.copied, c.MatrixCopy)
            if self.place(copied.output) != step.target:
                raise PlanError(
                    f"c{at} leaves {step.target} to a later product, but c{step.copied}, which is "
                    f"left out, copies to {self.place(copied.output)}"
                )

    def output(self, product: DeferredOutput) -> None:
        """Checks columns of outputs put off."""
        positions, row = [step.position for step in product.steps], 0
        for step, command in zip(product.steps, self.commands(positions, c.Propagate), strict=True):
            at = step.position
            _, output_dim = self._dims(at, product.component, command.component)
            _check_columns(at, product.split, output_dim)
            matrix, area = self.place(command.output)
            target = Place(matrix, attrs.evolve(area, column=area.column + product.split))
            if step.target != target:
                raise PlanError(f"c{at} puts off {step.target}, which are not its last columns")
            if step.rows != (row, row + area.rows):
                raise PlanError(
                    f"c{at} has rows {row}:{row + area.rows - 1} of the product "
                    f"(got {step.rows[0]}:{step.rows[1] - 1})"
                )
            row += area.rows

    def panels(
        self, factor: PanelledFactor, memory: Sequence[int], skipped: dict[int, int]
    ) -> None:
        """Checks parameters in panels.

        Args:
            factor: The parameters in panels.
            memory: The sizes of all memories for panels.
            skipped: By position, the number of columns of a product that are computed elsewhere.
        """
        found: Sequence[c.Propagate | c.BackpropNoModelUpdate]
        if factor.is_backward:
            found = self.commands(factor.positions, c.BackpropNoModelUpdate)
        else:
            found = self.commands(factor.positions, c.Propagate)
        for at, command in zip(factor.positions, found, strict=True):
            dim, output_dim = self._dims(at, factor.component, command.component)
            if factor.skipped != skipped.get(at, 0):
                raise PlanError(
                    f"c{at} multiplies by panels without {factor.skipped} columns, but "
                    f"{skipped.get(at, 0)} are computed elsewhere"
                )
            if not 0 <= factor.memory < len(memory):
                raise PlanError(f"c{at}: there is no memory {factor.memory} for panels")
            size = output_dim * (dim - factor.skipped)
            if size > memory[factor.memory]:
                raise PlanError(
                    f"c{at}: panels of {size} elements are larger than memory {factor.memory}, "
                    f"which has {memory[factor.memory]}"
                )

    # ---- taps ----

    def _check_taps(self, position: int, taps: Taps, submatrix: int) -> None:
        """Checks taps against the input, or the derivative, that they stand for."""
        if not submatrix:
            raise PlanError(f"c{position} has no such input or derivative")
        matrix, area = self.place(submatrix)
        self._check_place(position, Place(taps.matrix, taps.area))
        sizes = taps.rows, taps.count * taps.area.columns
        if taps.distance < 1 or taps.count < 2 or sizes != (area.rows, area.columns):
            raise PlanError(f"c{position}: {taps} do not make up {Place(matrix, area)}")

    def _check_packed(self, position: int, matrix: int, taps: Taps) -> None:
        """Checks that the memory of a matrix is enough for all rows of taps."""
        rows, columns = self._matrices[matrix]
        if taps.area.rows * taps.area.columns > rows * columns:
            raise PlanError(f"c{position}: the rows of {taps} do not fit in m{matrix}")

    def spliced_input(self, each: SplicedInput) -> None:
        """Checks an input that is read at the source of its copies."""
        at, command = each.position, self.command(each.position, c.Propagate, c.Backprop)
        self._dims(at, command.component, command.component)
        operand = spliced_operand(command, is_derivative=False)
        self._check_taps(at, each.taps, operand)
        for copy in each.copies:
            copied = self.place(self.command(copy, c.MatrixCopy).output)
            if copied.matrix != self.place(operand).matrix:
                raise PlanError(f"c{at} is to do without c{copy}, which copies to {copied}")

    def spliced_derivative(self, each: SplicedDerivative) -> None:
        """Checks an input derivative that is summed up by its command."""
        at, command = (
            each.position,
            self.command(each.position, c.Backprop, c.BackpropNoModelUpdate),
        )
        self._dims(at, command.component, command.component)
        self._check_taps(at, each.taps, command.input_deriv)
        if each.matrix != self.place(command.input_deriv).matrix:
            raise PlanError(f"c{at}: m{each.matrix} is not the matrix of the input derivative")
        self._check_packed(at, each.matrix, each.taps)
        for add in self.commands(each.added, c.MatrixCopy, c.MatrixAdd):
            if self.place(add.output).matrix != each.taps.matrix:
                raise PlanError(f"c{at}: {each.taps} are not what {add} adds to")


def _check_columns(position: int, columns: int, dim: int) -> None:
    if not 0 < columns < dim:
        raise PlanError(f"c{position}: {columns} are no first columns of {dim}")


def _check_span(position: int, span: Span, rows: int, place: Place) -> None:
    first, end = span
    if not 0 <= first < end <= place.area.rows or end - first != rows:
        raise PlanError(
            f"c{position} has {rows} rows, and cannot have rows {first}:{end - 1} of {place}"
        )
