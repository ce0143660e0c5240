"""What callers and files give, checked, and the errors of arithmetic with it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from numbers import Real
from typing import Any, TypeVar

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.values import NotCopied, array_of, changing, is_integer, read_only

from nnet3_speech.errors import SpeechError

Array = npt.NDArray[np.float64]
_Array = TypeVar("_Array", bound=npt.NDArray[Any])


def expect(value: object, what: str, *kinds: type) -> None:
    """Checks the type of an argument.

    Raises:
        SpeechError: the value is of none of these types.
    """
    if not isinstance(value, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise SpeechError(f"{what}: expected {names}, found {type(value).__name__}")


def expect_positive(value: Any, what: str) -> None:
    """Checks a number.

    Raises:
        SpeechError: it is no finite number above 0.
    """
    if isinstance(value, bool) or not (isinstance(value, Real) and 0.0 < float(value) < math.inf):
        raise SpeechError(f"{what}: expected a finite number above 0, found {value!r:.60}")


def expect_factor(value: Any, what: str, most: float = math.inf) -> None:
    """Checks a number that something is multiplied by.

    Raises:
        SpeechError: it is no finite number, below 0, or above `most`.
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not (is_number and 0.0 <= value <= most and value < math.inf):
        most_text = "on" if most == math.inf else f"to {most:g}"
        raise SpeechError(f"{what}: expected a factor from 0 {most_text}, found {value!r:.60}")


def expect_count(value: Any, what: str, least: int = 1) -> None:
    """Checks an integer.

    Raises:
        SpeechError: it is none, or below `least`.
    """
    if not is_integer(value) or value < least:
        raise SpeechError(f"{what}: expected an integer from {least} on, found {value!r:.60}")


def numbers(
    values: npt.ArrayLike,
    what: str,
    *shapes: tuple[int | str, ...],
    dtype: type[np.floating[Any]] = np.float64,
    kinds: str = "iuf",
    copy: bool = False,
) -> npt.NDArray[Any]:
    """The finite numbers of a caller.

    Args:
        values: The numbers.
        what: Their name in messages.
        shapes: Which they may have: ("n", 4) for any rows of 4 numbers. A size "dim" may be any
            but 0, another text any; "..." in front stands for any number of axes.
        dtype: Of the result.
        kinds: The kinds of NumPy's types that are taken for numbers.
        copy: Whether the result must not be the array of the caller.

    Raises:
        SpeechError: they are masked, no numbers, of another shape or not finite.
    """
    given = array_of(values, what, SpeechError)
    if given.dtype.kind not in kinds or not any(_fits(given.shape, shape) for shape in shapes):
        expected = " or ".join(str(shape).replace("'", "") for shape in shapes)
        raise SpeechError(
            f"{what}: expected numbers of the shape {expected}, found {given.shape} of "
            f"{given.dtype}"
        )
    with np.errstate(over="ignore"):  # what overflows is refused as not finite
        array = given.astype(dtype, copy=copy)
    is_finite = np.isfinite(array)
    if not is_finite.all():
        place = np.argwhere(~is_finite)[0].tolist()
        row = ", ".join(map(str, place[:-1]))
        where = f"row {row}" if row else f"element {place[0]}" if place else f"{given}"
        raise SpeechError(f"{what}: {where} is not finite")
    return array


def _fits(found: tuple[int, ...], shape: tuple[int | str, ...]) -> bool:
    if shape[:1] == ("...",):
        shape = shape[1:]
        found = found[-len(shape) :]
    return len(found) == len(shape) and all(
        size > 0 if wanted == "dim" else isinstance(wanted, str) or size == wanted
        for size, wanted in zip(found, shape, strict=True)
    )


def feature_matrix(features: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Features as (frames, dim) float32.

    Raises:
        SpeechError: they are no matrix of finite numbers with a column or more.
    """
    return numbers(features, "features", ("frames", "dim"), dtype=np.float32)


def array_field(dtype: type[np.floating[Any]], **how: Any) -> Any:
    """A field of frozen values: an array of numbers that nobody can write to, itself or a copy.

    Args:
        dtype: Its type.
        how: Other arguments of `attrs.field`; a default of None makes None a value.
    """

    def convert(values: Any, field: attrs.Attribute[Any]) -> npt.NDArray[Any] | None:
        if values is None and field.default is None:
            return None
        array = array_of(values, field.name, SpeechError)
        if array.dtype.kind not in "iuf":
            raise SpeechError(f"{field.name}: expected an array of numbers, found {array.dtype}")
        with np.errstate(over="ignore"):  # classes refuse what is not finite
            return read_only(array.astype(dtype, copy=False))

    return attrs.field(converter=attrs.Converter(convert, takes_field=True), **how)


@contextlib.contextmanager
def computing(what: str) -> Iterator[None]:
    """A context of arithmetic that gives no warnings, and errors of this package.

    Raises:
        SpeechError: a matrix is singular or not finite, or arrays do not fit each other; the error
            begins with `what`.
    """
    try:
        with np.errstate(all="ignore"):
            yield
    except SpeechError:
        raise
    except np.linalg.LinAlgError as error:
        raise SpeechError(f"{what}: a covariance is singular or not finite ({error})") from error
    except ValueError as error:
        raise SpeechError(f"{what}: the arrays do not fit each other: {error}") from error


def taking(stream: NotCopied) -> AbstractContextManager[None]:
    """A context in which a stream takes what it was given: an error within it loses some of that.

    Raises:
        SpeechError: there was such an error.
    """
    refusal = "an earlier error broke off this recording: begin another stream"
    return changing(stream, SpeechError(refusal))


def check_finite(values: _Array, what: str) -> _Array:
    """The values, or an error if they have become too large.

    Raises:
        SpeechError: one is not finite; the error begins with `what`.
    """
    if not np.isfinite(values).all():
        raise SpeechError(f"{what}: values are too large for their precision")
    return values
