"""Kinds of examples, and the tables of each kind, as the tools read and write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import nnet3_tables
from nnet3_training import chain, egs

from nnet3_tools import cli

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet
    from nnet3_descriptors.files import Entry as EntryOf
    from nnet3_descriptors.files import Reader
    from nnet3_training import TrainingExample

    Entry = EntryOf[TrainingExample]


class ExampleForm(NamedTuple):
    """A kind of examples.

    Attributes:
        name: Their name in logs.
        decode: Reads an example.
        encode: Returns the bytes of an example, binary or text.
    """

    name: str
    decode: Callable[[Reader], TrainingExample]
    encode: Callable[[TrainingExample, bool], bytes]

    def entries(self, rspecifier: str) -> Iterator[Entry]:
        """Yields the examples of a table, with their keys.

        Raises:
            TableError, ModelFileError: the table cannot be read, or holds something else.
        """
        import attrs  # not for --help

        for entry in nnet3_tables.read_objects(rspecifier, self.decode):
            yield attrs.evolve(entry, value=attrs.evolve(entry.value, key=entry.key))

    def write(self, writer: nnet3_tables.ObjectWriter, example: TrainingExample) -> None:
        """Writes an example.

        Raises:
            TableError: it cannot be written.
        """
        writer.write(example.key, self.encode(example, not writer.is_text))

    def write_entry(self, writer: nnet3_tables.ObjectWriter, entry: Entry) -> None:
        """Writes an example byte for byte, unless it changes from text to binary or back.

        Raises:
            TableError: it cannot be written.
        """
        if entry.is_binary != writer.is_text:
            writer.write(entry.key, entry.data)
        else:
            self.write(writer, entry.value)


NNET3 = ExampleForm(
    name="neural-network training examples",
    decode=lambda reader: egs.read_example(reader),  # loads it late
    encode=lambda example, binary: egs.example_bytes(example, binary=binary),
)
"""The examples of nnet3-get-egs and of the tools for its examples."""


CHAIN = ExampleForm(
    name="nnet3+chain training examples",
    decode=lambda reader: chain.read_chain_example(reader),  # loads it late
    encode=lambda example, binary: chain.example_bytes(example, binary=binary),
)
"""The examples of nnet3-chain-get-egs."""


def form_of_tool() -> ExampleForm:
    """The form of the tool that runs, by its name."""
    return CHAIN if "chain" in cli.running() else NNET3


def form_for(nnet: Nnet) -> ExampleForm:
    """The form of nnet3's examples, for which a network tells inputs from outputs."""
    outputs = frozenset(node.name for node in nnet.output_nodes)
    return NNET3._replace(decode=partial(egs.read_example, is_output=outputs.__contains__))
