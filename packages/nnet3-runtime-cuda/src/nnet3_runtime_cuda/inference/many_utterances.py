"""Several utterances in one argument: a batch (N, T, D), or a list of arrays."""

from __future__ import annotations

from typing import Any

from nnet3_runtime_cuda.arrays import as_array
from nnet3_runtime_cuda.errors import RunError


def is_batch(features: Any) -> bool:
    """Whether features are one array of several utterances of the same length."""
    return not isinstance(features, list | tuple) and _ndim(features) == 3


def utterances_of(features: Any) -> list[Any] | None:
    """The utterances of a batch, or of a list or tuple of matrices; None for a single one.

    Raises:
        RunError: a batch cannot be read as an array.
    """
    if is_batch(features):
        return list(as_array(features, "features"))
    if isinstance(features, list | tuple) and features and _ndim(features[0]) == 2:
        return list(features)
    return None


def for_each(values: Any, count: int, what: str) -> list[Any]:
    """The value for each of `count` utterances; None for each if no values were given.

    Args:
        values: None, an array with one more axis in front, or a list.
        count: Number of utterances.
        what: Their name in messages.

    Raises:
        RunError: the number of values is not the number of utterances.
    """
    if values is None:
        return [None] * count
    if not isinstance(values, list | tuple):
        values = as_array(values, what)
    if _ndim(values) < 2 or len(values) != count:
        raise RunError(
            f"{what}: expected one for each of {count} utterances, found "
            f"{len(values) if _ndim(values) > 1 else 'one'}"
        )
    return list(values)


def _ndim(values: Any) -> int:
    """The number of axes of an array, or of nested lists by their first elements."""
    shape = getattr(values, "shape", None)
    if shape is not None:
        return len(shape)
    if isinstance(values, list | tuple):
        return 1 + (_ndim(values[0]) if values else 0)
    return 0
