"""Values as one line of JSON that contains their arrays."""

import attrs
import numpy as np
from nnet3_descriptors.serialization import from_json, to_json
from numpy.typing import NDArray


@attrs.frozen
class Shape:
    """The base of the test classes."""


@attrs.frozen(eq=False)
class Cloud(Shape):
    """A value with an array and a nested value."""

    points: NDArray[np.float32]
    size: tuple[int, ...]


def test_round_trip_keeps_arrays_and_their_types() -> None:
    """A value is restored in its class, arrays with dtype, shape and infinities."""
    points = np.array([[1.5, np.inf], [-0.25, 3e-45]], np.float32)
    text = to_json(Cloud(points, (1, 2)))
    read = from_json(text, Shape)

    assert isinstance(read, Cloud)
    assert (read.size, read.points.dtype) == ((1, 2), np.float32)
    assert np.array_equal(read.points, points)
    assert "\n" not in text


def cloud(values: str, dtype: str, shape: str) -> str:
    """The JSON of a cloud with an array in this spelling."""
    array = f'{{"$array": {values}, "dtype": "{dtype}", "shape": {shape}}}'
    return f'{{"type": "Cloud", "size": [], "points": {array}}}'
