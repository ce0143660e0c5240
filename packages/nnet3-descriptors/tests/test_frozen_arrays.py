"""The arrays that callers give, and those that values hold."""

from __future__ import annotations

import numpy as np
import pytest
from nnet3_descriptors.values import array_of, has_masks, is_frozen, is_integer, read_only


def test_arrays_are_not_copied() -> None:
    """An array is handed on as it is; nested lists become one."""
    array = np.arange(3)

    assert array_of(array, "input") is array
    assert array_of([[1, 2]], "input").tolist() == [[1, 2]]
    assert not has_masks([array])


def test_read_only_arrays() -> None:
    """A read-only array stays; any other is copied, and so is a read-only view of it."""
    array = np.arange(3)
    held, view = read_only(array), array.view()
    view.flags.writeable = False

    assert is_frozen(held)
    assert held is not array
    assert read_only(held) is held
    assert read_only(view) is not view
    assert array.flags.writeable


@pytest.mark.parametrize(
    ("value", "expected"), [(3, True), (np.int8(3), True), (True, False), (3.0, False)]
)
def test_integers(value: object, expected: bool) -> None:
    """Integers of Python and of NumPy count, truth values and whole floats do not."""
    assert is_integer(value) is expected
