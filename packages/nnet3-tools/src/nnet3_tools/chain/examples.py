"""Examples of 'chain' models, as the tools read and write them."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from nnet3_tables import ObjectEntry, ObjectWriter, Specifier, files_of, read_objects
from nnet3_training import TrainingExample
from nnet3_training.chain import example_bytes, read_chain_example

Entry = ObjectEntry[TrainingExample]


def read_entries(rspecifier: str) -> Iterator[Entry]:
    """The examples of a table, with their keys.

    Raises:
        TableError, ModelFileError: the table cannot be read, or holds something else.
    """
    for entry in read_objects(rspecifier, read_chain_example):
        yield attrs.evolve(entry, value=attrs.evolve(entry.value, key=entry.key))


def check_files(rspecifier: str, *wspecifiers: str) -> None:
    """Raises a TableError if a table would be written over one that is read."""
    for wspecifier in wspecifiers:
        Specifier.to_write(wspecifier).check_overwrites_none(files_of(rspecifier))


def write_entry(writer: ObjectWriter, entry: Entry) -> None:
    """Writes an example as it was read, unless it is to be in the other form.

    Raises:
        TableError: it cannot be written.
    """
    if entry.is_binary != writer.is_text:
        writer.write(entry.key, entry.data)
    else:
        write_example(writer, entry.value)


def write_example(writer: ObjectWriter, example: TrainingExample) -> None:
    """Writes an example.

    Raises:
        TableError: it cannot be written.
    """
    writer.write(example.key, example_bytes(example, binary=not writer.is_text))
