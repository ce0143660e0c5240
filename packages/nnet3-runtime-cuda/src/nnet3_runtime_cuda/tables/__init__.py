"""Kaldi's tables: archives and script files, read and written with clear errors.

Tables are read by Python's own streams: a line of data must not be able to run a command, other
threads compute while one waits for what a command writes, and Ctrl-C ends that. What is written
goes through kaldi_native_io; every failure becomes a TableError, also those that the library only
logs (a disk that is full).
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
