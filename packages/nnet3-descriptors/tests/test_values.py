"""Arrays that callers give and that values hold, remembered results, and values shown."""

import gc
import sys
import weakref

import attrs
import numpy as np
import pytest
from nnet3_descriptors import parse_config
from nnet3_descriptors.values import (
    array_of,
    has_masks,
    is_frozen,
    is_integer,
    read_only,
    remembered,
)


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


@attrs.frozen
class Box:
    """An object that can be referred to weakly and compares by content."""

    content: int


def test_a_function_runs_once_for_each_object() -> None:
    """Results are looked up by identity, not by content."""
    asked = []

    @remembered
    def double(box: Box) -> int:
        asked.append(box)
        return 2 * box.content

    first, second = Box(3), Box(3)

    assert [double(box) for box in (first, first, second)] == [6, 6, 6]
    assert [id(box) for box in asked] == [id(first), id(second)]


def test_results_go_with_their_object() -> None:
    """Remembering a result does not keep its object alive."""

    @remembered
    def as_list(box: Box) -> list[int]:
        return [box.content]

    box = Box(1)
    as_list(box)
    watched = weakref.ref(box)
    del box
    gc.collect()

    assert watched() is None


NNET = parse_config(
    "input-node name=input dim=2\noutput-node name=output input=input objective=quadratic"
)


def test_no_picture_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nnet3-report is not installed, a notebook gets no picture and shows the text."""
    monkeypatch.setitem(sys.modules, "nnet3_report", None)

    assert NNET._repr_html_() is None
    assert NNET._repr_svg_() is None
