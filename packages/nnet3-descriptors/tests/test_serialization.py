"""The container of serialized values, and its JSON."""

import json
import os
import subprocess
import sys

import attrs
import numpy as np
import numpy.typing as npt
import pytest
import safetensors.numpy
from nnet3_descriptors import Nnet, parse_config
from nnet3_descriptors.descriptors import Descriptor, parse_descriptor
from nnet3_descriptors.serialization import (
    METADATA_KEY,
    from_container,
    from_json,
    to_container,
    to_json,
)
from numpy.typing import NDArray

NNET_CONFIG = """
input-node name=input dim=3
component name=affine type=AffineComponent input-dim=6 output-dim=4 max-change=0.75
component name=norm type=BatchNormComponent dim=4
component-node name=affine component=affine input=Append(input, Offset(input, 1))
component-node name=norm component=norm input=affine
dim-range-node name=part input-node=norm dim-offset=1 dim=2
output-node name=output input=Sum(Scale(0.1, part), Const(1.5, 2))
"""


@attrs.frozen(kw_only=True)
class Animal:
    """Base of a family."""

    legs: int


@attrs.frozen(kw_only=True)
class Dog(Animal):
    """A member of the family."""

    name: str


@attrs.frozen(kw_only=True)
class Stone:
    """A class outside of the family."""

    weight: float


@attrs.frozen(kw_only=True, eq=False)
class Things:
    """Values of all kinds that a container can hold."""

    flag: bool = True
    number: float = 0.5
    text: str = "ä \u2028"
    nothing: str | None = None
    integers: tuple[int, ...] = (1, 2)
    pairs: tuple[tuple[int, float], ...] = ((1, 0.1),)
    descriptor: Descriptor = attrs.field(
        factory=lambda: parse_descriptor("Append(a, Offset(b, -1))")
    )
    animals: tuple[Animal | None, ...] = (Dog(legs=4, name="Rex"), None, Animal(legs=8))
    either: Dog | Stone = Stone(weight=2.0)
    matrix: npt.NDArray[np.float32] = attrs.field(
        factory=lambda: np.arange(6, dtype=np.float32).reshape(2, 3)
    )
    table: npt.NDArray[np.int32] = attrs.field(factory=lambda: np.empty((0, 3), dtype=np.int32))
    masks: tuple[npt.NDArray[np.bool_], ...] = attrs.field(
        factory=lambda: (np.array([True, False]),)
    )


def pack(value: object) -> bytes:
    """Returns the container of a value."""
    return to_container(value, format="things", version=3)


def unpack(data: bytes, cls: type = Things) -> Things:
    """Reads a container of things."""
    return from_container(data, cls, format="things", version=3)


def repack(header: object, tensors: dict[str, np.ndarray] | None = None) -> bytes:
    """Returns a container with other JSON and with tensors, by default those of `Things`."""
    tensors = safetensors.numpy.load(pack(Things())) if tensors is None else tensors
    text = header if isinstance(header, str) else json.dumps(header)
    return safetensors.numpy.save(tensors, {METADATA_KEY: text})


def header_of(data: bytes) -> dict:
    """Returns the JSON of a container, read without this package."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(json.loads(data[8 : 8 + length])["__metadata__"][METADATA_KEY])


def test_everything_comes_back() -> None:
    """All kinds of values are restored with their types."""
    value = Things()
    again = unpack(pack(value))

    for field in attrs.fields(Things):
        old, new = getattr(value, field.name), getattr(again, field.name)
        if isinstance(old, np.ndarray):
            assert new.dtype == old.dtype
            assert new.shape == old.shape
            assert (new == old).all()
        elif field.name != "masks":
            assert new == old
            assert type(new) is type(old)
    assert again.masks[0].tolist() == [True, False]


def test_arrays_are_read_only() -> None:
    """Restored values are read-only."""
    again = unpack(pack(Things()))

    assert not again.matrix.flags.writeable
    assert not again.masks[0].flags.writeable


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan, 1e-300, 0.1, -0.0])
def test_numbers_are_exact(number: float) -> None:
    """Numbers are restored to the last bit, infinite and undefined ones too."""
    again = unpack(pack(Things(number=number)))

    assert np.float64(again.number).tobytes() == np.float64(number).tobytes()


def test_arrays_need_not_be_contiguous() -> None:
    """A view is stored with the elements that it shows."""
    view = np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2].T

    assert (unpack(pack(Things(matrix=view))).matrix == view).all()


def test_is_as_documented() -> None:
    """A foreign reader finds the JSON in the metadata, and arrays by name."""
    data = pack(Things())
    header = header_of(data)

    assert header["format"] == "things"
    assert header["version"] == 3
    content = header["content"]
    assert content["descriptor"] == "Append(a, Offset(b, -1))"
    assert content["pairs"] == [[1, 0.1]]
    assert content["animals"] == [
        {"type": "Dog", "legs": 4, "name": "Rex"},
        None,
        {"type": "Animal", "legs": 8},
    ]
    assert content["either"] == {"type": "Stone", "weight": 2.0}
    assert content["matrix"] == {"$tensor": "matrix"}
    assert content["masks"] == [{"$tensor": "masks.0"}]
    assert set(safetensors.numpy.load(data)) == {"matrix", "table", "masks.0"}


def test_bytes_are_the_same_in_every_process() -> None:
    """The bytes depend neither on the hash seed nor on the storage library's order."""
    program = (
        "import hashlib, sys; from nnet3_descriptors import parse_config;"
        "data = parse_config(sys.argv[1]).to_bytes();"
        "print(hashlib.sha256(data).hexdigest())"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", program, NNET_CONFIG],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert len(hashes) == 1


GOOD = header_of(pack(Things()))


def spoiled(**content: object) -> dict:
    """Returns the JSON of `Things` with some contents replaced."""
    return {**GOOD, "content": {**GOOD["content"], **content}}


def test_files(tmp_path) -> None:
    """A network can be saved to a file, which is replaced as a whole."""
    nnet = parse_config(NNET_CONFIG)
    path = tmp_path / "nnet.safetensors"
    path.write_bytes(b"older")

    nnet.save(path)

    assert Nnet.load(path) == nnet
    assert [path] == list(tmp_path.iterdir())


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
