"""Tests of pausing garbage collection while a program is made."""

import gc
from collections.abc import Iterator

import pytest
from nnet3_runtime_cuda.lowering.lower import uncollected


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """Restores garbage collection after each test."""
    yield
    gc.enable()


def test_collections_go_on_after_the_last_pause() -> None:
    """Overlapping pauses of several threads end when the last one ends."""
    first, second = uncollected(), uncollected()
    with first:
        assert not gc.isenabled()
        second.__enter__()
    assert not gc.isenabled()
    second.__exit__(None, None, None)

    assert gc.isenabled()


def test_collections_go_on_after_an_error() -> None:
    """A failure to make a program ends its pause."""
    with pytest.raises(MemoryError), uncollected():
        raise MemoryError

    assert gc.isenabled()


def test_collections_that_were_off_stay_off() -> None:
    """Garbage collection that the user has switched off stays off."""
    gc.disable()
    with uncollected():
        assert not gc.isenabled()

    assert not gc.isenabled()
