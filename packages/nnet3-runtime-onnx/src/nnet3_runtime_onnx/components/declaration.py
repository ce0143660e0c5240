"""A component as a function from the operands of a command to a tensor."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import attrs
import numpy as np
from nnet3_descriptors import Component, extensions
from numpy.typing import NDArray

from nnet3_runtime_onnx.graph import GraphBuilder, Tensor, repeated
from nnet3_runtime_onnx.matrices import Matrices, Region

Array = NDArray[Any]


@attrs.frozen(kw_only=True, eq=False, slots=False)
class Call:
    """The operands that a command gives a component.

    Attributes:
        component: The component.
        name: Its name in the network.
        graph: The graph to add nodes to.
        matrices: Make tensors of regions.
        region: The input, (rows_in, input_dim); without rows if the component needs none.
        rows_out: Number of rows of the output.
        times: Number of commands of the model that propagate this component.
        indexes: The precomputed indexes of the component; None for nothing.
    """

    component: Any
    name: str
    graph: GraphBuilder
    matrices: Matrices
    region: Region
    rows_out: int
    times: int = 1
    indexes: Any = None

    @cached_property
    def x(self) -> Tensor:
        """The input, (rows_in, input_dim)."""
        return self.matrices.tensor(self.region)

    def columns(self, begin: int, end: int) -> Tensor:
        """Some columns of the input; the graph reads no others."""
        return self.matrices.tensor(self.region.between(begin, end))

    def blocks(self, count: int) -> list[Tensor]:
        """The columns of the input in a number of equal parts."""
        width = self.region.columns // count
        return [self.columns(width * block, width * (block + 1)) for block in range(count)]

    def affine(self, matrix: str, bias: str | None = None) -> Tensor:
        """The input times a transposed matrix of the component, plus a row of it.

        In a recurrence, the input of each step has a few rows of matrices that are known before the
        recurrence, and rows of the step before. One product of many rows multiplies the known rows
        of all steps at once.

        Args:
            matrix: The name of the field of the matrix, (output_dim, input_dim).
            bias: The name of the field of the row, if any.
        """
        strips = self.region.merged().strips
        is_early = [self.matrices.is_few_of_many(strip, self.times) for strip in strips]
        if not any(is_early):
            product = self.x @ self.transposed(matrix)
            return product if bias is None else product + self.parameter(bias)
        offset = None if bias is None else self.parameter(bias)
        ends = itertools.accumulate(strip.width for strip in strips)
        met = [range(end - strip.width, end) for end, strip in zip(ends, strips, strict=True)]
        terms: list[Tensor] = []
        for number in np.flatnonzero(is_early).tolist():
            factor = self._met(matrix, [met[number]])
            rows = self.matrices.product(strips[number], factor, None if terms else offset)
            terms.append(self.matrices.tensor(rows))
        rest = [n for n, strip in enumerate(strips) if not (is_early[n] or strip.is_zero)]
        if rest:
            late = self.matrices.tensor(Region(tuple(strips[n] for n in rest)))
            terms.append(late @ self._met(matrix, [met[n] for n in rest]))
        return functools.reduce(operator.add, terms)

    def _met(self, name: str, columns: Sequence[range]) -> Tensor:
        """The rows of a transposed matrix that multiply some columns of the input."""
        text = ",".join(f"{each.start}:{each.stop}" for each in columns)
        return self.derived(
            f"{name}.transposed.{text}",
            lambda: getattr(self.component, name)[:, np.concatenate(columns)].T,
        )

    def spliced(self, rows: Sequence[NDArray[np.integer]]) -> Tensor:
        """Rows of the input, by number; the rows of several lists side by side."""
        regions = [self.region.take(numbers) for numbers in rows]
        return self.matrices.tensor(Region.side_by_side(regions))

    def rows_at(self, offset: int) -> NDArray[np.integer]:
        """The input row that each output row sees at a time offset, (rows_out,)."""
        first = int(self.indexes.row_offsets[offset])
        return np.arange(self.rows_out) * int(self.indexes.row_stride) + first

    def scaled(self, alpha: float = 1.0) -> Region:
        """The input times a number.

        With 1, no node is added for columns that are rows of one tensor. Rows of several tensors
        are put end to end once, for all readers.
        """
        if alpha != 1.0:
            return self.matrices.scaled(self.region, alpha)
        strips = self.region.merged().strips
        parts = [Region((strip,)) for strip in strips]
        return Region.side_by_side(
            [
                part
                if strip.is_of_one_source
                else self.matrices.region_of(self.matrices.tensor(part))
                for strip, part in zip(strips, parts, strict=True)
            ]
        )

    def side_by_side(self, *tensors: Tensor) -> Region:
        """Tensors of (rows_out, ...), the columns of one behind those of the one before.

        Nothing is copied: a reader of some columns reads only the tensors that have these columns.
        """
        return Region.side_by_side([self.matrices.region_of(each) for each in tensors])

    # ---- parameters ----

    def derived(self, name: str, make: Callable[[], NDArray[Any]]) -> Tensor:
        """A constant that is computed from the component; equal constants are stored once.

        Args:
            name: Its name among the constants of the component.
            make: Computes it.
        """
        name = self.graph.constant(
            f"{self.name}.{name}", lambda: np.asarray(make(), dtype=np.float32)
        )
        return Tensor(self.graph, name, self.graph.constant_shape(name), is_led=False)

    def parameter(self, name: str) -> Tensor:
        """An array of the component, by the name of its field."""
        return self.derived(name, lambda: getattr(self.component, name))

    def transposed(self, name: str) -> Tensor:
        """A matrix of the component, by the name of its field, as the right factor of a product."""
        return self.derived(f"{name}.transposed", lambda: getattr(self.component, name).T)

    def numbers(self, values: NDArray[Any]) -> Tensor:
        """A column of numbers, (rows_out, 1), that follow from the indexes."""
        column = np.asarray(values, np.float32).reshape(-1, 1)
        name = self.graph.equal(f"{self.name}.numbers", column)
        tensor = Tensor(self.graph, name, (len(values), 1), is_led=False)
        return repeated(tensor, tensor.shape)

    def repeated(self, value: Tensor) -> Tensor:
        """A constant row for each row of the output."""
        return repeated(value, (self.rows_out, self.component.output_dim))


Translation = Callable[[Call], Tensor | Region]
"""Adds the nodes of a component, and returns its output, (rows_out, output_dim)."""

Refusal = Callable[[Any], str]
"""Returns the reason why a component, with its settings, cannot be expressed; "" if it can."""

ENTRY_POINTS = "nnet3_runtime_onnx.translations"
"""The group of entry points where other packages offer translations, by component type.
"""

_TRANSLATIONS: dict[type[Component], tuple[Translation, Refusal]] = {}


def translates(
    *types: type[Component], refuses: Refusal = lambda component: ""
) -> Callable[[Translation], Translation]:
    """Registers the translation of these component types, and the reasons to refuse some."""

    def register(function: Translation) -> Translation:
        _TRANSLATIONS.update((each, (function, refuses)) for each in types)
        return function

    return register


def translated_types() -> frozenset[type[Component]]:
    """Returns the component types that can be expressed."""
    return frozenset(_TRANSLATIONS)


def why_not(component: Component) -> str:
    """Returns why a component cannot be expressed; "" if it can.

    Raises:
        Nnet3Error: an installed package offers a translation that cannot be imported.
    """
    if type(component) not in _TRANSLATIONS:
        extensions.load_extensions(ENTRY_POINTS, component.type)
    if type(component) not in _TRANSLATIONS:
        return "has no translation here"
    return _TRANSLATIONS[type(component)][1](component)


def translate(call: Call) -> Region:
    """Adds the nodes of a component, and returns its output, (rows_out, output_dim)."""
    output = _TRANSLATIONS[type(call.component)][0](call)
    return output if isinstance(output, Region) else call.matrices.region_of(output)
