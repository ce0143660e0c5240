"""Arrays that callers give and values hold: of numbers, not masked, and whether they can change."""

from __future__ import annotations

import sys
from types import MappingProxyType
from typing import Any, Self, TypeVar

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_descriptors.errors import Nnet3Error

_Array = TypeVar("_Array", bound=npt.NDArray[Any])


def is_frozen(array: npt.NDArray[Any]) -> bool:
    """Whether an array is read-only, and every array that it is a view of.

    A read-only view changes with the array behind it: `numpy.broadcast_to(buffer, buffer.shape)`
    is one.
    """
    owner: object = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    return True


def frozen(array: _Array) -> _Array:
    """Makes an array that nobody else holds read-only, and returns it."""
    array.flags.writeable = False
    return array


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array that nobody can write to: itself, or a copy."""
    return array if is_frozen(array) else frozen(array.copy())


class ByFields:
    """Base of frozen attrs classes that are compared, hashed and shown by their fields.

    attrs would write these three methods for each class, which takes longer than all else that
    makes it; so they are made with `eq=False, repr=False`.
    """

    __slots__ = ()

    def _values(self) -> tuple[Any, ...]:
        return tuple(
            field.eq_key(getattr(self, field.name)) if field.eq_key else getattr(self, field.name)
            for field in attrs.fields(type(self))  # type: ignore[arg-type]
            if field.eq
        )

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self is other or self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        shown = []  # a generator would be one more call for each level of what is nested
        for each in attrs.fields(type(self)):  # type: ignore[arg-type]
            shown.append(f"{each.name}={getattr(self, each.name)!r}")
        return f"{type(self).__qualname__}({', '.join(shown)})"


class ReadOnlyArrays:
    """Base of frozen attrs classes whose arrays, and mappings, nobody can write to.

    A copy is the value itself. What is unpickled is made anew: NumPy makes unpickled arrays
    writable, and a mapping that is only a view cannot be pickled. Arrays may stand in tuples.
    """

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        fields: Any = self.__getstate__()
        views = {n: dict(held) for n, held in fields.items() if isinstance(held, MappingProxyType)}
        return _restored, (type(self), {**fields, **views}, tuple(views))


def _restored(cls: type[object], state: dict[str, Any], views: tuple[str, ...] = ()) -> object:
    """Returns the object of these fields, whose arrays nobody else holds; pickles name this."""
    value: object = object.__new__(cls)
    put = object.__setattr__.__get__(value)
    for name, held in state.items():
        if type(held) is np.ndarray:
            held.setflags(write=False)
        elif type(held) is tuple and held and type(held[0]) is np.ndarray:
            for array in held:
                array.setflags(write=False)
        put(name, MappingProxyType(held) if name in views else held)
    return value


def is_masked(values: object) -> bool:
    """Whether this is a masked array, whose mask a conversion would lose."""
    # To import numpy.ma takes a while. Nobody has a masked array before it is imported, or while
    # another thread imports it.
    return isinstance(values, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ()))


def has_masks(values: object) -> bool:
    """Whether values, or a row of a list of them, are a masked array."""
    rows = values if isinstance(values, list | tuple) else ()
    return any(map(is_masked, (values, *rows)))


def array_of(
    values: npt.ArrayLike, what: str, error: type[Nnet3Error] = Nnet3Error
) -> npt.NDArray[Any]:
    """The values of a caller as an array, copied only if necessary.

    Args:
        values: The values.
        what: Their name in messages.
        error: The class of the error.

    Raises:
        Nnet3Error: they are masked, as a whole or by rows, or cannot be read as an array; of the
            class `error`.
    """
    if has_masks(values):
        raise error(f"{what}: expected an array of numbers, found a masked array")
    try:
        return np.asarray(values)
    except (BufferError, RuntimeError, TypeError, ValueError) as reason:
        raise error(f"{what}: expected an array of numbers: {reason}") from reason


def real_numbers(values: npt.ArrayLike) -> npt.NDArray[Any]:
    """The values as an array, of whatever type they have.

    Raises:
        TypeError: they are masked, complex, truth values, objects, text or times, which a
            conversion would take for something else, or refuse without a reason.
    """
    if is_masked(values):
        raise TypeError("found a masked array; filled() makes an array of it")
    array = np.asarray(values)
    if array.dtype.kind in "bcOSUmM":
        raise TypeError(f"expected real numbers, found {array.dtype}")
    return array


def check_finite(array: npt.NDArray[Any]) -> None:
    """Checks values that a caller sets; a reader of files keeps what it finds.

    Raises:
        ValueError: one is infinite or NaN.
    """
    is_finite = np.isfinite(array)
    if not is_finite.all():
        place = np.unravel_index(int(np.argmin(is_finite)), array.shape)
        raise ValueError(f"found {array[place]} at {[int(index) for index in place]}")


def single_precision(values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """The values as a float32 array; infinity and NaN stay what they are.

    Raises:
        TypeError: see `real_numbers`.
        ValueError: a value is not a number, or becomes infinite in single precision.
    """
    array = real_numbers(values)
    with np.errstate(over="ignore"):
        single = array.astype(np.float32, copy=False)
    if array.dtype.kind == "f" and single is not array:
        too_large = np.isinf(single) & np.isfinite(array)
        if too_large.any():
            raise ValueError(f"{array[too_large][0]} is too large for single precision")
    return single
