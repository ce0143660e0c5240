"""Kaldi's tables: archives and script files, read and written with clear errors.

The formats are kaldi_native_io's. What is added here: every failure becomes a TableError, also
those that the library only logs (an archive that breaks off, a disk that is full); and a script
file is read here line by line, because a line of data must not be able to run a command.
"""

from __future__ import annotations

from .lookup import MatrixLookup, VectorLookup
from .reading import read_matrices, read_tokens
from .writing import MatrixWriter, TableWriter, VectorWriter

__all__ = [
    "MatrixLookup",
    "MatrixWriter",
    "TableWriter",
    "VectorLookup",
    "VectorWriter",
    "read_matrices",
    "read_tokens",
]
