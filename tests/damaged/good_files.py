"""Good model files, binary and text, with their elements; for examples see `good_examples`.

A file is read while every element (token, number, array, line) is recorded.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import random
import struct
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest import mock

import attrs
from component_forms import CONFIGS, from_config
from nnet3_descriptors import (
    AcousticModel,
    Nnet,
    parse_config,
    read_acoustic_model,
    read_nnet,
    write_acoustic_model,
    write_nnet,
)
from nnet3_descriptors.files import BinaryReader, TextReader
from nnet3_descriptors.model_files.transition_model import HmmState, TransitionModel

NETWORK, ACOUSTIC_MODEL = "network", "acoustic model"
"""The kinds of model files."""

_LONGEST_KEY = 32


class Element(NamedTuple):
    """The bytes that one call of a reader's method has read."""

    kind: str
    start: int
    end: int


@attrs.frozen
class GoodFile:
    """A file as Kaldi would write it, with its elements."""

    name: str
    data: bytes
    kind: str
    elements: tuple[Element, ...] = attrs.field(repr=False)
    group: str = "models"

    @property
    def binary(self) -> bool:
        """Whether the file is binary; an archive has the mark after its first key."""
        return b"\0B" in self.data[:_LONGEST_KEY]

    def pick(self, rng: random.Random, *kinds: str) -> Element:
        """Returns an element of one of the kinds, or of any kind."""
        found = [element for element in self.elements if not kinds or element.kind in kinds]
        return rng.choice(found or self.elements)

    def bytes_of(self, element: Element) -> bytes:
        """Returns the bytes of an element."""
        return self.data[element.start : element.end]

    def with_bytes(self, element: Element, new: bytes) -> bytes:
        """Returns the file with other bytes in the place of an element."""
        return self.data[: element.start] + new + self.data[element.end :]

    def integer(self, value: int) -> bytes:
        """Returns an integer as the file would have it."""
        return struct.pack("<bi", 4, value) if self.binary else b"%d " % value

    def real(self, value: float) -> bytes:
        """Returns a number as the file would have it."""
        return struct.pack("<bf", 4, value) if self.binary else b"%g " % value


@functools.cache
def good_files(group: str = "models") -> tuple[GoodFile, ...]:
    """Returns small files, binary and text, of a group.

    Args:
        group: "models", a network for each type and acoustic models; or "examples".
    """
    if group == "examples":
        from damaged.good_examples import example_files

        return example_files()
    networks = {name: parse_config(config_around(name)) for name in CONFIGS}
    models = {
        f"{name}.mdl": _acoustic_model(networks["NoOpComponent"], chain=name == "chain")
        for name in ("chain", "final")
    }
    files = []
    for kind, write, values in (
        (NETWORK, write_nnet, networks),
        (ACOUSTIC_MODEL, write_acoustic_model, models),
    ):
        for name, value in values.items():
            for binary in (True, False):
                stream = io.BytesIO()
                write(value, stream, binary=binary)
                files.append(good_file(name, stream.getvalue(), kind, read_model))
    return tuple(files)


def files_made(make: Callable[[Path], object]) -> dict[str, bytes]:
    """The files that a function makes in a folder, by name."""
    with tempfile.TemporaryDirectory() as name:
        make(Path(name))
        files = [each for each in Path(name).rglob("*") if each.is_file()]
        return {str(each.relative_to(name)): each.read_bytes() for each in files}


def config_around(type_name: str) -> str:
    """A network of a component, in its first line, with nodes of all kinds around it."""
    component = from_config(type_name, CONFIGS[type_name])
    return (
        f"component name=c type={type_name} {CONFIGS[type_name]}\n"
        f"component name=same type=NoOpComponent dim={component.output_dim}\n"
        f"input-node name=input dim={component.input_dim}\n"
        "component-node name=c component=c input=Sum(Scale(0.5, Offset(input, -1)), input)\n"
        "dim-range-node name=first input-node=c dim-offset=0 dim=1\n"
        "component-node name=same component=same input=Failover(Offset(same, -3), IfDefined(c))\n"
        "output-node name=output input=Append(Round(same, 3), first) objective=quadratic\n"
    )


def _acoustic_model(nnet: Nnet, *, chain: bool) -> AcousticModel:
    states = tuple(
        HmmState(
            forward_pdf_class=number,
            self_loop_pdf_class=number + 1 if chain else number,
            transitions=((number, 0.5), (number + 1, 0.5)),
        )
        for number in range(3)
    )
    end = HmmState(forward_pdf_class=-1, self_loop_pdf_class=-1, transitions=())
    return AcousticModel(
        transition_model=TransitionModel(
            phones=(1, 2),
            phone_entries=(-1, 0, 0),
            entries=((*states, end),),
            tuples=tuple((1 + n // 3, n % 3, n, n + chain) for n in range(6)),
            log_probs=[0.0] + [-0.5] * 12,
            chain=chain,
        ),
        nnet=nnet,
        left_context=1,
        right_context=0,
        priors=[0.5, 0.25, 0.25],
    )


_METHODS = ("token", "line", "integer", "real", "boolean", "integers", "integer_pairs", "vector",
            "matrix", "double_vector", "double_matrix")  # fmt: skip


def good_file(
    name: str,
    data: bytes,
    kind: str,
    read: Callable[[bytes, str], object],
    *,
    group: str = "models",
    functions: Mapping[str, str] = MappingProxyType({}),
) -> GoodFile:
    """Returns a file with the elements that reading it asks for, inner elements before outer ones.

    Args:
        name: What it is called.
        data: The file.
        kind: The kind that `read` is called with.
        read: Reads the file.
        group: The group that it belongs to.
        functions: Further functions that take an element from a reader, by their full name, with
            the kind of the element.
    """
    elements: list[Element] = []

    def noting(method: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def note(reader: Any) -> Any:
            start = reader.position
            value = method(reader)
            elements.append(Element(kind, start, reader.position))
            return value

        return note

    with contextlib.ExitStack() as stack:
        for cls in (BinaryReader, TextReader):
            for name_of_method in _METHODS:
                method = noting(getattr(cls, name_of_method), name_of_method)
                stack.enter_context(mock.patch.object(cls, name_of_method, method))
        for place, element in functions.items():
            module, _, function = place.rpartition(".")
            original = getattr(importlib.import_module(module), function)
            stack.enter_context(mock.patch(place, noting(original, element)))
        read(data, kind)
    return GoodFile(name, data, kind, tuple(elements), group)


def read_model(data: bytes, kind: str) -> Nnet | AcousticModel:
    """Reads a file of either kind."""
    return (read_acoustic_model if kind == ACOUSTIC_MODEL else read_nnet)(io.BytesIO(data))
