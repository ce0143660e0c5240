"""Remembered results that live as long as the object they were computed from."""

import gc
import weakref

import attrs
from nnet3_descriptors.values import remembered


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
