"""Tables of vectors, as the tools of speaker recognition read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

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
