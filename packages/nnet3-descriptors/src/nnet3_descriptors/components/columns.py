"""Maps of the columns without parameters: permutations, and sums and norms of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nnet3_descriptors.components.declaration import base, fields, initial, kinds
from nnet3_descriptors.components.declaration.config_line import ConfigLine
from nnet3_descriptors.components.declaration.properties import ComponentProperties as Property
from nnet3_descriptors.components.declaration.registry import component

if TYPE_CHECKING:
    from nnet3_descriptors.files.reader import Reader

_SHOWN_COLUMNS = 5


@component
class PnormComponent(base.Component):
    """y = Euclidean norm of each group of neighbouring columns.

    Attributes:
        input_dim: Number of columns of the input.
        output_dim: Number of groups, all of the same size.
    """

    PROPERTIES = Property.SIMPLE | Property.BACKPROP_NEEDS_INPUT | Property.BACKPROP_NEEDS_OUTPUT
    BACKPROP_NEEDS_EXACT_VALUES = True  # 0 / 0 counts as 0

    input_dim: int = fields.integer(minimum=1)
    output_dim: int = fields.integer(minimum=1)

    def check(self) -> None:
        """Raises NetworkError if the columns do not make equal groups."""
        self.require_divides("output_dim", "input_dim")


@component
class SumGroupComponent(base.Component):
    """y = sum of each group of neighbouring columns.

    Attributes:
        sizes: Numbers of columns of the groups.
    """

    PROPERTIES = Property.SIMPLE
    INFO = ("input_dim", "output_dim")

    sizes: tuple[int, ...] = fields.integers()

    def check(self) -> None:
        """Raises NetworkError if a group is empty, or if there is none."""
        least = min(self.sizes, default=0)
        self.require(least > 0, f"'sizes' must be positive and at least one, got {least}")

    input_dim = base.input_columns(lambda self: sum(self.sizes))
    output_dim = base.output_columns(lambda self: len(self.sizes))

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns equal sizes, if the line gives no sizes."""
        if config.has("sizes"):
            return {}
        output_dim, input_dim = initial.dims(config)
        if input_dim % output_dim != 0:
            raise config.error(f"'output-dim' must divide {input_dim}", "output-dim")
        return {"sizes": (input_dim // output_dim,) * output_dim}


@component
class SumBlockComponent(base.Component):
    """y = scale times the sum of equal blocks of the columns.

    Attributes:
        input_dim: Number of columns of the input.
        output_dim: Number of columns of a block.
        scale: Multiplies the sum.
    """

    PROPERTIES = Property.SIMPLE | Property.PROPAGATE_ADDS | Property.BACKPROP_ADDS

    input_dim: int = fields.integer(minimum=1)
    output_dim: int = fields.integer(minimum=1)
    scale: float = fields.real(default=1.0)

    def check(self) -> None:
        """Raises NetworkError if the columns do not make equal blocks."""
        self.require_divides("output_dim", "input_dim")


class _ColumnMap(kinds.Integers):
    """Column numbers, which early binary files hold as floating-point numbers."""

    def read(self, reader: Reader) -> tuple[int, ...]:
        """Reads a vector of integers, or of numbers that stand for integers."""
        if not (reader.binary and reader.next_is(b"FV ", b"DV ")):
            integers: tuple[int, ...] = tuple(super().read(reader))
            return integers
        start = reader.position
        numbers = np.rint(reader.vector())
        if not np.all((numbers >= 0) & (numbers <= numbers.size)):
            reader.fail("these are no column numbers", at=start)
        # Kaldi wrote the last number wrongly; it follows from the permutations that were in use.
        return (*(int(number) for number in numbers[:-1]), numbers.size - 1)


def _column_map_item(component: Any) -> str:
    """Returns the first columns, with the blanks that Kaldi puts between them."""
    columns = component.column_map
    shown = "".join(f"{column} " for column in columns[:_SHOWN_COLUMNS])
    return f" , column-map=[ {shown}{'... ' if len(columns) > _SHOWN_COLUMNS else ''}]"


@component
class PermuteComponent(base.Component):
    """Column i of y = column column_map[i] of x.

    Attributes:
        column_map: A permutation of 0, 1, ...
    """

    PROPERTIES = Property.SIMPLE
    INFO = ("dim", _column_map_item)

    column_map: tuple[int, ...] = fields.declare(_ColumnMap())

    def check(self) -> None:
        """Raises NetworkError if the columns are not a permutation."""
        self.require(
            np.array_equal(np.sort(np.array(self.column_map)), np.arange(self.dim)),
            f"'column_map' must have each number from 0 to {self.dim - 1} once",
        )

    dim = base.columns(lambda self: len(self.column_map))
