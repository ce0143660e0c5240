"""Arithmetic with what files hold: values that become too large are errors, and no warnings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from nnet3_speech.errors import SpeechError

_Array = TypeVar("_Array", bound=npt.NDArray[Any])


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


def check_finite(values: _Array, what: str) -> _Array:
    """The values, or an error if they have become too large.

    Raises:
        SpeechError: one is not finite; the error begins with `what`.
    """
    if not np.isfinite(values).all():
        raise SpeechError(f"{what}: values are too large for their precision")
    return values
