"""Kaldi's tables: archives and script files, read and written with clear errors.

Tables are read by Python's own streams. So no line of data can run a command, other threads compute
while one waits for a command, and Ctrl-C ends the wait. Tables are written by kaldi_native_io.
Every failure becomes a TableError, even if the library only logs it (a full disk).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_tables.archive import FloatArray
    from nnet3_tables.commands import is_cut_off, shell
    from nnet3_tables.errors import TableError
    from nnet3_tables.lookup import MatrixLookup, VectorLookup
    from nnet3_tables.objects import ObjectEntry, ObjectWriter, read_objects
    from nnet3_tables.reading import read_matrices, read_table, read_tokens
    from nnet3_tables.script import files_of
    from nnet3_tables.sources import archive_size
    from nnet3_tables.specifier import Specifier
    from nnet3_tables.writing import (
        MatrixWriter,
        MixedTableWriter,
        TableWriter,
        VectorWriter,
        write_table,
    )

__version__ = "0.1.0"

__all__ = [
    "FloatArray",
    "MatrixLookup",
    "MatrixWriter",
    "MixedTableWriter",
    "ObjectEntry",
    "ObjectWriter",
    "Specifier",
    "TableError",
    "TableWriter",
    "VectorLookup",
    "VectorWriter",
    "archive_size",
    "files_of",
    "is_cut_off",
    "read_matrices",
    "read_objects",
    "read_table",
    "read_tokens",
    "shell",
    "write_table",
]

if not TYPE_CHECKING:  # else a type checker would take any name for one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_tables.archive": ("FloatArray",),
            "nnet3_tables.commands": (
                "is_cut_off",
                "shell",
            ),
            "nnet3_tables.errors": ("TableError",),
            "nnet3_tables.lookup": (
                "MatrixLookup",
                "VectorLookup",
            ),
            "nnet3_tables.objects": (
                "ObjectEntry",
                "ObjectWriter",
                "read_objects",
            ),
            "nnet3_tables.reading": (
                "read_matrices",
                "read_table",
                "read_tokens",
            ),
            "nnet3_tables.script": ("files_of",),
            "nnet3_tables.sources": ("archive_size",),
            "nnet3_tables.specifier": ("Specifier",),
            "nnet3_tables.writing": (
                "MatrixWriter",
                "MixedTableWriter",
                "TableWriter",
                "VectorWriter",
                "write_table",
            ),
        },
    )
