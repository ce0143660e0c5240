"""Values as one line of JSON, with their arrays in it."""

import attrs
import numpy as np
import pytest
from nnet3_descriptors.errors import SerializationError
from nnet3_descriptors.serialization import from_json, to_json
from numpy.typing import NDArray


@attrs.frozen
class Shape:
    """What the test classes have in common."""


@attrs.frozen(eq=False)
class Cloud(Shape):
    """A value with an array and a nested value."""

    points: NDArray[np.float32]
    size: tuple[int, ...]


def test_round_trip_keeps_arrays_and_their_types() -> None:
    """A value comes back as an instance of its class, arrays with dtype, shape and infinities."""
    points = np.array([[1.5, np.inf], [-0.25, 3e-45]], np.float32)
    text = to_json(Cloud(points, (1, 2)))
    read = from_json(text, Shape)

    assert isinstance(read, Cloud)
    assert (read.size, read.points.dtype) == ((1, 2), np.float32)
    assert np.array_equal(read.points, points)
    assert "\n" not in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"type": "Box"}', "not a valid Shape: unknown type 'Box'"),
        ('{"type": "Cloud"', "Expecting"),
        ('{"type": "Cloud", "size": [1]}', "required field 'points' missing"),
        ("[]", "expected an object"),
        (
            '{"type": "Cloud", "size": [], "points": {"$array": [1], "dtype": "O", "shape": []}}',
            "a known dtype",
        ),
    ],
)
def test_what_is_no_such_value_is_refused(text: str, message: str) -> None:
    """Foreign JSON gives one clear error."""
    with pytest.raises(SerializationError, match=message):
        from_json(text, Shape)
