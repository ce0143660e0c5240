"""What the conversion of a component is given and may use, and the register of conversions."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from nnet3_descriptors import Nnet3Error
from nnet3_descriptors.components import Component
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]
Statements = Iterator[str]

PANEL = 16
"""The columns of a panel of weights; NNET3_PANEL of kernels.c."""

_KERNEL = re.compile(r"^/\* kernel (\w+):([\w ]*)\*/\n", re.MULTILINE)
_PER_LINE = 8


class ConversionError(Nnet3Error):
    """A computation that cannot be expressed in C; names what, and where it is."""


class Place(NamedTuple):
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


class Resources:
    """What statements need: weights, tables, functions, and memory for values inside of a command.

    Attributes:
        tables: Definitions of tables in C.
        int8: Whether matrices of affine components become integers of 8 bits.
        arena: The elements of all matrices, and behind them of the values inside of commands.
    """

    def __init__(self, name: str, matrices: int, *, int8: bool = False) -> None:
        """Begins without any.

        Args:
            name: The prefix of names in C.
            matrices: The elements of the arena that matrices take.
            int8: Whether matrices of affine components become integers of 8 bits.
        """
        self.int8 = int8
        self._name = name
        self._arrays: list[NDArray[np.float32]] = []
        self._places: dict[str, int] = {}
        self._size = 0
        self._known: dict[bytes, str] = {}
        self._kernels: set[str] = set()
        self.tables: list[str] = []
        self._matrices = self._used = self.arena = matrices

    def weights(self, key: str, make: Callable[[], ArrayLike], *, are_bits: bool = False) -> int:
        """The place of an array among the weights: its first element. Equal keys share an array.

        Args:
            key: Names the array.
            make: Returns it.
            are_bits: Whether its elements are no numbers, only 32 bits each.

        Raises:
            ConversionError: an element is not a finite number of single precision.
        """
        if key not in self._places:
            with np.errstate(over="ignore"):
                array = np.asarray(make()).astype(np.float32).reshape(-1)
            if not are_bits and not np.isfinite(array).all():
                raise ConversionError(f"{key} has elements that are no finite float32")
            filled = np.zeros(-(-len(array) // PANEL) * PANEL, np.float32)
            filled[: len(array)] = array
            self._arrays.append(filled)
            self._places[key] = self._size
            self._size += len(filled)
        return self._places[key]

    def all_weights(self) -> NDArray[np.float32]:
        """All weights, one after the other."""
        return np.concatenate([np.zeros(0, np.float32), *self._arrays])

    def table(self, values: ArrayLike) -> str:
        """The name of a table of integers, (n,) or (n, columns); equal tables are stored once.

        Raises:
            ConversionError: an integer needs more than 32 bits.
        """
        array = np.asarray(values, np.int64)
        if array.size and (array.max() >= 2**31 or array.min() < -(2**31)):
            raise ConversionError("the matrices have more elements than 32-bit integers count")
        key = str(array.shape).encode() + array.tobytes()
        if key not in self._known:
            self._known[key] = name = f"{self._name}_table{len(self._known)}"
            shape = "".join(f"[{max(size, 1)}]" for size in array.shape)
            self.tables.append(f"static const int32_t {name}{shape} = {_initializer(array)};\n")
        return self._known[key]

    def call(self, kernel: str, *arguments: object) -> str:
        """A statement that calls a function of kernels.c."""
        self._kernels.add(kernel)
        return f"nnet3_{kernel}({', '.join(map(_text, arguments))});"

    def kernels(self) -> str:
        """The definitions of the functions that are called, in the order of kernels.c."""
        sources, needs = _kernels()
        found, pending = set[str](), sorted(self._kernels)
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                pending += needs[name]
        return "".join(f"{sources[name]}\n" for name in sources if name in found)

    def new(self, rows: int, columns: int) -> Place:
        """A place for a matrix behind the matrices, until `clear`."""
        place = Place(self._used, rows, columns, columns)
        self._used += rows * columns
        self.arena = max(self.arena, self._used)
        return place

    def clear(self) -> None:
        """Gives all places for values inside of a command back."""
        self._used = self._matrices


@functools.cache
def _kernels() -> tuple[dict[str, str], dict[str, list[str]]]:
    """The text of each function of kernels.c, and the functions that it needs."""
    text = resources.files(__package__).joinpath("kernels.c").read_text("utf-8")
    _, *parts = _KERNEL.split(text)
    names, needs, bodies = parts[::3], parts[1::3], parts[2::3]
    return (
        {name: body.strip() + "\n" for name, body in zip(names, bodies, strict=True)},
        {name: needed.split() for name, needed in zip(names, needs, strict=True)},
    )


def _text(argument: object) -> str:
    """An argument in C."""
    if isinstance(argument, float | np.floating):
        return real(float(argument))
    if isinstance(argument, bool | np.bool_):
        return str(int(argument))
    return str(argument)


def real(value: float) -> str:
    """A number of single precision in C, exactly."""
    text = f"{np.float32(value):.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def floats(values: Iterable[float]) -> str:
    """Numbers of single precision as the elements of an array in C."""
    texts = list(map(real, values))
    return ",\n".join(
        "    " + ", ".join(texts[at : at + _PER_LINE]) for at in range(0, len(texts), _PER_LINE)
    )


def _initializer(array: NDArray[np.int64]) -> str:
    """A table as the initializer of an array in C."""
    if not array.size:
        return "{0}" if array.ndim == 1 else "{{0}}"
    if array.ndim > 1:
        rows = ["{" + ", ".join(map(str, row)) + "}" for row in array.tolist()]
        return "{\n    " + ",\n    ".join(rows) + "}"
    texts = list(map(str, array.tolist()))
    lines = [", ".join(texts[at : at + 16]) for at in range(0, len(texts), 16)]
    return "{\n    " + ",\n    ".join(lines) + "}"


class End(NamedTuple):
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


class Call(NamedTuple):
    """What a command gives a component.

    Attributes:
        component: The component.
        name: Its name in the network.
        x: The input; without rows if the component needs none.
        y: The output.
        indexes: The precomputed indexes of the component; None for nothing.
        adds: Whether the result is added to the output.
        resources: Where weights and tables go, and memory for values in between.
        end: What follows a product.
    """

    component: Any
    name: str
    x: Place
    y: Place
    indexes: Any
    adds: bool
    resources: Resources
    end: End = End()

    def weights(self, field: str, make: Callable[[], Any], *, are_bits: bool = False) -> int:
        """The place of a parameter, or of what is made of it, among the weights."""
        return self.resources.weights(f"{self.name}.{field}", make, are_bits=are_bits)

    def pointer(self, field: str, make: Callable[[], Any]) -> str:
        """The same as a pointer in C."""
        return f"w + {self.weights(field, make)}"

    def table(self, values: ArrayLike) -> str:
        """The name of a table of integers, (n,) or (n, columns)."""
        return self.resources.table(values)

    def statement(self, kernel: str, *arguments: object) -> str:
        """A call of a function of kernels.c; all get first the number of rows."""
        return self.resources.call(kernel, self.y.rows, *arguments)

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
