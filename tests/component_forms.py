"""Components from and to the forms that they have outside Python, for the tests."""

import io

import numpy as np
from nnet3_descriptors.components import Component, ConfigLine, component_class
from nnet3_descriptors.components.kaldi_io import read_component, write_component
from nnet3_descriptors.files.source import open_reader
from nnet3_descriptors.files.writer import BinaryWriter, TextWriter


def from_config(type_name: str, text: str) -> Component:
    """The component that a config line describes."""
    rng = np.random.default_rng(7)
    return component_class(type_name).from_config(ConfigLine.parse(text), rng)


def binary(component: Component) -> bytes:
    """The component in Kaldi's binary form."""
    writer = BinaryWriter()
    write_component(writer, component)
    return b"".join(writer.chunks)


def as_text(component: Component) -> str:
    """The component in Kaldi's text form."""
    writer = TextWriter()
    write_component(writer, component)
    return b"".join(writer.chunks).decode()


def from_binary(data: bytes) -> Component:
    """The component in a binary form that lacks the binary mark."""
    return read_component(open_reader(io.BytesIO(b"\0B" + data)))


def from_text(data: str) -> Component:
    """The component in Kaldi's text form."""
    return read_component(open_reader(io.BytesIO(data.encode())))
