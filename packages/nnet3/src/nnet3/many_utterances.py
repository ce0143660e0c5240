"""Several utterances in one argument: a batch (N, T, D), or a list of arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nnet3_runtime_cuda import RunError
from nnet3_runtime_cuda.arrays import as_array

_FEATURES = "features for node 'input'"
"""Their name in messages."""


def is_batch(features: Any) -> bool:
    """Whether features are one array of several utterances of the same length."""
    return not isinstance(features, list | tuple) and _ndim(features, _FEATURES) == 3


def utterances_of(features: Any) -> list[Any] | None:
    """The utterances of a batch, or of a list or tuple of matrices; None for a single one.

    Raises:
        RunError: a batch cannot be read as an array.
    """
    if is_batch(features):
        return list(as_array(features, _FEATURES))
    if isinstance(features, list | tuple) and features and _ndim(features[0], _FEATURES) == 2:
        return list(features)
    return None


def pairs_of(items: Any) -> Iterator[tuple[str, Any]]:
    """The key and the features of each item.

    Raises:
        RunError: the argument is not iterable, or an item is not such a pair.
    """
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        found = type(items).__name__
        raise RunError(f"items: expected pairs of a key and features, found {found}")
    for number, item in enumerate(items):
        if not (isinstance(item, tuple | list) and len(item) == 2):
            found = type(item).__name__
            advice = "; a dict has them as its items()" if isinstance(items, dict) else ""
            raise RunError(
                f"item {number}: expected a pair of a key and features, found {found}{advice}"
            )
        key, features = item
        yield key, features


def check_table(table: object, name: str) -> None:
    """Raises a RunError if the values of utterances are not given by their keys."""
    if table is not None and not isinstance(table, Mapping):
        found = type(table).__name__
        raise RunError(f"{name}: expected a mapping from keys to arrays, found {found}")


def value_of(table: Mapping[str, Any] | None, key: str, what: str) -> Any:
    """The value of an utterance; None without a table.

    Raises:
        RunError: the table has none, or the key has no hash.
    """
    if table is None:
        return None
    try:
        is_there = key in table
    except TypeError as error:
        raise RunError(f"there is no {what} of this key: {error}") from error
    if not is_there:
        raise RunError(f"there is no {what} of this key")
    return table[key]


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
    if _ndim(values, what) < 2 or len(values) != count:
        raise RunError(
            f"{what}: expected one for each of {count} utterances, found "
            f"{len(values) if _ndim(values, what) > 1 else 'one'}"
        )
    return list(values)


def _ndim(values: Any, what: str) -> int:
    """The number of axes of an array, or of nested lists by their first elements.

    Raises:
        RunError: it has no shape, and cannot be read as an array.
    """
    if isinstance(values, list | tuple):
        return 1 + (_ndim(values[0], what) if values else 0)
    shape = getattr(values, "shape", None)  # asked first, as it needs no conversion
    return as_array(values, what).ndim if shape is None else len(shape)
