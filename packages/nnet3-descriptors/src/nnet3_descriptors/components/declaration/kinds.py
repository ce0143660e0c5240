"""The kinds of values that component fields hold: how each is checked, read and written."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnet3_descriptors.components.declaration.config_line import ConfigLine
from nnet3_descriptors.errors import NetworkError
from nnet3_descriptors.frozen_arrays import is_frozen, real_numbers, single_precision
from nnet3_descriptors.indexes import is_int32

if TYPE_CHECKING:
    from nnet3_descriptors.files.reader import Reader
    from nnet3_descriptors.files.writer import Writer

S = TypeVar("S", bound=np.generic)


class ArrayKey:
    """Compares and hashes an array by shape and bits."""

    __slots__ = ("array",)

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArrayKey):
            return NotImplemented
        return self.array.shape == other.array.shape and bool(
            np.array_equal(self.array.view(np.uint32), other.array.view(np.uint32))
        )

    def __hash__(self) -> int:
        return hash((self.array.shape, self.array.tobytes()))


def _float_key(value: float) -> float | str:
    """Returns a key that compares numbers; nan equals nan, as in arrays."""
    return value if value == value else "nan"


def read_only(values: ArrayLike, dtype: type[S]) -> NDArray[S]:
    """Returns `values` as a read-only C-contiguous array; copies only if it has to.

    An array that the caller could still write to is copied.

    Raises:
        NetworkError: the values are no real numbers, or too large for single precision.
    """
    try:
        is_single = dtype is np.float32
        array: NDArray[Any] = single_precision(values) if is_single else real_numbers(values)
    except (TypeError, ValueError) as error:
        raise NetworkError(f"expected an array of numbers: {error}") from error
    if array.dtype == dtype and array.flags.c_contiguous and is_frozen(array):
        return array
    array = np.array(array, dtype=dtype, order="C")
    array.flags.writeable = False
    return array


def read_only_float32(values: ArrayLike) -> NDArray[np.float32]:
    """Returns `values` as a read-only C-contiguous float32 array; see `read_only`."""
    return read_only(values, np.float32)


class Kind:
    """A kind of value, which readers, writers and config lines know under one name.

    Attributes:
        expected: A description of valid values, for error messages.
        method: The name of the methods of `Reader`, `Writer` and `ConfigLine` for such values.
            Values that `ConfigLine` has no method for cannot be given in config lines.
        comparison: attrs' `eq` argument.
    """

    expected: str
    method: str = ""
    comparison: Any = True

    @functools.cached_property
    def converter(self) -> attrs.Converter[Any, Any] | None:
        """`convert` for attrs, which inspects it, so it is made once; None if it does nothing."""
        return None if type(self).convert is Kind.convert else attrs.Converter(self.convert)

    def convert(self, value: Any) -> Any:
        """Returns the value in the form in which components hold it."""
        return value

    def check(self, value: Any, where: str) -> None:
        """Raises NetworkError if the value is not of this kind."""
        if not self.accepts(value):
            raise NetworkError(f"{where} must be {self.expected}, got {value!r}")

    def accepts(self, value: Any) -> bool:
        """Tells whether the value is of this kind."""
        raise NotImplementedError

    def read(self, reader: Reader) -> Any:
        """Reads a value from a Kaldi file."""
        return getattr(reader, self.method)()

    def write(self, writer: Writer, value: Any) -> None:
        """Writes a value to a Kaldi file."""
        getattr(writer, self.method)(value)

    def from_config(self, config: ConfigLine, key: str) -> Any:
        """Returns the value that a config line has for the key."""
        value_of = getattr(config, self.method, None)
        if value_of is None:
            raise config.error(f"'{key}' cannot be given in a config line", key)
        return value_of(key)


class Integer(Kind):
    """A 32-bit integer."""

    expected, method = "a 32-bit integer", "integer"

    def accepts(self, value: Any) -> bool:
        """Tells whether the value is an integer in range, and no bool."""
        return is_int32(value)


class Real(Kind):
    """A number that Kaldi holds in single or double precision; files may have it in the other."""

    expected, method = "a number", "real"
    comparison = staticmethod(_float_key)

    def __init__(self, *, double: bool = False) -> None:
        self.double = double

    def convert(self, value: Any) -> Any:
        """Returns a number in its precision; anything else as it is, for `check` to refuse."""
        if not isinstance(value, int | float | np.floating | np.integer):
            return value
        if self.double:
            return float(value)
        with np.errstate(over="ignore"):
            return float(np.float32(value))

    def accepts(self, value: Any) -> bool:
        """Tells whether the value is a float."""
        return type(value) is float

    def write(self, writer: Writer, value: float) -> None:
        """Writes a number in its precision."""
        (writer.double if self.double else writer.real)(value)


class Boolean(Kind):
    """True or false, T or F in files."""

    expected, method = "True or False", "boolean"

    def accepts(self, value: Any) -> bool:
        """Tells whether the value is a bool."""
        return type(value) is bool


class Flag(Boolean):
    """A boolean that is true in a file if its token is there at all."""

    def read(self, reader: Reader) -> bool:
        """Returns true: the token has been read."""
        return True

    def write(self, writer: Writer, value: bool) -> None:
        """Writes nothing: the token has been written."""


class Integers(Kind):
    """A tuple of 32-bit integers."""

    expected, method = "a tuple of 32-bit integers", "integers"

    def convert(self, value: Any) -> Any:
        """Returns a sequence as a tuple."""
        return tuple(value) if isinstance(value, list | tuple) else value

    def accepts(self, value: Any) -> bool:
        """Tells whether the value is a tuple of integers in range."""
        return type(value) is tuple and all(map(is_int32, value))


class IntegerPairs(Kind):
    """A tuple of pairs of 32-bit integers."""

    expected, method = "a tuple of pairs of 32-bit integers", "integer_pairs"

    def convert(self, value: Any) -> Any:
        """Returns a sequence of pairs as a tuple of tuples."""
        if isinstance(value, list | tuple):
            return tuple(tuple(pair) if isinstance(pair, list) else pair for pair in value)
        return value

    def accepts(self, value: Any) -> bool:
        """Tells whether the value is a tuple of pairs of integers in range."""
        return type(value) is tuple and all(
            len(pair) == 2 and Integers().accepts(pair) for pair in value
        )


class Array(Kind):
    """A read-only vector or matrix (rows, columns); files may have it in the other precision."""

    comparison = ArrayKey

    def __init__(self, method: str, dtype: type[np.generic] = np.float32) -> None:
        """Makes the kind of "vector", "matrix", "double_vector" or "double_matrix"."""
        self.method, self.dtype = method, dtype
        name = method.rpartition("_")[2]
        self.ndim = 1 if name == "vector" else 2
        self.expected = f"a {np.dtype(dtype).name} {name}"

    def convert(self, value: Any) -> Any:
        """Returns the values as a read-only array."""
        return read_only(value, self.dtype)

    def check(self, value: Any, where: str) -> None:
        """Raises NetworkError if the array has another number of axes, or sizes no file holds."""
        if value.ndim != self.ndim or not all(map(is_int32, value.shape)):
            raise NetworkError(f"{where} must be {self.expected}, got the shape {value.shape}")


VECTOR, MATRIX = Array("vector"), Array("matrix")
DOUBLE_VECTOR = Array("double_vector", np.float64)
DOUBLE_MATRIX = Array("double_matrix", np.float64)
"""The kinds of arrays: float32, and float64."""
