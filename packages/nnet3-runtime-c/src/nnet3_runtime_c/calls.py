"""What a component is given when it is converted, and the register of conversions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
from nnet3_descriptors.components import Component
from numpy.typing import NDArray

from nnet3_runtime_c.constants import Constants

Array = NDArray[Any]
Statements = Iterator[str]


@attrs.frozen
class Place:
    """A rectangle of the arena.

    Attributes:
        first: Its first element.
        rows, columns: Its size.
        stride: The distance of its rows.
    """

    first: int
    rows: int
    columns: int
    stride: int

    def __str__(self) -> str:
        """Its first element and the distance of its rows, as arguments in C."""
        return f"m + {self.first}, {self.stride}"

    def of_columns(self, begin: int, count: int) -> Place:
        """Some of its columns."""
        return attrs.evolve(self, first=self.first + begin, columns=count)


class Scratch:
    """Memory behind the matrices, for values inside of one command.

    Attributes:
        most: The most elements that a command needs.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self._used = 0
        self.most = 0

    def new(self, rows: int, columns: int) -> Place:
        """A place for a matrix, until `clear`."""
        place = Place(self._first + self._used, rows, columns, columns)
        self._used += rows * columns
        self.most = max(self.most, self._used)
        return place

    def clear(self) -> None:
        """Gives all places back."""
        self._used = 0


@attrs.frozen(eq=False)
class End:
    """What follows a product in place: y = s relu(y) + o.

    Attributes:
        relu: Whether there is a rectifier.
        scales, offsets: s and o for each column or block of columns; None for ones and zeros.
        name: The component that s and o are from.
    """

    relu: bool = False
    scales: Array | None = None
    offsets: Array | None = None
    name: str = ""


@attrs.frozen(kw_only=True)
class Call:
    """What a command gives a component.

    Attributes:
        component: The component.
        name: Its name in the network.
        x: The input; without rows if the component needs none.
        y: The output.
        indexes: The precomputed indexes of the component; None for nothing.
        adds: Whether the result is added to the output.
        constants: Where weights and tables go.
        scratch: Memory for values in between.
        end: What follows a product.
    """

    component: Any
    name: str
    x: Place
    y: Place
    indexes: Any
    adds: bool
    constants: Constants
    scratch: Scratch
    end: End = End()

    def weights(self, field: str, make: Callable[[], Any], *, are_bits: bool = False) -> int:
        """The place of a parameter, or of what is made of it, among the weights."""
        return self.constants.weights(f"{self.name}.{field}", make, are_bits=are_bits)

    def pointer(self, field: str, make: Callable[[], Any]) -> str:
        """The same as a pointer in C."""
        return f"w + {self.weights(field, make)}"

    def by_row(self, kernel: str, *arguments: object) -> Iterator[str]:
        """A call of a function of rows, columns, and input and output."""
        y = self.y
        yield self.constants.call(kernel, y.rows, y.columns, *arguments, self.x, y)

    def row_starts(self) -> list[int]:
        """The first element of the input, for each time offset, of the first row of the output."""
        return [int(row) * self.x.stride for row in self.indexes.row_offsets]


Conversion = Callable[[Call], Statements]
CONVERSIONS: dict[type[Component], Conversion] = {}


def converts(*component_types: type[Component]) -> Callable[[Conversion], Conversion]:
    """Registers the conversion of component types."""

    def register(function: Conversion) -> Conversion:
        CONVERSIONS.update(dict.fromkeys(component_types, function))
        return function

    return register
