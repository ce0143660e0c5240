"""Values as one line of JSON, for people to read."""

import json
from typing import Any, Final, TypeVar

import numpy as np

from nnet3_descriptors.errors import SerializationError
from nnet3_descriptors.serialization.converter import (
    NOT_FINITE,
    Array,
    float_to_json,
    structure_tagged,
    unstructure_tagged,
)

ARRAY_KEY: Final = "$array"

_DTYPES: Final = ("bool", "int8", "uint8", "int32", "int64", "float32", "float64")

T = TypeVar("T")


def to_json(value: object) -> str:
    """Serializes an instance of an attrs class as one line of JSON.

    It is the content of a container, with arrays in the place of references to tensors:
    {"$array": [1, 2], "dtype": "int32", "shape": [1, 2]}. The class is written as "type".

    Args:
        value: As for `to_container`.
    """
    return json.dumps(_with_arrays_as_json(unstructure_tagged(value)), allow_nan=False)


def from_json(text: str, base: type[T]) -> T:
    """Reads the text of `to_json`.

    Args:
        text: The JSON.
        base: A class that the value is an instance of.

    Raises:
        SerializationError: The text is not such JSON, or does not describe an instance of `base`.
    """
    name = base.__name__
    try:
        content = json.loads(text, object_hook=_array_from_json)
    except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
        raise SerializationError(f"not a valid {name}: {error}") from error
    return structure_tagged(content, base, name=name)


def _with_arrays_as_json(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _array_to_json(value)
    if isinstance(value, dict):
        return {key: _with_arrays_as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_arrays_as_json(item) for item in value]
    return value


def _array_to_json(array: Array) -> dict[str, Any]:
    values = array.reshape(-1).tolist()
    if array.dtype.kind == "f":
        values = [float_to_json(value) for value in values]
    return {ARRAY_KEY: values, "dtype": str(array.dtype), "shape": list(array.shape)}


def _array_from_json(entries: dict[str, Any]) -> Any:
    """Returns the array that an object of `to_json` stands for, or the object if it is none."""
    if ARRAY_KEY not in entries:
        return entries
    if entries.keys() != {ARRAY_KEY, "dtype", "shape"} or entries["dtype"] not in _DTYPES:
        raise ValueError("an array must have its values, a known dtype and a shape")
    dtype = np.dtype(entries["dtype"])
    values = entries[ARRAY_KEY]
    if not isinstance(values, list) or not all(_fits(value, dtype) for value in values):
        raise ValueError(f"the values of an array of {dtype} must be a list of such")
    shape = entries["shape"]
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"the shape of an array must be a list of sizes (got {shape!r:.80})")
    array = np.array(values, dtype=dtype).reshape(shape)
    array.setflags(write=False)
    return array


def _fits(value: Any, dtype: np.dtype[Any]) -> bool:
    """Tells whether JSON's value is one that an array of this kind is written with."""
    match dtype.kind:
        case "b":
            return type(value) is bool
        case "f":
            return type(value) in (int, float) or value in NOT_FINITE
    return type(value) is int
