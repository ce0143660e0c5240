"""Values as one line of JSON that contains their arrays."""

import attrs
import numpy as np
import pytest
from nnet3_descriptors.errors import SerializationError
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
        (cloud("[1.5]", "float32", "[-1]"), r"a list of sizes \(got \[-1\]\)"),
        (cloud("[1.5]", "float32", "null"), r"a list of sizes \(got None\)"),
        (cloud("[1.5]", "int32", "[1]"), "the values of an array of int32 must be a list of such"),
        (cloud("[true]", "int32", "[1]"), "an array of int32"),
        (cloud('["0.5"]', "float32", "[1]"), "an array of float32"),
        (cloud("[1]", "bool", "[1]"), "an array of bool"),
        (cloud("5", "int32", "[1]"), "an array of int32"),
        (cloud("[300]", "uint8", "[1]"), "out of bounds for uint8"),
        (cloud("[" + "1" * 400 + "]", "int64", "[1]"), "too large"),
    ],
)
def test_what_is_no_such_value_is_refused(text: str, message: str) -> None:
    """Foreign JSON gives one clear error."""
    with pytest.raises(SerializationError, match=message):
        from_json(text, Shape)
