"""The constants of a converted network: weights, tables of rows, and the functions it calls."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from importlib import resources

import numpy as np
from nnet3_descriptors import Nnet3Error
from numpy.typing import ArrayLike, NDArray

PANEL = 16
"""The columns of a panel of weights; NNET3_PANEL of kernels.c."""

_KERNEL = re.compile(r"^/\* kernel (\w+):([\w ]*)\*/\n", re.MULTILINE)
_PER_LINE = 8


class ConversionError(Nnet3Error):
    """A computation that cannot be expressed in C; names what, and where it is."""


def panels(matrix: ArrayLike) -> NDArray[np.float32]:
    """Weights in the order of products.

    Args:
        matrix: W of y = x W^T, (columns of y, columns of x).

    Returns:
        (panels, columns of x, PANEL): W^T in panels of columns, the last one filled up with zeros.
    """
    values = np.asarray(matrix, np.float32)
    out, columns = values.shape
    filled = np.zeros((-(-out // PANEL) * PANEL, columns), np.float32)
    filled[:out] = values
    return np.ascontiguousarray(
        filled.reshape(len(filled) // PANEL, PANEL, columns).transpose(0, 2, 1)
    )


def integer_panels(matrix: ArrayLike) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights in 8 bits, in the order of products of integers.

    Args:
        matrix: W of y = x W^T, (columns of y, columns of x).

    Returns:
        For each panel, -128 times the sum of the integers of each column in 32 bits, then (groups,
        PANEL, 4) integers: four columns of x together, filled up with zeros. All are shown as
        elements of 32 bits. And the scales, (columns of y,), by which integers are weights.
    """
    values = np.asarray(matrix, np.float32)
    largest = np.abs(values).max(axis=1, initial=0.0)
    scales = np.where(largest > 0, largest / 127, 1).astype(np.float32)
    count, groups = -(-values.shape[0] // PANEL), -(-values.shape[1] // 4)
    integers = np.zeros((count * PANEL, groups * 4), np.int8)
    integers[: values.shape[0], : values.shape[1]] = np.rint(values / scales[:, None])
    sums = (-128 * integers.sum(axis=1, dtype=np.int32)).astype("<i4").view(np.int8)
    grouped = integers.reshape(count, PANEL, groups, 4).transpose(0, 2, 1, 3)
    whole = np.concatenate([sums.reshape(count, 1, PANEL, 4), grouped], axis=1)
    return np.ascontiguousarray(whole).reshape(-1).view(np.float32), scales


class Constants:
    """Collects the constants while commands are converted.

    Attributes:
        tables: Definitions of tables in C.
        int8: Whether matrices of affine components become integers of 8 bits.
    """

    def __init__(self, name: str, *, int8: bool = False) -> None:
        self.int8 = int8
        self._name = name
        self._arrays: list[NDArray[np.float32]] = []
        self._places: dict[str, int] = {}
        self._size = 0
        self._known: dict[bytes, str] = {}
        self._kernels: set[str] = set()
        self.tables: list[str] = []

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
