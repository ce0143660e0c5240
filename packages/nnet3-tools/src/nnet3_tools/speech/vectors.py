"""Tables of vectors and of speakers, as the tools for i-vectors read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import nnet3_tables

if TYPE_CHECKING:
    from nnet3_descriptors.files import Reader
    from nnet3_tables import FloatArray


def read_vectors(rspecifier: str) -> Iterator[tuple[str, FloatArray]]:
    """The vectors of a table in order, each with its key.

    Raises:
        TableError: the table cannot be read, or has something else.
    """
    for entry in nnet3_tables.read_objects(rspecifier, _vector):
        yield entry.key, entry.value


def _vector(reader: Reader) -> FloatArray:
    return reader.vector().copy()


def read_speakers(rspecifier: str) -> Iterator[tuple[str, list[str]]]:
    """The speakers of a table, and the utterances of each.

    Raises:
        click.ClickException: a line is not text, or a speaker has no utterances.
    """
    target = nnet3_tables.Specifier.to_read(rspecifier).target
    with nnet3_tables.opened(target) as stream:
        for number, line in enumerate(stream, 1):
            try:
                speaker, *utterances = line.decode().split()
            except ValueError:  # no word, or no UTF-8
                raise click.ClickException(
                    f"{target}, line {number}: expected a speaker and utterances, found "
                    f"{line[:60]!r}"
                ) from None
            if not utterances:
                raise click.ClickException(
                    f"{target}, line {number}: the speaker '{speaker}' has no utterances"
                )
            yield speaker, utterances
