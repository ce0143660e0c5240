"""Kaldi's tables: archives and script files, read and written with clear errors.

Tables are read and written by Python's own streams. So no line of data can run a command, other
threads compute while one waits for a command, and Ctrl-C ends the wait. A file gets its name when
it is whole. Every failure becomes a TableError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_tables.archive import FloatArray, Value
    from nnet3_tables.commands import is_command
    from nnet3_tables.errors import TableError, TableWarning
    from nnet3_tables.files import read_files
    from nnet3_tables.lookup import MatrixLookup, ObjectLookup, VectorLookup
    from nnet3_tables.reading import (
        read_matrices,
        read_matrix,
        read_objects,
        read_table,
        read_tokens,
        read_vector,
    )
    from nnet3_tables.script import files_of
    from nnet3_tables.sources import archive_size, opened, opened_to_write
    from nnet3_tables.specifier import Specifier
    from nnet3_tables.writing import (
        MatrixWriter,
        ObjectWriter,
        TableWriter,
        VectorWriter,
        write_matrix,
        write_table,
        write_vector,
    )

__version__ = "0.2.0"

__all__ = [
    "FloatArray",
    "MatrixLookup",
    "MatrixWriter",
    "ObjectLookup",
    "ObjectWriter",
    "Specifier",
    "TableError",
    "TableWarning",
    "TableWriter",
    "Value",
    "VectorLookup",
    "VectorWriter",
    "archive_size",
    "files_of",
    "is_command",
    "opened",
    "opened_to_write",
    "read_files",
    "read_matrices",
    "read_matrix",
    "read_objects",
    "read_table",
    "read_tokens",
    "read_vector",
    "write_matrix",
    "write_table",
    "write_vector",
]

if not TYPE_CHECKING:  # else a type checker would take any name for one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_tables.archive": ("FloatArray", "Value"),
            "nnet3_tables.commands": ("is_command",),
            "nnet3_tables.errors": ("TableError", "TableWarning"),
            "nnet3_tables.files": ("read_files",),
            "nnet3_tables.lookup": (
                "MatrixLookup",
                "ObjectLookup",
                "VectorLookup",
            ),
            "nnet3_tables.reading": (
                "read_matrices",
                "read_matrix",
                "read_objects",
                "read_table",
                "read_tokens",
                "read_vector",
            ),
            "nnet3_tables.script": ("files_of",),
            "nnet3_tables.sources": (
                "archive_size",
                "opened",
                "opened_to_write",
            ),
            "nnet3_tables.specifier": ("Specifier",),
            "nnet3_tables.writing": (
                "MatrixWriter",
                "ObjectWriter",
                "TableWriter",
                "VectorWriter",
                "write_matrix",
                "write_table",
                "write_vector",
            ),
        },
    )
